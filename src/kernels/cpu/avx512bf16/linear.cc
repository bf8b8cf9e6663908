// Linear on vdpbf16ps: a K pair of 16 columns an instruction, which adds the odd product first,
// then the even one.
#include "kernels/cpu/linear_tile512.h"
#include "kernels/cpu/trial_bits.h"
#include "kernels/expand.h"

namespace forebay::kernels {
namespace {

template <typename T>
struct Micro : FmaMicro<T> {};

template <>
struct Micro<BF16> {
  using Packed = uint32_t;
  static constexpr int kPackedPerPair = 1;

  static void Pack(const BF16* const* x, int rows, int64_t elements, uint32_t* out) {
    FB_SWITCH_ROWS(rows, PackBF16Pairs, x, elements, out);
  }

  template <int kRows>
  static void Tile(const uint32_t* x, const std::byte* w, const Extent& extent, float* sums,
                   const Ahead& ahead) {
    RunTile512<kRows, 1, 256>(
        x, w, extent, sums, ahead,
        [](__m512(&sum)[kRows][4], const uint32_t* x, const std::byte* w)
            __attribute__((always_inline)) {
              __m512bh columns[4];
#pragma GCC unroll 4
              for (int c = 0; c < 4; ++c) columns[c] = (__m512bh)_mm512_loadu_si512(w + c * 64);
#pragma GCC unroll 6
              for (int r = 0; r < kRows; ++r) {
                const __m512bh row = (__m512bh)_mm512_set1_epi32(static_cast<int>(x[r]));
#pragma GCC unroll 4
                for (int c = 0; c < 4; ++c)
                  sum[r][c] = _mm512_dpbf16_ps(sum[r][c], row, columns[c]);
              }
            });
  }

  static void Run(int rows, const uint32_t* x, const std::byte* w, const Extent& extent,
                  float* sums, const Ahead& ahead) {
    FB_SWITCH_ROWS(rows, Tile, x, w, extent, sums, ahead);
  }
};

constexpr ExpandFunction kExpand = &avx512bf16::Expand;
constexpr bool kHasMultiplyPart = true;
constexpr MultiplyPartFunction kMultiplyPart = &avx512bf16::MultiplyPart;

}  // namespace
}  // namespace forebay::kernels

#include "kernels/cpu/experts_loop.h"

namespace forebay::kernels::avx512bf16 {

void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  RunLinear<DotProducts>(args, context);
}

void Experts(const ExpertsArgs& args, const device::WorkerContext& context) {
  RunExperts<DotProducts>(args, context);
}

namespace {

// 16 lanes of random bits: a and b bf16 pairs, c fp32.
struct Lanes {
  alignas(64) uint32_t a[16], b[16], c[16];
};

// Whether c + a b is the same both ways. REQUIRES: denormals are flushed.
__attribute__((noinline)) bool SameBothWays(const Lanes& lanes) {
  const __m512i a = _mm512_load_si512(lanes.a), b = _mm512_load_si512(lanes.b);
  const __m512 c = _mm512_load_ps(lanes.c);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m512 dot = _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
  const __m512 odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, upper)),
                                     _mm512_castsi512_ps(_mm512_and_si512(b, upper)), c);
  const __m512 both = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                                      _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), odd);
  return _mm512_cmpneq_epi32_mask(_mm512_castps_si512(dot), _mm512_castps_si512(both)) == 0;
}

}  // namespace

bool DotProductMatchesFma() {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040u);  // FTZ, DAZ
  TrialBits bits;
  bool same = true;
  for (int step = 0; step < 512; ++step) {
    const auto kind = static_cast<TrialKind>(step % kTrialKinds);
    Lanes lanes;
    for (uint32_t& a : lanes.a) a = bits.Next(kind);
    for (uint32_t& b : lanes.b) b = bits.Next(kind);
    for (uint32_t& c : lanes.c) c = bits.Next(kind, true);
    same = same && SameBothWays(lanes);
  }
  _mm_setcsr(saved);
  return same;
}

}  // namespace forebay::kernels::avx512bf16
