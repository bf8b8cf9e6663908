// Measured kernels of one operation and number format on a grid of three axes: seconds = roofline /
// utilisation.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cost/operation.h"

namespace forebay::cost {

enum class TableOp : uint8_t {
  kLinear,
  kLinearLeaves,
  kExperts,
  kDecodeAttention,
  kDecodeShared,
  kPrefillAttention,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kNorm,
  kRopeKv,
  kRopeKvDecode,
  kEmbed,
  kArgmax,
  kSample,
  kRecurrence,
  kCopy
};
inline constexpr int kNumTableOps = static_cast<int>(TableOp::kCopy) + 1;

constexpr std::string_view Name(TableOp op) {
  constexpr std::string_view kNames[kNumTableOps] = {
      "linear",           "linear_leaves", "experts",
      "decode_attention", "decode_shared", "prefill_attention",
      "all_reduce",       "all_gather",    "reduce_scatter",
      "all_to_all",       "norm",          "rope_kv",
      "rope_kv_decode",   "embed",         "argmax",
      "sample",           "recurrence",    "copy"};
  return kNames[static_cast<int>(op)];
}

// Where a number comes from.
enum class Mark : uint8_t { kDatasheet, kMeasured, kDerived, kUncalibrated };
inline constexpr int kNumMarks = static_cast<int>(Mark::kUncalibrated) + 1;

constexpr std::string_view Name(Mark mark) {
  constexpr std::string_view kNames[kNumMarks] = {"datasheet", "measured", "derived",
                                                  "uncalibrated"};
  return kNames[static_cast<int>(mark)];
}

// exact: on a measured point; interpolated: between such; held: the nearest border's utilisation;
// miss: no table.
enum class How : uint8_t { kExact, kInterpolated, kHeld, kMiss };

// A place in a table:
//   linear, _leaves    rows, n, k            (or rows, n * k, 1: `by_weights`); K in one leaf, in
//                      several
//   experts            mean rows of those that have rows, the busiest one's over them, weights of
//                      an expert; seconds are an expert's share
//   decode_attention   sequences * kv_heads, context of a sequence, heads / kv_heads; _shared: all
//                      read the same context
//   prefill_attention  sequences * heads, tokens of a whole causal prompt, heads / kv_heads
//   collectives        bytes, ranks, 1
//   rope_kv, _decode   rows, columns of the keys, heads / kv_heads; rows of one prompt, or each of
//                      another sequence
//   row operations     rows, columns, 1
//   recurrence         rows of a sequence, elements of all sequences' states, 1
//   copy               bytes, equal copies at once, 1
using Point = std::array<double, 3>;

constexpr bool IsLinear(TableOp op) {
  return op == TableOp::kLinear || op == TableOp::kLinearLeaves;
}
constexpr bool IsDecode(TableOp op) {
  return op == TableOp::kDecodeAttention || op == TableOp::kDecodeShared;
}
constexpr bool IsAttention(TableOp op) { return IsDecode(op) || op == TableOp::kPrefillAttention; }
constexpr bool IsCollective(TableOp op) {
  return op >= TableOp::kAllReduce && op <= TableOp::kAllToAll;
}
constexpr bool IsRope(TableOp op) { return op == TableOp::kRopeKv || op == TableOp::kRopeKvDecode; }
constexpr bool IsRowWise(TableOp op) { return op >= TableOp::kNorm && op <= TableOp::kSample; }

// The axes' names in a profile.
constexpr std::array<std::string_view, 3> AxisNames(TableOp op, bool by_weights) {
  if (by_weights) return {"rows", "weights", "one"};
  if (IsLinear(op)) return {"rows", "n", "k"};
  if (op == TableOp::kExperts) return {"rows", "skew", "weights"};
  if (IsDecode(op)) return {"streams", "context", "group"};
  if (op == TableOp::kPrefillAttention) return {"streams", "tokens", "group"};
  if (IsRope(op)) return {"rows", "columns", "group"};
  if (IsRowWise(op)) return {"rows", "columns", "one"};
  if (op == TableOp::kRecurrence) return {"rows", "elements", "one"};
  return {"bytes", op == TableOp::kCopy ? "sharers" : "ranks", "one"};
}

inline constexpr double kUsualHeadDim = 128;

// Relative errors of a table on rows that its fit has not seen.
struct Residual {
  double median = 0;
  double p90 = 0;
  int64_t held_out = 0;
};

struct UtilisationTable {
  TableOp op = TableOp::kLinear;
  NumberFormat format = NumberFormat::kBF16;
  bool by_weights = false;
  double head_dim = kUsualHeadDim;  // attention alone
  Mark mark = Mark::kMeasured;
  std::string source;
  Residual residual;
  std::array<std::vector<double>, 3> axes;      // ascending, > 0
  std::array<std::vector<double>, 3> log_axes;  // their logarithms
  std::vector<double> log_seconds;              // [axis 0][axis 1][axis 2]
  double floor_seconds = 0;                     // the fastest point

  // Log-linear between points. The result never falls along axis 0, nor along axis 1 for attention
  // and experts.
  struct Found {
    double seconds;
    Point point;  // where it was looked up: the wanted point, held inside the grid
    How how;
  };
  Found Lookup(const Point& wanted) const;

  // Fills the derived members from axes and seconds, and lifts what the file's rounding let fall
  // along those axes.
  void Prepare(std::vector<double> seconds);
};

}  // namespace forebay::cost
