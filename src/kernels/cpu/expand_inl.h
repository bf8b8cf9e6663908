// Expanders of stored tiles (kernels/expand.h) over the type Vector, a template a form.
//
//   pairs of K -> runs of one group of scales -> 16 columns at a time -> units of 8 pairs
//
// A vector of codes has 8 columns, of each the even and the odd elements of a pair side by side, as
// the tile of the compute type has them: a shift, the code's value, a product and a rounding make
// 16 neighbours of the tile. Included once by each set's file; see simd.h on why all of it is
// unnamed and forced inline.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/expand.h"

namespace forebay::kernels {
namespace {

#if defined(__AVX512F__)

constexpr bool kTablesAreFast = true;

// What 8 columns have, each twice.
FB_INLINE Vector TwiceFloats(const std::byte* p) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m256 values = _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  return {_mm512_permutexvar_ps(twice, _mm512_castps256_ps512(values))};
}
FB_INLINE Vector TwiceHalves(const std::byte* p) {
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtph_ps(
      _mm256_set_m128i(_mm_unpackhi_epi16(values, values), _mm_unpacklo_epi16(values, values)))};
}
FB_INLINE Lanes TwiceBytes(const std::byte* p) {
  const __m128i values = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(values, values))};
}

#else

constexpr bool kTablesAreFast = false;

FB_INLINE Vector TwiceFloats(const std::byte* p) {
  const __m256 values = _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  return {_mm256_permutevar8x32_ps(values, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
          _mm256_permutevar8x32_ps(values, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}
FB_INLINE Vector TwiceHalves(const std::byte* p) {
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtph_ps(_mm_unpacklo_epi16(values, values)),
          _mm256_cvtph_ps(_mm_unpackhi_epi16(values, values))};
}
FB_INLINE Lanes TwiceBytes(const std::byte* p) {
  const __m128i values = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i twice = _mm_unpacklo_epi8(values, values);
  return {_mm256_cvtepu8_epi32(twice), _mm256_cvtepu8_epi32(_mm_srli_si128(twice, 8))};
}

#endif

// The values of 4-bit codes.
struct CodeTable {
  alignas(64) float values[16];
};
constexpr CodeTable TableOf(const FormTraits& traits) {
  CodeTable table{};
  for (int code = 0; code < 16; ++code) {
    table.values[code] = traits.codes == Codes::kIQ4    ? kIQ4Values[code]
                         : traits.codes == Codes::kE2M1 ? kE2M1Values[code]
                                                        : static_cast<float>(code - traits.offset);
    // as its scales are four times too large
    if (traits.scale == Scale::kE8M0) table.values[code] *= 0.25f;
  }
  return table;
}

constexpr int64_t kPlaneRowBytes = kPanelColumns * 2 * 4;
constexpr int64_t kBlockColumns = 8;   // of a vector
constexpr int64_t kCodesAhead = 4096;  // bytes of codes that are prefetched

// 8 pairs of 8 columns in a plane of kWidth bits a code.
template <int kWidth>
struct PlaneUnit {
  Lanes lanes[kWidth == 8 ? 2 : 1];

  static FB_INLINE PlaneUnit Load(const std::byte* plane, int64_t unit, int64_t block) {
    const std::byte* const at = plane + unit * kWidth / 4 * kPlaneRowBytes + block * 64;
    if constexpr (kWidth == 8) {
      return {{Lanes::Load(at), Lanes::Load(at + kPlaneRowBytes)}};
    } else if constexpr (kWidth == 4) {
      return {{Lanes::Load(at)}};
    } else {
      const int units_a_row = 4 / kWidth;
      return {{Lanes::Load(at).ShiftedBy(static_cast<int>(unit % units_a_row) * 8 * kWidth)}};
    }
  }
  // The bits of pair kPair from the lowest one on, with those of others above.
  template <int kPair>
  FB_INLINE Lanes Above() const {
    if constexpr (kWidth == 8) {
      return lanes[kPair / 4].template Shifted<kPair % 4 * 8>();
    } else {
      return lanes[0].template Shifted<kPair * kWidth>();
    }
  }
  template <int kPair>
  FB_INLINE Lanes Code() const {
    return Above<kPair>().And((1 << kWidth) - 1);
  }
};
template <>
struct PlaneUnit<0> {
  static FB_INLINE PlaneUnit Load(const std::byte*, int64_t, int64_t) { return {}; }
};

// T: BF16 or float. Forms that differ in their group alone share a kForm.
template <typename T, TileForm kForm>
struct FormExpander {
  static constexpr FormTraits kTraits = TraitsOf(kForm);
  static constexpr CodeTable kTable = TableOf(kTraits);
  using Low = PlaneUnit<kTraits.low_bits()>;
  using High = PlaneUnit<kTraits.high_bits()>;

  const TilePart& part;
  const TileParts& parts;

  // What codes of 8 columns are multiplied by, and what is added to the product or subtracted from
  // the code.
  struct Affine {
    Vector scale, other;
  };

  // Scales or minima at `values`; their outer ones at `outer`.
  FB_INLINE Vector ScalesAt(int64_t values, int64_t outer, int64_t group, int64_t outer_block,
                            int64_t column) const {
    const std::byte* const at =
        part.tile + values + (group * kPanelColumns + column) * kTraits.scale_bytes();
    const std::byte* const outer_at =
        part.tile + outer + (outer_block * kPanelColumns + column) * kTraits.outer_scale_bytes();
    switch (kTraits.scale) {
      case Scale::kF16: return TwiceHalves(at);
      case Scale::kF32: return TwiceFloats(at);
      case Scale::kE8M0: return TwiceBytes(at).Plus(2).template ShiftedLeft<23>().Bits();
      case Scale::kSignedByte:
        return TwiceHalves(outer_at) * TwiceBytes(at).template SignedByte<0>().Numbers();
      case Scale::kUnsignedByte: return TwiceHalves(outer_at) * TwiceBytes(at).Numbers();
      case Scale::kE4M3: return E4M3Values(TwiceBytes(at)) * TwiceFloats(outer_at);
    }
    return Vector::Zero();
  }

  FB_INLINE Affine AffineOf(int64_t group, int64_t outer_block, int64_t block) const {
    const int64_t column = block * kBlockColumns;
    Affine affine;
    affine.scale = ScalesAt(parts.scales, parts.outer_scales, group, outer_block, column);
    if constexpr (kTraits.minimum == Minimum::kZeroPoint) {
      affine.other =
          TwiceBytes(part.tile + parts.minima + group * kPanelColumns + column).Numbers();
    } else if constexpr (kTraits.minimum != Minimum::kNone) {
      affine.other = ScalesAt(parts.minima, parts.outer_minima, group, outer_block, column);
      if constexpr (kTraits.minimum == Minimum::kSubtracted) affine.other = Negate(affine.other);
    }
    return affine;
  }

  template <int kPair>
  static FB_INLINE Vector ValuesOf(const Low& low, const High& high) {
    if constexpr (kTraits.codes == Codes::kE4M3) {
      return E4M3Values(low.template Code<kPair>());
    } else if constexpr (kTraits.codes == Codes::kSigned) {
      return low.lanes[kPair / 4].template SignedByte<kPair % 4>().Numbers();
    } else if constexpr (kTraits.bits == 4 &&
                         (kTablesAreFast || kTraits.codes != Codes::kUnsigned)) {
      return low.template Above<kPair>().EntriesOf(kTable.values);
    } else {
      Lanes code = low.template Code<kPair>();
      if constexpr (kTraits.high_bits() > 0) {
        code = code.Or(high.template Code<kPair>().template ShiftedLeft<kTraits.low_bits()>());
      }
      const Vector values = code.Numbers();
      return kTraits.offset == 0 ? values
                                 : values - Vector::Set(static_cast<float>(kTraits.offset));
    }
  }

  template <int kPair>
  static FB_INLINE Vector Weights(const Low& low, const High& high, const Affine& affine) {
    const Vector values = ValuesOf<kPair>(low, high);
    if constexpr (kTraits.minimum == Minimum::kNone) return values * affine.scale;
    if constexpr (kTraits.minimum == Minimum::kZeroPoint)
      return (values - affine.other) * affine.scale;
    return Fma(values, affine.scale, affine.other);
  }

  struct Columns {
    Low low;
    High high;
  };

  template <int kPair>
  static FB_INLINE void StorePair(const Columns* columns, const Affine* affine, T* out) {
    StoreTwo(out + kPair * 2 * kPanelColumns,
             Weights<kPair>(columns[0].low, columns[0].high, affine[0]),
             Weights<kPair>(columns[1].low, columns[1].high, affine[1]));
  }

  // Pairs [first, last) of a unit; `out` is where its pair 0 would be.
  static FB_INLINE void RunUnit(const Columns* columns, const Affine* affine, int64_t first,
                                int64_t last, T* out) {
    if (first == 0 && last == 8) {
      StorePair<0>(columns, affine, out);
      StorePair<1>(columns, affine, out);
      StorePair<2>(columns, affine, out);
      StorePair<3>(columns, affine, out);
      StorePair<4>(columns, affine, out);
      StorePair<5>(columns, affine, out);
      StorePair<6>(columns, affine, out);
      StorePair<7>(columns, affine, out);
      return;
    }
    for (int64_t pair = first; pair < last; ++pair) {
      switch (pair) {
        case 0: StorePair<0>(columns, affine, out); break;
        case 1: StorePair<1>(columns, affine, out); break;
        case 2: StorePair<2>(columns, affine, out); break;
        case 3: StorePair<3>(columns, affine, out); break;
        case 4: StorePair<4>(columns, affine, out); break;
        case 5: StorePair<5>(columns, affine, out); break;
        case 6: StorePair<6>(columns, affine, out); break;
        default: StorePair<7>(columns, affine, out); break;
      }
    }
  }

  // Pairs [pair, end) of one group of scales.
  FB_INLINE void RunGroup(int64_t pair, int64_t end, int64_t group, int64_t outer_block) const {
    T* const out = reinterpret_cast<T*>(part.out);
    for (int64_t block = 0; block < kPanelColumns / kBlockColumns; block += 2) {
      const Affine affine[2] = {AffineOf(group, outer_block, block),
                                AffineOf(group, outer_block, block + 1)};
      for (int64_t unit = pair / 8; 8 * unit < end; ++unit) {
        Columns columns[2];
        for (int i = 0; i < 2; ++i) {
          columns[i] = {Low::Load(part.tile, unit, block + i),
                        High::Load(part.tile + parts.high, unit, block + i)};
        }
        _mm_prefetch(reinterpret_cast<const char*>(part.tile) + kCodesAhead +
                         unit * kTraits.low_bits() / 4 * kPlaneRowBytes + block * 64,
                     _MM_HINT_T0);
        RunUnit(columns, affine, 8 * unit < pair ? pair - 8 * unit : 0,
                end - 8 * unit < 8 ? end - 8 * unit : 8,
                out + (8 * unit - part.pair) * 2 * kPanelColumns + block * 2 * kBlockColumns);
      }
    }
  }

  static void Run(const TilePart& part, int64_t group, int64_t outer_group) {
    const TileParts parts = PartsOf(part.form, part.begin, part.end);
    const FormExpander expander{part, parts};
    const int64_t end = part.pair + part.num_pairs;
    for (int64_t pair = part.pair; pair < end;) {
      const int64_t k = part.begin + 2 * pair;
      const int64_t border = group == 0 ? end : ((k / group + 1) * group - part.begin) / 2;
      const int64_t stop = border < end ? border : end;
      expander.RunGroup(pair, stop, (group == 0 ? 0 : k / group) - parts.first_group,
                        (outer_group == 0 ? 0 : k / outer_group) - parts.first_outer);
      pair = stop;
    }
  }
};

template <typename T>
FB_INLINE void ExpandTo(const TilePart& part) {
#define FB_FORM(form, group, outer_group) \
  case TileForm::form: return FormExpander<T, TileForm::form>::Run(part, group, outer_group)
  switch (part.form) {
    FB_FORM(kQ8_0, 32, 0);
    FB_FORM(kQ6_K, 16, 256);
    FB_FORM(kQ5_K, 32, 256);
    FB_FORM(kQ4_K, 32, 256);
    FB_FORM(kQ3_K, 16, 256);
    FB_FORM(kQ2_K, 16, 256);
    FB_FORM(kQ5_1, 32, 0);
    FB_FORM(kQ5_0, 32, 0);
    FB_FORM(kQ4_1, 32, 0);
    FB_FORM(kQ4_0, 32, 0);
    FB_FORM(kIQ4_XS, 32, 256);
    FB_FORM(kIQ4_NL, 32, 0);
    FB_FORM(kMXFP4, 32, 0);
    FB_FORM(kNVFP4, 16, 0);
    FB_FORM(kF8Block, 128, 0);
    case TileForm::kF8Row:
      return FormExpander<T, TileForm::kF8Block>::Run(part, 0, 0);
      FB_FORM(kInt8Row, 0, 0);
      FB_FORM(kW4Row, 0, 0);
    case TileForm::kW4Group32: return FormExpander<T, TileForm::kW4Row>::Run(part, 32, 0);
    case TileForm::kW4Group64: return FormExpander<T, TileForm::kW4Row>::Run(part, 64, 0);
    case TileForm::kW4Group128: return FormExpander<T, TileForm::kW4Row>::Run(part, 128, 0);
    case TileForm::kExpanded:
    case TileForm::kW8A8: return;
  }
#undef FB_FORM
}

FB_INLINE void ExpandTile(const TilePart& part) {
  if (part.dtype == tensor::DType::kF32) return ExpandTo<float>(part);
  ExpandTo<BF16>(part);
}

}  // namespace
}  // namespace forebay::kernels
