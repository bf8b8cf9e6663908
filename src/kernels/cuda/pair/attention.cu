// Attention in the order of kernels/attention.h: a warp a row and query head; a lane has a position
// of the block for its scores, and the dimensions lane, lane + 32, ... for its values.
//
// Bytes: the context's K and V once a row and query head, from cache for all but the first of a
// group. Limit: reading K and V.
#include "kernels/cuda/pair/kv_rows.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kPartBlocks = 32, kMostValues = 512 / kPositions;

// The softmax of some positions, not yet divided. Lanes 0 to 15 hold the sum's lanes.
struct Partial {
  float maximum, sum;
  float values[kMostValues];
};

struct Seen {
  int begin, end;
  FB_DEVICE bool operator()(int t) const { return t >= begin && t < end; }
};

// What an element of the cache stands for; a code before its scale.
struct FP8Code {
  uint8_t bits;
};
struct Int8Code {
  int8_t value;
};
FB_DEVICE float ValueOf(float value) { return value; }
FB_DEVICE float ValueOf(BF16 value) { return ToFloat(value); }
FB_DEVICE float ValueOf(Int8Code code) { return code.value; }
FB_DEVICE float ValueOf(FP8Code code) { return FP8Value(code.bits); }

// E: how the cache has elements.
template <typename T, typename E>
FB_DEVICE void AddBlock(const AttentionParams& args, const T* q, std::byte* part, Seen seen,
                        Partial& partial) {
  const KvParams& kv = args.kv;
  const E* const keys = As<E>(part);
  const float* const scales = kv.codes == kInt8Codes ? ScalesOf(kv, part) : nullptr;
  const int lane = gpu::Lane();
  float score = 0;
  for (int i = 0; i < kv.key_dim; i += 2) {
    const E* const pair = keys + (i / 2 * kPositions + lane) * 2;
    score = gpu::Fma(ToFloat(q[i + 1]), ValueOf(pair[1]), score);
    score = gpu::Fma(ToFloat(q[i]), ValueOf(pair[0]), score);
  }
  score = score * args.scale;
  if (scales != nullptr) score = score * scales[lane];
  if (args.cap > 0) score = CapOf(score, args.cap);
  if (!seen(lane)) score = -FB_INFINITY;

  const float maximum = MaxTree16(MaxOf(score, gpu::Shuffle(score, lane + kLanes16)));
  if (maximum > partial.maximum) {
    const float factor = ExpOf(partial.maximum - maximum);
    partial.sum = partial.sum * factor;
    for (int i = 0; i < kMostValues; ++i) partial.values[i] = partial.values[i] * factor;
    partial.maximum = maximum;
  }

  float probability = seen(lane) ? ExpOf(score - partial.maximum) : 0.0f;
  partial.sum = partial.sum + probability;
  partial.sum = partial.sum + gpu::Shuffle(probability, lane + kLanes16);
  if (scales != nullptr && !(probability <= 0))
    probability = probability * scales[kPositions + lane];
  const float rounded = ToFloat(RoundTo<T>(probability));

  const E* const values = keys + kv.key_dim * kPositions;
  for (int pair = 0; pair < kPositions / 2; ++pair) {
    const float p_even = gpu::Shuffle(rounded, 2 * pair);
    const float p_odd = gpu::Shuffle(rounded, 2 * pair + 1);
    if (pair < seen.begin / 2 || pair > (seen.end - 1) / 2) continue;
    const bool even_seen = seen(2 * pair), odd_seen = seen(2 * pair + 1);
    for (int i = 0; i < kMostValues; ++i) {
      const int j = lane + i * kPositions;
      if (j >= kv.value_dim) break;
      float even = 0, odd = 0;
      if (kv.values_in_keys) {
        const E* const at = keys + (j / 2 * kPositions + 2 * pair) * 2 + j % 2;
        if (even_seen) even = ValueOf(at[0]);
        if (odd_seen) odd = ValueOf(at[2]);
      } else {
        const E* const at = values + (pair * kv.value_dim + j) * 2;
        if (even_seen) even = ValueOf(at[0]);
        if (odd_seen) odd = ValueOf(at[1]);
      }
      partial.values[i] = gpu::Fma(p_odd, odd, partial.values[i]);
      partial.values[i] = gpu::Fma(p_even, even, partial.values[i]);
    }
  }
}

FB_DEVICE void Merge(const Partial& part, Partial& total) {
  const float maximum = MaxOf(part.maximum, total.maximum);
  const float old_factor = ExpOf(total.maximum - maximum);
  const float factor = ExpOf(part.maximum - maximum);
  total.maximum = maximum;
  total.sum = gpu::Fma(part.sum, factor, total.sum * old_factor);
  for (int i = 0; i < kMostValues; ++i)
    total.values[i] = gpu::Fma(part.values[i], factor, total.values[i] * old_factor);
}

// One more score that has no value.
FB_DEVICE void AddSink(float sink, Partial& total) {
  const float maximum = MaxOf(total.maximum, sink);
  const float factor = ExpOf(total.maximum - maximum);
  total.sum = gpu::Fma(1.0f, ExpOf(sink - maximum), total.sum * factor);
  for (int i = 0; i < kMostValues; ++i) total.values[i] = total.values[i] * factor;
}

FB_DEVICE void Clear(Partial& partial) {
  partial.maximum = -FB_INFINITY;
  partial.sum = 0;
  for (int i = 0; i < kMostValues; ++i) partial.values[i] = 0;
}

template <typename T, typename E>
FB_DEVICE void Attend(const AttentionParams& args, const SequenceRows& sequence, int32_t row,
                      int32_t head) {
  const KvParams& kv = args.kv;
  const int32_t position = sequence.first_position + row - sequence.first_row;
  const int32_t first = FirstSeen(args, position), last = LastSeen(args, sequence, position);
  const int64_t at = int64_t{row} * args.row_heads + head;
  const T* const q = As<T>(args.q) + at * kv.key_dim;
  const uint32_t* const table =
      args.batch.block_tables + sequence.table_row * args.batch.table_stride;
  const int64_t kv_head = head / (args.heads / kv.kv_heads);
  const int32_t first_block = first / kPositions, last_block = last / kPositions;
  Partial total, partial;
  Clear(partial);
  bool merged = false;
  for (int32_t block = first_block; block <= last_block; ++block) {
    const int32_t start = block * kPositions;
    const Seen seen{first > start ? first - start : 0,
                    last - start < kPositions - 1 ? last - start + 1 : kPositions};
    AddBlock<T, E>(args, q, BlockOf(kv, table[block]) + kv_head * kv.head_bytes, seen, partial);
    if (block != last_block && (block + 1) % kPartBlocks != 0) continue;
    partial.sum = SumTree16(partial.sum);
    if (merged) {
      Merge(partial, total);
    } else {
      total = partial;
    }
    merged = true;
    Clear(partial);
  }
  if (args.sinks != nullptr) AddSink(args.sinks[head], total);
  T* const out = As<T>(args.out) + at * kv.value_dim;
  for (int i = 0; i < kMostValues; ++i) {
    const int j = gpu::Lane() + i * kPositions;
    if (j < kv.value_dim) out[j] = RoundTo<T>(gpu::Div(total.values[i], total.sum));
  }
}

template <typename T>
FB_DEVICE void AttendCodes(const AttentionParams& args, const SequenceRows& sequence, int32_t row,
                           int32_t head) {
  if (args.kv.codes == kFP8Codes) return Attend<T, FP8Code>(args, sequence, row, head);
  if (args.kv.codes == kInt8Codes) return Attend<T, Int8Code>(args, sequence, row, head);
  Attend<T, T>(args, sequence, row, head);
}

}  // namespace

FB_KERNEL(pair_attention, AttentionParams, kWarpsOfAttention* gpu::kWarpLanes) {
  const int32_t row = gpu::BlockX();
  const int32_t head = gpu::BlockY() * kWarpsOfAttention + gpu::Warp();
  if (head >= args.heads) return;
  const int sequence = FindSequence(args.batch, row);
  if (sequence < 0) return;
  FB_FOR_ELEMENT(args.kv.element, AttendCodes, args, args.batch.sequences[sequence], row, head);
}

}  // namespace forebay::kernels::cuda
