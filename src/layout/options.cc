#include "layout/options.h"

#include <algorithm>

#include "base/units.h"
#include "kv/tier/kept_file.h"

namespace forebay::layout {
const char* Name(Offloading offload) {
  switch (offload) {
    case Offloading::kAuto: return "auto";
    case Offloading::kOff: return "off";
    case Offloading::kUniform: return "uniform";
    case Offloading::kAlg1: return "alg1";
    case Offloading::kAlg2: return "alg2";
    case Offloading::kMax: return "max";
    case Offloading::kAlways: return "always";
  }
  return "?";
}

const char* TierOptions::size_flag() const {
  if (!in_file()) return "--kv-offloading-size";
  return in_memory() ? "--kv-offloading-size and --kv-file-size" : "--kv-file-size";
}

std::string TierOptions::FileOf(int device, int devices) const {
  return devices == 1 ? file : fmt::format("{}.{}", file, device);
}

std::vector<std::string> TierOptions::Files(int devices) const {
  std::vector<std::string> files;
  for (int device = 0; in_file() && device < devices; ++device) {
    const std::string path = FileOf(device, devices);
    files.push_back(path);
    if (!keep_file) continue;
    const std::string index = path + kv::kIndexSuffix;
    files.push_back(index);
    files.push_back(index + kv::kNewSuffix);
  }
  return files;
}

uint64_t TierOptions::StagingBytes(int ranks) const {
  // A choice of 1,000 tokens of an 8B model, which a step that parks it waits for.
  constexpr uint64_t kMost = 128 * base::kMiB;
  return in_file() ? std::min(kMost, file_bytes / 8 / static_cast<uint64_t>(ranks)) : 0;
}

}  // namespace forebay::layout
