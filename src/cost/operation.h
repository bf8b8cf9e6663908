// An operation as prices, profiles and traces see it: its kind, shapes, flops and bytes.
// Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace forebay::cost {

enum class OpKind : uint8_t {
  kEmbed,
  kLinear,
  kNorm,
  kRopeKv,
  kAttention,
  kActivation,
  kReduce,
  kSample,
  kDigest,
  kCopy,
  kCollective,
  kExperts,
  kFile,
  kRecurrence,
  kOther
};
inline constexpr int kNumOpKinds = static_cast<int>(OpKind::kOther) + 1;

constexpr std::string_view Name(OpKind kind) {
  constexpr std::string_view kNames[kNumOpKinds] = {
      "embed",  "linear", "norm",       "rope_kv", "attention", "activation", "reduce", "sample",
      "digest", "copy",   "collective", "experts", "file",      "recurrence", "other"};
  return kNames[static_cast<int>(kind)];
}

// How the elements of weights or KV are stored.
enum class NumberFormat : uint8_t { kBF16, kF32, kFP8, kFP8Block, kNVFP4, kInt8, kInt4, kQ8 };
inline constexpr int kNumNumberFormats = static_cast<int>(NumberFormat::kQ8) + 1;

constexpr std::string_view Name(NumberFormat format) {
  constexpr std::string_view kNames[kNumNumberFormats] = {"bf16",  "f32",  "fp8",  "fp8_block",
                                                          "nvfp4", "int8", "int4", "q8"};
  return kNames[static_cast<int>(format)];
}

// Bytes of one element with its share of the scales: NVFP4 has one byte for 16 elements, int4 and
// q8 one fp16 for 32. Those of int8 are multiplied as they are, those of int4 and q8 expanded.
constexpr double BytesPerElement(NumberFormat format) {
  constexpr double kBytes[kNumNumberFormats] = {2, 4, 1, 1, 0.5625, 1, 0.5625, 1.0625};
  return kBytes[static_cast<int>(format)];
}

// Flops of a row and an element of a state matrix (kernels/delta_net.h): a product for the decay,
// three fused multiply-adds.
inline constexpr double kRecurrenceFlops = 7;

// What a copy goes over: the device's own memory, a link to a peer, or the link to the host.
enum class Link : uint8_t { kLocal, kPeer, kHost };

enum class Collective : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll };

// One operation on one device. `label` is a literal ("qkv_proj"): what a profile shows.
struct OpDesc {
  OpKind kind = OpKind::kOther;
  const char* label = "";
  int64_t rows = 0;       // tokens (linear, norm, ...) or sequences
  int64_t columns = 0;    // N of a linear
  int64_t depth = 0;      // K of a linear, context tokens summed over rows of attention
  double flops = 0;       // multiply and add counted as 2
  double read_bytes = 0;  // weights once, KV read; activations not counted
  double write_bytes = 0;

  // Recurrences read each state once, in fp32, and write it as often: flops / kRecurrenceFlops are
  // rows times elements, read_bytes / 4 the elements of all states.
  NumberFormat weight_format = NumberFormat::kBF16;
  // Bytes of a weight where tiles are stored otherwise than values of weight_format, which they
  // are expanded to; 0: those of the format.
  double stored_bytes = 0;
  int leaves = 1;  // parts of a linear's K whose sums are added as a tree
  // Experts are linear layers [columns, depth] with `rows` in all: the number of experts with rows,
  // and the rows of the busiest.
  int64_t experts = 0;
  int64_t busiest_rows = 0;

  // Attention: `rows` are sequences and `depth` the context of all their rows. The prefill part of
  // both is given here, the rest is decode (one row a sequence). Without head counts it is priced
  // by flops and bytes alone.
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  NumberFormat kv_format = NumberFormat::kBF16;
  int64_t prefill_sequences = 0;
  int64_t prefill_context = 0;  // context tokens summed over the prefill rows
  // Tokens of the decode part that another of its sequences reads too, but for one each.
  int64_t repeated_context = 0;

  int64_t prefill_rows = 0;  // a rope_kv's rows of sequences with more than one
  // A sample's rows with a temperature; the others take the greatest logit.
  int64_t drawn_rows = 0;

  // Copies (read_bytes cross the link, shared by `sharers` equal copies) and collectives
  // (read_bytes are one rank's whole buffer: input of an all-reduce, reduce-scatter or all-to-all,
  // output of an all-gather).
  Link link = Link::kLocal;
  int sharers = 1;
  Collective collective = Collective::kAllReduce;
  int ranks = 1;
};

}  // namespace forebay::cost
