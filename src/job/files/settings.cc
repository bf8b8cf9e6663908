#include "job/files/settings.h"

#include "base/hash.h"
#include "base/rng.h"

namespace forebay::job {

void SettingsHash::Add(Setting setting, std::string_view value) {
  hash_ = base::HashBytes(value, base::Combine64(hash_, static_cast<uint64_t>(setting)));
  const uint64_t mark = base::HashBytes(value) & 0xff;
  marks_ |= mark << (8 * static_cast<unsigned>(setting));
}

std::string NameDifferences(uint64_t marks, uint64_t other_marks) {
  std::string names;
  for (size_t i = 0; marks != 0 && other_marks != 0 && i < kNumSettings; ++i) {
    if (((marks ^ other_marks) >> (8 * i) & 0xff) == 0) continue;
    if (!names.empty()) names += ", ";
    names += kSettingNames[i];
  }
  return names.empty() ? "the settings" : names;
}

}  // namespace forebay::job
