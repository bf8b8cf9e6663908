// Routes, and the rows of experts on their ways, against ref/.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "device/copy.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/testing/ref_bytes.h"
#include "kernels/route.h"
#include "kernels/serve.h"
#include "kernels/sets.h"

namespace forebay::kernels::cuda {
namespace {

using tensor::DType;
using testing::Bytes;
using testing::ExpectCodesBytes;
using testing::ExpectRefBytes;
using testing::ExpectSameBytes;
using testing::KeepingStream;
using testing::kTypes;
using testing::Of;
using testing::Output;
using testing::Source;

TEST(PairKernels, RouteAndGroup) {
  Source source(800);
  for (int variant = 0; variant < 6; ++variant) {
    Router router{.num_experts = variant % 2 == 0 ? 64 : 40, .experts_per_token = 6};
    if (variant >= 3) router.num_groups = 4, router.chosen_groups = 2;
    router.scores = static_cast<RouterScores>(variant % 3);
    router.group_score = static_cast<GroupScore>(variant % 2);
    router.renormalize = variant % 2 == 0;
    router.epsilon = 1e-20f;
    router.scale = 2.5f;
    constexpr int kRows = 17;
    std::vector<float> bias = source.Floats(static_cast<size_t>(router.num_experts), 0.1f);
    if (variant % 3 == 1) router.bias = bias.data();
    const std::vector<float> scales = source.Floats(static_cast<size_t>(router.num_experts));
    if (variant % 3 == 2) router.expert_scales = scales.data();
    std::vector<float> logits = source.Floats(static_cast<size_t>(kRows * router.num_experts), 3);
    for (size_t i = 0; i < logits.size(); i += 5) logits[i] = 0.5f;  // equal ones
    const size_t slots = static_cast<size_t>(kRows * router.experts_per_token);
    std::vector<int32_t> experts(slots, -1);
    std::vector<float> weights(slots, -1);
    RouteArgs args{.router = router,
                   .logits = logits.data(),
                   .stride = router.num_experts,
                   .rows = kRows,
                   .experts = experts.data(),
                   .weights = weights.data()};
    ExpectRefBytes("route", RefKernels().route, PairKernels().route, args,
                   {Of(experts), Of(weights)});
    logits[3] = std::numeric_limits<float>::quiet_NaN();
    ExpectRefBytes("route with NaN", RefKernels().route, PairKernels().route, args,
                   {Of(experts), Of(weights)});

    for (int32_t& expert : experts) expert = source.Below(router.num_experts);
    std::vector<int32_t> offsets(static_cast<size_t>(router.num_experts) + 1, -1),
        sources(slots, -1), positions(slots, -1);
    const GroupRowsArgs group{.experts = experts.data(),
                              .rows = kRows,
                              .experts_per_token = router.experts_per_token,
                              .num_experts = router.num_experts,
                              .offsets = offsets.data(),
                              .source = sources.data(),
                              .positions = positions.data()};
    ExpectRefBytes("group_rows", RefKernels().group_rows, PairKernels().group_rows, group,
                   {Of(offsets), Of(sources), Of(positions)});
  }
}

// Four ranks in one part, or two in two; experts of one holder, or of two.
TEST(PairKernels, ServedRows) {
  Source source(850);
  constexpr int kExperts = 10, kChosen = 3, kRowBytes = 36;
  for (int variant = 0; variant < 6; ++variant) {
    const int parts = variant % 2 + 1, num_ranks = 4 / parts;
    const int member = source.Below(parts) * num_ranks + variant % num_ranks;
    std::vector<HolderMask> holders(kExperts);
    for (int expert = 0; expert < kExperts; ++expert) {
      const int first = expert * parts / kExperts * num_ranks;
      for (int copies = variant < 2 ? 1 : 2; copies > 0; --copies)
        holders[static_cast<size_t>(expert)] |= HolderMask{1} << (first + source.Below(num_ranks));
    }
    std::vector<int32_t> first_row(static_cast<size_t>(num_ranks) + 1, 0);
    for (int rank = 0; rank < num_ranks; ++rank)
      first_row[static_cast<size_t>(rank) + 1] =
          first_row[static_cast<size_t>(rank)] + (rank == 1 ? 0 : 1 + source.Below(40));
    const size_t slots = static_cast<size_t>(first_row.back()) * kChosen,
                 pairs = static_cast<size_t>(num_ranks) * kExperts;
    std::vector<int32_t> experts(slots), counts(pairs, -1), offsets(kExperts + 1, -1),
        sources(slots, -1), positions(slots, -1);
    for (int32_t& expert : experts) expert = source.Below(kExperts);
    std::vector<uint8_t> owners(pairs);
    ChooseOwners(holders, num_ranks, nullptr, owners.data());
    ServedRanks ranks{.num_ranks = num_ranks,
                      .me = member % num_ranks,
                      .member = member,
                      .num_experts = kExperts,
                      .experts_per_token = kChosen,
                      .first_row = first_row.data(),
                      .owners = owners.data()};
    KeepingStream stream;
    std::vector<int32_t> marked = experts;
    const bool chooses = variant >= 2;
    GroupServed(stream, {.ranks = ranks,
                         .holders = chooses ? holders.data() : nullptr,
                         .owners = owners.data(),
                         .counts = counts.data(),
                         .experts = marked.data(),
                         .offsets = offsets.data(),
                         .source = sources.data(),
                         .positions = positions.data()});
    const device::Operation group = stream.kept;
    // How many rows are served, so that what lies behind them in `source` is compared too.
    ExpectSameBytes(
        "group",
        [&](const device::WorkerContext& context) { group.run(group.args.data(), context); },
        [&](const device::LaunchContext& context) {
          marked = experts;
          group.launch(group.args.data(), context);
        },
        {Of(owners), Of(counts), Of(offsets), Of(sources), Of(positions)});

    Bytes rows(static_cast<size_t>(first_row.back()) * kRowBytes), taken(rows.size()),
        made(slots * kRowBytes), home(slots * kRowBytes);
    for (std::byte& byte : rows) byte = static_cast<std::byte>(source.Below(256));
    for (std::byte& byte : made) byte = static_cast<std::byte>(source.Below(256));
    for (int32_t& position : positions) position = source.Below(static_cast<int>(slots));
    std::vector<ServedCounters> counters(1);
    const Output counted{reinterpret_cast<std::byte*>(counters.data()), sizeof(ServedCounters)};
    for (int rank = 0; rank < num_ranks; ++rank) {
      const auto first = static_cast<size_t>(first_row[static_cast<size_t>(rank)]);
      if (ranks.rows(rank) == 0) continue;
      GatherServed(stream, {.ranks = ranks,
                            .rank = rank,
                            .experts = experts.data() + first * kChosen,
                            .from = rows.data() + first * kRowBytes,
                            .to = taken.data() + first * kRowBytes,
                            .row_bytes = kRowBytes,
                            .counters = counters.data()});
      ExpectCodesBytes(stream.kept, {Of(taken), counted});
    }
    for (int owner = 0; owner < 4; ++owner) {
      if (ranks.rows(ranks.me) == 0) continue;
      ReturnServed(stream, {.ranks = ranks,
                            .owner = owner,
                            .experts = experts.data(),
                            .positions = positions.data(),
                            .from = made.data(),
                            .to = home.data(),
                            .row_bytes = kRowBytes,
                            .counters = counters.data()});
      ExpectCodesBytes(stream.kept, {Of(home), counted});
    }
  }
}

TEST(PairKernels, CopiesOfWhatHasRows) {
  Source source(870);
  constexpr int kItems = 9;
  for (const size_t item : {7u, 32u, 70'000u}) {
    Bytes from(kItems * item), to(kItems * item);
    for (std::byte& byte : from) byte = static_cast<std::byte>(source.Below(256));
    std::vector<int32_t> offsets(kItems + 1, 3);
    for (size_t i = 1; i <= kItems; ++i) offsets[i] = offsets[i - 1] + source.Below(2);
    ExpectCodesBytes(device::MakeItemCopy("copy_items", {.destination = to.data(),
                                                         .source = from.data(),
                                                         .item_bytes = item,
                                                         .num_items = kItems,
                                                         .offsets = offsets.data()}),
                     {Of(to)});
  }
}

TEST(PairKernels, WeighAndCombine) {
  Source source(900);
  constexpr int kRows = 5, kColumns = 70, kSlots = 3;
  for (const DType dtype : kTypes) {
    const Bytes x = source.Elements(dtype, kRows * kColumns),
                expert_rows = source.Elements(dtype, kRows * kSlots * kColumns);
    const std::vector<float> weights = source.Floats(kRows * kSlots),
                             shared = source.Floats(kRows * kColumns);
    Bytes y = source.Elements(dtype, kRows * kColumns);
    const WeighRowsArgs weigh{.dtype = dtype,
                              .x = x.data(),
                              .weights = weights.data(),
                              .out = y.data(),
                              .rows = kRows,
                              .columns = kColumns};
    ExpectRefBytes("weigh_rows", RefKernels().weigh_rows, PairKernels().weigh_rows, weigh, {Of(y)});
    std::vector<int32_t> positions(kRows * kSlots);
    std::iota(positions.rbegin(), positions.rend(), 0);
    for (const bool plain : {false, true}) {
      const CombineRowsArgs combine{.dtype = dtype,
                                    .expert_rows = expert_rows.data(),
                                    .positions = plain ? nullptr : positions.data(),
                                    .weights = plain ? nullptr : weights.data(),
                                    .shared = plain ? nullptr : shared.data(),
                                    .y = y.data(),
                                    .rows = kRows,
                                    .experts_per_token = kSlots,
                                    .columns = kColumns};
      ExpectRefBytes("combine_rows", RefKernels().combine_rows, PairKernels().combine_rows, combine,
                     {Of(y)});
      std::vector<float> sums(kRows * kColumns, -1);
      CombineRowsArgs alone = combine;
      alone.sums = sums.data();
      ExpectRefBytes("combine_rows, sums", RefKernels().combine_rows, PairKernels().combine_rows,
                     alone, {Of(y), Of(sums)});
    }
  }
}

}  // namespace
}  // namespace forebay::kernels::cuda
