#include "kernels/norm.h"

#include "kernels/exp.h"
#include "kernels/ref/row.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

template <typename X, typename T>
void NormRows(const RmsNormArgs& args, device::Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const X* x = reinterpret_cast<const X*>(args.x) + args.RowAt(i);
    T* out = reinterpret_cast<T*>(args.out) + i * args.Stride();
    const auto value = [x](int64_t j) { return tensor::ToFloat(x[j]); };
    const float mean = args.centered ? Mean(value, args.columns) : 0;
    const auto centered = [&](int64_t j) { return args.centered ? value(j) - mean : value(j); };
    const float inverse = InverseRms(centered, args.columns, args.eps);
    for (int64_t j = 0; j < args.columns; ++j) {
      const float normed = centered(j) * inverse * args.weight[j];
      out[j] = tensor::RoundTo<T>(args.bias ? normed + args.bias[j] : normed);
    }
  }
}

template <typename T>
void AddRows(const AddNormedArgs& args, device::Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const float* x = args.x + i * args.columns;
    const T* residual = reinterpret_cast<const T*>(args.residual) + i * args.columns;
    T* out = reinterpret_cast<T*>(args.out) + i * args.columns;
    const float* const beside = args.beside ? args.beside + i * args.columns : nullptr;
    const auto y = [&](int64_t j) { return beside ? x[j] + beside[j] : x[j]; };
    const float inverse = args.weight ? InverseRms(y, args.columns, args.eps) : 1;
    for (int64_t j = 0; j < args.columns; ++j) {
      const float s = args.weight ? y(j) * inverse * args.weight[j] : y(j);
      const float sum = s * args.factor + tensor::ToFloat(residual[j]);
      out[j] = tensor::RoundTo<T>(args.scale ? sum * *args.scale : sum);
    }
  }
}

template <typename T>
void GateRow(const GateRowsArgs& args, int64_t row) {
  T* const y = reinterpret_cast<T*>(args.y) + row * args.columns;
  for (int64_t j = 0; j < args.columns; ++j) {
    const float gate = args.gates[args.one_a_row ? row : row * args.columns + j];
    y[j] = tensor::RoundTo<T>(tensor::ToFloat(y[j]) * Sigmoid(gate));
  }
}

template <typename T>
void LayerInputRow(const LayerInputsArgs& args, int64_t row) {
  const int32_t entry = args.batch.tokens[row];
  const int64_t token = entry >= 0 ? entry : args.batch.sampled[~entry];
  const T* const table = reinterpret_cast<const T*>(args.table) + token * args.table_stride;
  const float* const x = args.projected + row * args.columns;
  const float inverse = InverseRms([x](int64_t j) { return x[j]; }, args.columns, args.eps);
  for (int64_t j = 0; j < args.columns; ++j) {
    const float own = x[j] * inverse * args.weight[j],
                of_token = tensor::ToFloat(table[j]) * args.table_factor;
    reinterpret_cast<T*>(args.out)[row * args.columns + j] = tensor::RoundTo<T>(
        Gelu(args.gates[row * args.columns + j]) * ((own + of_token) * args.factor));
  }
}

}  // namespace

void LayerInputs(const LayerInputsArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.batch.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.dtype == tensor::DType::kF32 ? LayerInputRow<float>(args, row)
                                      : LayerInputRow<tensor::BF16>(args, row);
  }
}

void GateRows(const GateRowsArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.dtype == tensor::DType::kF32 ? GateRow<float>(args, row)
                                      : GateRow<tensor::BF16>(args, row);
  }
}

void AddNormed(const AddNormedArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.rows);
  args.dtype == tensor::DType::kF32 ? AddRows<float>(args, rows)
                                    : AddRows<tensor::BF16>(args, rows);
}

void FinishLogits(const FinishLogitsArgs& args, const device::WorkerContext& context) {
  const device::Range part = StaticPart(context, args.count);
  for (int64_t i = part.begin; i < part.end; ++i) {
    const float value = args.values[i] * args.factor;
    args.values[i] = args.cap > 0 ? Cap(value, args.cap) : value;
  }
}

void RmsNorm(const RmsNormArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.num_rows);
  if (args.dtype == tensor::DType::kF32) return NormRows<float, float>(args, rows);
  args.x_f32 ? NormRows<float, tensor::BF16>(args, rows)
             : NormRows<tensor::BF16, tensor::BF16>(args, rows);
}

}  // namespace forebay::kernels::ref
