// Attention of many rows a sequence over paged KV, in the order of kernels/mma_attention.h, for
// head_dim 128: persistent blocks take units (a tile of 128 rows, a query head), long ones first.
//
// Two consumers of 64 rows share steps of 128 positions: K and V of two stages each, which two
// producer threads fill. Scores are wgmma from shared memory; probabilities stay in registers as A
// of the values. While the values of a step run, so do the scores of the next one, and a unit's
// last step begins the next unit's first: the tensor cores wait for a softmax as seldom as may be.
//
// Of KV in one byte all threads of the producers' warps make bf16 of codes on their way to the
// stages, and consumers multiply by scales beside the stages.
//
// Probabilities take the registers of the scores, and are packed as A once the values of the step
// before are done: packed sooner, they get registers that wgmma still reads.
// V of positions below a sequence's end is finite: of a row it multiplies unseen ones by 0.
// Bytes: K and V once a tile and KV head, from L2 for all but the first. Flops: 4 seen head_dim.
// Limit: tensor cores, then the exponential (10 instructions a score).
#pragma once

#include <type_traits>

#include "kernels/cuda/mma/arithmetic.h"
#include "kernels/cuda/mma/code_tiles.h"
#include "kernels/cuda/mma/head_row.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/wgmma.h"

namespace forebay::kernels::cuda::prefill {

constexpr int kHeadDim = 128, kStep = 128, kPartSteps = 8, kStages = 2, kConsumers = 2;
constexpr int kRowsOfConsumer = kPrefillRows / kConsumers, kPosition = 32;
constexpr int kPiece = HeadHalfBytes(kHeadDim), kHalf = kPiece / 2;  // of a block: 64 elements
constexpr int kTileBytes = kStep / kPosition * kPiece;
constexpr int kGroup = 4 * gpu::kWarpLanes, kCodeProducers = kGroup / 2;
constexpr uint32_t kInWindow = 0x80000000u;
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

// Unit `round` of this block.
struct PrefillUnit {
  bool there = false;
  int head = 0, steps = 0;
  PrefillTile tile{};

  FB_DEVICE PrefillUnit(const PrefillParams& args, int round) {
    // To and fro, so that every block gets long and short ones.
    const int blocks = gpu::GridX();
    const int at = round * blocks + (round % 2 != 0 ? blocks - 1 - gpu::BlockX() : gpu::BlockX());
    if (at >= *args.num_tiles * args.heads) return;
    there = true;
    head = at % args.heads;
    tile = args.tiles[at / args.heads];
    steps = (tile.first_position + tile.rows + kStep - 1) / kStep;
  }
};

struct Stages {
  gpu::Bar *full, *empty;
  std::byte* base;
  float* scales;  // [stages][step], of KV in codes: 1 where they have none

  FB_DEVICE float* ScalesAt(int step) const { return scales + step % kStages * kStep; }
  FB_DEVICE std::byte* At(int step) const { return base + step % kStages * kTileBytes; }
  FB_DEVICE void AwaitFull(int step) const {
    gpu::BarWait(full + step % kStages, step / kStages & 1);
  }
  FB_DEVICE void AwaitEmpty(int step) const {
    gpu::BarWait(empty + step % kStages, (step / kStages & 1) ^ 1);
  }
  FB_DEVICE void Release(int step) const {
    if (gpu::Lane() == 0) gpu::BarArrive(empty + step % kStages);
  }
};

// By one thread. K of a step lies as [half][128 positions], V as [block][half][32 positions].
FB_DEVICE void Produce(const PrefillParams& args, const Stages& stages, bool keys) {
  int step = 0;  // over all units
  for (int round = 0;; ++round) {
    const PrefillUnit unit(args, round);
    if (!unit.there) return;
    const uint32_t* const table = args.kv.block_tables + unit.tile.table_row * args.kv.table_stride;
    const int kv_head = unit.head / (args.heads / args.kv.kv_heads);
    const int64_t in_block = int64_t{kv_head} * 2 * kPiece + (keys ? 0 : kPiece);
    const int blocks = (unit.tile.end + kPosition - 1) / kPosition;
    for (int j = 0; j < unit.steps; ++j, ++step) {
      constexpr int kBlocks = kStep / kPosition;
      const std::byte* from[kBlocks];
      const int here = Least(kBlocks, blocks - j * kBlocks);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const uint32_t entry = b < here ? table[j * kBlocks + b] : 0;
        const auto index = static_cast<int64_t>(entry & ~kInWindow);
        from[b] = ((entry & kInWindow) != 0 ? args.kv.window + index * args.kv.layer_bytes
                                            : args.kv.resident + index * args.kv.block_stride) +
                  in_block;
      }
      stages.AwaitEmpty(step);
      gpu::Bar* const full = stages.full + step % kStages;
      gpu::BarExpect(full, here * kPiece);
      std::byte* const to = stages.At(step);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (b >= here) continue;
        if (keys) {
          gpu::BulkCopy(to + b * kHalf, from[b], kHalf, full);
          gpu::BulkCopy(to + kTileBytes / 2 + b * kHalf, from[b] + kHalf, kHalf, full);
        } else {
          gpu::BulkCopy(to + b * kPiece, from[b], kPiece, full);
        }
      }
    }
  }
}

// Of codes, by the threads of two warps.
FB_DEVICE void ProduceOfCodes(const PrefillParams& args, const Stages& stages, bool keys) {
  constexpr int kCodes = kPiece / 2, kBlocks = kStep / kPosition;  // of a block's K, or V
  const int thread = gpu::Tid() % kCodeProducers, kind = args.kv.codes;
  const int64_t head_bytes = 2 * kCodes + (kind == kInt8Codes ? 2 * kScalesBytes : 0);
  int step = 0;  // over all units
  for (int round = 0;; ++round) {
    const PrefillUnit unit(args, round);
    if (!unit.there) return;
    const uint32_t* const table = args.kv.block_tables + unit.tile.table_row * args.kv.table_stride;
    const int kv_head = unit.head / (args.heads / args.kv.kv_heads);
    const int blocks = (unit.tile.end + kPosition - 1) / kPosition;
    for (int j = 0; j < unit.steps; ++j, ++step) {
      stages.AwaitEmpty(step);
      const int here = Least(kBlocks, blocks - j * kBlocks);
#pragma unroll 1
      for (int b = 0; b < here; ++b) {
        const uint32_t entry = table[j * kBlocks + b];
        const auto index = static_cast<int64_t>(entry & ~kInWindow);
        const std::byte* const part =
            ((entry & kInWindow) != 0 ? args.kv.window + index * args.kv.layer_bytes
                                      : args.kv.resident + index * args.kv.block_stride) +
            kv_head * head_bytes;
        const auto* const from = As<CodeWords>(part + (keys ? 0 : kCodes));
#pragma unroll 1
        for (int i = thread; i < kCodes / 16; i += kCodeProducers) {
          const CodeWords of = from[i];
          const int at = i * 32, half = at / kHalf;
          std::byte* const to =
              stages.At(step) +
              (keys ? half * (kTileBytes / 2) + b * kHalf + at % kHalf : b * kPiece + at);
          As<CodeWords>(to)[0] = ExpandEight(kind, of.words[0], of.words[1]);
          As<CodeWords>(to)[1] = ExpandEight(kind, of.words[2], of.words[3]);
        }
        if (thread < kPosition) {
          const auto* const scales = As<float>(part + 2 * kCodes) + (keys ? 0 : kPosition);
          stages.ScalesAt(step)[b * kPosition + thread] =
              kind == kInt8Codes ? scales[thread] : 1.0f;
        }
      }
      gpu::ProxyFence();
      gpu::BarArrive(stages.full + step % kStages);
    }
  }
}

// The queries of a consumer's rows, as two chunks of 64 elements. Rows that are not there are the
// last one's.
FB_DEVICE void FetchQueries(const PrefillParams& args, const PrefillUnit& unit, int consumer,
                            std::byte* to) {
  for (int i = gpu::Tid() % kGroup; i < kRowsOfConsumer * 16; i += kGroup) {
    const int r = i / 16, part = i % 16;
    const int row = Least(consumer * kRowsOfConsumer + r, unit.tile.rows - 1);
    const int64_t at = (int64_t{unit.tile.row} + row) * args.row_heads + unit.head;
    gpu::CopyAsync16(to + part / 8 * kChunkBytes + InChunk(r, part % 8 * 8),
                     args.q + (at * kHeadDim + part * 8) * 2, true);
  }
  gpu::CommitCopies();
}
// They are seen by wgmma of all four warps.
FB_DEVICE void AwaitQueries(int consumer) {
  gpu::WaitCopies<0>();
  gpu::ProxyFence();
  gpu::NamedSync(1 + consumer, kGroup);
}

FB_DEVICE void IssueScores(const std::byte* queries, const std::byte* keys, float (&scores)[64]) {
  const uint32_t q = gpu::Smem(queries), k = gpu::Smem(keys);
  gpu::WgmmaFence();
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
    const uint32_t along = static_cast<uint32_t>(i % 4 * 32);
    gpu::Wgmma<kStep>::Shared<false>(
        scores, gpu::OperandAlongK(q + i / 4 * kChunkBytes + along),
        gpu::OperandAlongK(k + static_cast<uint32_t>(i / 4 * kTileBytes / 2) + along), i > 0);
  }
  gpu::WgmmaCommit();
}
FB_DEVICE void IssueValues(uint32_t (&p)[8][4], const std::byte* values, bool begins,
                           float (&sums)[64]) {
  const uint32_t v = gpu::Smem(values);
  gpu::WgmmaFence();
#pragma unroll
  for (int i = 0; i < kStep / 16; ++i) {
    gpu::Wgmma<kHeadDim>::Registers<true>(
        sums, p[i],
        gpu::OperandAlongN(v + static_cast<uint32_t>(i / 2 * kPiece + i % 2 * 2048), kHalf),
        !begins || i > 0);
  }
  gpu::WgmmaCommit();
}

// Where register i of 64 sums lies: row lane / 4 + 8 RowOf(i), column ColumnOf(i) + lane % 4 * 2.
constexpr int RowOf(int i) { return i / 2 % 2; }
constexpr int ColumnOf(int i) { return i / 4 * 8 + i % 2; }

// Multiplies scores, or probabilities, by the scales of their positions. `column0`: the thread's.
template <bool kProbabilities>
FB_DEVICE void MeetScales(const float* scales, int column0, float (&values)[64]) {
#pragma unroll
  for (int i = 0; i < 64; i += 4) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float scale = scales[gpu::Here(column0) + ColumnOf(i + e)];
#pragma unroll
      for (int r = 0; r < 4; r += 2) {
        float& value = values[i + r + e];
        value = kProbabilities ? Scaled(value, scale) : value * scale;
      }
    }
  }
}

template <bool kCoded>
FB_DEVICE void Consume(const PrefillParams& args, int consumer, std::byte* queries,
                       const Stages& keys, const Stages& values, Four* merged) {
  const int thread = gpu::Tid() % kGroup, lane = gpu::Lane();
  const int row0 = consumer * kRowsOfConsumer + thread / 32 * 16 + lane / 4;  // and row0 + 8
  const int column0 = lane % 4 * 2;
  const float c = MmaScale(args.scale), c128 = c * 0x1p-7f;
  float scores[64], sums[64];
  uint32_t p[8][4] = {};
  PrefillUnit unit(args, 0);
  if (!unit.there) return;
  FetchQueries(args, unit, consumer, queries);
  AwaitQueries(consumer);
  keys.AwaitFull(0);
  IssueScores(queries, keys.At(0), scores);
  gpu::WgmmaWait<0>();
  if constexpr (kCoded) {
    gpu::PinRegisters(scores);
    MeetScales<false>(keys.ScalesAt(0), column0, scores);
    gpu::SyncWarp();
  }
  keys.Release(0);
  gpu::PinRegisters(scores);
  int base = 0;  // steps of the units before
  for (int round = 0; unit.there; ++round) {
    const PrefillUnit next(args, round + 1);
    const int steps = unit.steps, position0 = unit.tile.first_position + row0;
    const int all_see = unit.tile.first_position + consumer * kRowsOfConsumer;
    float whole[2] = {FB_NOTHING, FB_NOTHING}, total_whole[2] = {FB_NOTHING, FB_NOTHING};
    float lanes[2][4] = {}, total[2] = {};
    const auto take_step = [&](int j, auto is_last) __attribute__((always_inline)) {
      constexpr bool last = decltype(is_last)::value;
      const int step = base + j;
      const bool begins = j % kPartSteps == 0, more = !last || next.there;
      if (last && next.there) {
        gpu::NamedSync(1 + consumer, kGroup);  // all warps' scores have read the queries
        FetchQueries(args, next, consumer, queries);
      }
      if (j * kStep + kStep - 1 > all_see) {
#pragma unroll
        for (int i = 0; i < 64; ++i) {
          if (j * kStep + ColumnOf(i) + column0 > position0 + RowOf(i) * 8) scores[i] = FB_NOTHING;
        }
      }
      float best[2] = {FB_NOTHING, FB_NOTHING}, factor[2], bias[2], of_step[2][4];
#pragma unroll
      for (int i = 0; i < 64; ++i) best[RowOf(i)] = gpu::Max(best[RowOf(i)], scores[i]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        best[r] = gpu::Max(best[r], gpu::ShuffleXor(best[r], 1));
        best[r] = gpu::Max(best[r], gpu::ShuffleXor(best[r], 2));
        const float top = gpu::Max(whole[r], WholeOf(best[r], c));
        factor[r] = FactorOf(whole[r] - top);
        whole[r] = top;
        bias[r] = MmaBias(top);
      }
#pragma unroll
      for (int i = 0; i < 64; ++i) {
        const int r = RowOf(i), l = i / 4 % 2 * 2 + i % 2;
        scores[i] = ProbabilityOf(scores[i], c128, bias[r]);
        of_step[r][l] = i < 8 ? scores[i] : of_step[r][l] + scores[i];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
        lanes[i / 4][i % 4] = gpu::Fma(lanes[i / 4][i % 4], factor[i / 4], of_step[i / 4][i % 4]);

      gpu::WgmmaWait<0>();  // the values of the step before
#pragma unroll
      for (int i = 0; i < 8; ++i) gpu::KeepRegisters(p[i]);
      gpu::PinRegisters(sums);
      if (!begins) {
        values.Release(step - 1);
        if (gpu::Ballot(factor[0] != 1.0f || factor[1] != 1.0f) != 0) {
#pragma unroll
          for (int i = 0; i < 64; ++i) {
            if (factor[RowOf(i)] != 1.0f) sums[i] = sums[i] * factor[RowOf(i)];
          }
        }
      }
      if constexpr (kCoded) {
        values.AwaitFull(step);
        MeetScales<true>(values.ScalesAt(step), column0, scores);
      }
#pragma unroll
      for (int i = 0; i < 32; ++i) p[i / 4][i % 4] = gpu::PairOf(scores[2 * i], scores[2 * i + 1]);
      if (last && next.there) AwaitQueries(consumer);
      if (more) keys.AwaitFull(step + 1);
      values.AwaitFull(step);
      std::byte* const v = values.At(step);
      if (last && (j + 1) * kStep > unit.tile.end) {
        // Nothing lies behind the sequence's end, and 0 times that shall be 0.
        const int behind = unit.tile.end - j * kStep;
        for (int i = consumer * kGroup + thread; i < (kStep - behind) * 16;
             i += kConsumers * kGroup) {
          const int t = behind + i / 16, part = i % 16;
          *reinterpret_cast<Bytes16*>(v + t / kPosition * kPiece + part / 8 * kHalf +
                                      t % kPosition * 128 + part % 8 * 16) = {};
        }
        gpu::ProxyFence();
        gpu::NamedSync(1 + kConsumers, kConsumers * kGroup);
      }
      gpu::PinRegisters(p);
      // Behind the last unit, scores of whatever lies there: a branch would make the compiler wait
      // for each wgmma.
      IssueScores(queries, keys.At(step + 1), scores);
      gpu::PinRegisters(sums);
      gpu::PinRegisters(p);
      IssueValues(p, v, begins, sums);
      gpu::WgmmaWait<1>();
      gpu::PinRegisters(scores);
      if constexpr (kCoded) {
        MeetScales<false>(keys.ScalesAt(step + 1), column0, scores);
        gpu::SyncWarp();  // all lanes have read the scales
      }
      if (more) keys.Release(step + 1);
      if (!last && (j + 1) % kPartSteps != 0) return;

      // The part ends.
      gpu::WgmmaWait<0>();
      values.Release(step);
      gpu::PinRegisters(sums);
      float old[2], added[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float top = gpu::Max(total_whole[r], whole[r]);
        old[r] = FactorOf(total_whole[r] - top);
        added[r] = FactorOf(whole[r] - top);
        total[r] = gpu::Fma(LanesTree(lanes[r]), added[r], total[r] * old[r]);
        total_whole[r] = top;
        whole[r] = FB_NOTHING;
#pragma unroll
        for (int l = 0; l < 4; ++l) lanes[r][l] = 0;
      }
      if (j >= kPartSteps) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          const Four before = merged[i * kGroup];
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sums[i * 4 + e] = gpu::Fma(sums[i * 4 + e], added[e / 2], before.of[e] * old[e / 2]);
        }
      }
      if (!last) {
#pragma unroll
        for (int i = 0; i < 16; ++i)
          merged[i * kGroup] = {{sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]}};
      }
    };
      // The last step apart: what it asks costs the others 5 %.
#pragma unroll 1
    for (int j = 0; j < steps - 1; ++j) take_step(j, std::false_type{});
    take_step(steps - 1, std::true_type{});
    const int column = gpu::Here(lane) % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row0 + r * 8;
      if (row >= unit.tile.rows) continue;
      const float inverse = gpu::Div(1.0f, total[r]);
      const HeadRow out(args.out, args.out_form, unit.tile.row + row, unit.head, kHeadDim,
                        args.row_heads);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        out.Store(column + i * 8, gpu::Fma(sums[i * 4 + r * 2], inverse, 0.0f),
                  gpu::Fma(sums[i * 4 + r * 2 + 1], inverse, 0.0f));
      }
    }
    base += steps;
    unit = next;
  }
}

template <bool kCoded>
FB_DEVICE void Prefill(const PrefillParams& args) {
  FB_SHARED(std::byte, shared);
  std::byte* const k = shared + kPrefillRows * kHeadDim * 2;
  std::byte* const v = k + kStages * kTileBytes;
  std::byte* const merged = v + kStages * kTileBytes;
  auto* const bars = reinterpret_cast<gpu::Bar*>(merged + kPrefillRows * kHeadDim * sizeof(float));
  auto* const scales = reinterpret_cast<float*>(bars + 4 * kStages);
  const Stages keys{bars, bars + kStages, k, scales};
  const Stages values{bars + 2 * kStages, bars + 3 * kStages, v, scales + kStages * kStep};
  if (gpu::Tid() == 0) {
    for (int i = 0; i < kStages; ++i) {
      gpu::BarInit(keys.full + i, kCoded ? kCodeProducers : 1);
      gpu::BarInit(values.full + i, kCoded ? kCodeProducers : 1);
      gpu::BarInit(keys.empty + i, kConsumers * 4);
      gpu::BarInit(values.empty + i, kConsumers * 4);
    }
    gpu::BarFence();
  }
  gpu::Sync();
  gpu::TakeTurn();
  const int group = gpu::Tid() / kGroup;
  if (group == 0) {
    gpu::RegistersDown<kProducerRegisters>();
    if constexpr (kCoded) {
      const bool of_keys = gpu::Tid() < kCodeProducers;
      const Stages mine{of_keys ? keys.full : values.full, of_keys ? keys.empty : values.empty,
                        of_keys ? keys.base : values.base, of_keys ? keys.scales : values.scales};
      ProduceOfCodes(args, mine, of_keys);
    } else {
      if (gpu::Tid() == 0) Produce(args, keys, true);
      if (gpu::Tid() == gpu::kWarpLanes) Produce(args, values, false);
    }
    return;
  }
  gpu::RegistersUp<kConsumerRegisters>();
  const int consumer = group - 1;
  Consume<kCoded>(args, consumer, shared + consumer * 2 * kChunkBytes, keys, values,
                  reinterpret_cast<Four*>(merged) + consumer * 16 * kGroup + gpu::Tid() % kGroup);
}

}  // namespace forebay::kernels::cuda::prefill
