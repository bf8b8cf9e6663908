// Row-wise operations: rms_norm, add_normed, finish_logits, gate_rows, embed, layer_inputs,
// logits_digest (kernels/norm.h), reduce (kernels/reduce.h). A block a row.
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
  const int64_t from = args.rows != nullptr ? args.rows[i] - args.first_row : i;
  const X* const x = As<X>(args.x) + from * args.stride;
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) row[j] = ToFloat(x[j]);
  gpu::Sync();
  const float mean = args.centered ? MeanOf([&](int j) { return row[j]; }, args.columns) : 0.0f;
  const auto value = [&](int j) { return args.centered ? row[j] - mean : row[j]; };
  const float inverse = InverseRmsOf(value, args.columns, args.eps);
  const bool chunks = args.out_form == RowForm::kChunks;
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    std::byte* const to = chunks
                              ? args.out + InRows(RowForm::kChunks, i, j, args.columns)
                              : args.out + (i * args.stride + j) * static_cast<int64_t>(sizeof(T));
    const float normed = value(j) * inverse * args.weight[j];
    *As<T>(to) = RoundTo<T>(args.bias != nullptr ? normed + args.bias[j] : normed);
  }
}

template <typename T>
FB_DEVICE void AddNormedRow(const AddNormedParams& args) {
  const int64_t begin = int64_t{gpu::BlockX()} * args.columns;
  const auto x = [&](int j) {
    return args.beside != nullptr ? args.x[begin + j] + args.beside[begin + j] : args.x[begin + j];
  };
  float inverse = 1;
  if (args.weight != nullptr) inverse = InverseRmsOf(x, args.columns, args.eps);
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    const float s = args.weight != nullptr ? x(j) * inverse * args.weight[j] : x(j);
    const float sum = s * args.factor + ToFloat(As<T>(args.residual)[begin + j]);
    As<T>(args.out)[begin + j] = RoundTo<T>(args.scale != nullptr ? sum * *args.scale : sum);
  }
}

template <typename T>
FB_DEVICE void GateRow(const GateRowsParams& args) {
  const int64_t row = gpu::BlockX();
  T* const y = As<T>(args.y) + row * args.columns;
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    const float gate = args.gates[args.one_a_row ? row : row * args.columns + j];
    y[j] = RoundTo<T>(ToFloat(y[j]) * SigmoidOf(gate));
  }
}

template <typename T>
FB_DEVICE void LayerInputRow(const LayerInputsParams& args) {
  const int64_t row = gpu::BlockX();
  const int32_t entry = args.tokens[row];
  const int64_t token = entry >= 0 ? entry : args.sampled[~entry];
  const T* const table = As<T>(args.table) + token * args.table_stride;
  const float* const x = args.projected + row * args.columns;
  const float* const gates = args.gates + row * args.columns;
  const float inverse = InverseRmsOf([&](int j) { return x[j]; }, args.columns, args.eps);
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    const float own = x[j] * inverse * args.weight[j];
    const float of_token = ToFloat(table[j]) * args.table_factor;
    As<T>(args.out)[row * args.columns + j] =
        RoundTo<T>(GeluOf(gates[j]) * ((own + of_token) * args.factor));
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
  const T* learned = nullptr;
  const T* type = nullptr;
  if (args.positions != nullptr) {
    learned = As<T>(args.positions) +
              (int64_t{args.row_positions[row]} + args.position_offset) * args.columns;
    const int64_t of_row = args.row_types != nullptr ? args.row_types[row] : 0;
    if (args.types != nullptr) type = As<T>(args.types) + of_row * args.columns;
  }
  const auto put = [&](int j, T value) {
    if (learned != nullptr) {
      const float typed = ToFloat(value) + (type != nullptr ? ToFloat(type[j]) : 0.0f);
      value = RoundTo<T>(typed + ToFloat(learned[j]));
    }
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
  gpu::TakeTurn();
  if (args.element == Element::kF32) return NormRow<float, float>(args, row);
  if (args.x_f32) return NormRow<float, BF16>(args, row);
  NormRow<BF16, BF16>(args, row);
}

FB_KERNEL(pair_add_normed, AddNormedParams, kRowThreads) {
  gpu::TakeTurn();
  FB_FOR_ELEMENT(args.element, AddNormedRow, args);
}

FB_KERNEL(pair_finish_logits, FinishLogitsParams, kRowThreads) {
  const int64_t i = int64_t{gpu::BlockX()} * gpu::Threads() + gpu::Tid();
  if (i >= args.count) return;
  const float value = args.values[i] * args.factor;
  args.values[i] = args.cap > 0 ? CapOf(value, args.cap) : value;
}

FB_KERNEL(pair_gate_rows, GateRowsParams, kRowThreads) {
  FB_FOR_ELEMENT(args.element, GateRow, args);
}

FB_KERNEL(pair_layer_inputs, LayerInputsParams, kRowThreads) {
  FB_FOR_ELEMENT(args.element, LayerInputRow, args);
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
