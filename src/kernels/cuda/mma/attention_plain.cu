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
  // Elements j, j + 1 of K at position t.
  FB_DEVICE static uint32_t Key(const BF16* keys, int t, int j) {
    return reinterpret_cast<const uint32_t*>(keys)[j / 2 * kPositions + t];
  }
  // Element j of V at positions t, t + 1.
  FB_DEVICE static uint32_t Value(const KvParams& kv, const BF16* keys, int t, int j) {
    return reinterpret_cast<const uint32_t*>(keys +
                                             kv.key_dim * kPositions)[t / 2 * kv.value_dim + j];
  }
};
struct InKeys : InPairs {
  FB_DEVICE static uint32_t Value(const KvParams&, const BF16* keys, int t, int j) {
    const uint16_t* const at = &keys[(j / 2 * kPositions + t) * 2 + j % 2].bits;
    return at[0] | uint32_t{at[2]} << 16;
  }
};
struct InChunks {
  FB_DEVICE static uint32_t Key(const BF16* keys, int t, int j) {
    return *reinterpret_cast<const uint32_t*>(keys + InHeadHalf(t, j) / 2);
  }
  FB_DEVICE static uint32_t Value(const KvParams& kv, const BF16* keys, int t, int j) {
    const BF16* const values = keys + (kv.values_in_keys ? 0 : kv.key_dim * kPositions);
    return values[InHeadHalf(t, j) / 2].bits | uint32_t{values[InHeadHalf(t + 1, j) / 2].bits}
                                                   << 16;
  }
};

template <typename Form>
FB_DEVICE void ScoreBlock(int key_dim, const BF16* keys, const BF16* q, bool there, float* kept) {
  constexpr int kStep = 16;
  float c[kPositions / 8][2] = {};
  const int lane = gpu::Lane(), pair = lane % 4 * 2;
  const auto query = [&](int j) {
    return there && j < key_dim ? *reinterpret_cast<const uint32_t*>(q + j) : 0;
  };
#pragma unroll 1
  for (int j = pair; j < key_dim + pair; j += kStep) {
    const uint32_t a[2] = {query(j), query(j + 8)};
#pragma unroll
    for (int t = 0; t < kPositions / 8; ++t) {
      const int position = t * 8 + lane / 4;
      gpu::MmaUpper(c[t], a, j < key_dim ? Form::Key(keys, position, j) : 0,
                    j + 8 < key_dim ? Form::Key(keys, position, j + 8) : 0);
    }
  }
#pragma unroll
  for (int i = 0; i < kPositions / 4; ++i) kept[i * gpu::kWarpLanes] = c[i / 2][i % 2];
}

// sums.values += p V over 16 positions from `t0` of the block on, `at` of the part.
template <typename Form>
FB_DEVICE void AddValues(const KvParams& kv, const BF16* keys, const Unit& unit,
                         const SeenPart& seen, int t0, int at, const uint32_t (&p)[2],
                         float (&values)[kTiles][2]) {
  const int lane = gpu::Lane(), pair = lane % 4 * 2;
  const uint32_t low = Kept(seen, at + pair), high = Kept(seen, at + 8 + pair);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (j * 8 >= unit.values) continue;
    const int column = j * 8 + lane / 4;
    const bool there = column < unit.values;
    const uint32_t b0 = there ? Form::Value(kv, keys, t0 + pair, unit.value + column) & low : 0;
    const uint32_t b1 =
        there ? Form::Value(kv, keys, t0 + 8 + pair, unit.value + column) & high : 0;
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
  const int32_t last = sequence.first_position + row - sequence.first_row;
  const int32_t first = FirstSeen(args, last);
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
      const auto keys_of = [&](int b) {
        const std::byte* const block = BlockOf(kv, table[(begin + step) / kPositions + b]);
        return As<BF16>(block + unit.kv_head * kv.head_bytes);
      };
      const auto is_seen = [&](int b) {
        return step + b * kPositions < seen.end && step + (b + 1) * kPositions > seen.first;
      };
      constexpr int kBlockScores = kPositions / 4 * gpu::kWarpLanes;
#pragma unroll 1
      for (int b = 0; b < kStepBlocks; ++b) {
        if (is_seen(b)) ScoreBlock<Form>(kv.key_dim, keys_of(b), q, there, kept + b * kBlockScores);
      }
      float scores[kStepTiles][2];
#pragma unroll
      for (int i = 0; i < kStepTiles * 2; ++i) {
        scores[i / 2][i % 2] = is_seen(i / 8) ? kept[i * gpu::kWarpLanes] : FB_NOTHING;
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
      Probabilities(scores, c128, top, p, of_step);
#pragma unroll
      for (int l = 0; l < 4; ++l) lanes[l] = gpu::Fma(lanes[l], factor, of_step[l]);
      Rescale(factor, sums.values);
#pragma unroll
      for (int t = 0; t < kStepTiles; ++t) kept[t * gpu::kWarpLanes] = gpu::FromBits(p[t]);
#pragma unroll 1
      for (int t = 0; t < kStepTiles; t += 2) {  // 16 positions
        if (!is_seen(t / 4)) continue;
        AddValues<Form>(
            kv, keys_of(t / 4), unit, seen, t % 4 * 8, step + t * 8,
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
  const int number = gpu::BlockX() * kWarpsOfAttention + gpu::Warp();
  if (number >= args.units) return;
  const int32_t row = gpu::BlockY();
  const int sequence = FindSequence(args.batch, row);
  if (sequence < 0) return;
  const SequenceRows& rows = args.batch.sequences[sequence];
  if (rows.num_rows < args.least_rows && (args.fits == nullptr || *args.fits != 0)) return;
  const Unit unit(args, number);
  FB_SHARED(float, shared);  // a thread keeps scores, then probabilities, in words of its own
  float* const kept = shared + gpu::Warp() * kPlainKept + gpu::Lane();
  if (args.kv.form == PackedForm::kCuda) return Attend<InChunks>(args, rows, row, unit, kept);
  if (args.kv.values_in_keys) return Attend<InKeys>(args, rows, row, unit, kept);
  Attend<InPairs>(args, rows, row, unit, kept);
}

}  // namespace forebay::kernels::cuda
