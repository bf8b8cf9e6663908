#include "kernels/cpu/linear_tile512.h"
#include "kernels/expand.h"

namespace forebay::kernels {
namespace {
template <typename T>
struct Micro : FmaMicro<T> {};
constexpr ExpandFunction kExpand = &avx512f::Expand;
constexpr bool kHasMultiplyPart = false;
constexpr MultiplyPartFunction kMultiplyPart = nullptr;

// Without VNNI. Products of |w| and x with w's sign: two of them stay within int16, of w = -128
// too.
struct SignedProducts {
  static constexpr bool kOffset = false;

  template <int kRows>
  static void Tile(const uint32_t* x, const std::byte* w, const Extent& extent, float* sums,
                   const Ahead& ahead) {
    RunTile512<kRows, 1, kQuadBytes>(
        x, w, extent, sums, ahead,
        [](__m512(&sum)[kRows][4], const uint32_t* x,
           const std::byte* w) __attribute__((always_inline)) {
          const __m512i ones = _mm512_set1_epi16(1);
#pragma GCC unroll 4
          for (int c = 0; c < 4; ++c) {
            const __m512i column = _mm512_loadu_si512(w + c * 64);
            const __m512i magnitude = _mm512_abs_epi8(column);
            const __mmask64 negative = _mm512_movepi8_mask(column);
#pragma GCC unroll 6
            for (int r = 0; r < kRows; ++r) {
              const __m512i row = _mm512_set1_epi32(static_cast<int>(x[r]));
              const __m512i turned =
                  _mm512_mask_sub_epi8(row, negative, _mm512_setzero_si512(), row);
              const __m512i products =
                  _mm512_madd_epi16(_mm512_maddubs_epi16(magnitude, turned), ones);
              sum[r][c] =
                  _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum[r][c]), products));
            }
          }
        });
  }
};

}  // namespace
}  // namespace forebay::kernels

#include "kernels/cpu/experts_loop.h"

namespace forebay::kernels::avx512f {
void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  RunLinear<SignedProducts>(args, context);
}
void Experts(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunExperts<SignedProducts>(args, context);
}
void LinearWithVnni(const LinearArgs& args, const device::WorkerContext& context) {
  RunLinear<DotProducts>(args, context);
}
void ExpertsWithVnni(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunExperts<DotProducts>(args, context);
}
}  // namespace forebay::kernels::avx512f
