// Linear layers of many rows, with every output of kernels/linear.h. Persistent blocks take tiles
// of 128 rows; two producer threads bring chunks, one those of rows, one those of weights; two
// consumers of 64 rows issue wgmma from shared memory.
//
//   mma_linear_256          one leaf, tiles of 256 columns
//   mma_linear_128          one leaf, tiles of 128 columns, two of rows a cluster: each block
//                           brings half of the weights to both
//   mma_linear_128_leaves   2 to 8 leaves, no gates: each is a chain of its own. Two chains and a
//                           pair's sum stand in registers, the first four leaves' in shared memory.
//   mma_experts_256         experts (mma/expert_tiles.h), tiles as of mma_linear_256; the producer
//                           group gathers rows, its first lanes bring the panels
//
// Producers only move pointers on: addresses worked out at each chunk cost more than its products.
// Bytes: a tile's rows and columns from L2. Flops: 2 rows columns K. Limit: tensor cores.
#include <type_traits>

#include "kernels/cuda/mma/arithmetic.h"
#include "kernels/cuda/mma/expert_tiles.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/pair/linear_rows.h"
#include "kernels/cuda/wgmma.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kGroup = 4 * gpu::kWarpLanes, kConsumers = 2, kConsumerWarps = 4 * kConsumers;
constexpr int kWarpRows = 16, kEight = 8;  // of a warp; columns that stay together

FB_DEVICE int Least(int a, int b) { return a < b ? a : b; }

struct alignas(16) Four {
  float of[4];
};

template <int kBlocks>
struct Ring {
  std::byte* base;
  gpu::Bar *full, *empty;
  int stages, stage_bytes;
  int stage = 0, parity = 0;

  FB_DEVICE std::byte* At() const { return base + stage * stage_bytes; }
  FB_DEVICE void Next() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
  // By one thread: the stage is empty, here and where this block's weights go to.
  FB_DEVICE gpu::Bar* Fill(int bytes) const {
    gpu::BarWait(empty + stage, parity ^ 1);
    gpu::BarExpect(full + stage, bytes);
    return full + stage;
  }
  // Stage `at` is read by this warp.
  FB_DEVICE void Release(int at) const {
    if constexpr (kBlocks == 1) {
      if (gpu::Lane() == 0) gpu::BarArrive(empty + at);
    } else {
      if (gpu::Lane() < kBlocks) gpu::BarArriveAt(empty + at, gpu::Lane());
    }
  }
};

// Tile `at` of all: columns of a group of row tiles, one after the other.
struct TilePlace {
  int row, column;

  FB_DEVICE TilePlace(const ManyLinearParams& args, int at) {
    const int of_group = args.group * args.column_tiles, first = at / of_group * args.group;
    const int rows = Least(args.group, args.row_tiles - first);
    row = first + at % of_group % rows;
    column = at % of_group / rows;
  }
};

template <int kColumns, int kStages, int kBlocks, bool kLeaves, typename Params = ManyLinearParams>
struct Many {
  static constexpr int kStageBytes = ManyStageBytes({kColumns, kStages, kBlocks, kLeaves});
  using Sums = float[kColumns / 2];

  const Params& args;
  Ring<kBlocks> ring;
  std::byte* store;
  Four* plane;
  int rank, tiles, chunks;

  // `bringers`: threads that arrive at a stage which they fill. `of_tiles`: of experts, those of
  // the columns of each.
  FB_DEVICE Many(const Params& params, int of_tiles, int of_chunks, int bringers)
      : args(params),
        ring{},
        rank(kBlocks == 1 ? 0 : gpu::ClusterRank()),
        tiles(of_tiles),
        chunks(of_chunks) {
    FB_SHARED(std::byte, shared);
    store = shared + kStages * kStageBytes;
    std::byte* const planes = store + kManyStoreBytes;
    plane = reinterpret_cast<Four*>(planes);
    auto* const bars =
        reinterpret_cast<gpu::Bar*>(planes + ManyPlaneBytes({kColumns, kStages, kBlocks, kLeaves}));
    ring = {shared, bars, bars + kStages, kStages, kStageBytes};
    if (gpu::Tid() == 0) {
      for (int i = 0; i < kStages; ++i) {
        gpu::BarInit(ring.full + i, bringers);
        gpu::BarInit(ring.empty + i, kConsumerWarps * kBlocks);
      }
      gpu::BarFence();
    }
    if constexpr (kBlocks == 1) {
      gpu::Sync();
    } else {
      gpu::ClusterSync();
    }
  }

  FB_DEVICE int FirstTile() const { return gpu::BlockX() / kBlocks; }
  FB_DEVICE int TileStride() const { return gpu::GridX() / kBlocks; }
  FB_DEVICE int RowBlock(const TilePlace& at, int consumer) const {
    return (at.row * kBlocks + rank) * kConsumers + consumer;
  }

  FB_DEVICE void BringRows() {
    for (int tile = FirstTile(); tile < tiles; tile += TileStride()) {
      const TilePlace at(args, tile);
      const auto block = [&](int consumer) {
        return args.x + int64_t{Least(RowBlock(at, consumer), args.row_blocks - 1)} *
                            args.x_chunks * kChunkBytes;
      };
      const std::byte *upper = block(0), *lower = block(1);
#pragma unroll 1
      for (int k = 0; k < chunks; ++k, ring.Next()) {
        gpu::Bar* const full = ring.Fill(2 * kChunkBytes);
        gpu::BulkCopy(ring.At(), upper, kChunkBytes, full);
        gpu::BulkCopy(ring.At() + kChunkBytes, lower, kChunkBytes, full);
        upper += kChunkBytes;
        lower += kChunkBytes;
      }
    }
  }

  // This block's panels of the tile, to all blocks of the cluster.
  FB_DEVICE void BringWeights() {
    constexpr int kPanels = kColumns / kChunkSide / kBlocks;
    for (int tile = FirstTile(); tile < tiles; tile += TileStride()) {
      const TilePlace at(args, tile);
      const int first = at.column * (kColumns / kChunkSide) + rank * kPanels;
      for (int leaf = 0; leaf < args.num_leaves; ++leaf) {
        const std::byte* from[kPanels];
#pragma unroll
        for (int i = 0; i < kPanels; ++i)
          from[i] = args.tiles[leaf * args.num_panels + Least(first + i, args.num_panels - 1)];
        const int of_leaf = args.leaf_begin[leaf + 1] - args.leaf_begin[leaf];
#pragma unroll 1
        for (int k = 0; k < of_leaf; ++k, ring.Next()) {
          gpu::Bar* const full = ring.Fill(kColumns * 128);
#pragma unroll
          for (int i = 0; i < kPanels; ++i, from[i - 1] += kChunkBytes) {
            std::byte* const to = ring.At() + (2 + rank * kPanels + i) * kChunkBytes;
            if constexpr (kBlocks == 1) {
              gpu::BulkCopy(to, from[i], kChunkBytes, full);
            } else {
              gpu::BulkMulticast(to, from[i], kChunkBytes, full, (1 << kBlocks) - 1);
            }
          }
        }
      }
    }
  }

  // sums = the chain over the next `of_leaf` chunks, from +0 on.
  FB_DEVICE void Chain(Sums& sums, int of_leaf, int consumer) {
    int before = 0;
#pragma unroll 1
    for (int k = 0; k < of_leaf; ++k) {
      gpu::BarWait(ring.full + ring.stage, ring.parity);
      if constexpr (std::is_same_v<Params, ExpertsParams>) gpu::ProxyFence();
      const uint32_t x = gpu::Smem(ring.At() + consumer * kChunkBytes);
      const uint32_t w = gpu::Smem(ring.At() + 2 * kChunkBytes);
      gpu::WgmmaFence();
#pragma unroll
      for (uint32_t i = 0; i < kChunkSide / 16; ++i) {
        gpu::Wgmma<kColumns>::template Shared<false>(
            sums, gpu::OperandAlongK(x + i * 32), gpu::OperandAlongK(w + i * 32), k > 0 || i > 0);
      }
      gpu::WgmmaCommit();
      gpu::WgmmaWait<1>();
      if (k > 0) ring.Release(before);
      before = ring.stage;
      ring.Next();
    }
    gpu::WgmmaWait<0>();
    ring.Release(before);
    gpu::PinRegisters(sums);
  }

  FB_DEVICE void Consume(int consumer) {
    const int thread = gpu::Tid() % kGroup;
    Sums sums;
    for (int tile = FirstTile(); tile < tiles; tile += TileStride()) {
      const TilePlace at(args, tile);
      if constexpr (kLeaves) {
        SumLeaves(sums, consumer, plane + consumer * (kColumns / 8) * kGroup + thread);
      } else {
        Chain(sums, chunks, consumer);
      }
      Store(sums, args.to, RowBlock(at, consumer), at.column * (kColumns / kChunkSide));
    }
  }

  // Experts: rows by the whole group, a panel by each of its first lanes.
  FB_DEVICE void BringExperts(const int32_t* offsets) {
    constexpr int kPanels = kColumns / kChunkSide;
    RowGather<kManyRows, kGroup> rows(args);
    const int lane = gpu::Tid();
    ForEachExpertTile<kManyRows>(args, tiles, offsets, [&](const ExpertTile& tile) {
      rows.Take(args, tile);
      const std::byte* from =
          PanelOfExpert(args, tile.expert, tile.column * kPanels + lane % kPanels);
#pragma unroll 1
      for (int k = 0; k < chunks; ++k, from += kChunkBytes, ring.Next()) {
        gpu::BarWait(ring.empty + ring.stage, ring.parity ^ 1);
        gpu::Bar* const full = ring.full + ring.stage;
        if (lane == 0) gpu::BarExpect(full, kColumns * 128);
        gpu::SyncWarp();
        if (lane < kPanels)
          gpu::BulkCopy(ring.At() + (2 + lane) * kChunkBytes, from, kChunkBytes, full);
        rows.Copy(ring.At(), k);
        gpu::CopiesArrive(full);
      }
    });
  }

  FB_DEVICE void ConsumeExperts(const int32_t* offsets, int consumer) {
    Sums sums;
    ForEachExpertTile<kManyRows>(args, tiles, offsets, [&](const ExpertTile& tile) {
      const int row_block = tile.row_tile * kConsumers + consumer;
      if (row_block * kChunkSide >= tile.rows) return Pass();
      Chain(sums, chunks, consumer);
      Store(sums, OutputsOfExpert(args, tile), row_block, tile.column * (kColumns / kChunkSide));
    });
  }
  // A tile without rows of this consumer.
  FB_DEVICE void Pass() {
#pragma unroll 1
    for (int k = 0; k < chunks; ++k, ring.Next()) {
      gpu::BarWait(ring.full + ring.stage, ring.parity);
      ring.Release(ring.stage);
    }
  }

  // The fixed tree: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), what is missing passed by.
  FB_DEVICE void SumLeaves(Sums& sums, int consumer, Four* first_half) {
    Sums even, odd;
    const auto of_leaf = [&](int leaf) {
      return args.leaf_begin[leaf + 1] - args.leaf_begin[leaf];
    };
#pragma unroll 1
    for (int leaf = 0; leaf < args.num_leaves; leaf += 2) {
      Chain(even, of_leaf(leaf), consumer);
      if (leaf + 1 < args.num_leaves) {
        Chain(odd, of_leaf(leaf + 1), consumer);
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) even[i] = even[i] + odd[i];
      }
      const bool begins = leaf % 4 == 0;
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) sums[i] = begins ? even[i] : sums[i] + even[i];
      if (leaf != 2 || args.num_leaves <= 4) continue;
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) {
        first_half[i * kGroup] = {{sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]}};
      }
    }
    if (args.num_leaves <= 4) return;
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
      const Four half = first_half[i * kGroup];
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i * 4 + e] = half.of[e] + sums[i * 4 + e];
    }
  }

  // A warp's 16 rows, a panel at a time through shared memory of its own: eights of columns, that
  // of row r at place (eight ^ r % 8).
  FB_DEVICE void Store(const Sums& sums, const LinearOutputs& to, int row_block, int first_panel) {
    // Registers are short where leaves are added.
    const int thread = gpu::Here(gpu::Tid()) - kGroup, lane = thread % gpu::kWarpLanes;
    const int warp = thread / gpu::kWarpLanes;
    auto* const staged = reinterpret_cast<float*>(store) + warp * kWarpRows * kChunkSide;
    const int first_row = row_block * kChunkSide + warp % 4 * kWarpRows;
#pragma unroll
    for (int panel = 0; panel < kColumns / kChunkSide; ++panel) {
      if (first_row >= to.rows || first_panel + panel >= args.num_panels) continue;
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        const int row = lane / 4 + i / 2 % 2 * 8;
        const int eight = ColumnOfChunk(i / 4 * kEight) / kEight;
        float* const to = staged + row * kChunkSide + (eight ^ row % 8) * kEight + lane % 4 * 2;
        to[0] = sums[panel * 32 + i];
        to[1] = sums[panel * 32 + i + 1];
      }
      gpu::SyncWarp();
      StorePanel(to, staged, first_row, first_panel + panel, lane);
      gpu::SyncWarp();
    }
  }

  FB_DEVICE void StorePanel(const LinearOutputs& to, const float* staged, int first_row, int panel,
                            int lane) {
    const bool gated = !kLeaves && IsGatedOutput(to.output);
    const int eights = gated ? 4 : 8;
    const int32_t width = to.panels[2 * panel + 1];
#pragma unroll 1
    for (int i = lane; i < kWarpRows * eights; i += gpu::kWarpLanes) {
      const int row = i / eights, eight = i % eights, first = eight * kEight;
      if (first_row + row >= to.rows || first >= width) continue;
      float sum[kEight], up[kEight] = {};
      const auto take = [&](int of, float(&values)[kEight]) {
        const float* const from = staged + row * kChunkSide + (of ^ row % 8) * kEight;
#pragma unroll
        for (int e = 0; e < kEight; ++e) {
          values[e] = from[e];
          if (to.bias != nullptr)
            values[e] = values[e] + to.bias[panel * kChunkSide + of * kEight + e];
        }
      };
      take(eight, sum);
      if (gated) take(eight + 4, up);
      StoreEight(to, (int64_t{first_row} + row) * to.y_stride + to.panels[2 * panel] + first,
                 Least(width - first, kEight), sum, up);
    }
  }

  // `count` outputs from element `at` of y on.
  FB_DEVICE static void StoreEight(const LinearOutputs& to, int64_t at, int count,
                                   const float (&sum)[kEight], const float (&up)[kEight]) {
    const bool fp32 = to.output == kOutF32;
    const std::byte* const place = to.y + at * (fp32 ? 4 : 2);
    if (count < kEight || reinterpret_cast<uintptr_t>(place) % sizeof(Four) != 0) {
      for (int e = 0; e < count; ++e) StoreSum<BF16>(to.output, to.y, at + e, sum[e], up[e]);
      return;
    }
    auto* const four = reinterpret_cast<Four*>(to.y + at * (fp32 ? 4 : 2));
    if (fp32) {
      four[0] = {{sum[0], sum[1], sum[2], sum[3]}};
      four[1] = {{sum[4], sum[5], sum[6], sum[7]}};
      return;
    }
    struct alignas(16) Pairs {
      uint32_t of[4];
    };
    auto* const pairs = reinterpret_cast<Pairs*>(four);
    const Pairs old = to.output == kOutResidual ? *pairs : Pairs{};
    Pairs out;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      out.of[e] =
          RoundedPair(OutputOf(to.output, sum[2 * e], up[2 * e], gpu::FromBits(old.of[e] << 16)),
                      OutputOf(to.output, sum[2 * e + 1], up[2 * e + 1],
                               gpu::FromBits(old.of[e] & 0xFFFF0000u)));
    }
    *pairs = out;
  }
};

template <int kColumns, int kStages, int kBlocks, bool kLeaves>
FB_DEVICE void Run(const ManyLinearParams& args) {
  // Of what a launch takes, 168 a thread.
  constexpr int kProducer = kLeaves ? 24 : 40, kConsumer = kLeaves ? 240 : 232;
  static_assert(kProducer + kConsumers * kConsumer <= 3 * 168);
  Many<kColumns, kStages, kBlocks, kLeaves> many(args, args.row_tiles * args.column_tiles,
                                                 args.leaf_begin[args.num_leaves], 2);
  const int group = gpu::Tid() / kGroup;
  if (group == 0) {
    gpu::RegistersDown<kProducer>();
    if (gpu::Tid() == 0) many.BringRows();
    if (gpu::Tid() == gpu::kWarpLanes) many.BringWeights();
  } else {
    gpu::RegistersUp<kConsumer>();
    many.Consume(group - 1);
  }
  // No block leaves while another's copies or arrivals come to it.
  gpu::SyncWarp();
  if constexpr (kBlocks > 1) gpu::ClusterSync();
}

FB_DEVICE void RunExperts(const ExpertsParams& args) {
  constexpr int kProducer = 56, kConsumer = 224;  // registers, as in Run
  static_assert(kProducer + kConsumers * kConsumer <= 3 * 168);
  FB_SHARED(std::byte, shared);
  auto* const offsets = reinterpret_cast<int32_t*>(shared + ManySharedBytes(kMany256));
  TakeOffsets(args, offsets);
  constexpr ManyForm kForm = kMany256;
  Many<kForm.columns, kForm.stages, 1, false, ExpertsParams> many(
      args, (args.num_panels * kChunkSide + kForm.columns - 1) / kForm.columns,
      ChunksOfExpert(args), 1 + kGroup);
  const int group = gpu::Tid() / kGroup;
  if (group == 0) {
    gpu::RegistersDown<kProducer>();
    many.BringExperts(offsets);
  } else {
    gpu::RegistersUp<kConsumer>();
    many.ConsumeExperts(offsets, group - 1);
  }
}

}  // namespace

#define FB_LINEAR_MANY(name, form)                                  \
  FB_KERNEL(name, ManyLinearParams, kManyThreads, 1) {              \
    Run<form.columns, form.stages, form.blocks, form.leaves>(args); \
  }
FB_LINEAR_MANY(mma_linear_256, kMany256)
FB_LINEAR_MANY(mma_linear_128, kMany128)
FB_LINEAR_MANY(mma_linear_128_leaves, kManyLeaves)
FB_KERNEL(mma_experts_256, ExpertsParams, kManyThreads, 1) { RunExperts(args); }

}  // namespace forebay::kernels::cuda
