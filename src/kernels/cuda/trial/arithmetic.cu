// The arithmetic of class `pair`, element by element: whether the GPU rounds as the CPU does.
#include "kernels/cuda/pair/arithmetic.h"
#include "kernels/cuda/trial/params.h"

namespace forebay::kernels::cuda {

FB_KERNEL(trial_arithmetic, ArithmeticTrialParams, 256) {
  const int i = gpu::BlockX() * gpu::Threads() + gpu::Tid();
  if (i >= args.count) return;
  const float a = gpu::FromBits(args.a[i]), b = gpu::FromBits(args.b[i]),
              c = gpu::FromBits(args.c[i]);
  float d = 0;
  switch (args.which) {
    case Arithmetic::kFma: d = gpu::Fma(a, b, c); break;
    case Arithmetic::kAdd: d = a + b; break;
    case Arithmetic::kMultiply: d = a * b; break;
    case Arithmetic::kDivide: d = gpu::Div(a, b); break;
    case Arithmetic::kRoot: d = gpu::Sqrt(a); break;
    case Arithmetic::kExp: d = ExpOf(a); break;
    case Arithmetic::kRoundToBF16: d = ToFloat(RoundTo<BF16>(a)); break;
  }
  args.d[i] = gpu::Bits(d);
}

}  // namespace forebay::kernels::cuda
