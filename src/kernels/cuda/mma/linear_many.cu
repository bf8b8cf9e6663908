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

#include "kernels/cuda/mma/expert_tiles.h"
#include "kernels/cuda/mma/outputs.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/wgmma.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kGroup = 4 * gpu::kWarpLanes, kConsumers = 2, kConsumerWarps = 4 * kConsumers;
constexpr int kWarpRows = 16, kPanelStoreBytes = kWarpRows * kChunkSide * 2;
constexpr int kWarpStoreBytes = kManyStoreBytes / kConsumerWarps;

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

// The outputs of 16 rows of a panel by one warp: of its sums, s[4 j + 2 h + e] is row lane / 4 + 8
// h, row 8 j + lane % 4 * 2 + e of the weight's chunk. Eights of bf16 are exchanged over `shared`,
// 16 rows of 128 bytes swizzled as a chunk, so that a lane writes 16 bytes.
template <bool kGates>
struct RowsOfWarp {
  const LinearOutputs& to;
  std::byte* shared;
  int first_row, lane;

  // Eight `eight` of row `row` of these.
  FB_DEVICE std::byte* Shared(int row, int eight) const {
    return shared + InChunk(row, eight * kEight);
  }
  // Where matrices i and i + 1 of 8 x 8 lie for ldmatrix and stmatrix: rows 0 to 7 and 8 to 15 of
  // eight `first`, then of eight `second`.
  FB_DEVICE uint32_t Matrices(int first, int second) const {
    return gpu::Smem(Shared(lane % 16, lane < 16 ? first : second));
  }

  FB_DEVICE void Store(int panel, float (&s)[32]) const {
    const int column = to.panels[2 * panel], width = to.panels[2 * panel + 1];
    if (to.bias != nullptr) {
      const float* const bias = to.bias + panel * kChunkSide + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 32; ++i) s[i] = s[i] + bias[ColumnOfChunk(i / 4 * kEight) + i % 2];
    }
    if (to.output == kOutF32) return StoreWords(column, width, s);
    if (kGates && IsGatedOutput(to.output)) {
      uint32_t pairs[8];  // of gate eights and h
      Gate(s, pairs);
#pragma unroll
      for (int j = 0; j < 4; j += 2)
        gpu::StoreMatrix4(Matrices(j, j + 1),
                          {pairs[2 * j], pairs[2 * j + 1], pairs[2 * j + 2], pairs[2 * j + 3]});
      gpu::SyncWarp();
      StoreEights<4>(column, width);
      gpu::SyncWarp();
      return;
    }
    if (to.output == kOutResidual) {
      gpu::WaitCopies<1>();
      gpu::SyncWarp();
      AddOld(s);
    }
    Exchange(s);
    StoreEights<8>(column, width);
    gpu::SyncWarp();
  }

  // Brings all sums, rounded, into shared memory.
  FB_DEVICE void Exchange(const float (&s)[32]) const {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const float* const of = s + 4 * j;
      gpu::StoreMatrix4(Matrices(j / 2, j / 2 + 4),
                        {RoundedPair(of[0], of[1]), RoundedPair(of[2], of[3]),
                         RoundedPair(of[4], of[5]), RoundedPair(of[6], of[7])});
    }
    gpu::SyncWarp();
  }

  FB_DEVICE void StoreWords(int column, int width, const float (&s)[32]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + lane / 4 + h * 8;
      if (row >= to.rows) continue;
      float* const y = As<float>(to.y) + row * to.y_stride + column;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int at = ColumnOfChunk(i / 2 * kEight) + lane % 4 * 2 + i % 2;
        if (at < width) y[at] = s[i / 2 * 4 + h * 2 + i % 2];
      }
    }
  }

  // Gate columns are eights j, those of the up projection eights j + 1.
  FB_DEVICE void Gate(const float (&s)[32], uint32_t (&pairs)[8]) const {
    const auto all = [&](auto activation) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int at = i / 2 * 8 + i % 2 * 2;
        pairs[i] = RoundedPair(activation(s[at], s[at + 4]), activation(s[at + 1], s[at + 5]));
      }
    };
    switch (to.output) {
      case kOutSiluMul: return all([](float x, float up) { return SiluOf(x) * up; });
      case kOutGeluMul: return all([](float x, float up) { return GeluOf(x) * up; });
      default: return all([](float x, float up) { return ClampedSiluOf(x) * ClampedUpOf(up); });
    }
  }

  // Asks for what kResidual adds to a panel.
  FB_DEVICE void FetchOld(int panel) const {
    const int column = to.panels[2 * panel], width = to.panels[2 * panel + 1];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + lane / 8, eight = lane % 8;
      PlaceOf(to, first_row + row, column, width, eight).Fetch(Shared(row, eight));
    }
  }

  // REQUIRES: what is added has come.
  FB_DEVICE void AddOld(float (&s)[32]) const {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t old[4];
      gpu::LoadMatrix4(old, Matrices(j / 2, j / 2 + 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float* const pair = s + j * 4 + i * 2;
        pair[0] = pair[0] + gpu::FromBits(old[i] << 16);
        pair[1] = pair[1] + gpu::FromBits(old[i] & 0xFFFF0000u);
      }
    }
    gpu::SyncWarp();
  }

  template <int kEights>
  FB_DEVICE void StoreEights(int column, int width) const {
#pragma unroll
    for (int i = 0; i < kEights / 2; ++i) {
      const int at = i * gpu::kWarpLanes + lane, row = at / kEights, eight = at % kEights;
      PlaceOf(to, first_row + row, column, width, eight).Store(Shared(row, eight));
    }
  }
};

// The same of a tile's panels at once where nothing is special about them: all rows and columns are
// there, at multiples of 16 bytes, without a bias or a gate. Unrolled, and short.
template <int kPanels>
struct WholePanels {
  struct alignas(16) Piece {
    uint32_t pairs[4];
  };
  struct alignas(8) Two {
    float of[2];
  };
  static constexpr int kPieces = 4;  // of a lane in a panel

  // Of panel lane % kPanels.
  int32_t column;
  bool fits;

  // They are looked up here, in front of the products, and used behind them.
  FB_DEVICE WholePanels(const LinearOutputs& to, int first_row, int first_panel, int num_panels) {
    const int panel = first_panel + gpu::Lane() % kPanels, there = Least(panel, num_panels - 1);
    const bool words = to.output == kOutF32;
    column = to.panels[2 * there];
    fits = panel == there && to.panels[2 * there + 1] == kChunkSide &&
           column % (to.form == RowForm::kRows ? kEight : kChunkSide) == 0 &&
           first_row + kWarpRows <= to.rows && to.bias == nullptr &&
           (words || to.output == kOutRounded || (to.output == kOutResidual && kPanels == 2)) &&
           (reinterpret_cast<uintptr_t>(to.y) % 16 | to.y_stride * (words ? 4 : 2) % 16) == 0;
  }
  FB_DEVICE bool all() const { return gpu::Ballot(!fits) == 0; }

  // The lane's pieces of a panel, in shared memory and from there on in y.
  struct Pieces {
    std::byte* rows;
    int shared[kPieces], y[kPieces];
    bool chunks;

    FB_DEVICE Pieces(const LinearOutputs& to, int first_row, int lane)
        : rows(to.y + InRows(to.form, first_row, 0, to.y_stride)),
          chunks(to.form == RowForm::kChunks) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int row = i * 4 + lane / 8, eight = lane % 8;
        shared[i] = InChunk(row, eight * kEight);
        y[i] = chunks ? shared[i] : (row * static_cast<int>(to.y_stride) + eight * kEight) * 2;
      }
    }
    FB_DEVICE std::byte* Panel(int column) const {
      return rows + (chunks ? column / kChunkSide * kChunkBytes : column * 2);
    }
  };

  // Asks for what kResidual adds, in front of the products. REQUIRES: all().
  FB_DEVICE void FetchOld(const LinearOutputs& to, std::byte* shared, int first_row) const {
    const Pieces pieces(to, first_row, gpu::Lane());
#pragma unroll
    for (int p = 0; p < kPanels; ++p) {
      const std::byte* const from = pieces.Panel(gpu::Shuffle(column, p));
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        gpu::CopyAsync16(shared + p % 2 * kPanelStoreBytes + pieces.shared[i], from + pieces.y[i],
                         true);
      }
    }
  }

  // REQUIRES: all(); of kResidual FetchOld, in a group of copies.
  FB_DEVICE void Store(const float (&sums)[kPanels * 32], const LinearOutputs& to,
                       std::byte* shared, int first_row) const {
    const int lane = gpu::Here(gpu::Lane());
    if (to.output == kOutF32) return StoreWords(sums, to, first_row, lane);
    const Pieces pieces(to, first_row, lane);
    const bool residual = kPanels == 2 && to.output == kOutResidual;
    if (residual) {
      gpu::WaitCopies<0>();
      gpu::SyncWarp();
    }
#pragma unroll
    for (int p = 0; p < kPanels; ++p) {
      std::byte* const buffer = shared + p % 2 * kPanelStoreBytes;
      const RowsOfWarp<false> rows{to, buffer, first_row, lane};
      float s[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) s[i] = sums[p * 32 + i];
      if (residual) rows.AddOld(s);
      rows.Exchange(s);
      std::byte* const panel = pieces.Panel(gpu::Shuffle(column, p));
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        *reinterpret_cast<Piece*>(panel + pieces.y[i]) =
            *reinterpret_cast<const Piece*>(buffer + pieces.shared[i]);
      }
    }
    gpu::SyncWarp();
  }

  FB_DEVICE void StoreWords(const float (&sums)[kPanels * 32], const LinearOutputs& to,
                            int first_row, int lane) const {
    float* const first = As<float>(to.y) + (first_row + lane / 4) * to.y_stride + lane % 4 * 2;
#pragma unroll
    for (int p = 0; p < kPanels; ++p) {
      float* const y = first + gpu::Shuffle(column, p);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const float* const s = sums + p * 32 + i * 2;
        *reinterpret_cast<Two*>(y + i % 2 * 8 * to.y_stride +
                                ColumnOfChunk(i / 2 * kEight)) = {{s[0], s[1]}};
      }
    }
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
      const int row_block = RowBlock(at, consumer);
      const int first_panel = at.column * (kColumns / kChunkSide);
      const WholePanels<kColumns / kChunkSide> whole(args.to, FirstRow(row_block), first_panel,
                                                     args.num_panels);
      if (args.to.output == kOutResidual) {
        if (whole.all()) whole.FetchOld(args.to, StoreOfWarp(), FirstRow(row_block));
        gpu::CommitCopies();
      }
      if constexpr (kLeaves) {
        SumLeaves(sums, consumer, plane + consumer * (kColumns / 8) * kGroup + thread);
      } else {
        Chain(sums, chunks, consumer);
      }
      if (whole.all()) {
        whole.Store(sums, args.to, StoreOfWarp(), FirstRow(row_block));
      } else {
        Store(sums, args.to, row_block, first_panel);
      }
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
      const int first_panel = tile.column * (kColumns / kChunkSide);
      const LinearOutputs to = OutputsOfExpert(args, tile);
      const WholePanels<kColumns / kChunkSide> whole(to, FirstRow(row_block), first_panel,
                                                     args.num_panels);
      Chain(sums, chunks, consumer);
      if (whole.all()) {
        whole.Store(sums, to, StoreOfWarp(), FirstRow(row_block));
      } else {
        Store(sums, to, row_block, first_panel);
      }
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

  // Of a consumer's warp.
  FB_DEVICE static int FirstRow(int row_block) {
    return row_block * kChunkSide + gpu::Warp() % 4 * kWarpRows;
  }
  FB_DEVICE std::byte* StoreOfWarp() const {
    return store + (gpu::Warp() - kConsumerWarps / kConsumers) * kWarpStoreBytes;
  }

  // The fixed tree: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), what is missing passed by.
  FB_DEVICE void SumLeaves(Sums& sums, int consumer, Four* first_half) {
    // Set, although a chain begins from +0: else their registers would be taken in Store too.
    Sums even = {}, odd = {};
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

  // A warp's 16 rows, panel by panel. One copy of the code serves all panels: a copy a panel does
  // not fit the caches of instructions, and took up to half as long as the products.
  FB_DEVICE void Store(const Sums& sums, const LinearOutputs& to, int row_block, int first_panel) {
    const int first_row = FirstRow(row_block);
    if (first_row >= to.rows) return;
    const int panels = Least(kColumns / kChunkSide, args.num_panels - first_panel);
    const auto rows_of = [&](int panel) {
      return RowsOfWarp<!kLeaves>{to, StoreOfWarp() + panel % 2 * kPanelStoreBytes, first_row,
                                  gpu::Here(gpu::Lane())};
    };
    const auto fetch_old = [&](int panel) {
      if (to.output == kOutResidual && panel < panels) rows_of(panel).FetchOld(first_panel + panel);
      gpu::CommitCopies();
    };
    fetch_old(0);
#pragma unroll 1
    for (int panel = 0; panel < panels; ++panel) {
      fetch_old(panel + 1);
      float of_panel[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        of_panel[i] = sums[i];
#pragma unroll
        for (int p = 1; p < kColumns / kChunkSide; ++p)
          of_panel[i] = panel == p ? sums[p * 32 + i] : of_panel[i];
      }
      rows_of(panel).Store(first_panel + panel, of_panel);
    }
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
