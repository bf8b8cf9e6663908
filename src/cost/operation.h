// What an operation is, for whoever prices, profiles or traces it: its kind, shapes, flops and bytes. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace forebay::cost {

enum class OpKind : uint8_t {
  kEmbed, kLinear, kNorm, kRopeKv, kAttention, kActivation, kReduce, kSample, kDigest, kCopy, kOther
};
inline constexpr int kNumOpKinds = static_cast<int>(OpKind::kOther) + 1;

constexpr std::string_view Name(OpKind kind) {
  constexpr std::string_view kNames[kNumOpKinds] = {"embed",      "linear", "norm",   "rope_kv", "attention", "activation",
                                                    "reduce", "sample", "digest", "copy",    "other"};
  return kNames[static_cast<int>(kind)];
}

// One operation on one device. `label` is a literal ("qkv_proj"): what a profile shows.
struct OpDesc {
  OpKind kind = OpKind::kOther;
  const char* label = "";
  int64_t rows = 0;        // tokens (linear, norm, ...) or sequences
  int64_t columns = 0;     // N of a linear
  int64_t depth = 0;       // K of a linear, context tokens summed over rows of attention
  double flops = 0;        // multiply and add counted as 2
  double read_bytes = 0;   // weights once, KV read; activations not counted
  double write_bytes = 0;
};

}  // namespace forebay::cost
