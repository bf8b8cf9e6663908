// The experts of a row, the order in which experts take rows, and the sum of their outputs.
//
//   logits -> Route -> experts, weights [row, slot] -> GroupRows -> offsets, grouped order
//          -> Experts (kernels/experts.h) -> CombineRows
//
// A row has `experts_per_token` slots, one an expert, in falling order of the selection score; all
// of them count. The grouped order has the rows of expert 0 first, then those of expert 1, ...,
// each ascending by row of the step.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/router.h"
#include "tensor/tensor.h"

namespace forebay::kernels {

struct KernelSet;

// experts[row, slot]: greatest selection score first; of equal ones the lower expert, of equal
// groups the lower group. weights[row, slot]: its score, renormalized and scaled. A row
// with a NaN score gets experts 0, 1, .. and NaN weights, so its request's logits are
// NaN.
struct RouteArgs {
  Router router;
  const float* logits = nullptr;  // [rows, num_experts], row stride `stride`
  int64_t stride = 0;
  int32_t rows = 0;
  int32_t* experts = nullptr;  // [rows, experts_per_token]
  float* weights = nullptr;    // [rows, experts_per_token]
};
void Route(device::Stream& stream, const KernelSet& kernels, const RouteArgs& args);

// Says which experts rows go to on devices of shapes alone. Thread-safe.
class RoutingSource {
 public:
  // What one layer of one rank's step has: another draw for each. `rank`: the replica's number
  // among the job's.
  struct Draw {
    uint64_t rank = 0, step = 0;
    int64_t layer = 0;
    int64_t rows = 0, experts_per_token = 0;
    // Which of the rank's rows in its step these begin with.
    int64_t first_row = 0;
  };

  virtual ~RoutingSource() = default;
  // counts [num_experts]: rows of each expert, rows x experts_per_token in all and `rows` at most.
  virtual void Count(const Draw& draw, std::span<int32_t> counts) const = 0;
};

// What experts were given so far, counted where rows are grouped.
struct RoutingCounters {
  // Also counts the rows of each of `num_experts` experts.
  explicit RoutingCounters(int64_t num_experts = 0) : rows_of(static_cast<size_t>(num_experts)) {}

  std::atomic<int64_t> groups{0};             // a layer of a step each
  std::atomic<int64_t> rows{0};               // all experts'
  std::atomic<int64_t> experts{0};            // that had rows
  std::atomic<int64_t> experts_in_groups{0};  // that rows were grouped by
  std::atomic<int64_t> busiest_rows{0};       // those of the expert with most rows of each group
  // [num_experts]: of all layers; one task counts
  std::vector<std::atomic<int64_t>> rows_of;

  // offsets [num_experts + 1]: of a group.
  void Count(const int32_t* offsets, int32_t num_experts);
};

// The experts of a layer that the rank computes with and does not hold, and the bytes of one that
// come in any case and that come where it has rows: counted where rows are grouped.
struct LackedExperts {
  int32_t begin = 0, end = 0;            // that the rank computes with
  int32_t held_begin = 0, held_end = 0;  // the others are missing here
  int64_t bytes = 0, wanted_bytes = 0;
  // Bytes that arrived for experts without rows, and for experts with rows; null: not
  // counted.
  std::atomic<int64_t>* unused = nullptr;
  std::atomic<int64_t>* wanted = nullptr;

  void Count(const int32_t* offsets) const;
};

// The grouped order of what Route has chosen.
struct GroupRowsArgs {
  const int32_t* experts = nullptr;  // [rows, experts_per_token]
  int32_t rows = 0, experts_per_token = 0, num_experts = 0;
  int32_t* offsets = nullptr;           // [num_experts + 1], control memory; see ExpertsArgs
  int32_t* source = nullptr;            // [rows * experts_per_token]: the row of the step
  int32_t* positions = nullptr;         // [rows, experts_per_token]: where the slot's row stands
  RoutingCounters* counters = nullptr;  // null: nobody counts
  LackedExperts lacked;
  // Instead of data: offsets alone are written, from what it says of `draw`.
  const RoutingSource* routing = nullptr;
  RoutingSource::Draw draw;
};
void GroupRows(device::Stream& stream, const KernelSet& kernels, const GroupRowsArgs& args);

// out[row] = round(weights[row] * x[row]): what an expert gets whose weight meets its input.
struct WeighRowsArgs {
  tensor::DType dtype = tensor::DType::kBF16;
  const std::byte* x = nullptr;  // [rows, columns]
  const float* weights = nullptr;
  std::byte* out = nullptr;
  int32_t rows = 0, columns = 0;
};
void WeighRows(device::Stream& stream, const KernelSet& kernels, const WeighRowsArgs& args);

// y[row] = round((sum over slots of weight * expert's row, + shared[row]) + y[row]): a chain of
// fused multiply-adds from +0 in slot order. Or the fp32 sum alone, into `sums`.
struct CombineRowsArgs {
  tensor::DType dtype = tensor::DType::kBF16;
  const std::byte* expert_rows = nullptr;  // [rows * experts_per_token, columns], grouped order
  // [rows, experts_per_token]; null: a slot's row has the slot's number
  const int32_t* positions = nullptr;
  const float* weights = nullptr;  // [rows, experts_per_token]; null: 1 each
  const float* shared = nullptr;   // [rows, columns] or null
  std::byte* y = nullptr;          // [rows, columns]
  float* sums = nullptr;           // [rows, columns]; not null: y is left alone
  int32_t rows = 0, experts_per_token = 0, columns = 0;
};
void CombineRows(device::Stream& stream, const KernelSet& kernels, const CombineRowsArgs& args);
}  // namespace forebay::kernels
