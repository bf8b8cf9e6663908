// Linear layers of 1 to 64 rows, with every output of kernels/linear.h. Weights are the A operand
// of mma.sync, 16 columns a unit, and rows are its columns, 8 a tile.
//
//   mma_linear_chain    one leaf; a block's units go along K together, a warp has up to two of
//                       them, or some of the rows of one
//   mma_linear_leaves   2 to 8 leaves; warp l has leaf l of all units, and the tree adds up planes
//                       in shared memory: a half to nine tenths of the time that a warp takes for
//                       one leaf after the other
//   mma_experts_small   experts (mma/expert_tiles.h) of few rows each, else as linear_chain; the
//                       producer's lanes gather rows
//
// A warp of its own fills a ring by bulk copies: weights while the kernel before still runs, x as
// soon as that has ended. Its lanes hold a copy's address each and only move it on.
// Bytes: the weights once, x once a block from L2. Flops: 2 rows columns K. Limit: reading weights.
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/mma/expert_tiles.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/pair/linear_rows.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kSteps = kChunkSide / 16;         // of a chunk along K
constexpr int kTileBytes = 8 * kChunkSide * 2;  // 8 rows of a chunk
constexpr int kCopiesOfLane = 4;                // a stage

FB_DEVICE int Least(int a, int b) { return a < b ? a : b; }
FB_DEVICE int Most(int a, int b) { return a > b ? a : b; }

// sums += a chunk of kUnits units (in shared memory at `w`, one after the other, `units` of them
// there) times kTiles tiles of rows at `x`.
template <int kTiles, int kUnits>
FB_DEVICE void AddChunk(uint32_t w, uint32_t x, int units, float (&sums)[kUnits][kTiles][4]) {
  constexpr int kAhead = kUnits * kTiles <= 8 ? kSteps : kSteps / 2;  // loads in flight
  const int lane = gpu::Lane(), row = lane % 8;
  w += static_cast<uint32_t>(lane % 16 / 8 * kTileBytes + row * 128);
  // Four matrices are two tiles' halves of a step, or one tile's of two steps.
  x += static_cast<uint32_t>((kTiles > 1 ? lane / 16 * kTileBytes : 0) + row * 128);
  const int x_half = kTiles > 1 ? lane / 8 % 2 : lane / 8;
#pragma unroll
  for (int first = 0; first < kSteps; first += kAhead) {
    uint32_t a[kAhead][kUnits][4], b[kAhead][kTiles][2];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int step = first + i;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        if (u < units)
          gpu::LoadMatrix4(a[i][u], w + u * kUnitBytes + (((step * 2 + lane / 16) ^ row) << 4));
      }
      const uint32_t at = x + (((step * 2 + x_half) ^ row) << 4);
      uint32_t r[4];
      if constexpr (kTiles == 1) {
        if (i % 2 != 0) continue;
        gpu::LoadMatrix4(r, at);
        b[i][0][0] = r[0], b[i][0][1] = r[1], b[i + 1][0][0] = r[2], b[i + 1][0][1] = r[3];
      } else {
#pragma unroll
        for (int j = 0; j < kTiles; j += 2) {
          gpu::LoadMatrix4(r, at + j * kTileBytes);
          b[i][j][0] = r[0], b[i][j][1] = r[1], b[i][j + 1][0] = r[2], b[i][j + 1][1] = r[3];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          if (u < units) gpu::Mma(sums[u][j], a[i][u], b[i][j][0], b[i][j][1]);
        }
      }
    }
  }
}

// Writes the rows of tile `tile` of a unit. Sum i: the panel's column ColumnOfChunk(..) + i / 2 *
// 32, row lane % 4 * 2 + i % 2: of a gate, its up projection is sum i + 2.
FB_DEVICE void StoreTile(const LinearOutputs& to, int unit, int tile, const float (&sums)[4]) {
  constexpr int kUnits = kChunkSide / kUnitColumns;
  const int lane = gpu::Lane(), panel = unit / kUnits;
  const int column = ColumnOfChunk(unit % kUnits * kUnitColumns + lane / 4);
  const int32_t width = to.panels[2 * panel + 1];
  const bool gated = IsGatedOutput(to.output);
  float s[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    s[i] = sums[i];
    if (to.bias != nullptr) s[i] = s[i] + to.bias[panel * kChunkSide + column + i / 2 * 32];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = tile * 8 + lane % 4 * 2 + i % 2, at = column + i / 2 * 32;
    if (row >= to.rows || at >= width) continue;
    StoreSum<BF16>(to.output, to.y, row * to.y_stride + to.panels[2 * panel] + at, s[i],
                   gated ? s[(i + 2) % 4] : 0.0f);
  }
}

// Stages that bulk copies fill and consumers empty.
struct Ring {
  std::byte* base;
  gpu::Bar *full, *empty;
  int stages, stage_bytes;
  int stage = 0, parity = 0;

  FB_DEVICE std::byte* Stage() const { return base + stage * stage_bytes; }
  FB_DEVICE void Next() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  // `bringers`: arrivals of those who fill a stage.
  FB_DEVICE void Init(int bringers = 1) const {
    if (gpu::Tid() == 0) {
      for (int i = 0; i < stages; ++i) {
        gpu::BarInit(full + i, bringers);
        gpu::BarInit(empty + i, kSmallConsumers);
      }
      gpu::BarFence();
    }
    gpu::Sync();
  }
  FB_DEVICE void Release() {
    gpu::SyncWarp();
    if (gpu::Lane() == 0) gpu::BarArrive(empty + stage);
    Next();
  }
};

// Fills stages from `chunk` on, `of_stage` chunks each, up to `chunks`. issue(to, chunk, bar, x,
// w): this lane's copies of x, of weights, or both; bytes(chunk): of a stage. The first stages that
// nobody has used (`early`) get their weights before the kernel before has ended.
template <typename Issue, typename BytesOf>
FB_DEVICE void FillRing(Ring& ring, bool& early, int of_stage, int chunks, Issue issue,
                        BytesOf bytes) {
  int chunk = 0;
  if (early) {
    early = false;
    const int fill = Least(ring.stages, (chunks + of_stage - 1) / of_stage);
    for (int i = 0; i < fill; ++i) {
      if (gpu::Lane() == 0) gpu::BarExpect(ring.full + i, bytes(i * of_stage));
      gpu::SyncWarp();
      issue(ring.base + i * ring.stage_bytes, i * of_stage, ring.full + i, false, true);
    }
    gpu::AwaitPrevious();
    for (int i = 0; i < fill; ++i, ring.Next())
      issue(ring.Stage(), i * of_stage, ring.full + i, true, false);
    chunk = fill * of_stage;
  }
  for (; chunk < chunks; chunk += of_stage, ring.Next()) {
    gpu::BarWait(ring.empty + ring.stage, ring.parity ^ 1);
    if (gpu::Lane() == 0) gpu::BarExpect(ring.full + ring.stage, bytes(chunk));
    gpu::SyncWarp();
    issue(ring.Stage(), chunk, ring.full + ring.stage, true, true);
  }
}

// A lane's copies of a stage.
struct Copies {
  const std::byte* from[kCopiesOfLane];
  int to[kCopiesOfLane], ahead[kCopiesOfLane], end[kCopiesOfLane];  // chunks
  bool is_x[kCopiesOfLane];

  FB_DEVICE void Issue(std::byte* stage, int chunk, gpu::Bar* bar, bool x, bool w,
                       int x_bytes) const {
#pragma unroll
    for (int i = 0; i < kCopiesOfLane; ++i) {
      if (chunk + ahead[i] < end[i] && (is_x[i] ? x : w)) {
        gpu::BulkCopy(stage + to[i], from[i] + int64_t{chunk} * kChunkBytes,
                      is_x[i] ? x_bytes : kUnitBytes, bar);
      }
    }
  }
};

// A slice of a stage is what one chunk along K of one leaf needs: x, then the units' weights.
template <int kTiles, int kUnits>
FB_DEVICE void Chain(const SmallLinearParams& args) {
  FB_SHARED(std::byte, shared);
  const int warp = gpu::Warp(), chunks = args.leaf_begin[1];
  const int x_bytes = kTiles * args.row_groups * kTileBytes;
  const int slice = x_bytes + args.units * kUnitBytes;
  Ring ring{shared, nullptr, nullptr, args.stages, slice * args.stage_chunks};
  ring.full = reinterpret_cast<gpu::Bar*>(shared + ring.stages * ring.stage_bytes);
  ring.empty = ring.full + ring.stages;
  ring.Init();
  gpu::LaunchNext();
  const int total = args.num_panels * (kChunkSide / kUnitColumns);
  const int groups = (total + args.units - 1) / args.units;
  if (warp == kSmallConsumers) {
    const int of_chunk = args.units + 1;
    bool early = true;
    for (int group = gpu::BlockX(); group < groups; group += gpu::GridX()) {
      Copies copies;
#pragma unroll
      for (int i = 0; i < kCopiesOfLane; ++i) {
        const int index = gpu::Lane() + i * gpu::kWarpLanes, part = index % of_chunk;
        const int unit = Least(group * args.units + Most(part - 1, 0), total - 1);
        const int ahead = index / of_chunk;
        copies.is_x[i] = part == 0;
        copies.ahead[i] = ahead;
        copies.end[i] = ahead < args.stage_chunks ? chunks : 0;
        copies.to[i] = ahead * slice + (part == 0 ? 0 : x_bytes + (part - 1) * kUnitBytes);
        copies.from[i] = (part == 0 ? args.x : args.tiles[unit / 4] + unit % 4 * kUnitBytes) +
                         int64_t{ahead} * kChunkBytes;
      }
      FillRing(
          ring, early, args.stage_chunks, chunks,
          [&](std::byte* stage, int chunk, gpu::Bar* bar, bool x, bool w) {
            copies.Issue(stage, chunk, bar, x, w, x_bytes);
          },
          [&](int chunk) { return Least(args.stage_chunks, chunks - chunk) * slice; });
    }
    return;
  }
  const int warps_of_rows = kSmallConsumers / args.row_groups;
  const int first_unit = warp % warps_of_rows * kUnits, first_tile = warp / warps_of_rows * kTiles;
  const int units = Least(kUnits, args.units - first_unit);  // below 1: this warp has none
  for (int group = gpu::BlockX(); group < groups; group += gpu::GridX()) {
    float sums[kUnits][kTiles][4] = {};
    for (int chunk = 0; chunk < chunks; chunk += args.stage_chunks) {
      gpu::BarWait(ring.full + ring.stage, ring.parity);
      const int here = Least(args.stage_chunks, chunks - chunk);
      for (int i = 0; i < here && units > 0; ++i) {
        const uint32_t at = gpu::Smem(ring.Stage() + i * slice);
        AddChunk<kTiles, kUnits>(at + x_bytes + first_unit * kUnitBytes,
                                 at + first_tile * kTileBytes, units, sums);
      }
      ring.Release();
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int unit = group * args.units + first_unit + u;
      if (u >= units || unit >= total) continue;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) StoreTile(args.to, unit, first_tile + j, sums[u][j]);
    }
  }
}

// A tile is kTiles eights of rows and args.units units; slices as in Chain.
template <int kTiles, int kUnits>
FB_DEVICE void Experts(const SmallExpertsParams& args) {
  FB_SHARED(std::byte, shared);
  constexpr int kRows = kTiles * 8, kXBytes = kTiles * kTileBytes;
  const ExpertsParams& of = args.of;
  const int chunks = ChunksOfExpert(of), slice = kXBytes + args.units * kUnitBytes;
  Ring ring{shared, nullptr, nullptr, args.stages, slice * args.stage_chunks};
  ring.full = reinterpret_cast<gpu::Bar*>(shared + ring.stages * ring.stage_bytes);
  ring.empty = ring.full + ring.stages;
  auto* const offsets = reinterpret_cast<int32_t*>(ring.empty + ring.stages);
  TakeOffsets(of, offsets);
  ring.Init(1 + gpu::kWarpLanes);
  const int total = of.num_panels * (kChunkSide / kUnitColumns);
  const int groups = (total + args.units - 1) / args.units;
  if (gpu::Warp() == kSmallConsumers) {
    RowGather<kRows, gpu::kWarpLanes> rows(of);
    ForEachExpertTile<kRows>(of, groups, offsets, [&](const ExpertTile& tile) {
      rows.Take(of, tile);
      Copies copies;
#pragma unroll
      for (int i = 0; i < kCopiesOfLane; ++i) {
        const int index = gpu::Lane() + i * gpu::kWarpLanes, part = index % args.units;
        const int unit = Least(tile.column * args.units + part, total - 1);
        const int ahead = index / args.units;
        copies.is_x[i] = false;
        copies.ahead[i] = ahead;
        copies.end[i] = ahead < args.stage_chunks ? chunks : 0;
        copies.to[i] = ahead * slice + kXBytes + part * kUnitBytes;
        copies.from[i] = PanelOfExpert(of, tile.expert, unit / 4) + unit % 4 * kUnitBytes +
                         int64_t{ahead} * kChunkBytes;
      }
      for (int chunk = 0; chunk < chunks; chunk += args.stage_chunks, ring.Next()) {
        const int here = Least(args.stage_chunks, chunks - chunk);
        gpu::Bar* const full = ring.full + ring.stage;
        gpu::BarWait(ring.empty + ring.stage, ring.parity ^ 1);
        if (gpu::Lane() == 0) gpu::BarExpect(full, here * args.units * kUnitBytes);
        gpu::SyncWarp();
        copies.Issue(ring.Stage(), chunk, full, false, true, 0);
        for (int i = 0; i < here; ++i) rows.Copy(ring.Stage() + i * slice, chunk + i);
        gpu::CopiesArrive(full);
      }
    });
    return;
  }
  const int first_unit = gpu::Warp() * kUnits;
  const int units = Least(kUnits, args.units - first_unit);  // below 1: this warp has none
  ForEachExpertTile<kRows>(of, groups, offsets, [&](const ExpertTile& tile) {
    float sums[kUnits][kTiles][4] = {};
    for (int chunk = 0; chunk < chunks; chunk += args.stage_chunks) {
      gpu::BarWait(ring.full + ring.stage, ring.parity);
      const int here = Least(args.stage_chunks, chunks - chunk);
      for (int i = 0; i < here && units > 0; ++i) {
        const uint32_t at = gpu::Smem(ring.Stage() + i * slice);
        AddChunk<kTiles, kUnits>(at + kXBytes + first_unit * kUnitBytes, at, units, sums);
      }
      ring.Release();
    }
    const LinearOutputs to = OutputsOfExpert(of, tile);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int unit = tile.column * args.units + first_unit + u;
      if (u >= units || unit >= total) continue;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) StoreTile(to, unit, tile.row_tile * kTiles + j, sums[u][j]);
    }
  });
}

// A block has one group of units, and the planes lie over its ring.
template <int kTiles, int kUnits>
FB_DEVICE void Leaves(const SmallLinearParams& args) {
  FB_SHARED(std::byte, shared);
  constexpr int kXBytes = kTiles * kTileBytes, kSlice = kXBytes + kUnits * kUnitBytes;
  constexpr int kSums = kUnits * kTiles;
  struct alignas(16) Sums {
    float of[4];
  };
  const int warp = gpu::Warp();
  int least = args.leaf_begin[1], most = 0;
  for (int leaf = 0; leaf < args.num_leaves; ++leaf) {
    const int chunks = args.leaf_begin[leaf + 1] - args.leaf_begin[leaf];
    least = Least(least, chunks), most = Most(most, chunks);
  }
  Ring ring{shared, nullptr, nullptr, args.stages, kSlice * kMmaLeaves * args.stage_chunks};
  ring.full = reinterpret_cast<gpu::Bar*>(shared + ring.stages * ring.stage_bytes);
  ring.empty = ring.full + ring.stages;
  ring.Init();
  gpu::LaunchNext();
  const int total = args.num_panels * (kChunkSide / kUnitColumns);
  const int first_unit = gpu::BlockX() * kUnits;
  if (warp == kSmallConsumers) {
    constexpr int kOfChunk = kUnits + 1;
    Copies copies;
#pragma unroll
    for (int i = 0; i < kCopiesOfLane; ++i) {
      const int index = gpu::Lane() + i * gpu::kWarpLanes, part = index % kOfChunk;
      const int unit = Least(first_unit + Most(part - 1, 0), total - 1);
      const int in_stage = index / kOfChunk, ahead = in_stage / kMmaLeaves;
      const int leaf = in_stage % kMmaLeaves;
      const bool there = leaf < args.num_leaves && ahead < args.stage_chunks;
      copies.is_x[i] = part == 0;
      copies.ahead[i] = ahead;
      copies.end[i] = there ? args.leaf_begin[leaf + 1] - args.leaf_begin[leaf] : 0;
      copies.to[i] = in_stage * kSlice + (part == 0 ? 0 : kXBytes + (part - 1) * kUnitBytes);
      if (!there) continue;
      copies.from[i] =
          (part == 0 ? args.x + int64_t{args.leaf_begin[leaf]} * kChunkBytes
                     : args.tiles[leaf * args.num_panels + unit / 4] + unit % 4 * kUnitBytes) +
          int64_t{ahead} * kChunkBytes;
    }
    bool early = true;
    FillRing(
        ring, early, args.stage_chunks, most,
        [&](std::byte* stage, int chunk, gpu::Bar* bar, bool x, bool w) {
          copies.Issue(stage, chunk, bar, x, w, kXBytes);
        },
        [&](int chunk) {
          if (chunk + args.stage_chunks <= least)
            return args.num_leaves * args.stage_chunks * kSlice;
          int slices = 0;
          for (int leaf = 0; leaf < args.num_leaves; ++leaf) {
            const int left = args.leaf_begin[leaf + 1] - args.leaf_begin[leaf] - chunk;
            slices += Most(Least(args.stage_chunks, left), 0);
          }
          return slices * kSlice;
        });
    return;
  }
  const int mine = warp < args.num_leaves ? args.leaf_begin[warp + 1] - args.leaf_begin[warp] : 0;
  float sums[kUnits][kTiles][4] = {};
  for (int chunk = 0; chunk < most; chunk += args.stage_chunks) {
    gpu::BarWait(ring.full + ring.stage, ring.parity);
    const int here = Least(args.stage_chunks, mine - chunk);
    for (int i = 0; i < here; ++i) {
      const uint32_t at = gpu::Smem(ring.Stage() + (i * kMmaLeaves + warp) * kSlice);
      AddChunk<kTiles, kUnits>(at + kXBytes, at, kUnits, sums);
    }
    ring.Release();
  }
  const auto meet = [] { gpu::NamedSync(1, kSmallConsumers * gpu::kWarpLanes); };
  meet();                                                // the ring is read
  Sums* const planes = reinterpret_cast<Sums*>(shared);  // [leaf][unit][tile][lane]
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const float(&s)[4] = sums[i / kTiles][i % kTiles];
    planes[(warp * kSums + i) * gpu::kWarpLanes + gpu::Lane()] = {{s[0], s[1], s[2], s[3]}};
  }
  meet();
  for (int i = warp; i < kSums; i += kSmallConsumers) {
    Sums of_leaf[kMmaLeaves];
#pragma unroll
    for (int leaf = 0; leaf < kMmaLeaves; ++leaf)
      of_leaf[leaf] = planes[(leaf * kSums + i) * gpu::kWarpLanes + gpu::Lane()];
#pragma unroll
    for (int apart = 1; apart < kMmaLeaves; apart *= 2) {
#pragma unroll
      for (int leaf = 0; leaf + apart < kMmaLeaves; leaf += 2 * apart) {
        if (leaf + apart >= args.num_leaves) continue;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          of_leaf[leaf].of[e] = of_leaf[leaf].of[e] + of_leaf[leaf + apart].of[e];
      }
    }
    const int unit = first_unit + i / kTiles;
    if (unit < total) StoreTile(args.to, unit, i % kTiles, of_leaf[0].of);
  }
}

}  // namespace

#define FB_LINEAR_SMALL(form, Form, tiles, units)                                         \
  FB_KERNEL(mma_linear_##form##_##tiles##_##units, SmallLinearParams, kSmallThreads, 1) { \
    Form<tiles, units>(args);                                                             \
  }
FB_LINEAR_SMALL(chain, Chain, 1, 1)
FB_LINEAR_SMALL(chain, Chain, 2, 1)
FB_LINEAR_SMALL(chain, Chain, 4, 1)
FB_LINEAR_SMALL(chain, Chain, 8, 1)
FB_LINEAR_SMALL(chain, Chain, 1, 2)
FB_LINEAR_SMALL(chain, Chain, 2, 2)
FB_LINEAR_SMALL(chain, Chain, 4, 2)
FB_LINEAR_SMALL(chain, Chain, 8, 2)
FB_LINEAR_SMALL(leaves, Leaves, 1, 1)
FB_LINEAR_SMALL(leaves, Leaves, 2, 1)
FB_LINEAR_SMALL(leaves, Leaves, 4, 1)
FB_LINEAR_SMALL(leaves, Leaves, 8, 1)
FB_LINEAR_SMALL(leaves, Leaves, 1, 2)
FB_LINEAR_SMALL(leaves, Leaves, 2, 2)
FB_LINEAR_SMALL(leaves, Leaves, 4, 2)
FB_LINEAR_SMALL(leaves, Leaves, 8, 2)
FB_LINEAR_SMALL(leaves, Leaves, 1, 3)
FB_LINEAR_SMALL(leaves, Leaves, 2, 3)
FB_LINEAR_SMALL(leaves, Leaves, 4, 3)
FB_LINEAR_SMALL(leaves, Leaves, 8, 3)

#define FB_EXPERTS_SMALL(tiles, units)                                                   \
  FB_KERNEL(mma_experts_small_##tiles##_##units, SmallExpertsParams, kSmallThreads, 1) { \
    Experts<tiles, units>(args);                                                         \
  }
FB_EXPERTS_SMALL(1, 1)
FB_EXPERTS_SMALL(2, 1)
FB_EXPERTS_SMALL(4, 1)
FB_EXPERTS_SMALL(1, 2)
FB_EXPERTS_SMALL(2, 2)
FB_EXPERTS_SMALL(4, 2)

}  // namespace forebay::kernels::cuda
