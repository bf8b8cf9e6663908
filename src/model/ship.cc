#include "model/ship.h"

#include <algorithm>

#include "device/copy.h"
#include "kernels/reduce.h"

namespace forebay::model {
namespace {

constexpr int kRowsChannel = fabric::kPoolChannel, kSumsChannel = fabric::kPoolChannel + 1;

// The columns of gate and up that belong to `leaves` of this tp rank.
kernels::PackedWeight ColumnsOf(kernels::PackedWeight gate_up, const ShipPlan& plan, const base::Part& leaves) {
  const int32_t first = plan.panel_of_leaf[leaves.begin];
  gate_up.num_panels = plan.panel_of_leaf[leaves.end] - first;
  gate_up.tiles += first;
  gate_up.panels += first;
  if (gate_up.bias != nullptr) gate_up.bias += int64_t{first} * kernels::kPanelColumns;
  return gate_up;
}

}  // namespace

base::Result<std::unique_ptr<ShippedFfn>> ShippedFfn::Create(const ShipPlan& plan, fabric::Fabric& fabric,
                                                             const fabric::Communicator& peers,
                                                             const fabric::Communicator& members) {
  FB_ASSIGN_OR_RETURN(const device::Region* rows, fabric.FindRegion(fabric.rank(), kRowsRegion));
  FB_ASSIGN_OR_RETURN(fabric::Exchange rows_exchange, fabric::Exchange::Create(fabric, peers, *rows, kRowsChannel));
  std::unique_ptr<ShippedFfn> ship(new ShippedFfn(plan, std::move(rows_exchange)));
  if (plan.sums_bytes > 0) {
    FB_ASSIGN_OR_RETURN(const device::Region* sums, fabric.FindRegion(fabric.rank(), kSumsRegion));
    FB_ASSIGN_OR_RETURN(fabric::Exchange sums_exchange, fabric::Exchange::Create(fabric, members, *sums, kSumsChannel));
    ship->sums_ = std::make_unique<fabric::Exchange>(std::move(sums_exchange));
  }
  return ship;
}

void ShippedFfn::Begin(const ShipRows& rows) {
  const bool skip = plan_.options.skip_idle || gathers();
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    FB_CHECK(gathers() || rows[rank] <= plan_.options.rows, "rank {} ships {} rows, at most {} were planned", rank, rows[rank],
             plan_.options.rows);
    first_row_[rank + 1] = first_row_[rank] + std::max(rows[rank], skip ? 0 : 1);
  }
  const int32_t own = rows[rows_.my_index()];
  if (own > 0) ++counters_.steps;
  counters_.rows += own;
  if (own == 0 && skip) ++counters_.rows_skipped;
}

ShippedFfn::Batch ShippedFfn::BatchOf(int rank) const {
  const int first = plan_.options.fuse ? 0 : rank, last = plan_.options.fuse ? plan_.num_ranks : rank + 1;
  return {first, last, first_row_[first], static_cast<int32_t>(first_row_[last] - first_row_[first])};
}

void ShippedFfn::Copy(const Decoder& decoder, const char* label, void* to, const std::byte* from, bool remote, uint64_t bytes) {
  decoder.stream->Enqueue(device::MakeCopy(label, to, from, bytes));
  if (remote) counters_.bytes += static_cast<int64_t>(bytes);
}

void ShippedFfn::Run(const Decoder& decoder, int64_t layer, const LayerWeights& weights, int32_t rows) {
  const base::Part& own = plan_.leaves[layer][plan_.MemberOf(rows_.my_index())];
  rows_.Meet(*decoder.stream);
  for (int rank = 0; own.size() > 0 && rank < plan_.num_ranks;) {
    const Batch batch = BatchOf(rank);
    if (batch.rows > 0) Serve(decoder, weights, own, batch);
    rank = batch.last_rank;
  }
  sums_->Meet(*decoder.stream);
  if (first_row_[rows_.my_index() + 1] > first_row_[rows_.my_index()]) AddSums(decoder, layer, weights.down, rows);
}

// Partial sums lie by batch, then plane, then row.
void ShippedFfn::Serve(const Decoder& decoder, const LayerWeights& weights, const base::Part& leaves, const Batch& batch) {
  const Activations& a = decoder.activations;
  const auto first_leaf = static_cast<int>(leaves.begin), last_leaf = static_cast<int>(leaves.end), others = plan_.leaves_before;
  const kernels::PackedWeight gate_up = ColumnsOf(weights.gate_up, plan_, {first_leaf - others, last_leaf - others});
  const uint64_t row_bytes = tensor::BytesOf(decoder.dtype, static_cast<uint64_t>(gate_up.k));
  for (int rank = batch.first_rank; rank < batch.last_rank; ++rank) {
    const auto rows = static_cast<uint64_t>(first_row_[rank + 1] - first_row_[rank]);
    std::byte* const to = a.gathered + static_cast<uint64_t>(first_row_[rank] - batch.first_row) * row_bytes;
    if (rows > 0) Copy(decoder, "ship_rows", to, rows_.part(rank), rank != rows_.my_index(), rows * row_bytes);
  }
  kernels::Linear(*decoder.stream, *decoder.kernels, "gate_up",
                  {.weight = gate_up, .x = a.gathered, .y = a.gated, .x_stride = gate_up.k, .y_stride = gate_up.n,
                   .rows = batch.rows, .output = kernels::LinearOutput::kSiluMul, .leaf_begin = 0,
                   .leaf_end = gate_up.leaves.num_leaves, .workspace = a.linear});
  const kernels::PackedWeight& down = weights.down;
  const int64_t before = kernels::NumPlanes(plan_.num_leaves, first_leaf, last_leaf) * batch.first_row * down.n;
  kernels::Linear(*decoder.stream, *decoder.kernels, "down",
                  {.weight = down, .x = a.gated, .y = sums_->mine() + before * static_cast<int64_t>(sizeof(float)),
                   .x_stride = down.k, .y_stride = down.n, .rows = batch.rows, .output = kernels::LinearOutput::kPartial,
                   .leaf_begin = first_leaf - others, .leaf_end = last_leaf - others, .workspace = a.linear});
}

void ShippedFfn::AddSums(const Decoder& decoder, int64_t layer, const kernels::PackedWeight& down, int32_t rows) {
  const int me = rows_.my_index();
  const Batch batch = BatchOf(me);
  const int64_t slice_rows = first_row_[me + 1] - first_row_[me];
  kernels::ReduceArgs reduce{.dtype = decoder.dtype, .num_leaves = plan_.num_leaves, .bias = down.bias,
                             .y = decoder.activations.residual, .stride = down.n, .y_stride = down.n, .rows = rows, .n = down.n};
  float* returned = decoder.activations.returned;
  for (int owner = 0; owner < plan_.num_members(); ++owner) {
    const base::Part& leaves = plan_.leaves[layer][owner];
    int first[kernels::kMaxLeaves], level[kernels::kMaxLeaves];
    const int planes = kernels::PartialPlanes(plan_.num_leaves, static_cast<int>(leaves.begin), static_cast<int>(leaves.end),
                                              first, level);
    for (int plane = 0; plane < planes; ++plane) {
      const int64_t row = planes * batch.first_row + int64_t{plane} * batch.rows + first_row_[me] - batch.first_row;
      const auto* sums = reinterpret_cast<const float*>(sums_->part(owner)) + row * down.n;
      if (owner != plan_.MemberOf(me)) {
        const auto bytes = static_cast<uint64_t>(slice_rows * down.n) * sizeof(float);
        Copy(decoder, "ship_sums", returned, reinterpret_cast<const std::byte*>(sums), true, bytes);
        sums = std::exchange(returned, returned + slice_rows * down.n);
      }
      reduce.planes[reduce.num_planes++] = {sums, first[plane], level[plane]};
    }
  }
  kernels::ReducePlanes(*decoder.stream, "ship_reduce", reduce);
}

}  // namespace forebay::model
