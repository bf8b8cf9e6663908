// Attention to latents in the absorbed form (kernels/latent_attention.h), in the order of
// kernels/mma_attention.h: keys of 576 elements, whose first 512 are the value. Persistent blocks
// take units, a row of the step and 64 of its query heads.
//
// A step of 128 positions lies in shared memory once, for scores and values. Each consumer scores
// half of its positions for all heads, then has half of the elements of the values. Between them
// are the greatest scores of both halves, the probabilities, and sums of lanes, which the second
// consumer goes on with. A producer warp brings the four blocks of a step, each as soon as its
// values have been taken.
// The keys' last 64 elements are no value: sums of lanes cross in their place once scores are done,
// and those of the queries are registers. Parts before the last are kept in device memory.
//
// Bytes: a row's context once for 64 heads, from L2 for all but the first of them. Flops: 2 heads
// positions (576 + 512). Limit: tensor cores; blocks that nobody loads ahead are seen.
#include "kernels/cuda/mma/arithmetic.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/pair/kv_rows.h"
#include "kernels/cuda/wgmma.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kStep = 128, kHalfStep = kStep / 2, kPartSteps = 8, kConsumers = 2;
constexpr int kStepBlocks = kStep / kPositions, kPartBlocks = kPartSteps * kStepBlocks;
constexpr int kChunks = kLatentKeys / kChunkSide, kValueChunks = kLatentValues / kChunkSide;
constexpr int kPiece = kPositions * kChunkSide * 2;  // of a block: 64 elements
constexpr int kChunkOfStep = kStepBlocks * kPiece;   // 128 positions of 128 bytes
constexpr int kGroup = 4 * gpu::kWarpLanes, kBoth = kConsumers * kGroup;
enum : int { kScored = 1, kShared = 2 };  // barriers of both consumers
// A block's launch takes 168 a thread.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= 3 * 168);

FB_DEVICE int Least(int a, int b) { return a < b ? a : b; }

struct alignas(16) Bytes16 {
  uint32_t words[4];
};
struct alignas(16) Four {
  float of[4];
};

// The block's shared memory.
struct Shared {
  std::byte* queries;        // [8 chunks]: 64 heads
  std::byte* keys;           // [9][128 positions][64]: blocks of 32 side by side
  std::byte* probabilities;  // [2 chunks]: 64 heads, 64 positions each
  float* best;               // [2][64 heads]
  gpu::Bar *full, *empty;    // of each block of a step

  FB_DEVICE explicit Shared(std::byte* base)
      : queries(base),
        keys(queries + kValueChunks * kChunkBytes),
        probabilities(keys + kChunks * kChunkOfStep),
        best(reinterpret_cast<float*>(probabilities + 2 * kChunkBytes)),
        full(reinterpret_cast<gpu::Bar*>(best + 2 * kLatentHeads)),
        empty(full + kStepBlocks) {}
};

// Unit `number`: what its row sees are positions [0, last].
struct LatentUnit {
  bool there = false;
  int row = 0, head = 0, heads = 0, last = 0;
  const uint32_t* table = nullptr;

  // By a warp.
  FB_DEVICE LatentUnit(const AttentionParams& args, int number) {
    const int groups = (args.heads + kLatentHeads - 1) / kLatentHeads;
    row = number / groups;
    head = number % groups * kLatentHeads;
    heads = Least(args.heads - head, kLatentHeads);
    const int at = FindSequence(args.batch, row);
    if (at < 0) return;
    there = true;
    const SequenceRows& sequence = args.batch.sequences[at];
    last = sequence.first_position + row - sequence.first_row;
    table = args.batch.block_tables + sequence.table_row * args.batch.table_stride;
  }
  FB_DEVICE int steps() const { return last / kStep + 1; }
};

FB_DEVICE void Produce(const LatentParams& params, const Shared& shared) {
  const AttentionParams& args = params.of;
  const int lane = gpu::Lane();
  int parity = 1;
  for (int number = gpu::BlockX(); number < params.units; number += gpu::GridX()) {
    const LatentUnit unit(args, number);
    if (!unit.there) continue;
    const int blocks = unit.last / kPositions + 1;
    static_assert(kPartBlocks == gpu::kWarpLanes);
    uint32_t entries = lane < blocks ? unit.table[lane] : 0;
    for (int first = 0; first < blocks; first += kPartBlocks) {
      const int ahead = first + kPartBlocks + lane;
      const uint32_t next = ahead < blocks ? unit.table[ahead] : 0;
      for (int b = 0; b < kPartBlocks && first + b / kStepBlocks * kStepBlocks < blocks; ++b) {
        const int slot = b % kStepBlocks;
        const bool there = first + b < blocks;
        const std::byte* const from = BlockOf(args.kv, gpu::Shuffle(entries, b));
        gpu::BarWait(shared.empty + slot, parity);
        if (lane == 0) gpu::BarExpect(shared.full + slot, there ? kChunks * kPiece : 0);
        gpu::SyncWarp();
        if (there && lane < kChunks) {
          gpu::BulkCopy(shared.keys + lane * kChunkOfStep + slot * kPiece, from + lane * kPiece,
                        kPiece, shared.full + slot);
        }
        if (slot == kStepBlocks - 1) parity ^= 1;
      }
      entries = next;
    }
  }
}

// Where the unit's queries lie: [heads][576].
FB_DEVICE const std::byte* QueriesOf(const AttentionParams& args, const LatentUnit& unit) {
  return args.q + (int64_t{unit.row} * args.row_heads + unit.head) * (kLatentKeys * 2);
}

// Their elements that meet values, by both consumers; heads that are not there are 0.
FB_DEVICE void FetchQueries(const std::byte* q, int heads, int consumer, std::byte* to) {
  constexpr int kGranules = kLatentValues / 8;
  for (int i = consumer * kGroup + gpu::Tid() % kGroup; i < kLatentHeads * kGranules; i += kBoth) {
    const int head = i / kGranules, granule = i % kGranules;
    gpu::CopyAsync16(to + granule / 8 * kChunkBytes + InChunk(head, granule % 8 * 8),
                     q + head * (kLatentKeys * 2) + granule * 16, head < heads);
  }
  gpu::CommitCopies();
  gpu::WaitCopies<0>();
  gpu::ProxyFence();
  gpu::NamedSync(kShared, kBoth);
}

// The others, as A of their four steps. In each step anew, from the nearest cache: registers are
// short in what follows.
FB_DEVICE void LoadTurned(const std::byte* q, int heads, uint32_t (&turned)[4][4]) {
  const int row = gpu::Warp() % 4 * 16 + gpu::Lane() / 4;
  const auto* const words = reinterpret_cast<const uint32_t*>(q) + row * (kLatentKeys / 2) +
                            kLatentValues / 2 + gpu::Lane() % 4;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    turned[i / 4][i % 4] = row + i % 2 * 8 < heads
                               ? words[i % 2 * 8 * (kLatentKeys / 2) + i / 4 * 8 + i / 2 % 2 * 4]
                               : 0;
  }
}

// The scores of 64 heads and the consumer's positions.
FB_DEVICE void Score(const Shared& shared, int consumer, uint32_t (&turned)[4][4],
                     float (&scores)[32]) {
  const uint32_t q = gpu::Smem(shared.queries);
  const uint32_t k = gpu::Smem(shared.keys + consumer * (kChunkOfStep / 2));
  gpu::WgmmaFence();
#pragma unroll
  for (int i = 0; i < kLatentValues / 16; ++i) {
    const uint32_t along = static_cast<uint32_t>(i % 4 * 32);
    gpu::Wgmma<kHalfStep>::Shared<false>(
        scores, gpu::OperandAlongK(q + static_cast<uint32_t>(i / 4 * kChunkBytes) + along),
        gpu::OperandAlongK(k + static_cast<uint32_t>(i / 4 * kChunkOfStep) + along), i > 0);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    gpu::Wgmma<kHalfStep>::Registers<false>(
        scores, turned[i],
        gpu::OperandAlongK(k + static_cast<uint32_t>(kValueChunks * kChunkOfStep + i * 32)), true);
  }
  gpu::WgmmaCommit();
  gpu::WgmmaWait<0>();
#pragma unroll
  for (int i = 0; i < 4; ++i) gpu::KeepRegisters(turned[i]);
  gpu::PinRegisters(scores);
}

// sums (+)= p V over the step, of the consumer's elements; each block is given back when it is
// done.
FB_DEVICE void AddValues(const Shared& shared, int consumer, bool begins, float (&sums)[128]) {
  const uint32_t p = gpu::Smem(shared.probabilities);
  const uint32_t v = gpu::Smem(shared.keys + consumer * (kValueChunks / 2 * kChunkOfStep));
  gpu::PinRegisters(sums);
  gpu::WgmmaFence();
#pragma unroll
  for (int i = 0; i < kStep / 16; ++i) {
    gpu::Wgmma<kLatentValues / 2>::Shared<true>(
        sums, gpu::OperandAlongK(p + static_cast<uint32_t>(i / 4 * kChunkBytes + i % 4 * 32)),
        gpu::OperandAlongN(v + static_cast<uint32_t>(i * 2048), kChunkOfStep), !begins || i > 0);
    if (i % 2 != 0) gpu::WgmmaCommit();
  }
  const auto release = [&](int slot) {
    if (gpu::Lane() == 0) gpu::BarArrive(shared.empty + slot);
  };
  gpu::WgmmaWait<3>();
  release(0);
  gpu::WgmmaWait<2>();
  release(1);
  gpu::WgmmaWait<1>();
  release(2);
  gpu::WgmmaWait<0>();
  release(3);
  gpu::PinRegisters(sums);
}

// Positions from `behind` on of the step hold nothing, and 0 times that shall be 0. By both.
FB_DEVICE void ClearBehind(const Shared& shared, int consumer, int behind) {
  constexpr int kGranules = kLatentValues / 8;
  for (int i = consumer * kGroup + gpu::Tid() % kGroup; i < (kStep - behind) * kGranules;
       i += kBoth) {
    const int t = behind + i / kGranules, granule = i % kGranules;
    *reinterpret_cast<Bytes16*>(shared.keys + granule / 8 * kChunkOfStep + t * 128 +
                                granule % 8 * 16) = {};
  }
}

// Where register i of sums and scores lies: row lane / 4 + 8 RowOf(i), column ColumnOf(i) +
// lane % 4 * 2.
constexpr int RowOf(int i) { return i / 2 % 2; }
constexpr int ColumnOf(int i) { return i / 4 * 8 + i % 2; }

FB_DEVICE void Consume(const LatentParams& params, const Shared& shared, int consumer) {
  const AttentionParams& args = params.of;
  const float c = MmaScale(args.scale), c128 = c * 0x1p-7f;
  std::byte* const p = shared.probabilities + consumer * kChunkBytes;
  int parity = 0;
  for (int number = gpu::BlockX(); number < params.units; number += gpu::GridX()) {
    const LatentUnit unit(args, number);
    if (!unit.there) continue;
    const std::byte* const q = QueriesOf(args, unit);
    FetchQueries(q, unit.heads, consumer, shared.queries);
    float sums[128] = {}, whole[2] = {FB_NOTHING, FB_NOTHING},
          total_whole[2] = {FB_NOTHING, FB_NOTHING};
    float lanes[2][4] = {}, total[2] = {};  // of the second consumer
    const int steps = unit.steps();
#pragma unroll 1
    for (int j = 0; j < steps; ++j, parity ^= 1) {
      const int thread = gpu::Here(gpu::Tid()) % kGroup, lane = thread % gpu::kWarpLanes;
      const int row0 = thread / 32 * 16 + lane / 4, column0 = lane % 4 * 2;  // and row0 + 8
      float* const mine = shared.best + consumer * kLatentHeads + row0;
      const float* const others = shared.best + (1 - consumer) * kLatentHeads + row0;
      Four* const crossing =
          reinterpret_cast<Four*>(shared.keys + kValueChunks * kChunkOfStep) + thread;
      const bool last = j == steps - 1;
      float scores[32];
      uint32_t turned[4][4];
      LoadTurned(q, unit.heads, turned);
      gpu::BarWait(shared.full + 2 * consumer, parity);
      gpu::BarWait(shared.full + 2 * consumer + 1, parity);
      Score(shared, consumer, turned, scores);
      float best[2] = {FB_NOTHING, FB_NOTHING}, factor[2], bias[2];
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (last && j * kStep + consumer * kHalfStep + ColumnOf(i) + column0 > unit.last)
          scores[i] = FB_NOTHING;
        best[RowOf(i)] = gpu::Max(best[RowOf(i)], scores[i]);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        best[r] = gpu::Max(best[r], gpu::ShuffleXor(best[r], 1));
        best[r] = gpu::Max(best[r], gpu::ShuffleXor(best[r], 2));
        if (lane % 4 == 0) mine[r * 8] = best[r];
      }
      gpu::NamedSync(kScored, kBoth);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float top = gpu::Max(whole[r], WholeOf(gpu::Max(best[r], others[r * 8]), c));
        factor[r] = FactorOf(whole[r] - top);
        whole[r] = top;
        bias[r] = MmaBias(top);
      }
#pragma unroll
      for (int i = 0; i < 32; ++i) scores[i] = ProbabilityOf(scores[i], c128, bias[RowOf(i)]);
#pragma unroll
      for (int i = 0; i < 32; i += 2) {
        *reinterpret_cast<uint32_t*>(p + InChunk(row0 + RowOf(i) * 8, ColumnOf(i) + column0)) =
            gpu::PairOf(scores[i], scores[i + 1]);
      }
      float of_step[2][4];
      const auto add_lanes = [&](bool from_first) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          float& lane_sum = of_step[RowOf(i)][i / 4 % 2 * 2 + i % 2];
          lane_sum = from_first && i < 8 ? scores[i] : lane_sum + scores[i];
        }
      };
      if (consumer == 0) {
        add_lanes(true);
#pragma unroll
        for (int r = 0; r < 2; ++r)
          crossing[r * kGroup] = {{of_step[r][0], of_step[r][1], of_step[r][2], of_step[r][3]}};
      }
      if (last) ClearBehind(shared, consumer, unit.last + 1 - j * kStep);
      gpu::ProxyFence();
      gpu::NamedSync(kShared, kBoth);
      if (consumer == 1) {
#pragma unroll
        for (int i = 0; i < 8; ++i) of_step[i / 4][i % 4] = crossing[i / 4 * kGroup].of[i % 4];
        add_lanes(false);
#pragma unroll
        for (int i = 0; i < 8; ++i)
          lanes[i / 4][i % 4] = gpu::Fma(lanes[i / 4][i % 4], factor[i / 4], of_step[i / 4][i % 4]);
        gpu::ProxyFence();  // what was read is overwritten by copies
        gpu::SyncWarp();
      }
      const bool begins = j % kPartSteps == 0;
      if (!begins && gpu::Ballot(factor[0] != 1.0f || factor[1] != 1.0f) != 0) {
#pragma unroll
        for (int i = 0; i < 128; ++i) {
          if (factor[RowOf(i)] != 1.0f) sums[i] = sums[i] * factor[RowOf(i)];
        }
      }
      AddValues(shared, consumer, begins, sums);
      if (!last && (j + 1) % kPartSteps != 0) continue;

      // The part ends. Of those that are done: values [32][thread] of each consumer of each block.
      Four* const merged = reinterpret_cast<Four*>(params.parts) +
                           (int64_t{gpu::BlockX()} * kConsumers + consumer) * (32 * kGroup) +
                           thread;
      float old[2], added[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float top = gpu::Max(total_whole[r], whole[r]);
        old[r] = FactorOf(total_whole[r] - top);
        added[r] = FactorOf(whole[r] - top);
        if (consumer == 1) total[r] = gpu::Fma(LanesTree(lanes[r]), added[r], total[r] * old[r]);
        total_whole[r] = top;
        whole[r] = FB_NOTHING;
#pragma unroll
        for (int l = 0; l < 4; ++l) lanes[r][l] = 0;
      }
      if (j >= kPartSteps) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const Four before = merged[i * kGroup];
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sums[i * 4 + e] = gpu::Fma(sums[i * 4 + e], added[e / 2], before.of[e] * old[e / 2]);
        }
      }
      if (!last) {
#pragma unroll
        for (int i = 0; i < 32; ++i)
          merged[i * kGroup] = {{sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]}};
      }
    }
    // The second consumer's totals are the first one's too.
    const int lane = gpu::Here(gpu::Lane());
    const int row0 = gpu::Warp() % 4 * 16 + lane / 4, column0 = lane % 4 * 2;
    float* const inverse = shared.best + row0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (consumer == 1 && lane % 4 == 0) inverse[r * 8] = gpu::Div(1.0f, total[r]);
    }
    gpu::NamedSync(kScored, kBoth);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = row0 + r * 8;
      if (head >= unit.heads) continue;
      const float by = inverse[r * 8];
      const int64_t at = int64_t{unit.row} * args.row_heads + unit.head + head;
      auto* const out = reinterpret_cast<uint32_t*>(args.out) +
                        (at * kLatentValues + consumer * (kLatentValues / 2) + column0) / 2;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        out[i * 4] = RoundedPair(gpu::Fma(sums[i * 4 + r * 2], by, 0.0f),
                                 gpu::Fma(sums[i * 4 + r * 2 + 1], by, 0.0f));
      }
    }
  }
}

}  // namespace

FB_KERNEL(mma_latent_512, LatentParams, kLatentThreads, 1) {
  FB_SHARED(std::byte, base);
  const Shared shared(base);
  if (gpu::Tid() == 0) {
    for (int i = 0; i < kStepBlocks; ++i) {
      gpu::BarInit(shared.full + i, 1);
      gpu::BarInit(shared.empty + i, kConsumers * 4);
    }
    gpu::BarFence();
  }
  gpu::Sync();
  const int group = gpu::Tid() / kGroup;
  if (group == 0) {
    gpu::RegistersDown<kProducerRegisters>();
    if (gpu::Tid() < gpu::kWarpLanes) Produce(args, shared);
    return;
  }
  gpu::RegistersUp<kConsumerRegisters>();
  Consume(args, shared, group - 1);
}

}  // namespace forebay::kernels::cuda
