#include "kernels/norm.h"

#include "kernels/ref/row.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

template <typename X, typename T>
void NormRows(const RmsNormArgs& args, device::Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const X* x = reinterpret_cast<const X*>(args.x) + (args.rows ? args.rows[i] : i) * args.columns;
    T* out = reinterpret_cast<T*>(args.out) + i * args.columns;
    const float inverse =
        InverseRms([x](int64_t j) { return tensor::ToFloat(x[j]); }, args.columns, args.eps);
    for (int64_t j = 0; j < args.columns; ++j) {
      out[j] = tensor::RoundTo<T>(tensor::ToFloat(x[j]) * inverse * args.weight[j]);
    }
  }
}

}  // namespace

void RmsNorm(const RmsNormArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.num_rows);
  if (args.dtype == tensor::DType::kF32) return NormRows<float, float>(args, rows);
  args.x_f32 ? NormRows<float, tensor::BF16>(args, rows)
             : NormRows<tensor::BF16, tensor::BF16>(args, rows);
}

}  // namespace forebay::kernels::ref
