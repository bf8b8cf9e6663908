#include "kernels/cuda/launch/serve.h"

#include <algorithm>

#include "kernels/cuda/pair/params.h"
#include "kernels/serve.h"

namespace forebay::kernels::cuda {
namespace {

using device::LaunchContext;

static_assert(kMostServed == kMaxServed && sizeof(HolderMask) == sizeof(uint64_t));
static_assert(sizeof(std::atomic<int64_t>) == sizeof(int64_t));

ServedParams ServedOf(const ServedRanks& ranks) {
  ServedParams params{.num_ranks = ranks.num_ranks,
                      .num_experts = ranks.num_experts,
                      .experts_per_token = ranks.experts_per_token,
                      .first_row = {},
                      .owners = ranks.owners};
  std::copy_n(ranks.first_row, ranks.num_ranks + 1, params.first_row);
  return params;
}

ServedCounterParams CountersOf(bool counted, std::atomic<int64_t>& rows,
                               std::atomic<int64_t>& bytes) {
  if (!counted) return {};
  return {reinterpret_cast<int64_t*>(&rows), reinterpret_cast<int64_t*>(&bytes)};
}

void CountGrouped(const GroupServedArgs& args, const device::WorkerContext&) {
  args.counters->Count(args.offsets, args.ranks.num_experts);
}

}  // namespace

void LaunchGroupServed(const void* raw, const LaunchContext& context) {
  const GroupServedArgs& args = *static_cast<const GroupServedArgs*>(raw);
  const ServedParams ranks = ServedOf(args.ranks);
  if (args.holders != nullptr) {
    const auto shared =
        static_cast<size_t>(ranks.num_experts) * sizeof(HolderMask) + kMostServed * sizeof(int32_t);
    context.Launch("pair_choose_owners",
                   {.threads = kRowThreads, .shared_bytes = static_cast<int>(shared)},
                   ChooseOwnersParams{.ranks = ranks,
                                      .holders = args.holders,
                                      .experts = args.experts,
                                      .counts = args.counts,
                                      .owners = args.owners});
  }
  const int slots = ranks.first_row[ranks.num_ranks] * ranks.experts_per_token;
  context.Launch(
      "pair_mark_served",
      {.blocks = {(slots + kRowThreads - 1) / kRowThreads, 1, 1}, .threads = kRowThreads},
      MarkServedParams{.ranks = ranks,
                       .member = args.ranks.member,
                       .experts = args.experts,
                       .positions = args.positions});
  context.Launch("pair_group_rows",
                 {.blocks = {ranks.num_experts + 1, 1, 1},
                  .threads = kRowThreads,
                  .shared_bytes = kWordOfEachWarp},
                 GroupRowsParams{.experts = args.experts,
                                 .slots = slots,
                                 .experts_per_token = ranks.experts_per_token,
                                 .num_experts = ranks.num_experts,
                                 .offsets = context.OnDevice(args.offsets),
                                 .source = args.source,
                                 .positions = args.positions});
  if (args.counters == nullptr) return;
  context.FetchControl(args.offsets,
                       static_cast<uint64_t>(ranks.num_experts + 1) * sizeof(*args.offsets));
  context.OnHost<&CountGrouped>(args);
}

void LaunchGatherServed(const void* raw, const LaunchContext& context) {
  const GatherServedArgs& args = *static_cast<const GatherServedArgs*>(raw);
  const ServedRanks& ranks = args.ranks;
  const int32_t rows = ranks.rows(args.rank);
  context.Launch(
      "pair_gather_served",
      {.blocks = {rows + 1, 1, 1}, .threads = kRowThreads, .shared_bytes = kWordOfEachWarp},
      GatherServedParams{.num_rows = rows,
                         .experts_per_token = ranks.experts_per_token,
                         .member = ranks.member,
                         .owners = ranks.owners + args.rank * ranks.num_experts,
                         .experts = args.experts,
                         .from = args.from,
                         .to = args.to,
                         .row_bytes = args.row_bytes,
                         .counted = CountersOf(args.rank != ranks.me, args.counters->rows_sent,
                                               args.counters->bytes)});
}

void LaunchReturnServed(const void* raw, const LaunchContext& context) {
  const ReturnServedArgs& args = *static_cast<const ReturnServedArgs*>(raw);
  const ServedRanks& ranks = args.ranks;
  const int32_t slots = ranks.rows(ranks.me) * ranks.experts_per_token;
  context.Launch(
      "pair_return_served",
      {.blocks = {slots + 1, 1, 1}, .threads = kRowThreads, .shared_bytes = kWordOfEachWarp},
      ReturnServedParams{
          .slots = slots,
          .owner = args.owner,
          .owners = ranks.owners + ranks.me * ranks.num_experts,
          .experts = args.experts,
          .positions = args.positions,
          .from = args.from,
          .to = args.to,
          .row_bytes = args.row_bytes,
          .counted = CountersOf(args.owner != ranks.member, args.counters->rows_returned,
                                args.counters->bytes)});
}

}  // namespace forebay::kernels::cuda
