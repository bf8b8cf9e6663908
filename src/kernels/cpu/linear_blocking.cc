#include "kernels/cpu/linear_blocking.h"

#include <algorithm>
#include <bit>

namespace forebay::kernels {
namespace {

// Weights of a K block. A few register tiles pass a block that stays in L1 while the next one is read from memory;
// many tiles pass whole panels that stay in L2, as far as they fit beside the next one. (linear_bench, 2048 x 2048 of
// bf16, avx512bf16: 8 rows .81 of the limit with panels, .94 with blocks of 16 KiB; 256 rows .96 and .88.)
constexpr int64_t kSmallRows = 4 * kTileRows;
constexpr int64_t kSmallBlockBytes = 16 << 10;
constexpr int64_t kLargeBlockBytes = 384 << 10;
// Row blocks are not cut finer than this to spread work: each block passes the whole weight through the cache again.
constexpr int64_t kMinBlockRows = 48;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The fewest blocks of at most kRowsOfBlock rows that load the workers within 3 %, else those that load them best.
int RowBlocks(int64_t rows, int64_t panels, int64_t workers) {
  const int64_t least = DivideUp(rows, kRowsOfBlock);
  int64_t best = least;
  double best_excess = 1e9;
  for (int64_t blocks = least; blocks <= std::max(least, rows / kMinBlockRows); ++blocks) {
    const int64_t units = blocks * panels;
    const double excess = static_cast<double>(DivideUp(units, workers) * workers) / static_cast<double>(units);
    if (excess < best_excess - 1e-9) {
      best = blocks;
      best_excess = excess;
    }
    if (best_excess <= 1.03) break;
  }
  return static_cast<int>(best);
}

}  // namespace

LinearSchedule ScheduleLinear(const LinearArgs& args, int num_workers) {
  const PackedWeight& weight = args.weight;
  LinearSchedule schedule;
  LinearBlocking& blocking = schedule.blocking;
  blocking.row_blocks = RowBlocks(args.rows, weight.num_panels, num_workers);
  const int64_t units = static_cast<int64_t>(blocking.row_blocks) * weight.num_panels;
  // The last eighth is dynamic: a worker that was interrupted leaves its share to the others.
  blocking.static_units = static_cast<int>(num_workers == 1 ? units : units - units / 8);
  const int64_t pair_bytes = kPanelColumns * 2 * static_cast<int64_t>(tensor::SizeOf(weight.dtype));
  const int64_t k_pairs = (weight.k + 1) / 2;
  const int64_t block_bytes = args.rows <= kSmallRows ? kSmallBlockBytes : kLargeBlockBytes;
  blocking.k_block_pairs =
      static_cast<int>(std::max(block_bytes / pair_bytes, DivideUp(k_pairs, kMaxSegments - 2 * kMaxLeaves)));

  int first[kMaxLeaves] = {args.leaf_begin}, level[kMaxLeaves];
  int planes = 1;
  if (args.output == LinearOutput::kPartial) {
    planes = PartialPlanes(weight.leaves.num_leaves, args.leaf_begin, args.leaf_end, first, level);
  }
  int32_t in_group = 0;
  for (int plane = 0; plane < planes; ++plane) {
    const int end = plane + 1 < planes ? first[plane + 1] : args.leaf_end;
    for (int leaf = first[plane]; leaf < end; ++leaf) {
      const int32_t leaf_pairs = (weight.leaves.begin[leaf + 1] - weight.leaves.begin[leaf] + 1) / 2;
      const unsigned local = static_cast<unsigned>(leaf - first[plane]);
      const int parts = static_cast<int>(DivideUp(leaf_pairs, blocking.k_block_pairs));
      for (int part = 0; part < parts; ++part) {
        const int32_t begin = leaf_pairs * static_cast<int64_t>(part) / parts;
        const int32_t count = leaf_pairs * static_cast<int64_t>(part + 1) / parts - begin;
        if (schedule.num_segments > 0 && in_group + count > blocking.k_block_pairs) {
          schedule.segments[schedule.num_segments - 1].group_end = true;
          in_group = 0;
        }
        LinearSegment& segment = schedule.segments[schedule.num_segments++];
        const bool leaf_end = part + 1 == parts;
        segment.leaf = static_cast<int16_t>(leaf);
        segment.resume = part > 0;
        segment.slot = static_cast<int8_t>(std::popcount(local));
        // As in a binary counter; after the plane's last leaf, whatever waits is joined from the right.
        segment.merges = static_cast<int8_t>(!leaf_end ? 0 : leaf + 1 == end ? std::popcount(local) : std::countr_one(local));
        segment.plane = static_cast<int8_t>(leaf_end && leaf + 1 == end ? plane : -1);
        segment.group_end = false;
        segment.pair = begin;
        segment.num_pairs = count;
        segment.x_pair = schedule.pairs;
        schedule.pairs += count;
        in_group += count;
      }
    }
  }
  schedule.segments[schedule.num_segments - 1].group_end = true;
  for (int i = 0; i < schedule.num_segments; ++i) schedule.num_groups += schedule.segments[i].group_end;
  return schedule;
}

}  // namespace forebay::kernels
