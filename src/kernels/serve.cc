#include "kernels/serve.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "device/copy.h"
#include "kernels/cuda/launch/serve.h"
#include "kernels/group_slots.h"

namespace forebay::kernels {
namespace {

cost::OpDesc Describe(cost::OpKind kind, const char* label, int64_t rows, int64_t columns,
                      uint64_t bytes) {
  cost::OpDesc desc;
  desc.kind = kind;
  desc.label = label;
  desc.rows = rows;
  desc.columns = columns;
  desc.read_bytes = static_cast<double>(bytes);
  desc.write_bytes = static_cast<double>(bytes);
  return desc;
}

uint64_t IndexBytes(const ServedRanks& ranks, int64_t rows) {
  return static_cast<uint64_t>(rows * ranks.experts_per_token) * sizeof(int32_t);
}

// Whether `to` computes the expert for rows of `rank`.
bool Computes(const ServedRanks& ranks, int rank, int to, int32_t expert) {
  return ranks.owners[rank * ranks.num_experts + expert] == to;
}

std::span<const HolderMask> HoldersOf(const GroupServedArgs& args) {
  return {args.holders, static_cast<size_t>(args.ranks.num_experts)};
}

// How many rows of each rank go to each expert.
void CountChosen(const ServedRanks& ranks, const int32_t* experts, int32_t* counts) {
  std::fill_n(counts, ranks.num_ranks * ranks.num_experts, 0);
  const int64_t k = ranks.experts_per_token;
  for (int rank = 0; rank < ranks.num_ranks; ++rank, counts += ranks.num_experts) {
    for (int64_t slot = ranks.first_row[rank] * k; slot < ranks.first_row[rank + 1] * k; ++slot)
      ++counts[experts[slot]];
  }
}

// One worker: the numbers of a round fit in its cache.
void Group(const GroupServedArgs& args, const device::WorkerContext& context) {
  if (context.worker != 0) return;
  const ServedRanks& ranks = args.ranks;
  if (args.holders != nullptr) {
    CountChosen(ranks, args.experts, args.counts);
    ChooseOwners(HoldersOf(args), ranks.num_ranks, args.counts, args.owners);
  }
  const int64_t k = ranks.experts_per_token;
  GroupSlots({args.experts, ranks.experts_per_token, ranks.num_experts, args.offsets, args.source,
              args.positions, args.counters},
             [&](auto visit) {
               for (int rank = 0; rank < ranks.num_ranks; ++rank) {
                 for (int64_t slot = ranks.first_row[rank] * k;
                      slot < ranks.first_row[rank + 1] * k; ++slot)
                   visit(slot, Computes(ranks, rank, ranks.member, args.experts[slot]));
               }
             });
}

// Group without data.
void GroupCounts(const void* raw, const device::WorkerContext&) {
  const GroupServedArgs& args = *static_cast<const GroupServedArgs*>(raw);
  ServedRanks ranks = args.ranks;
  std::vector<int32_t> counts(static_cast<size_t>(ranks.num_ranks * ranks.num_experts));
  std::vector<uint8_t> owners(counts.size());
  DrawServed(ranks, *args.routing, args.draw, counts);
  if (args.holders != nullptr) {
    ChooseOwners(HoldersOf(args), ranks.num_ranks, counts.data(), owners.data());
    ranks.owners = owners.data();
  }
  std::fill_n(args.offsets, ranks.num_experts + 1, 0);
  for (int rank = 0; rank < ranks.num_ranks; ++rank) {
    const int32_t* const own = counts.data() + rank * ranks.num_experts;
    for (int32_t expert = 0; expert < ranks.num_experts; ++expert) {
      if (Computes(ranks, rank, ranks.member, expert)) args.offsets[expert + 1] += own[expert];
    }
  }
  std::partial_sum(args.offsets, args.offsets + ranks.num_experts + 1, args.offsets);
  if (args.counters != nullptr) args.counters->Count(args.offsets, ranks.num_experts);
}

void CountSent(const GatherServedArgs& args, int64_t rows) {
  if (args.rank == args.ranks.me) return;
  args.counters->rows_sent += rows;
  args.counters->bytes += rows * static_cast<int64_t>(args.row_bytes);
}

void CountReturned(const ReturnServedArgs& args, int64_t rows) {
  if (args.owner == args.ranks.member) return;
  args.counters->rows_returned += rows;
  args.counters->bytes += rows * static_cast<int64_t>(args.row_bytes);
}

// So many rows, wherever they stand: what moves where there are no data.
void CopyRows(device::Stream& stream, const char* label, std::byte* to, const std::byte* from,
              int64_t rows, uint64_t row_bytes) {
  if (rows > 0)
    stream.Enqueue(device::MakeCopy(label, to, from, static_cast<uint64_t>(rows) * row_bytes));
}

void Gather(const GatherServedArgs& args, const device::WorkerContext& context) {
  const ServedRanks& ranks = args.ranks;
  const int64_t k = ranks.experts_per_token;
  const device::Range part = StaticPart(context, ranks.rows(args.rank));
  int64_t moved = 0;
  for (int64_t row = part.begin; row < part.end; ++row) {
    const int32_t* const experts = args.experts + row * k;
    const bool needed = std::any_of(experts, experts + k, [&](int32_t expert) {
      return Computes(ranks, args.rank, ranks.member, expert);
    });
    if (!needed) continue;
    const uint64_t at = static_cast<uint64_t>(row) * args.row_bytes;
    std::memcpy(args.to + at, args.from + at, args.row_bytes);
    ++moved;
  }
  CountSent(args, moved);
}

void Return(const ReturnServedArgs& args, const device::WorkerContext& context) {
  const ServedRanks& ranks = args.ranks;
  const device::Range part =
      StaticPart(context, int64_t{ranks.rows(ranks.me)} * ranks.experts_per_token);
  int64_t moved = 0;
  for (int64_t slot = part.begin; slot < part.end; ++slot) {
    if (!Computes(ranks, ranks.me, args.owner, args.experts[slot])) continue;
    std::memcpy(args.to + static_cast<uint64_t>(slot) * args.row_bytes,
                args.from + static_cast<uint64_t>(args.positions[slot]) * args.row_bytes,
                args.row_bytes);
    ++moved;
  }
  CountReturned(args, moved);
}

uint64_t OwnerBytes(const ServedRanks& ranks) {
  return static_cast<uint64_t>(ranks.num_ranks * ranks.num_experts);
}

// Members are numbered part by part, in each by rank: the one of rank 0 in this member's part.
int FirstOfPart(int member, int num_ranks) { return member - member % num_ranks; }

}  // namespace

void ChooseOwners(std::span<const HolderMask> holders, int num_ranks, const int32_t* counts,
                  uint8_t* owners) {
  const size_t num_experts = holders.size();
  std::array<int64_t, kMaxServed> rows{};
  // All holders of an expert are of one part, in which each rank has a member.
  const auto first_of = [&](size_t expert) {
    return FirstOfPart(std::countr_zero(holders[expert]), num_ranks);
  };
  // Who computes where there is no choice; -1: there is one.
  const auto only = [&](int home, size_t expert) {
    const HolderMask mask = holders[expert];
    if ((mask >> home & 1) != 0) return home;
    return std::has_single_bit(mask) ? std::countr_zero(mask) : -1;
  };
  const auto give = [&](int rank, size_t expert, int owner) {
    const size_t at = static_cast<size_t>(rank) * num_experts + expert;
    owners[at] = static_cast<uint8_t>(owner);
    if (counts != nullptr) rows[static_cast<size_t>(owner)] += counts[at];
  };
  for (size_t expert = 0; expert < num_experts; ++expert) {
    const int first = first_of(expert);
    for (int rank = 0; rank < num_ranks; ++rank) {
      if (const int owner = only(first + rank, expert); owner >= 0) give(rank, expert, owner);
    }
  }
  for (size_t expert = 0; expert < num_experts; ++expert) {
    const int first = first_of(expert);
    for (int rank = 0; rank < num_ranks; ++rank) {
      const int home = first + rank;
      if (only(home, expert) >= 0) continue;
      const auto cost = [&](int holder) {
        return std::tuple(rows[static_cast<size_t>(holder)], std::abs(holder - home), holder);
      };
      int least = std::countr_zero(holders[expert]);
      for (int holder = least + 1; holder < first + num_ranks; ++holder) {
        if ((holders[expert] >> holder & 1) != 0 && cost(holder) < cost(least)) least = holder;
      }
      give(rank, expert, least);
    }
  }
}

void GroupServed(device::Stream& stream, const GroupServedArgs& args) {
  const ServedRanks& ranks = args.ranks;
  FB_CHECK(0 < ranks.num_ranks && ranks.num_ranks <= kMaxServed, "{} ranks", ranks.num_ranks);
  const int64_t rows = ranks.first_row[ranks.num_ranks];
  if (rows == 0) return;
  const uint64_t bytes = IndexBytes(ranks, rows);
  device::Operation operation = device::MakeOperation<&Group>(
      Describe(cost::OpKind::kActivation, "group", rows, ranks.experts_per_token, 2 * bytes), args);
  if (args.routing != nullptr) {
    operation.run = &GroupCounts;
    operation.control = true;
  }
  operation.launch = cuda::LaunchGroupServed;
  operation.Writes(args.experts, bytes).Writes(args.source, bytes).Writes(args.positions, bytes);
  operation.Writes(args.offsets,
                   (static_cast<uint64_t>(ranks.num_experts) + 1) * sizeof(*args.offsets));
  if (args.holders != nullptr) {
    operation.Writes(args.owners, OwnerBytes(ranks));
    operation.Writes(args.counts, OwnerBytes(ranks) * sizeof(*args.counts));
  }
  stream.Enqueue(operation);
}

void GatherServed(device::Stream& stream, const GatherServedArgs& args) {
  const int64_t rows = args.ranks.rows(args.rank);
  if (rows == 0) return;
  if (args.count != nullptr) {
    CountSent(args, args.count->rows);
    CopyRows(stream, "ship_rows", args.to, args.from, args.count->rows, args.row_bytes);
    return;
  }
  const uint64_t bytes = static_cast<uint64_t>(rows) * args.row_bytes;
  device::Operation operation = device::MakeOperation<&Gather>(
      Describe(cost::OpKind::kCopy, "ship_rows", rows, 0, bytes), args);
  operation.launch = cuda::LaunchGatherServed;
  operation.Reads(args.from, bytes).Writes(args.to, bytes);
  operation.Reads(args.experts, IndexBytes(args.ranks, rows));
  operation.Reads(args.ranks.owners, OwnerBytes(args.ranks));
  stream.Enqueue(operation);
}

void ReturnServed(device::Stream& stream, const ReturnServedArgs& args) {
  const ServedRanks& ranks = args.ranks;
  const int64_t rows = ranks.rows(ranks.me), slots = rows * ranks.experts_per_token;
  if (rows == 0) return;
  if (args.count != nullptr) {
    CountReturned(args, args.count->slots);
    CopyRows(stream, "ship_outputs", args.to, args.from, args.count->slots, args.row_bytes);
    return;
  }
  // Where the owner's rows of this rank stand among all is not known here.
  const auto all =
      static_cast<uint64_t>(int64_t{ranks.first_row[ranks.num_ranks]} * ranks.experts_per_token);
  device::Operation operation =
      device::MakeOperation<&Return>(Describe(cost::OpKind::kCopy, "ship_outputs", rows, 0,
                                              static_cast<uint64_t>(slots) * args.row_bytes),
                                     args);
  operation.launch = cuda::LaunchReturnServed;
  operation.Reads(args.from, all * args.row_bytes);
  operation.Writes(args.to, static_cast<uint64_t>(slots) * args.row_bytes);
  operation.Reads(args.experts, IndexBytes(ranks, rows));
  operation.Reads(args.positions, IndexBytes(ranks, rows));
  operation.Reads(ranks.owners, OwnerBytes(ranks));
  stream.Enqueue(operation);
}

void DrawServed(const ServedRanks& ranks, const RoutingSource& routing,
                const RoutingSource::Draw& draw, std::span<int32_t> counts) {
  const auto num_experts = static_cast<size_t>(ranks.num_experts);
  std::ranges::fill(counts, 0);
  for (int rank = 0; rank < ranks.num_ranks; ++rank) {
    if (ranks.rows(rank) == 0) continue;
    RoutingSource::Draw own = draw;
    own.rank += static_cast<uint64_t>(rank);
    own.step = ranks.step[rank];
    own.rows = ranks.rows(rank);
    routing.Count(own, counts.subspan(static_cast<size_t>(rank) * num_experts, num_experts));
  }
}

ServedCounts CountServed(const ServedRanks& ranks, int rank, const int32_t* counts) {
  ServedCounts served{};
  const auto all_rows = static_cast<double>(ranks.rows(rank));
  if (all_rows == 0) return served;
  const int64_t first = int64_t{rank} * ranks.num_experts;
  std::array<double, kMaxServed> passes;  // that a row has none of the rank's experts
  passes.fill(1);
  // Consecutive experts mostly have one owner: its product stays in a register.
  for (int32_t expert = 0; expert < ranks.num_experts;) {
    const uint8_t owner = ranks.owners[first + expert];
    double passes_owner = passes[owner];
    int64_t slots = 0;
    for (; expert < ranks.num_experts && ranks.owners[first + expert] == owner; ++expert) {
      slots += counts[first + expert];
      passes_owner *= 1 - static_cast<double>(counts[first + expert]) / all_rows;
    }
    passes[owner] = passes_owner;
    served[owner].slots += slots;
  }
  for (size_t owner = 0; owner < served.size(); ++owner) {
    const double rows = all_rows * (1 - passes[owner]);
    served[owner].rows = std::min(served[owner].slots, static_cast<int64_t>(std::llround(rows)));
  }
  return served;
}

}  // namespace forebay::kernels
