// Row-wise operations: RMS norm, embedding gather, digest of logits.
#pragma once

#include "device/device.h"
#include "kernels/packed_weight.h"
#include "kernels/step_batch.h"

namespace forebay::kernels {

struct KernelSet;

// out[i] = round((x[r] * (1 / sqrt(mean(x[r]^2) + eps))) * weight), r = rows ? rows[i] : i. The sum
// of squares has 16 fixed lanes (element j in lane j % 16, fused multiply-add in ascending order)
// and a fixed tree (lanes i and i + 8, then i + 4, i + 2, i + 1); the mean is the sum divided by
// columns. Centered (LayerNorm): x - mean(x), its sum of the same lanes by additions, stands for x;
// a bias is added before rounding.
struct RmsNormArgs {
  tensor::DType dtype = tensor::DType::kBF16;  // type of x and out
  bool x_f32 = false;                          // x is fp32, whatever `dtype` says
  const std::byte* x = nullptr;                // [.., columns]
  std::byte* out = nullptr;                    // [num_rows, columns]
  const float* weight = nullptr;               // [columns]
  const float* bias = nullptr;                 // [columns] or null; where `centered`
  bool centered = false;
  const int32_t* rows = nullptr;  // [num_rows] or null: all in order
  int32_t first_row = 0;          // the number in `rows` of x's first row
  int32_t num_rows = 0;
  int32_t columns = 0;
  // Elements from one row of x and out to the next; 0: columns. x and out may be the same.
  int64_t stride = 0;
  float eps = 0;
  RowForm out_form = RowForm::kRows;  // kChunks: of T bf16, without a stride

  int64_t Stride() const { return stride > 0 ? stride : columns; }
  // Where row i of out comes from: elements into x.
  int64_t RowAt(int64_t i) const { return (rows ? rows[i] - first_row : i) * Stride(); }
};
void RmsNorm(device::Stream& stream, const KernelSet& kernels, const char* label,
             const RmsNormArgs& args);

// What a block gives, added to the residual: out[i] = round((s * factor + residual[i]) * scale),
// with y = x + beside, or x where nothing is beside it; with a weight s = (y[i] * (1 /
// sqrt(mean(y[i]^2) + eps))) * weight, the mean as RmsNorm forms it, else s = y[i].
struct AddNormedArgs {
  tensor::DType dtype = tensor::DType::kBF16;  // T of residual and out
  const float* x = nullptr;                    // [rows, columns]
  const float* beside = nullptr;               // [rows, columns] or null
  const float* weight = nullptr;               // [columns] or null
  const std::byte* residual = nullptr;         // [rows, columns]
  std::byte* out = nullptr;                    // [rows, columns]; may be `residual`
  int32_t rows = 0, columns = 0;
  float eps = 0, factor = 1;
  const float* scale = nullptr;  // one element; null: 1
};
void AddNormed(device::Stream& stream, const KernelSet& kernels, const char* label,
               const AddNormedArgs& args);

// values[i] = Cap(values[i] * factor, cap), where the cap is not 0; in place.
struct FinishLogitsArgs {
  float* values = nullptr;
  int64_t count = 0;
  float factor = 1, cap = 0;
};
void FinishLogits(device::Stream& stream, const KernelSet& kernels, const FinishLogitsArgs& args);

// y = round(y * sigmoid(gate)), in place: a gate an element, or one a row.
struct GateRowsArgs {
  tensor::DType dtype = tensor::DType::kBF16;  // T of y
  std::byte* y = nullptr;                      // [rows, columns]
  const float* gates = nullptr;                // [rows, columns], or [rows]
  int32_t rows = 0, columns = 0;
  bool one_a_row = false;
};
void GateRows(device::Stream& stream, const KernelSet& kernels, const char* label,
              const GateRowsArgs& args);

// out[row] = embedding of tokens[row]; a negative token ~id stands for sampled[id]. Reads the
// packed head of a tied model (`packed`, single leaf) or a row-major table.
struct EmbedArgs {
  tensor::DType dtype = tensor::DType::kBF16;
  StepBatch batch;
  const std::byte* table = nullptr;  // [vocab, columns] of T, or null
  PackedWeight packed;               // where table is null
  std::byte* out = nullptr;          // [rows, columns] of T
  int32_t columns = 0;
  float factor = 1;  // out[row] = round(embedding * factor)
  // Learned positions: out[row] = round(embedding + types[type of row] + positions[position +
  // offset]); null: the model has none. Without StepBatch::types all rows have type 0.
  const std::byte* positions = nullptr;  // [.., columns] of T
  int32_t position_offset = 0;
  const std::byte* types = nullptr;  // [.., columns] of T
};
void Embed(device::Stream& stream, const KernelSet& kernels, const EmbedArgs& args);

// What a layer takes of a row's token beside its residual: out[row] = round(Gelu(gates[row]) *
// ((normed + table[token] * table_factor) * factor)), normed = RmsNorm of projected[row] in fp32,
// unrounded. A negative token ~id stands for sampled[id].
struct LayerInputsArgs {
  tensor::DType dtype = tensor::DType::kBF16;  // T of table and out
  StepBatch batch;
  const float* projected = nullptr;  // [rows, columns]
  const float* weight = nullptr;     // [columns]
  const float* gates = nullptr;      // [rows, columns]
  const std::byte* table = nullptr;  // [.., table_stride]: the layer's columns of token 0
  int64_t table_stride = 0;
  std::byte* out = nullptr;  // [rows, columns]
  int32_t columns = 0;
  float eps = 0, table_factor = 1, factor = 1;
};
void LayerInputs(device::Stream& stream, const KernelSet& kernels, const LayerInputsArgs& args);

// digests[i] = sum modulo 2^64 over chunks c of 1,024 vocabulary entries of hash(bits of logits[i,
// chunk c]; position, c); the hash is digest.h's.
struct LogitsDigestArgs {
  const float* logits = nullptr;  // [num_rows, stride]
  int64_t stride = 0;
  int32_t num_rows = 0, vocab = 0;
  const int32_t* positions = nullptr;  // [num_rows] position of the row
  uint64_t* digests = nullptr;         // [num_rows]
};
void LogitsDigest(device::Stream& stream, const KernelSet& kernels, const LogitsDigestArgs& args);

}  // namespace forebay::kernels
