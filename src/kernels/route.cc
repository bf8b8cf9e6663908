#include "kernels/route.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "kernels/number_format.h"

namespace forebay::kernels {
namespace {

cost::OpDesc Describe(const char* label, int64_t rows, int64_t columns, double read_bytes,
                      double write_bytes) {
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kActivation;
  desc.label = label;
  desc.rows = rows;
  desc.columns = columns;
  desc.read_bytes = read_bytes;
  desc.write_bytes = write_bytes;
  return desc;
}

void CheckRouter(const Router& router) {
  const int32_t experts = router.num_experts, groups = router.num_groups;
  FB_CHECK(experts > 0 && groups > 0 && experts % groups == 0 && router.chosen_groups > 0 &&
               router.chosen_groups <= groups,
           "route: {} experts in {} groups, {} of them chosen", experts, groups,
           router.chosen_groups);
  FB_CHECK(router.experts_per_token > 0 &&
               router.experts_per_token <= experts / groups * router.chosen_groups,
           "route: {} of {} experts in {} of {} groups", router.experts_per_token, experts,
           router.chosen_groups, groups);
  FB_CHECK(router.group_score == GroupScore::kGreatest || experts / groups > 1,
           "route: groups of {} by their two best", experts / groups);
}

// GroupRows without data.
void CountRows(const void* raw, const device::WorkerContext&) {
  const GroupRowsArgs& args = *static_cast<const GroupRowsArgs*>(raw);
  args.offsets[0] = 0;
  const std::span<int32_t> counts(args.offsets + 1, static_cast<size_t>(args.num_experts));
  args.routing->Count(args.draw, counts);
  std::partial_sum(counts.begin(), counts.end(), counts.begin());
  if (args.counters != nullptr) args.counters->Count(args.offsets, args.num_experts);
  args.lacked.Count(args.offsets);
}

}  // namespace

void RoutingCounters::Count(const int32_t* offsets, int32_t num_experts) {
  int32_t with_rows = 0, most = 0;
  for (int32_t expert = 0; expert < num_experts; ++expert) {
    const int32_t count = offsets[expert + 1] - offsets[expert];
    with_rows += count > 0;
    most = std::max(most, count);
    if (rows_of.empty()) continue;
    std::atomic<int64_t>& sum = rows_of[static_cast<size_t>(expert)];
    sum.store(sum.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  ++groups;
  rows += offsets[num_experts];
  experts += with_rows;
  experts_in_groups += num_experts;
  busiest_rows += most;
}

void LackedExperts::Count(const int32_t* offsets) const {
  if (unused == nullptr) return;
  int64_t with_rows = 0, without_rows = 0;
  for (int32_t expert = begin; expert < end; ++expert) {
    if (held_begin <= expert && expert < held_end) continue;
    (offsets[expert] < offsets[expert + 1] ? with_rows : without_rows) += 1;
  }
  *unused += without_rows * bytes;
  *wanted += with_rows * wanted_bytes;
}

void Route(device::Stream& stream, const KernelSet& kernels, const RouteArgs& args) {
  if (args.rows == 0) return;
  CheckRouter(args.router);
  const uint64_t rows = static_cast<uint64_t>(args.rows);
  const uint64_t experts = static_cast<uint64_t>(args.router.num_experts);
  const uint64_t chosen = rows * static_cast<uint64_t>(args.router.experts_per_token);
  FB_CHECK(args.stride >= args.router.num_experts, "route: stride {} of rows of {}", args.stride,
           experts);
  const uint64_t read = ((rows - 1) * static_cast<uint64_t>(args.stride) + experts) * sizeof(float);
  device::Operation operation =
      device::MakeOperation(Describe("route", args.rows, args.router.num_experts,
                                     static_cast<double>(read), static_cast<double>(chosen * 8)),
                            args, kernels.route);
  operation.Reads(args.logits, read).Writes(args.experts, chosen * sizeof(*args.experts));
  operation.Writes(args.weights, chosen * sizeof(*args.weights));
  for (const float* each : {args.router.bias, args.router.expert_scales}) {
    if (each != nullptr) operation.Reads(each, experts * sizeof(float));
  }
  stream.Enqueue(operation);
}

void GroupRows(device::Stream& stream, const KernelSet& kernels, const GroupRowsArgs& args) {
  if (args.rows == 0) return;
  const uint64_t slots =
      static_cast<uint64_t>(args.rows) * static_cast<uint64_t>(args.experts_per_token);
  const uint64_t bytes = slots * sizeof(int32_t);
  device::Operation operation = device::MakeOperation(
      Describe("group", args.rows, args.experts_per_token, static_cast<double>(2 * bytes),
               static_cast<double>(2 * bytes)),
      args, kernels.group_rows);
  if (args.routing != nullptr) {
    operation.run = &CountRows;
    operation.control = true;
  }
  operation.Reads(args.experts, bytes).Writes(args.source, bytes).Writes(args.positions, bytes);
  operation.Writes(args.offsets,
                   (static_cast<uint64_t>(args.num_experts) + 1) * sizeof(*args.offsets));
  stream.Enqueue(operation);
}

void WeighRows(device::Stream& stream, const KernelSet& kernels, const WeighRowsArgs& args) {
  if (args.rows == 0) return;
  const uint64_t bytes = static_cast<uint64_t>(args.rows) * static_cast<uint64_t>(args.columns) *
                         tensor::SizeOf(args.dtype);
  device::Operation operation =
      device::MakeOperation(Describe("weigh", args.rows, args.columns, static_cast<double>(bytes),
                                     static_cast<double>(bytes)),
                            args, kernels.weigh_rows);
  operation.Reads(args.x, bytes).Writes(args.out, bytes);
  operation.Reads(args.weights, static_cast<uint64_t>(args.rows) * sizeof(*args.weights));
  stream.Enqueue(operation);
}

void CombineRows(device::Stream& stream, const KernelSet& kernels, const CombineRowsArgs& args) {
  if (args.rows == 0) return;
  const uint64_t rows = static_cast<uint64_t>(args.rows);
  const uint64_t slots = rows * static_cast<uint64_t>(args.experts_per_token);
  const uint64_t columns = static_cast<uint64_t>(args.columns);
  const uint64_t element = tensor::SizeOf(args.dtype);
  const uint64_t shared = args.shared == nullptr ? 0 : rows * columns * sizeof(float);
  const uint64_t expert_rows = slots * columns * element;
  const bool adds = args.sums == nullptr;  // y is read, too
  const uint64_t out = rows * columns * (adds ? element : sizeof(float));
  device::Operation operation =
      device::MakeOperation(Describe("combine", args.rows, args.columns,
                                     static_cast<double>(expert_rows + shared + (adds ? out : 0)),
                                     static_cast<double>(out)),
                            args, kernels.combine_rows);
  operation.Reads(args.expert_rows, expert_rows);
  adds ? operation.Writes(args.y, out) : operation.Writes(args.sums, out);
  if (args.positions != nullptr) operation.Reads(args.positions, slots * sizeof(*args.positions));
  if (args.weights != nullptr) operation.Reads(args.weights, slots * sizeof(*args.weights));
  if (args.shared != nullptr) operation.Reads(args.shared, shared);
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels
