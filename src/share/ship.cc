#include "share/ship.h"

#include <algorithm>

#include "base/units.h"
#include "device/copy.h"
#include "kernels/reduce.h"
#include "model/blocks/dense_ffn.h"

namespace forebay::share {
namespace {

constexpr int kRowsChannel = fabric::kPoolChannel, kSumsChannel = fabric::kPoolChannel + 1;

// Rank number i of all from the own one on: what is copied within the device comes before copies
// from others, which then are under way all at once, and no rank is read by all at first. `me` may
// be outside of [0, count).
int OwnFirst(int me, int count, int i) { return ((me + i) % count + count) % count; }
int OwnFirst(const kernels::ServedRanks& ranks, int i) {
  return OwnFirst(ranks.me, ranks.num_ranks, i);
}

// The columns of gate and up that belong to `leaves` of this tp rank.
kernels::PackedWeight ColumnsOf(kernels::PackedWeight gate_up, const ShipPlan::Layer& layer,
                                const base::Part& leaves) {
  const int32_t first = layer.panel_of_leaf[leaves.begin];
  gate_up.num_panels = layer.panel_of_leaf[leaves.end] - first;
  gate_up.tiles += first;
  gate_up.panels += first;
  if (gate_up.forms != nullptr) gate_up.forms += first;
  if (gate_up.bias != nullptr) gate_up.bias += int64_t{first} * kernels::kPanelColumns;
  return gate_up;
}

}  // namespace

// What is pulled depends on what a rank has of a layer, and what experts take on their rows: such
// layers are each of a kind of their own.
ShippedFfn::ShippedFfn(const ShipPlan& plan, device::Device& device, fabric::Fabric& fabric,
                       fabric::Exchange rows)
    : plan_(plan),
      rows_(std::move(rows)),
      returns_(device, fabric, plan.num_members() - 1, kSumsChannel) {
  const std::vector<ShipPlan::Layer>& layers = plan_.layers;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const bool compares = !plan_.mode.pulls() && !layers[layer].experts;
    const auto end = layers.begin() + static_cast<std::ptrdiff_t>(layer);
    const auto first = compares ? std::find(layers.begin(), end, layers[layer]) : end;
    kinds_.push_back(layers[layer].pooled ? 1 + (first - layers.begin()) : 0);
  }
}

model::RemoteFfn::Counts ShippedFfn::counts() const {
  return {.rows = rows_.meetings(),
          .sums = sums_ == nullptr ? 0 : sums_->meetings(),
          .meetings = counters_.meetings,
          .bytes = counters_.bytes};
}

void ShippedFfn::Repeat(const Counts& before, int64_t times) {
  const Counts now = counts();
  const auto more = static_cast<uint64_t>(times);
  rows_.Skip(more * (now.rows - before.rows));
  if (sums_ != nullptr) sums_->Skip(more * (now.sums - before.sums));
  counters_.meetings += times * (now.meetings - before.meetings);
  counters_.bytes += times * (now.bytes - before.bytes);
}

base::Result<std::unique_ptr<ShippedFfn>> ShippedFfn::Create(
    const ShipPlan& plan, device::Device& device, fabric::Fabric& fabric, const Staging& staging,
    const fabric::Communicator& peers, const fabric::Communicator& members) {
  FB_ASSIGN_OR_RETURN(fabric::Exchange rows_exchange,
                      fabric::Exchange::Create(fabric, peers, staging.rows, kRowsChannel));
  std::unique_ptr<ShippedFfn> ship(new ShippedFfn(plan, device, fabric, std::move(rows_exchange)));
  if (plan.sums_bytes > 0) {
    FB_ASSIGN_OR_RETURN(fabric::Exchange sums_exchange,
                        fabric::Exchange::Create(fabric, members, *staging.sums, kSumsChannel));
    ship->sums_ = std::make_unique<fabric::Exchange>(std::move(sums_exchange));
  }
  if (plan.num_experts > 0) FB_RETURN_IF_ERROR(ship->MakeTables(device));
  return ship;
}

base::Status ShippedFfn::MakeTables(device::Device& device) {
  const std::vector<uint8_t>& owners = plan_.expert_owners;
  const std::vector<kernels::HolderMask>& holders = plan_.expert_holders;
  constexpr uint64_t kAlignment = 64;
  const uint64_t bytes = base::RoundUp(3 * kAlignment + sizeof(kernels::ServedCounters) +
                                           std::span(holders).size_bytes() + owners.size(),
                                       4 * base::kKiB);
  host_ = device.NewHostArena(bytes);
  FB_ASSIGN_OR_RETURN(const device::Region* region,
                      host_->Allocate("ship tables", bytes, device::MemoryUse::kControl));
  device::RegionCutter cutter(*region);
  counters_.experts = new (cutter.Cut(sizeof(kernels::ServedCounters))) kernels::ServedCounters;
  expert_holders_ = {
      reinterpret_cast<kernels::HolderMask*>(cutter.Cut(std::span(holders).size_bytes())),
      holders.size()};
  expert_owners_ = {reinterpret_cast<uint8_t*>(cutter.Cut(owners.size())), owners.size()};
  std::ranges::copy(holders, expert_holders_.begin());
  std::ranges::copy(owners, expert_owners_.begin());
  return {};
}

void ShippedFfn::Begin(const ShipRows& rows, const ShipSteps& steps) {
  step_rows_ = rows;
  const bool gathers = plan_.mode.pulls(), skip = plan_.options.skip_idle || gathers;
  for (int replica = 0; replica < plan_.num_replicas; ++replica) {
    FB_CHECK(gathers || plan_.max_planes == 0 || rows[replica] <= plan_.options.rows,
             "replica {} ships {} rows, at most {} were planned", replica, rows[replica],
             plan_.options.rows);
    first_row_[replica + 1] = first_row_[replica] + std::max(rows[replica], skip ? 0 : 1);
  }
  table_ = (table_ + 1) % kStepsKept;
  StepTable& table = tables_[table_];
  table.steps = steps;
  table.first_rows.resize(gathers ? 0 : static_cast<size_t>(NumRounds()));
  for (size_t round = 0; round < table.first_rows.size(); ++round) {
    auto& first_row = table.first_rows[round];
    const int64_t first = static_cast<int64_t>(round) * plan_.options.expert_rows;
    for (int replica = 0; replica < plan_.num_replicas; ++replica) {
      const int64_t count =
          std::clamp<int64_t>(rows[replica] - first, 0, plan_.options.expert_rows);
      first_row[replica + 1] = first_row[replica] + static_cast<int32_t>(count);
    }
  }
  const int32_t own = rows[rows_.my_index()];
  counters_.rows += own;
  if (own == 0 && skip) ++counters_.rows_skipped;
}

ShippedFfn::Batch ShippedFfn::BatchOf(int replica) const {
  const int first = plan_.options.fuse ? 0 : replica,
            last = plan_.options.fuse ? plan_.num_replicas : replica + 1;
  return {first, last, first_row_[first],
          static_cast<int32_t>(first_row_[last] - first_row_[first])};
}

void ShippedFfn::Copy(const model::BlockContext& context, const char* label, void* to,
                      const std::byte* from, bool remote, uint64_t bytes) {
  context.stream->Enqueue(device::MakeCopy(label, to, from, bytes));
  if (remote) counters_.bytes += static_cast<int64_t>(bytes);
}

void ShippedFfn::Run(const model::BlockContext& context, int64_t layer, int32_t rows) {
  if (plan_.layers[layer].experts) return RunExperts(context, layer);
  // Rows are read behind the first meeting, sums behind the second. A staging has two halves, so
  // that a replica writes the next layer's while a slow one still reads this one's.
  if (rows > 0) LayerNorm(context, layer, model::kFfnNorm, rows, rows_.mine());
  const base::Part& own = plan_.layers[layer].leaves[plan_.MemberOf(rows_.my_index())];
  Meet(*context.stream, rows_);
  for (int replica = 0; own.size() > 0 && replica < plan_.num_replicas;) {
    // Fused, the first batch is all replicas'.
    const Batch batch = BatchOf(replica);
    if (batch.rows > 0) Serve(context, layer, own, batch);
    replica = batch.last_replica;
  }
  Meet(*context.stream, *sums_);
  if (first_row_[rows_.my_index() + 1] > first_row_[rows_.my_index()])
    AddSums(context, layer, rows);
}

// As many rounds as the rank with most rows needs: the others come to all of them, with fewer rows
// or none, since all serve.
int64_t ShippedFfn::NumRounds() const {
  if (plan_.num_experts == 0) return 0;
  const int32_t most =
      *std::max_element(step_rows_.begin(), step_rows_.begin() + plan_.num_replicas);
  return base::CeilDiv(int64_t{most}, int64_t{plan_.options.expert_rows});
}

void ShippedFfn::RunExperts(const model::BlockContext& context, int64_t layer) {
  for (int64_t round = 0; round < NumRounds(); ++round) RunRound(context, layer, round);
}

void ShippedFfn::RunRound(const model::BlockContext& context, int64_t layer, int64_t number) {
  const StepTable& table = tables_[table_];
  const int32_t* const first_row = table.first_rows[static_cast<size_t>(number)].data();
  const int64_t first = number * plan_.options.expert_rows;
  Round round{.layer = layer,
              .ranks = {.num_ranks = plan_.num_replicas,
                        .me = rows_.my_index(),
                        .member = plan_.MemberOf(rows_.my_index()),
                        .num_experts = plan_.num_experts,
                        .experts_per_token = plan_.experts_per_token,
                        .first_row = first_row,
                        .step = table.steps.data(),
                        .owners = expert_owners_.data()},
              .draw = {.rank = context.replica - static_cast<uint64_t>(rows_.my_index()),
                       .layer = context.weights.shard.layers.begin + layer,
                       .experts_per_token = plan_.experts_per_token,
                       .first_row = first},
              .row_bytes = tensor::BytesOf(context.dtype,
                                           static_cast<uint64_t>(context.config->hidden_size))};
  if (context.routing != nullptr) CountRound(context, &round);
  if (!plan_.expert_holders.empty()) {
    round.owners = reinterpret_cast<uint8_t*>(sums_->mine() + plan_.owners_offset);
    round.ranks.owners = round.owners;
  }
  round.residual = context.activations.residual + static_cast<uint64_t>(first) * round.row_bytes;
  model::CutExpertBuffers(*context.config, context.dtype, first_row[plan_.num_replicas],
                          context.activations.ffn, &round.buffers);
  round.gathered_experts = round.buffers.experts;
  round.buffers.experts = reinterpret_cast<int32_t*>(rows_.mine() + plan_.experts_offset);
  const bool has_rows = round.own() > 0;
  if (has_rows) StageRows(context, first, &round);
  Meet(*context.stream, rows_);
  ServeRows(context, round);
  // Everybody has the shared expert: its rows need not travel, and it runs while others still
  // serve, and while what they made comes home.
  const bool hides = plan_.options.hides_return && context.config->moe->num_shared_experts > 0;
  if (hides) {
    sums_->Post(*context.stream);
    ++counters_.meetings;
    if (has_rows) TakeOutputsBeside(context, round);
  }
  if (has_rows) model::RunSharedExpert(context, layer, round.normed, round.own(), round.buffers);
  if (hides) {
    sums_->Await(*context.stream);
    if (has_rows) returns_.Await(*context.stream);
  } else {
    Meet(*context.stream, *sums_);
    if (has_rows) TakeOutputs(context, round);
  }
  if (has_rows) model::CombineExperts(context, round.own(), round.buffers, nullptr, round.residual);
}

void ShippedFfn::CountRound(const model::BlockContext& context, Round* round) const {
  kernels::ServedRanks ranks = round->ranks;
  std::vector<int32_t> drawn(plan_.expert_owners.size());
  kernels::DrawServed(ranks, *context.routing, round->draw, drawn);
  std::vector<uint8_t> owners;
  if (!plan_.expert_holders.empty()) {
    owners.resize(drawn.size());
    kernels::ChooseOwners(plan_.expert_holders, ranks.num_ranks, drawn.data(), owners.data());
    ranks.owners = owners.data();
  }
  for (int rank = 0; rank < ranks.num_ranks; ++rank) {
    round->counts.push_back(kernels::CountServed(ranks, rank, drawn.data()));
    for (kernels::ServedCount& count : round->counts.back()) {
      if (plan_.options.reduced_wire) count.slots = count.rows;
    }
  }
}

// What meets the experts goes into the staging, the rows as normed or weighed, and behind them
// which experts they choose.
void ShippedFfn::StageRows(const model::BlockContext& context, int64_t first, Round* round) {
  std::byte* const staged = rows_.mine();
  std::byte* normed = staged;
  if (context.config->moe->weighs_input) {
    normed = context.activations.normed;
    round->buffers.weighed = staged;
  }
  model::Norm(context, model::kFfnNorm.name, round->residual,
              context.weights.layers[round->layer].vector(model::kFfnNorm), {.count = round->own()},
              normed);
  model::RouteRows(context, round->layer, normed, first, round->own(), round->buffers);
  round->normed = normed;
}

void ShippedFfn::GatherRows(const model::BlockContext& context, const Round& round, int rank) {
  const std::byte* const staged = rows_.part(rank);
  const auto at = static_cast<uint64_t>(round.ranks.first_row[rank]);
  kernels::GatherServed(*context.stream,
                        {.ranks = round.ranks,
                         .rank = rank,
                         .experts = reinterpret_cast<const int32_t*>(staged + plan_.experts_offset),
                         .from = staged,
                         .to = context.activations.gathered + at * round.row_bytes,
                         .row_bytes = plan_.sent_row_bytes,
                         .counters = counters_.experts,
                         .count = round.count(rank, round.ranks.member)});
}

// This rank's experts, for the rows of all.
void ShippedFfn::ServeRows(const model::BlockContext& context, const Round& round) {
  const kernels::ServedRanks& ranks = round.ranks;
  const int32_t k = ranks.experts_per_token, all = ranks.first_row[ranks.num_ranks];
  for (int i = 0; i < ranks.num_ranks; ++i) {
    const int rank = OwnFirst(ranks, i);
    if (ranks.rows(rank) == 0) continue;
    Copy(context, "ship_experts", round.gathered_experts + int64_t{ranks.first_row[rank]} * k,
         rows_.part(rank) + plan_.experts_offset, rank != ranks.me,
         static_cast<uint64_t>(ranks.rows(rank) * k) * sizeof(int32_t));
    if (round.owners == nullptr) GatherRows(context, round, rank);
  }
  std::byte* const made = sums_->mine();
  const bool chooses = round.owners != nullptr;
  kernels::GroupServed(*context.stream,
                       {.ranks = ranks,
                        .holders = chooses ? expert_holders_.data() : nullptr,
                        .owners = round.owners,
                        .counts = reinterpret_cast<int32_t*>(made + plan_.counts_offset),
                        .experts = round.gathered_experts,
                        .offsets = context.weights.expert_offsets,
                        .source = round.buffers.source,
                        .positions = reinterpret_cast<int32_t*>(made),
                        .counters = context.routed,
                        .routing = context.routing,
                        .draw = round.draw});
  // Who needs which rows is known only now.
  for (int i = 0; chooses && i < ranks.num_ranks; ++i)
    GatherRows(context, round, OwnFirst(ranks, i));
  model::RunExperts(context, round.layer, model::ExpertsFrom::kHeld,
                    {.x = context.activations.gathered,
                     .x_count = all,
                     .source = round.buffers.source,
                     .max_rows = all * k,
                     .gated = round.buffers.gated,
                     .outputs = made + plan_.outputs_offset,
                     .codes = round.buffers.codes});
}

// What the member made of this rank's rows, to where each has its slot; returns where without data
// the next member's go.
std::byte* ShippedFfn::ReturnRows(device::Stream& stream, const Round& round, int owner,
                                  std::byte* to) {
  const kernels::ServedRanks& ranks = round.ranks;
  const std::byte* const theirs = sums_->part(owner);
  const kernels::ServedCount* const count = round.count(ranks.me, owner);
  kernels::ReturnServed(stream, {.ranks = ranks,
                                 .owner = owner,
                                 .experts = round.buffers.experts,
                                 .positions = reinterpret_cast<const int32_t*>(theirs) +
                                              ranks.first_row[ranks.me] * ranks.experts_per_token,
                                 .from = theirs + plan_.outputs_offset,
                                 .to = to,
                                 .row_bytes = round.row_bytes,
                                 .counters = counters_.experts,
                                 .count = count});
  return count == nullptr ? to : to + static_cast<uint64_t>(count->slots) * round.row_bytes;
}

// What the others' and its own experts, of all parts, made of this rank's rows.
void ShippedFfn::TakeOutputs(const model::BlockContext& context, const Round& round) {
  std::byte* to = round.buffers.outputs;
  for (int i = 0; i < plan_.num_members(); ++i)
    to = ReturnRows(*context.stream, round, (round.ranks.member + i) % plan_.num_members(), to);
}

// The same, the others' on streams of copies, which wait for those as the compute stream does.
void ShippedFfn::TakeOutputsBeside(const model::BlockContext& context, const Round& round) {
  const int members = plan_.num_members(), me = round.ranks.member;
  std::byte* to = ReturnRows(*context.stream, round, me, round.buffers.outputs);
  returns_.Begin(*context.stream, context.weights.shard.layers.begin + round.layer);
  for (size_t i = 0; i < returns_.size(); ++i) sums_->Await(returns_[i]);
  for (int i = 1; i < members; ++i) {
    device::Stream& stream = returns_[static_cast<size_t>(i - 1) % returns_.size()];
    to = ReturnRows(stream, round, (me + i) % members, to);
  }
  returns_.End();
}

// Partial sums lie by batch, then plane, then row.
void ShippedFfn::Serve(const model::BlockContext& context, int64_t layer, const base::Part& leaves,
                       const Batch& batch) {
  const ShipPlan::Layer& plan = plan_.layers[layer];
  const int64_t hidden = context.config->hidden_size;
  const uint64_t row_bytes = tensor::BytesOf(context.dtype, static_cast<uint64_t>(hidden));
  const int count = batch.last_replica - batch.first_replica;
  for (int i = 0; i < count; ++i) {
    const int replica =
        batch.first_replica + OwnFirst(rows_.my_index() - batch.first_replica, count, i);
    const auto rows = static_cast<uint64_t>(first_row_[replica + 1] - first_row_[replica]);
    std::byte* const to = context.activations.gathered +
                          static_cast<uint64_t>(first_row_[replica] - batch.first_row) * row_bytes;
    if (rows > 0)
      Copy(context, "ship_rows", to, rows_.part(replica), replica != rows_.my_index(),
           rows * row_bytes);
  }
  const int64_t before = kernels::NumPlanes(plan.num_leaves, static_cast<int>(leaves.begin),
                                            static_cast<int>(leaves.end)) *
                         batch.first_row * hidden;
  ServeLeaves(context, layer, plan, leaves, batch.rows,
              sums_->mine() + before * static_cast<int64_t>(sizeof(float)));
}

void ServeLeaves(const model::BlockContext& context, int64_t layer, const ShipPlan::Layer& plan,
                 const base::Part& leaves, int32_t rows, std::byte* sums) {
  const model::Activations& a = context.activations;
  const model::LayerWeights& weights = context.weights.layers[layer];
  // Leaves count through the whole layer, and its matrices have those of this tp replica alone.
  const auto first_leaf = static_cast<int>(leaves.begin) - plan.leaves_before,
             last_leaf = static_cast<int>(leaves.end) - plan.leaves_before;
  const kernels::PackedWeight gate_up =
      ColumnsOf(weights.matrix(model::kGateUp), plan, {first_leaf, last_leaf});
  kernels::Linear(*context.stream, *context.kernels, model::kGateUp.name,
                  {.weight = gate_up,
                   .x = a.gathered,
                   .y = a.ffn,
                   .x_stride = gate_up.k,
                   .y_stride = gate_up.n,
                   .rows = rows,
                   .output = model::FfnOutput(*context.config),
                   .leaf_begin = 0,
                   .leaf_end = gate_up.leaves.num_leaves,
                   .workspace = a.linear});
  const kernels::PackedWeight& down = weights.matrix(model::kDown);
  kernels::Linear(*context.stream, *context.kernels, model::kDown.name,
                  {.weight = down,
                   .x = a.ffn,
                   .y = sums,
                   .x_stride = down.k,
                   .y_stride = down.n,
                   .rows = rows,
                   .output = kernels::LinearOutput::kPartial,
                   .leaf_begin = first_leaf,
                   .leaf_end = last_leaf,
                   .workspace = a.linear});
}

void ShippedFfn::AddSums(const model::BlockContext& context, int64_t layer, int32_t rows) {
  const ShipPlan::Layer& plan = plan_.layers[layer];
  const kernels::PackedWeight& down = context.weights.layers[layer].matrix(model::kDown);
  const int me = rows_.my_index();
  const Batch batch = BatchOf(me);
  const int64_t slice_rows = first_row_[me + 1] - first_row_[me];
  kernels::ReduceArgs reduce{.dtype = context.dtype,
                             .num_leaves = plan.num_leaves,
                             .bias = down.bias,
                             .y = context.activations.residual,
                             .stride = down.n,
                             .y_stride = down.n,
                             .rows = rows,
                             .n = down.n};
  float* returned = context.activations.returned;
  for (int owner = 0; owner < plan_.num_members(); ++owner) {
    const base::Part& leaves = plan.leaves[owner];
    int first[kernels::kMaxLeaves], level[kernels::kMaxLeaves];
    const int planes = kernels::PartialPlanes(plan.num_leaves, static_cast<int>(leaves.begin),
                                              static_cast<int>(leaves.end), first, level);
    for (int plane = 0; plane < planes; ++plane) {
      const int64_t row =
          planes * batch.first_row + int64_t{plane} * batch.rows + first_row_[me] - batch.first_row;
      const auto* sums = reinterpret_cast<const float*>(sums_->part(owner)) + row * down.n;
      if (owner != plan_.MemberOf(me)) {
        const auto bytes = static_cast<uint64_t>(slice_rows * down.n) * sizeof(float);
        Copy(context, "ship_sums", returned, reinterpret_cast<const std::byte*>(sums), true, bytes);
        sums = std::exchange(returned, returned + slice_rows * down.n);
      }
      reduce.planes[reduce.num_planes++] = {sums, first[plane], level[plane]};
    }
  }
  kernels::ReducePlanes(*context.stream, *context.kernels, "ship_reduce", reduce);
}

}  // namespace forebay::share
