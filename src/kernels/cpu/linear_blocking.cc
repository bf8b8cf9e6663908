#include "kernels/cpu/linear_blocking.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace forebay::kernels {

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

namespace {

// Row blocks are not cut finer than this to spread work: each block passes all weights through the
// cache again.
constexpr int64_t kMinBlockRows = 48;

// From so many rows a share on, a share's rows are blocks of their own.
constexpr int64_t kShareRows = 64;
// A piece of an open unit has at least so many register tiles, which pass the weights together.
constexpr int64_t kPieceTiles = 10;

// Weights of a group. Few register tiles pass a group that stays in L1 while the next one is read
// from memory; many tiles pass one that leaves room in L2 for the next: the more tiles, the less a
// second group's reads add to each, and the longer a tile's run may be. (avx512bf16, share of the
// limit, 2 threads: 2048 x 2048 at 8 rows .81 with 384 KiB and .94 with 16 KiB; 4096 x 14336 at 64
// rows .94 with 128 KiB and .87 with 256 KiB; at 256 rows 4096 x 6144 .959 with 128 KiB and .971
// with 256 KiB, but 3072 x 1024 in 8 leaves .898 and .862.)
constexpr int64_t kFewRows = 4 * kTileRows;
constexpr int64_t kManyRows = 128;
constexpr int64_t kSmallGroupBytes = 16 << 10;
constexpr int64_t kMediumGroupBytes = 128 << 10;
constexpr int64_t kLargeGroupBytes = kMostGroupBytes;
constexpr int64_t kUnitPairs = 8;  // of stored codes

// Values of K that lie side by side in a tile, and bytes of these in all columns.
int64_t PairValues(const PackedWeight& weight) { return weight.is_int8() ? kQuadValues : 2; }
int64_t PairBytes(const PackedWeight& weight) {
  return weight.is_int8() ? kQuadBytes
                          : kPanelColumns * 2 * static_cast<int64_t>(tensor::SizeOf(weight.dtype));
}

int64_t LeafPairs(const PackedWeight& weight, int leaf) {
  const LeafBorders& leaves = weight.leaves;
  return DivideUp(leaves.begin[leaf + 1] - leaves.begin[leaf], PairValues(weight));
}

// x of a block. (avx512bf16, Zen 4, one thread beside other builds, N = 4096, 512 rows, time by
// that of 256 rows, in turns in one process: K = 14336 in blocks of 96 rows .93 to .96, of 64 .93
// to .95; K = 7168 of 192 .97, of 96 .95; K = 4096 within 1 %.)
constexpr int64_t kBlockBytes = 5 << 19;
constexpr int64_t kLeastBlockRows = 96;  // each block reads all weights again

// The fewest blocks of at most `most` rows that load the workers within 3 %, else those that
// load them best; a multiple of `shares` of them where a share gets enough rows.
int RowBlocks(int64_t rows, int64_t most, int64_t panels, int64_t workers, int64_t shares) {
  const int64_t step = rows >= kShareRows * shares ? shares : 1;
  const int64_t least = DivideUp(DivideUp(rows, most), step) * step;
  int64_t best = least;
  double best_excess = 1e9;
  for (int64_t blocks = least;
       blocks <= std::max(least, rows / kMinBlockRows) && best_excess > 1.03; blocks += step) {
    const int64_t units = blocks * panels;
    const double excess =
        static_cast<double>(DivideUp(units, workers) * workers) / static_cast<double>(units);
    if (excess < best_excess - 1e-9) {
      best = blocks;
      best_excess = excess;
    }
  }
  return static_cast<int>(best);
}

int64_t GroupPairs(const LinearArgs& args) {
  if (args.rows <= kTileRows && !args.weight.has_stored_tiles()) {  // a leaf is a group
    int64_t longest = 0;
    for (int leaf = args.leaf_begin; leaf < args.leaf_end; ++leaf) {
      longest = std::max(longest, LeafPairs(args.weight, leaf));
    }
    return longest;
  }
  // a leaf ends a run anyway
  const bool long_runs = args.rows >= kManyRows && args.leaf_end - args.leaf_begin == 1;
  const int64_t bytes = args.rows <= kFewRows ? kSmallGroupBytes
                        : long_runs           ? kLargeGroupBytes
                                              : kMediumGroupBytes;
  // A leaf ends in a short segment: each may cost one more than the pairs ask for.
  return std::max(
      bytes / PairBytes(args.weight),
      DivideUp(DivideUp(args.weight.k, PairValues(args.weight)), kMaxSegments - 2 * kMaxLeaves));
}

// Appends the segments of leaf `leaf`, of a plane (a subtree) that begins with leaf `first` and
// ends before `end`. Segments begin at whole units of pairs.
void AppendLeaf(const PackedWeight& weight, int leaf, int first, int end, int plane, int64_t unit,
                LinearSchedule& schedule) {
  const int64_t leaf_pairs = LeafPairs(weight, leaf);
  const unsigned index = static_cast<unsigned>(leaf - first);
  const int64_t parts = DivideUp(leaf_pairs, schedule.group_pairs);
  const auto border = [&](int64_t part) {
    const int64_t pair = leaf_pairs * part / parts;
    return static_cast<int32_t>(part == parts ? pair : pair / unit * unit);
  };
  for (int64_t part = 0; part < parts; ++part) {
    LinearSegment& segment = schedule.segments[schedule.num_segments++];
    segment.pair = border(part);
    segment.num_pairs = border(part + 1) - segment.pair;
    segment.x_pair = schedule.pairs;
    segment.leaf = static_cast<int8_t>(leaf);
    segment.slot = static_cast<int8_t>(std::popcount(index));
    segment.resume = part > 0;
    segment.merges = 0;
    segment.plane = -1;
    segment.group_end = false;
    schedule.pairs += segment.num_pairs;
  }
  LinearSegment& last = schedule.segments[schedule.num_segments - 1];
  // As many nodes are complete as the counter carries; at the plane's end whatever waits is joined,
  // from the right.
  last.merges =
      static_cast<int8_t>(leaf + 1 == end ? std::popcount(index) : std::countr_one(index));
  if (leaf + 1 == end) last.plane = static_cast<int8_t>(plane);
}

void MarkGroups(LinearSchedule& schedule) {
  int64_t pairs = 0;
  for (int i = 0; i < schedule.num_segments; ++i) {
    LinearSegment& segment = schedule.segments[i];
    pairs += segment.num_pairs;
    const bool last = i + 1 == schedule.num_segments;
    segment.group_end = last || pairs + schedule.segments[i + 1].num_pairs > schedule.group_pairs;
    if (!segment.group_end) continue;
    ++schedule.num_groups;
    pairs = 0;
  }
}

}  // namespace

std::byte* ExpandedMemory(const device::WorkerContext& context) {
  const auto scratch = static_cast<int64_t>(context.scratch_bytes);
  FB_CHECK(scratch >= kSumsBytes + kOwnPackedBytes + kExpandedBytes,
           "stored weights need {} bytes of scratch, a worker has {}",
           kSumsBytes + kOwnPackedBytes + kExpandedBytes, scratch);
  return context.scratch + scratch / 64 * 64 - kExpandedBytes;
}

int64_t BlockRows(tensor::DType dtype, int64_t k) {
  const int64_t rows = kBlockBytes / (k * static_cast<int64_t>(tensor::SizeOf(dtype)));
  return std::clamp<int64_t>(rows, kLeastBlockRows, kMaxBlockRows);
}

LinearShare ShareOf(const LinearSchedule& schedule, int share, int num_workers) {
  const auto begin = [&](int64_t units, int i) { return units * i / schedule.shares; };
  const int64_t all_open = num_workers == 1 ? 0 : schedule.units / 8;
  const int64_t end = begin(schedule.units, share + 1);
  return {begin(schedule.units, share), end - (begin(all_open, share + 1) - begin(all_open, share)),
          end};
}

LinearSchedule ScheduleLinear(const LinearArgs& args, int num_workers) {
  const PackedWeight& weight = args.weight;
  LinearSchedule schedule;
  // with equally many workers each
  schedule.shares = num_workers % kMaxShares == 0 ? kMaxShares : 1;
  schedule.row_blocks = RowBlocks(args.rows, BlockRows(weight.dtype, weight.k), weight.num_panels,
                                  num_workers, schedule.shares);
  schedule.units = static_cast<int64_t>(schedule.row_blocks) * weight.num_panels;
  const int64_t block_tiles = args.rows / schedule.row_blocks / kTileRows;
  schedule.open_pieces = static_cast<int>(std::max<int64_t>(1, block_tiles / kPieceTiles));
  const bool stored = weight.has_stored_tiles();
  schedule.batch_panels = args.rows <= kTileRows && !stored ? kBatchPanels : 1;
  schedule.group_pairs = static_cast<int32_t>(GroupPairs(args));

  int first[kMaxLeaves] = {args.leaf_begin}, level[kMaxLeaves];
  int planes = 1;
  const int64_t unit = stored ? kUnitPairs : 1;
  if (args.output == LinearOutput::kPartial) {
    planes = PartialPlanes(weight.leaves, args.leaf_begin, args.leaf_end, first, level);
    for (int plane = 0; plane < planes; ++plane) first[plane] -= weight.leaves.leaves_before;
  }
  for (int plane = 0; plane < planes; ++plane) {
    const int end = plane + 1 < planes ? first[plane + 1] : args.leaf_end;
    for (int leaf = first[plane]; leaf < end; ++leaf) {
      AppendLeaf(weight, leaf, first[plane], end, plane, unit, schedule);
    }
  }
  MarkGroups(schedule);
  FB_CHECK(!stored || schedule.group_pairs * PairBytes(weight) <= kMostGroupBytes,
           "groups of {} pairs of a stored weight with K = {}", schedule.group_pairs, weight.k);
  return schedule;
}

}  // namespace forebay::kernels
