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
#include "kernels/cuda/mma/outputs.h"
#include "kernels/cuda/mma/params.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kSteps = kChunkSide / 16;         // of a chunk along K
constexpr int kTileBytes = 8 * kChunkSide * 2;  // 8 rows of a chunk
constexpr int kCopiesOfLane = 4;                // a stage
constexpr int kTileStoreBytes = 8 * kUnitColumns * 2;

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

// The outputs of a unit by one warp, kTiles tiles of 8 rows at a time. Of a tile's sums, s[2 h + e]
// is row lane % 4 * 2 + e, column lane / 4 of the panel's eight unit % 4 (h = 0) or of that of its
// other half (h = 1). Eights of bf16 are exchanged over `shared`, a row of 16 bytes after the
// other, so that a lane writes 16 bytes.
template <int kTiles>
struct RowsOfUnit {
  using Sums = float[kTiles][4];
  static constexpr int kRows = kTiles * 8;

  const LinearOutputs& to;
  std::byte* shared;
  int panel, eight, lane;

  FB_DEVICE RowsOfUnit(const LinearOutputs& outputs, std::byte* of_warp, int unit)
      : to(outputs),
        shared(of_warp),
        panel(unit / (kChunkSide / kUnitColumns)),
        eight(unit % (kChunkSide / kUnitColumns)),
        lane(gpu::Lane()) {}

  FB_DEVICE int Column(int half) const { return (eight + half * 4) * kEight; }
  FB_DEVICE std::byte* Shared(int half, int row) const {
    return shared + (half * kRows + row) * 16;
  }
  // For matrices of tile 0, its halves, then of tile 1.
  FB_DEVICE uint32_t Matrices() const {
    return gpu::Smem(Shared(lane / 8 % 2, lane / 16 * 8 % kRows + lane % 8));
  }
  // The lane's eight, 16 bytes of `shared`: of row lane % kRows, half lane / kRows.
  FB_DEVICE EightPlace Place(int tile, int column, int width) const {
    return PlaceOf(to, lane < 2 * kRows ? tile * 8 + lane % kRows : to.rows, column, width,
                   eight + lane / kRows * 4);
  }

  // Asks for what kResidual adds to tiles from `tile` on.
  FB_DEVICE void FetchOld(int tile) const {
    Place(tile, to.panels[2 * panel], to.panels[2 * panel + 1]).Fetch(shared + lane * 16);
  }

  // Tiles from `tile` on. REQUIRES: of kResidual FetchOld, in a group of copies.
  FB_DEVICE void Store(int tile, Sums& s) const {
    const int column = to.panels[2 * panel], width = to.panels[2 * panel + 1];
    if (to.bias != nullptr) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float bias = to.bias[panel * kChunkSide + Column(h) + lane / 4];
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
          s[t][2 * h] = s[t][2 * h] + bias, s[t][2 * h + 1] = s[t][2 * h + 1] + bias;
      }
    }
    if (to.output == kOutF32) return StoreWords(tile, column, width, s);
    if (to.output == kOutResidual) AddOld(s);
    const bool gated = IsGatedOutput(to.output);
    if (gated) Gate(s);
    uint32_t pairs[4] = {};
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i)
      pairs[i] = RoundedPair(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
    if constexpr (kTiles == 1) {
      gpu::StoreMatrix2Transposed(Matrices(), {pairs[0], pairs[1]});
    } else {
      gpu::StoreMatrix4Transposed(Matrices(), pairs);
    }
    gpu::SyncWarp();
    if (!gated || lane < kRows) Place(tile, column, width).Store(shared + lane * 16);
    gpu::SyncWarp();
  }

  FB_DEVICE void StoreWords(int tile, int column, int width, const Sums& s) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = (tile + t) * 8 + lane % 4 * 2 + i % 2, at = Column(i / 2) + lane / 4;
        if (row < to.rows && at < width) As<float>(to.y)[row * to.y_stride + column + at] = s[t][i];
      }
    }
  }

  // The second halves are those of the up projection.
  FB_DEVICE void Gate(Sums& s) const {
    const auto all = [&](auto activation) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i)
        s[i / 2][i % 2] = activation(s[i / 2][i % 2], s[i / 2][i % 2 + 2]);
    };
    switch (to.output) {
      case kOutSiluMul: return all([](float x, float up) { return SiluOf(x) * up; });
      case kOutGeluMul: return all([](float x, float up) { return GeluOf(x) * up; });
      default: return all([](float x, float up) { return ClampedSiluOf(x) * ClampedUpOf(up); });
    }
  }

  FB_DEVICE void AddOld(Sums& s) const {
    gpu::WaitCopies<0>();
    gpu::SyncWarp();
    uint32_t old[4];
    gpu::LoadMatrix4Transposed(old, Matrices());
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      float* const pair = s[i / 2] + i % 2 * 2;
      pair[0] = pair[0] + gpu::FromBits(old[i] << 16);
      pair[1] = pair[1] + gpu::FromBits(old[i] & 0xFFFF0000u);
    }
    gpu::SyncWarp();
  }
};

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

// All tiles of a unit, the first of which is `first`. One copy of the code serves all pairs of
// tiles: a copy a tile does not fit the caches of instructions (at 64 rows 231 KB a kernel).
template <int kTiles>
FB_DEVICE void StoreUnit(const RowsOfUnit<kTiles == 1 ? 1 : 2>& rows, int first,
                         const float (&sums)[kTiles][4]) {
  constexpr int kAtOnce = kTiles == 1 ? 1 : 2;
#pragma unroll 1
  for (int tile = 0; tile < kTiles; tile += kAtOnce) {
    if (rows.to.output == kOutResidual) rows.FetchOld(first + tile);
    gpu::CommitCopies();
    float s[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce * 4; ++i) {
      float& sum = s[i / 4][i % 4];
      sum = sums[i / 4][i % 4];
#pragma unroll
      for (int t = kAtOnce; t < kTiles; t += kAtOnce)
        sum = tile == t ? sums[t + i / 4][i % 4] : sum;
    }
    rows.Store(first + tile, s);
  }
}

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
  std::byte* const of_warp =
      reinterpret_cast<std::byte*>(ring.empty + ring.stages) + warp * kUnitStoreBytes;
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
      StoreUnit<kTiles>({args.to, of_warp, unit}, first_tile, sums[u]);
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
  auto* const stores = reinterpret_cast<std::byte*>(ring.empty + ring.stages);
  auto* const offsets = reinterpret_cast<int32_t*>(stores + kSmallConsumers * kUnitStoreBytes);
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
      StoreUnit<kTiles>({to, stores + gpu::Warp() * kUnitStoreBytes, unit}, tile.row_tile * kTiles,
                        sums[u]);
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
  std::byte* const of_warp =
      reinterpret_cast<std::byte*>(ring.empty + ring.stages) + warp * kUnitStoreBytes;
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
  // The sums that this warp adds up, and what kResidual adds to them, while the ring fills.
  static_assert((kSums + kSmallConsumers - 1) / kSmallConsumers * kTileStoreBytes <=
                kUnitStoreBytes);
  const auto rows_of = [&](int i) {
    return RowsOfUnit<1>(args.to, of_warp + i / kSmallConsumers * kTileStoreBytes,
                         first_unit + i / kTiles);
  };
  if (args.to.output == kOutResidual) {
    gpu::AwaitPrevious();
    for (int i = warp; i < kSums; i += kSmallConsumers) {
      if (first_unit + i / kTiles < total) rows_of(i).FetchOld(i % kTiles);
    }
  }
  gpu::CommitCopies();
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
    float sum[1][4] = {{of_leaf[0].of[0], of_leaf[0].of[1], of_leaf[0].of[2], of_leaf[0].of[3]}};
    if (unit < total) rows_of(i).Store(i % kTiles, sum);
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
