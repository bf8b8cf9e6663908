#include "layout/options.h"

#include <charconv>

#include "base/units.h"
#include "kv/tier/kept_file.h"

namespace forebay::layout {
namespace {

base::Result<uint64_t> ParseTierSize(const char* flag, const base::ErrorCode& code,
                                     std::string_view text) {
  // No block of a model is as small.
  constexpr uint64_t kLeast = 4 * base::kKiB;
  const auto parsed = base::ParseBytes(text);
  if (!parsed.ok()) return parsed.status().WithContext(flag);
  if (*parsed >= kLeast) return *parsed;
  const bool lacks_unit = *parsed > 0 && text.find_first_not_of("0123456789") == text.npos;
  return base::Status(
      code, fmt::format("{} {} is {} bytes, less than any block of KV cache; {}", flag, text,
                        *parsed, lacks_unit ? fmt::format("{}GiB?", text) : "expected more"));
}

}  // namespace

base::Result<tensor::DType> ParseComputeType(std::string_view dtype) {
  if (dtype == "auto" || dtype == "bfloat16") return tensor::DType::kBF16;
  if (dtype == "float32") return tensor::DType::kF32;
  if (dtype == "float16" || dtype == "half") {
    return base::Status(
        base::kInvalidArgument,
        "--dtype float16 is not supported: its range is too small for the residual streams of the "
        "models "
        "served here, and no kernel of this device computes in it; use bfloat16 or float32");
  }
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--dtype \"{}\" is unknown; expected auto, bfloat16 or float32", dtype));
}

base::Result<std::optional<model::Degrees>> ParseShiftMode(std::string_view text) {
  using Mode = std::optional<model::Degrees>;
  if (text == "auto") return Mode();
  model::Degrees mode;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto sp = std::from_chars(begin, end, mode.sp);
  if (sp.ec == std::errc() && sp.ptr != end && *sp.ptr == 'x') {
    const auto tp = std::from_chars(sp.ptr + 1, end, mode.tp);
    if (tp.ec == std::errc() && tp.ptr == end && mode.sp > 0 && mode.tp > 0) return Mode(mode);
  }
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--shift-mode \"{}\" is no mode; expected auto, or sp x tp as 4x2", text));
}

base::Result<Stealing> ParseStealing(std::string_view text) {
  if (text == "auto") return Stealing::kAuto;
  if (text == "off") return Stealing::kOff;
  if (text == "always") return Stealing::kAlways;
  return base::Status(base::kInvalidArgument,
                      fmt::format("--steal \"{}\" is unknown; expected auto, off or always", text));
}

base::Result<fabric::PeerOrder> ParsePeerOrder(std::string_view text) {
  using enum fabric::PeerOrder;
  if (text == "rotated") return kRotated;
  if (text == "sliced") return kSliced;
  if (text == "serial") return kSerial;
  if (text == "random") return kRandom;
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--pool-peers \"{}\" is unknown; expected rotated, sliced, serial or random",
                  text));
}

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

base::Result<Offloading> ParseOffloading(std::string_view text) {
  using enum Offloading;
  for (const Offloading offload : {kAuto, kOff, kUniform, kAlg1, kAlg2, kMax, kAlways}) {
    if (text == Name(offload)) return offload;
  }
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--kv-offload \"{}\" is unknown; expected auto, off, uniform, alg1, alg2, max or "
                  "always",
                  text));
}

base::Result<Preempting> ParsePreempting(std::string_view text) {
  if (text == "auto") return Preempting::kAuto;
  if (text == "park") return Preempting::kPark;
  if (text == "recompute") return Preempting::kRecompute;
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--kv-preempt \"{}\" is unknown; expected auto, park or recompute", text));
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

base::Result<uint64_t> ParseOffloadingSize(std::string_view text) {
  return ParseTierSize("--kv-offloading-size", kOffloadingSize, text);
}

base::Result<uint64_t> ParseKvFileSize(std::string_view text) {
  return ParseTierSize("--kv-file-size", kKvFileSize, text);
}

}  // namespace forebay::layout
