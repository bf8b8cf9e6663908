#include "text/vocabulary.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"

namespace forebay::text {
namespace {

uint64_t HashOf(std::string_view text) {
  uint64_t hash = text.size();
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    hash = base::Mix64(hash ^ word);
  }
  uint64_t word = 0;
  std::memcpy(&word, text.data() + i, text.size() - i);
  return base::Mix64(hash ^ word);
}

}  // namespace

Vocabulary::Vocabulary(const std::vector<std::string>& texts, const std::vector<bool>& findable) {
  FB_CHECK(findable.empty() || findable.size() == texts.size(), "{} flags for {} texts",
           findable.size(), texts.size());
  size_t bytes = 0, count = 0;
  const auto is_findable = [&](size_t id) {
    return !texts[id].empty() && (findable.empty() || findable[id]);
  };
  for (size_t id = 0; id < texts.size(); ++id) {
    bytes += texts[id].size();
    count += is_findable(id);
  }
  arena_.reserve(bytes);
  offsets_.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    arena_ += text;
    offsets_.push_back(arena_.size());
  }
  slots_.assign(std::bit_ceil(count + count / 2 + 1), -1);
  for (size_t id = 0; id < texts.size(); ++id) {
    if (!is_findable(id)) continue;
    longest_ = std::max(longest_, texts[id].size());
    uint64_t slot = HashOf(texts[id]);
    for (;; ++slot) {
      const int32_t other = slots_[slot &= slots_.size() - 1];
      if (other < 0 || (*this)[other] == texts[id]) break;
    }
    slots_[slot] = static_cast<int32_t>(id);
  }
}

int32_t Vocabulary::Find(std::string_view text) const {
  if (text.empty() || text.size() > longest_) return -1;
  for (uint64_t slot = HashOf(text);; ++slot) {
    const int32_t id = slots_[slot &= slots_.size() - 1];
    if (id < 0 || (*this)[id] == text) return id;
  }
}

}  // namespace forebay::text
