// A rank computes its experts with the rows of others (kernels/serve.h): who computes what, which
// rows it gets and where what it gives goes; and which experts rows chose, kept.
//
// Bytes: each row that moves once, indices a few times. Limit: latency; the link to peers.
#include "kernels/cuda/pair/arithmetic.h"
#include "kernels/cuda/pair/move.h"

namespace forebay::kernels::cuda {
namespace {

FB_DEVICE bool Holds(uint64_t holders, int member) { return (holders >> member & 1) != 0; }

// The lowest member that holds it; all holders are of one part.
FB_DEVICE int LowestHolder(uint64_t holders) {
  int member = 0;
  while (!Holds(holders, member)) ++member;
  return member;
}

// The member that `rank` is in the part of the expert's holders.
FB_DEVICE int HomeOf(const ServedParams& ranks, uint64_t holders, int rank) {
  const int lowest = LowestHolder(holders);
  return lowest - lowest % ranks.num_ranks + rank;
}

// Who computes where there is no choice; -1: there is one.
FB_DEVICE int OnlyHolder(uint64_t holders, int home) {
  if (Holds(holders, home)) return home;
  return (holders & (holders - 1)) == 0 ? LowestHolder(holders) : -1;
}

// The holder with the fewest rows so far, of those the nearest, then the lowest; by one warp.
FB_DEVICE int LeastHolder(uint64_t holders, int home, const int* rows) {
  uint64_t least = ~uint64_t{0};
  for (int member = gpu::Lane(); member < kMostServed; member += gpu::kWarpLanes) {
    if (!Holds(holders, member)) continue;
    const int distance = member < home ? home - member : member - home;
    const uint64_t cost = static_cast<uint64_t>(rows[member]) << 16 |
                          static_cast<uint64_t>(distance) << 8 | static_cast<uint64_t>(member);
    least = cost < least ? cost : least;
  }
  for (int mask = gpu::kWarpLanes / 2; mask > 0; mask /= 2) {
    const uint64_t other = gpu::ShuffleXor(static_cast<unsigned long long>(least), mask);
    least = other < least ? other : least;
  }
  return static_cast<int>(least & 0xFF);
}

// By the last of a grid's blocks.
FB_DEVICE void CountMoved(const ServedCounterParams& counted, int64_t mine, uint64_t row_bytes,
                          uint64_t* shared) {
  const uint64_t moved = BlockSum(static_cast<uint64_t>(mine), shared);
  if (gpu::Tid() != 0) return;
  gpu::AtomicAdd(counted.rows, static_cast<int64_t>(moved));
  gpu::AtomicAdd(counted.bytes, static_cast<int64_t>(moved * row_bytes));
}

FB_DEVICE bool IsNeeded(const GatherServedParams& args, int row) {
  const int32_t* const experts = args.experts + int64_t{row} * args.experts_per_token;
  for (int k = 0; k < args.experts_per_token; ++k) {
    if (args.owners[experts[k]] == args.member) return true;
  }
  return false;
}

}  // namespace

// One block.
FB_KERNEL(pair_choose_owners, ChooseOwnersParams, kRowThreads) {
  FB_SHARED(uint64_t, holders);  // [num_experts], then a number of rows a member
  const ServedParams& ranks = args.ranks;
  int* const rows = reinterpret_cast<int*>(holders + ranks.num_experts);
  const int pairs = ranks.num_ranks * ranks.num_experts;
  for (int i = gpu::Tid(); i < pairs; i += gpu::Threads()) args.counts[i] = 0;
  for (int i = gpu::Tid(); i < ranks.num_experts; i += gpu::Threads()) holders[i] = args.holders[i];
  for (int i = gpu::Tid(); i < kMostServed; i += gpu::Threads()) rows[i] = 0;
  gpu::Sync();
  for (int rank = 0; rank < ranks.num_ranks; ++rank) {
    int32_t* const counts = args.counts + rank * ranks.num_experts;
    const int end = ranks.first_row[rank + 1] * ranks.experts_per_token;
    for (int slot = ranks.first_row[rank] * ranks.experts_per_token + gpu::Tid(); slot < end;
         slot += gpu::Threads())
      gpu::AtomicAdd(counts + args.experts[slot], 1);
  }
  gpu::Sync();
  for (int i = gpu::Tid(); i < pairs; i += gpu::Threads()) {
    const uint64_t mask = holders[i % ranks.num_experts];
    const int owner = OnlyHolder(mask, HomeOf(ranks, mask, i / ranks.num_experts));
    if (owner < 0) continue;
    args.owners[i] = static_cast<uint8_t>(owner);
    gpu::AtomicAdd(rows + owner, args.counts[i]);
  }
  gpu::Sync();
  if (gpu::Warp() != 0) return;
  for (int expert = 0; expert < ranks.num_experts; ++expert) {
    const uint64_t mask = holders[expert];
    for (int rank = 0; rank < ranks.num_ranks; ++rank) {
      const int home = HomeOf(ranks, mask, rank);
      if (OnlyHolder(mask, home) >= 0) continue;
      const int owner = LeastHolder(mask, home, rows);
      gpu::SyncWarp();
      if (gpu::Lane() == 0) {
        const int at = rank * ranks.num_experts + expert;
        args.owners[at] = static_cast<uint8_t>(owner);
        rows[owner] += args.counts[at];
      }
      gpu::SyncWarp();
    }
  }
}

// A thread a slot.
FB_KERNEL(pair_mark_served, MarkServedParams, kRowThreads) {
  const ServedParams& ranks = args.ranks;
  const int slot = gpu::BlockX() * gpu::Threads() + gpu::Tid();
  const int row = slot / ranks.experts_per_token;
  if (row >= ranks.first_row[ranks.num_ranks]) return;
  int rank = 0;
  while (row >= ranks.first_row[rank + 1]) ++rank;
  if (ranks.owners[rank * ranks.num_experts + args.experts[slot]] == args.member) return;
  args.experts[slot] = ranks.num_experts;
  args.positions[slot] = -1;
}

// A block a row; the last one counts.
FB_KERNEL(pair_gather_served, GatherServedParams, kRowThreads) {
  FB_SHARED(uint64_t, shared);  // a word a warp
  if (gpu::BlockX() == args.num_rows) {
    if (args.counted.rows == nullptr) return;
    int64_t moved = 0;
    for (int row = gpu::Tid(); row < args.num_rows; row += gpu::Threads())
      moved += IsNeeded(args, row) ? 1 : 0;
    return CountMoved(args.counted, moved, args.row_bytes, shared);
  }
  if (!IsNeeded(args, gpu::BlockX())) return;
  const uint64_t at = gpu::BlockX() * args.row_bytes;
  MoveBytes(args.to + at, args.from + at, args.row_bytes);
}

// A block a slot; the last one counts.
FB_KERNEL(pair_return_served, ReturnServedParams, kRowThreads) {
  FB_SHARED(uint64_t, shared);  // a word a warp
  const int slot = gpu::BlockX();
  if (slot == args.slots) {
    if (args.counted.rows == nullptr) return;
    int64_t moved = 0;
    for (int i = gpu::Tid(); i < args.slots; i += gpu::Threads())
      moved += args.owners[args.experts[i]] == args.owner ? 1 : 0;
    return CountMoved(args.counted, moved, args.row_bytes, shared);
  }
  if (args.owners[args.experts[slot]] != args.owner) return;
  MoveBytes(args.to + slot * args.row_bytes, args.from + args.positions[slot] * args.row_bytes,
            args.row_bytes);
}

FB_KERNEL(pair_keep_chosen, KeepChosenParams, kRowThreads) {
  const int64_t slot = int64_t{gpu::BlockX()} * gpu::Threads() + gpu::Tid();
  if (slot < args.slots) args.to[slot] = static_cast<uint16_t>(args.experts[slot]);
}

}  // namespace forebay::kernels::cuda
