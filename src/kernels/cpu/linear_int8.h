// What int8 layers (ARCHITECTURE.md, "Type `w8a8`") have beside the loop of linear_loop.h: inputs
// as codes with a scale a row and leaf, and what becomes of a leaf's sum of codes.
//
// The sets' part is
//
//   struct Products {
//     // Codes of x are stored + 128, since an instruction takes them as unsigned. The 128 go with
//     // the columns' sums of codes.
//     static constexpr bool kOffset = ...;
//     // Adds products of quads into slots of int32.
//     template <int kRows>
//     static void Tile(const uint32_t* x, const std::byte* w, const Extent& extent, float* sums,
//                      const Ahead& ahead);
//   };
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/linear_tile.h"
#include "kernels/tile_form.h"

namespace forebay::kernels {
namespace {

#if defined(__AVX512F__)
// The numbers of 16 sums, less 128 times `offsets`.
template <bool kOffset>
FB_INLINE Vector SumsOf(const float* sums, const std::byte* offsets) {
  __m512i sum = _mm512_loadu_si512(sums);
  if (kOffset) sum = _mm512_sub_epi32(sum, _mm512_slli_epi32(_mm512_loadu_si512(offsets), 7));
  return {_mm512_cvtepi32_ps(sum)};
}
#else
FB_INLINE __m256 SumsOfEight(const float* sums, const std::byte* offsets, bool offset) {
  __m256i sum = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
  if (offset) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(offsets));
    sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(codes, 7));
  }
  return _mm256_cvtepi32_ps(sum);
}
template <bool kOffset>
FB_INLINE Vector SumsOf(const float* sums, const std::byte* offsets) {
  return {SumsOfEight(sums, offsets, kOffset), SumsOfEight(sums + 8, offsets + 32, kOffset)};
}
#endif

template <typename T, typename Products>
struct Int8Kernel {
  using Packed = uint32_t;  // four codes; or a scale
  static constexpr int kPackedPerPair = 1;

  static void FindScales(const T* const* x, int rows, int64_t elements, uint32_t* scales) {
    for (int r = 0; r < rows; ++r) scales[r] = Int8ScaleOf(x[r], elements);
  }

  // Codes of up to 16 values, +0 behind them.
  static FB_INLINE __m128 QuadsOf(const T* x, int64_t elements, Vector scale) {
    const Vector values = elements >= kLanes ? Vector::Load(x) : LoadPart(x, elements);
    __m128i codes = CodesOf(values / scale);
    if (Products::kOffset) codes = _mm_xor_si128(codes, _mm_set1_epi8(static_cast<char>(0x80)));
    return _mm_castsi128_ps(codes);
  }
  template <int kRows>
  static void PackRows(const T* const* x, int64_t elements, const uint32_t* scales, uint32_t* out) {
    for (int64_t k = 0; k < elements; k += kLanes, out += kRows * kLanes / kQuadValues) {
      __m128 quads[kRows];
      for (int r = 0; r < kRows; ++r)
        quads[r] = QuadsOf(x[r] + k, elements - k, Vector::Set(FloatOf(scales[r])));
      if (k + kLanes <= elements) {
        StoreTransposed<kRows>(quads, reinterpret_cast<float*>(out), kRows);
      } else {
        float last[kRows * kLanes / kQuadValues];
        StoreTransposed<kRows>(quads, last, kRows);
        const int64_t left = (elements - k + kQuadValues - 1) / kQuadValues;
        __builtin_memcpy(out, last, static_cast<size_t>(left * kRows) * sizeof(float));
      }
    }
  }
  static void Pack(const T* const* x, int rows, int64_t elements, const uint32_t* scales,
                   uint32_t* out) {
    FB_SWITCH_ROWS(rows, PackRows, x, elements, scales, out);
  }

  // A row of one leaf: codes, then the scale, as one that is packed alone.
  static void CodeRow(const T* x, int64_t elements, uint32_t* out) {
    uint32_t* const scale = out + (elements + kQuadValues - 1) / kQuadValues;
    FindScales(&x, 1, elements, scale);
    PackRows<1>(&x, elements, scale, out);
  }
  // Such rows side by side: `words` of each, quads and scale alike.
  template <int kRows>
  static void JoinRows(const uint32_t* const* x, int64_t words, uint32_t* out) {
    int64_t i = 0;
    for (; i + 4 <= words; i += 4, out += 4 * kRows) {
      __m128 four[kRows];
      for (int r = 0; r < kRows; ++r)
        four[r] = _mm_loadu_ps(reinterpret_cast<const float*>(x[r] + i));
      StoreTransposed<kRows>(four, reinterpret_cast<float*>(out), kRows);
    }
    for (; i < words; ++i) {
      for (int r = 0; r < kRows; ++r) *out++ = x[r][i];
    }
  }
  static void Join(const uint32_t* const* x, int rows, int64_t words, uint32_t* out) {
    FB_SWITCH_ROWS(rows, JoinRows, x, words, out);
  }

  static FB_INLINE void Run(int rows, const uint32_t* x, const std::byte* w, const Extent& extent,
                            float* sums, const Ahead& ahead) {
    FB_SWITCH_ROWS(rows, Products::template Tile, x, w, extent, sums, ahead);
  }

  // Sums of codes become numbers and are added to `merges` lower slots, each to the sum so far.
  // `columns`: the tile's scales, then its sums.
  static void FinishLeaf(int rows, const uint32_t* scales, const std::byte* columns, int merges,
                         float* sums) {
    for (int r = 0; r < rows; ++r, sums += kPanelColumns) {
      const Vector scale = Vector::Set(FloatOf(scales[r]));
      for (int c = 0; c < kPanelColumns; c += kLanes) {
        const std::byte* const column = columns + c * static_cast<int64_t>(sizeof(float));
        Vector total = SumsOf<Products::kOffset>(sums + c, column + kPanelColumns * sizeof(float)) *
                       scale * Vector::Load(reinterpret_cast<const float*>(column));
        float* at = sums + c;
        for (int merge = 0; merge < merges; ++merge) {
          at -= kSlotFloats;
          total = Vector::Load(at) + total;
        }
        total.Store(at);
      }
    }
  }
};

}  // namespace
}  // namespace forebay::kernels
