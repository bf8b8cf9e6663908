// Attention in class mma_k16f25 for every layout, size of heads, reach, cap and sink: what
// attention_decode and attention_prefill do not take. A warp has a row of the step, up to 8 query
// heads of a KV head and kPlainValues elements of V; it goes through all that the row sees.
//
// Bytes: the context's K and V once a row and KV head, from cache for all but the first row; no
// ring, so their latency is seen. Limit: that latency.
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/mma/row_softmax.h"
#include "kernels/cuda/pair/kv_rows.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kPartPositions = 1024, kStepPositions = kStepBlocks * kPositions;
constexpr int kTiles = kPlainValues / 8, kHeads = 8;

// Sums over some positions, not yet divided: the thread's head, and of tile j of V two elements.
struct Sums {
  float whole = FB_NOTHING, sum = 0;
  float values[kTiles][2] = {};
};

FB_DEVICE void Merge(const Sums& part, Sums& total) {
  const float top = gpu::Max(total.whole, part.whole);
  const float old = FactorOf(total.whole - top), factor = FactorOf(part.whole - top);
  total.whole = top;
  total.sum = gpu::Fma(part.sum, factor, total.sum * old);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e)
      total.values[j][e] = gpu::Fma(part.values[j][e], factor, total.values[j][e] * old);
  }
}

// What a warp computes.
struct Unit {
  int kv_head, head, heads;  // the first query head, and how many
  int value, values;         // the first element of V, and how many

  FB_DEVICE Unit(const AttentionParams& args, int number) {
    const int group = args.heads / args.kv.kv_heads, eights = (group + kHeads - 1) / kHeads;
    const int parts = (args.kv.value_dim + kPlainValues - 1) / kPlainValues;
    const int first = number / parts % eights * kHeads;
    value = number % parts * kPlainValues;
    values = args.kv.value_dim - value < kPlainValues ? args.kv.value_dim - value : kPlainValues;
    kv_head = number / parts / eights;
    head = kv_head * group + first;
    heads = group - first < kHeads ? group - first : kHeads;
  }
};

// How K and V of a head's block lie.
struct InPairs {
  static constexpr bool kCoded = false;
  // Elements j, j + 1 of K at position t.
  FB_DEVICE static uint32_t Key(const KvParams&, const std::byte* part, int t, int j) {
    return As<uint32_t>(part)[j / 2 * kPositions + t];
  }
  // Element j of V at positions t, t + 1.
  FB_DEVICE static uint32_t Value(const KvParams& kv, const std::byte* part, int t, int j) {
    return As<uint32_t>(part)[kv.key_dim * kPositions / 2 + t / 2 * kv.value_dim + j];
  }
};
struct InKeys : InPairs {
  FB_DEVICE static uint32_t Value(const KvParams&, const std::byte* part, int t, int j) {
    const uint16_t* const at = As<uint16_t>(part) + (j / 2 * kPositions + t) * 2 + j % 2;
    return at[0] | uint32_t{at[2]} << 16;
  }
};
struct InChunks {
  static constexpr bool kCoded = false;
  FB_DEVICE static uint32_t Key(const KvParams&, const std::byte* part, int t, int j) {
    return *As<uint32_t>(part + InHeadHalf(t, j));
  }
  FB_DEVICE static uint32_t Value(const KvParams& kv, const std::byte* part, int t, int j) {
    const std::byte* const values = part + (kv.values_in_keys ? 0 : HeadHalfBytes(kv.key_dim));
    return *As<uint16_t>(values + InHeadHalf(t, j)) |
           uint32_t{*As<uint16_t>(values + InHeadHalf(t + 1, j))} << 16;
  }
};
// Codes of a byte, in either order.
struct InCodes {
  static constexpr bool kCoded = true;
  FB_DEVICE static uint32_t Key(const KvParams& kv, const std::byte* part, int t, int j) {
    const auto* const at = As<uint8_t>(part) + KeyAt(kv, t, j);
    return gpu::PairOf(CodeValue(kv.codes, at[0]), CodeValue(kv.codes, at[1]));
  }
  FB_DEVICE static uint32_t Value(const KvParams& kv, const std::byte* part, int t, int j) {
    const auto* const values = As<uint8_t>(part) + kv.key_dim * kPositions;
    return gpu::PairOf(CodeValue(kv.codes, values[ValueAt(kv, t, j)]),
                       CodeValue(kv.codes, values[ValueAt(kv, t + 1, j)]));
  }
};

template <typename Form>
FB_DEVICE void ScoreBlock(const KvParams& kv, const std::byte* part, const BF16* q, bool there,
                          float* kept) {
  constexpr int kStep = 16;
  float c[kPositions / 8][2] = {};
  const int lane = gpu::Lane(), pair = lane % 4 * 2;
  const auto query = [&](int j) {
    return there && j < kv.key_dim ? *reinterpret_cast<const uint32_t*>(q + j) : 0;
  };
#pragma unroll 1
  for (int j = pair; j < kv.key_dim + pair; j += kStep) {
    const uint32_t a[2] = {query(j), query(j + 8)};
#pragma unroll
    for (int t = 0; t < kPositions / 8; ++t) {
      const int position = t * 8 + lane / 4;
      gpu::MmaUpper(c[t], a, j < kv.key_dim ? Form::Key(kv, part, position, j) : 0,
                    j + 8 < kv.key_dim ? Form::Key(kv, part, position, j + 8) : 0);
    }
  }
#pragma unroll
  for (int i = 0; i < kPositions / 4; ++i) kept[i * gpu::kWarpLanes] = c[i / 2][i % 2];
}

// sums.values += p V over 16 positions from `t0` of the block on, `at` of the part.
template <typename Form>
FB_DEVICE void AddValues(const KvParams& kv, const std::byte* part, const Unit& unit,
                         const SeenPart& seen, int t0, int at, const uint32_t (&p)[2],
                         float (&values)[kTiles][2]) {
  const int lane = gpu::Lane(), pair = lane % 4 * 2;
  const uint32_t low = Kept(seen, at + pair), high = Kept(seen, at + 8 + pair);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (j * 8 >= unit.values) continue;
    const int column = j * 8 + lane / 4;
    const bool there = column < unit.values;
    const uint32_t b0 = there ? Form::Value(kv, part, t0 + pair, unit.value + column) & low : 0;
    const uint32_t b1 =
        there ? Form::Value(kv, part, t0 + 8 + pair, unit.value + column) & high : 0;
    gpu::MmaUpper(values[j], p, b0, b1);
  }
}

template <typename Form>
FB_DEVICE void Attend(const AttentionParams& args, const SequenceRows& sequence, int32_t row,
                      const Unit& unit, float* kept) {
  const KvParams& kv = args.kv;
  const int lane = gpu::Lane(), pair = lane % 4 * 2;
  const bool there = lane / 4 < unit.heads;
  const int64_t at = int64_t{row} * args.row_heads + unit.head + lane / 4;
  const BF16* const q = As<BF16>(args.q) + at * kv.key_dim;
  const uint32_t* const table =
      args.batch.block_tables + sequence.table_row * args.batch.table_stride;
  const int32_t position = sequence.first_position + row - sequence.first_row;
  const int32_t first = FirstSeen(args, position), last = LastSeen(args, sequence, position);
  const float c = MmaScale(args.cap > 0 ? 1.0f : args.scale), c128 = c * 0x1p-7f;
  Sums total;
  for (int32_t part = first / kPartPositions; part <= last / kPartPositions; ++part) {
    const int32_t begin = part * kPartPositions, end = last + 1 - begin;
    const SeenPart seen{first > begin ? first - begin : 0,
                        end < kPartPositions ? end : kPartPositions};
    Sums sums;
    float lanes[4] = {};
    for (int step = seen.first / kStepPositions * kStepPositions; step < seen.end;
         step += kStepPositions) {
      const auto part_of = [&](int b) {
        return BlockOf(kv, table[(begin + step) / kPositions + b]) + unit.kv_head * kv.head_bytes;
      };
      const auto is_seen = [&](int b) {
        return step + b * kPositions < seen.end && step + (b + 1) * kPositions > seen.first;
      };
      constexpr int kBlockScores = kPositions / 4 * gpu::kWarpLanes;
#pragma unroll 1
      for (int b = 0; b < kStepBlocks; ++b) {
        if (is_seen(b)) ScoreBlock<Form>(kv, part_of(b), q, there, kept + b * kBlockScores);
      }
      float scores[kStepTiles][2];
#pragma unroll
      for (int i = 0; i < kStepTiles * 2; ++i) {
        scores[i / 2][i % 2] = is_seen(i / 8) ? kept[i * gpu::kWarpLanes] : FB_NOTHING;
      }
      // Of element i: of its key, or of its value.
      const auto scale_of = [&](int i, bool value) {
        return ScalesOf(kv,
                        part_of(i / 8))[(value ? kPositions : 0) + i / 2 % 4 * 8 + pair + i % 2];
      };
      const bool scaled = Form::kCoded && kv.codes == kInt8Codes;
      if (scaled) {
#pragma unroll
        for (int i = 0; i < kStepTiles * 2; ++i) {
          if (is_seen(i / 8)) scores[i / 2][i % 2] = scores[i / 2][i % 2] * scale_of(i, false);
        }
      }
      if (args.cap > 0) {
#pragma unroll
        for (int i = 0; i < kStepTiles * 2; ++i)
          scores[i / 2][i % 2] = CapOf(scores[i / 2][i % 2] * args.scale, args.cap);
      }
      const float best = MaskScores(seen, step, scores);
      const float top = gpu::Max(sums.whole, WholeOf(best, c)), factor = FactorOf(sums.whole - top);
      sums.whole = top;
      uint32_t p[kStepTiles];
      float of_step[4];
      ProbabilitiesOf(scores, c128, top, of_step, [&](int t, float p0, float p1) {
        if (scaled && is_seen(t / 4)) {
          p0 = Scaled(p0, scale_of(2 * t, true));
          p1 = Scaled(p1, scale_of(2 * t + 1, true));
        }
        p[t] = gpu::PairOf(p0, p1);
      });
#pragma unroll
      for (int l = 0; l < 4; ++l) lanes[l] = gpu::Fma(lanes[l], factor, of_step[l]);
      Rescale(factor, sums.values);
#pragma unroll
      for (int t = 0; t < kStepTiles; ++t) kept[t * gpu::kWarpLanes] = gpu::FromBits(p[t]);
#pragma unroll 1
      for (int t = 0; t < kStepTiles; t += 2) {  // 16 positions
        if (!is_seen(t / 4)) continue;
        AddValues<Form>(
            kv, part_of(t / 4), unit, seen, t % 4 * 8, step + t * 8,
            {gpu::Bits(kept[t * gpu::kWarpLanes]), gpu::Bits(kept[(t + 1) * gpu::kWarpLanes])},
            sums.values);
      }
    }
    sums.sum = LanesTree(lanes);
    Merge(sums, total);
  }
  if (args.sinks != nullptr) {
    const float sink = there ? args.sinks[unit.head + lane / 4] : 0.0f, scale = MmaScale(1.0f);
    Sums sums;
    sums.whole = WholeOf(sink, scale);
    sums.sum = ProbabilityOf(sink, scale * 0x1p-7f, MmaBias(sums.whole));
    Merge(sums, total);
  }
  if (!there) return;
  const float inverse = gpu::Div(1.0f, total.sum);
  const int64_t columns = int64_t{args.row_heads} * kv.value_dim;
  const int column = (unit.head + lane / 4) * kv.value_dim + unit.value + pair;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (j * 8 + pair >= unit.values) continue;
    *As<uint32_t>(args.out + InRows(args.out_form, row, column + j * 8, columns)) = RoundedPair(
        gpu::Fma(total.values[j][0], inverse, 0.0f), gpu::Fma(total.values[j][1], inverse, 0.0f));
  }
}

}  // namespace

FB_KERNEL(mma_attention_plain, AttentionParams, kWarpsOfAttention* gpu::kWarpLanes) {
  gpu::TakeTurn();
  const int number = gpu::BlockY() * kWarpsOfAttention + gpu::Warp();
  if (number >= args.units) return;
  const int32_t row = gpu::BlockX();
  const int sequence = FindSequence(args.batch, row);
  if (sequence < 0) return;
  const SequenceRows& rows = args.batch.sequences[sequence];
  if (rows.num_rows < args.least_rows && (args.fits == nullptr || *args.fits != 0)) return;
  const Unit unit(args, number);
  FB_SHARED(float, shared);  // a thread keeps scores, then probabilities, in words of its own
  float* const kept = shared + gpu::Warp() * kPlainKept + gpu::Lane();
  if (args.kv.codes != kNoCodes) return Attend<InCodes>(args, rows, row, unit, kept);
  if (args.kv.form == PackedForm::kCuda) return Attend<InChunks>(args, rows, row, unit, kept);
  if (args.kv.values_in_keys) return Attend<InKeys>(args, rows, row, unit, kept);
  Attend<InPairs>(args, rows, row, unit, kept);
}

}  // namespace forebay::kernels::cuda
