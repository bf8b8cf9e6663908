// Row-wise operations: rms_norm, add_normed, finish_logits, embed, logits_digest (kernels/norm.h),
// reduce (kernels/reduce.h). A block a row.
//
// Bytes: each input and output once. Limit: memory; a norm's 16 chains for long rows.
#include "kernels/cuda/pair/arithmetic.h"

namespace forebay::kernels::cuda {
namespace {

enum : uint64_t { kLogitsDigest = 3 };
constexpr int kDigestEntries = 1024;  // kDigestChunk
// LinearOutput's values.
enum : int32_t { kOutF32, kOutRounded, kOutResidual };

template <typename X, typename T>
FB_DEVICE void NormRow(const RmsNormParams& args, float* row) {
  const int64_t i = gpu::BlockX();
  const X* const x = As<X>(args.x) + (args.rows != nullptr ? args.rows[i] : i) * args.stride;
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) row[j] = ToFloat(x[j]);
  gpu::Sync();
  const float inverse = InverseRmsOf([&](int j) { return row[j]; }, args.columns, args.eps);
  const bool chunks = args.out_form == RowForm::kChunks;
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    std::byte* const to = chunks
                              ? args.out + InRows(RowForm::kChunks, i, j, args.columns)
                              : args.out + (i * args.stride + j) * static_cast<int64_t>(sizeof(T));
    *As<T>(to) = RoundTo<T>(row[j] * inverse * args.weight[j]);
  }
}

template <typename T>
FB_DEVICE void AddNormedRow(const AddNormedParams& args) {
  const int64_t begin = int64_t{gpu::BlockX()} * args.columns;
  const float* const x = args.x + begin;
  float inverse = 1;
  if (args.weight != nullptr)
    inverse = InverseRmsOf([&](int j) { return x[j]; }, args.columns, args.eps);
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    const float s = args.weight != nullptr ? x[j] * inverse * args.weight[j] : x[j];
    const float residual = ToFloat(As<T>(args.residual)[begin + j]);
    As<T>(args.out)[begin + j] = RoundTo<T>(s * args.factor + residual);
  }
}

// The panel that holds output `column`, or -1: another rank's shard of the vocabulary.
FB_DEVICE int FindPanel(const EmbedParams& args, int32_t column) {
  int low = 0, high = args.num_panels;
  while (low < high) {
    const int middle = (low + high) / 2;
    const int32_t first = args.panels[2 * middle], width = args.panels[2 * middle + 1];
    if (column < first) {
      high = middle;
    } else if (column >= first + width) {
      low = middle + 1;
    } else {
      return middle;
    }
  }
  return -1;
}

template <typename T>
FB_DEVICE void EmbedRow(const EmbedParams& args) {
  const int64_t row = gpu::BlockX();
  const int32_t entry = args.tokens[row];
  const int32_t token = entry >= 0 ? entry : args.sampled[~entry];
  T* const out = As<T>(args.out) + row * args.columns;
  const auto put = [&](int j, T value) {
    out[j] = args.factor == 1.0f ? value : RoundTo<T>(ToFloat(value) * args.factor);
  };
  if (args.table != nullptr) {
    const T* const from = As<T>(args.table) + int64_t{token} * args.columns;
    for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) put(j, from[j]);
    return;
  }
  constexpr int kColumns = 64;
  const int panel = FindPanel(args, token);
  const int column = panel < 0 ? 0 : token - args.panels[2 * panel];
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    if (panel < 0) {
      put(j, T{});
    } else if (args.packed == PackedForm::kCuda) {
      const std::byte* const chunk = args.tiles[panel] + int64_t{j / kChunkSide} * kChunkBytes;
      put(j, *As<T>(chunk + InChunk(ChunkRow(column), j % kChunkSide)));
    } else {
      put(j, As<T>(args.tiles[panel])[(int64_t{j / 2} * kColumns + column) * 2 + j % 2]);
    }
  }
}

template <typename T>
FB_DEVICE void ReduceRow(const ReduceParams& args) {
  constexpr int kStackNodes = 4;
  const int64_t row = gpu::BlockX();
  const int32_t column = gpu::BlockY() * gpu::Threads() + gpu::Tid();
  if (column >= args.n) return;
  float stack[kStackNodes];
  int top = -1;
  for (int p = 0; p < args.num_planes; ++p) {
    float sum = args.planes[p][row * args.stride + column];
    for (int merge = 0; merge < args.merges[p]; ++merge) sum = stack[top--] + sum;
    stack[++top] = sum;
  }
  float sum = stack[0];
  if (args.bias != nullptr) sum = sum + args.bias[column];
  const int64_t at = row * args.y_stride + column;
  if (args.output == kOutF32) {
    As<float>(args.y)[at] = sum;
  } else if (args.output == kOutRounded) {
    As<T>(args.y)[at] = RoundTo<T>(sum);
  } else {
    const T* const residual = As<T>(args.residual == nullptr ? args.y : args.residual);
    As<T>(args.y)[at] = RoundTo<T>(sum + ToFloat(residual[at]));
  }
}

}  // namespace

FB_KERNEL(pair_rms_norm, RmsNormParams, kRowThreads) {
  FB_SHARED(float, row);  // [columns]
  if (args.element == Element::kF32) return NormRow<float, float>(args, row);
  if (args.x_f32) return NormRow<float, BF16>(args, row);
  NormRow<BF16, BF16>(args, row);
}

FB_KERNEL(pair_add_normed, AddNormedParams, kRowThreads) {
  FB_FOR_ELEMENT(args.element, AddNormedRow, args);
}

FB_KERNEL(pair_finish_logits, FinishLogitsParams, kRowThreads) {
  const int64_t i = int64_t{gpu::BlockX()} * gpu::Threads() + gpu::Tid();
  if (i >= args.count) return;
  const float value = args.values[i] * args.factor;
  args.values[i] = args.cap > 0 ? CapOf(value, args.cap) : value;
}

FB_KERNEL(pair_embed, EmbedParams, kRowThreads) { FB_FOR_ELEMENT(args.element, EmbedRow, args); }

FB_KERNEL(pair_logits_digest, LogitsDigestParams, kRowThreads) {
  FB_SHARED(uint64_t, shared);  // a word a warp
  const int64_t row = gpu::BlockX();
  const int32_t position = args.positions[row];
  uint64_t hashes = 0;
  for (int32_t chunk = gpu::Warp(); chunk * kDigestEntries < args.vocab; chunk += gpu::Warps()) {
    const float* const logits = args.logits + row * args.stride + chunk * kDigestEntries;
    const int32_t left = args.vocab - chunk * kDigestEntries;
    const int32_t entries = left < kDigestEntries ? left : kDigestEntries;
    uint64_t sum = 0;
    for (int word = gpu::Lane(); word * 2 < entries; word += gpu::kWarpLanes) {
      uint64_t bits = WordBits(logits[word * 2], 0);
      if (word * 2 + 1 < entries) bits |= WordBits(logits[word * 2 + 1], 1);
      sum += DigestProduct(bits, word);
    }
    sum = WarpSum(sum);
    if (gpu::Lane() == 0)
      hashes += base::Mix64(DigestKeyOf(kLogitsDigest, position, chunk, 0) + sum);
  }
  const uint64_t digest = BlockSum(hashes, shared);
  if (gpu::Tid() == 0) args.digests[row] = digest;
}

FB_KERNEL(pair_reduce, ReduceParams, kRowThreads) { FB_FOR_ELEMENT(args.element, ReduceRow, args); }

}  // namespace forebay::kernels::cuda
