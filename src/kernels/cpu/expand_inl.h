// Expanders of stored tiles (kernels/expand.h) over the type Vector, a template a form.
//
//   pairs of K -> runs of one group of scales -> 16 columns at a time -> units of 8 pairs
//
// A vector of codes has 8 columns, of each the even and the odd elements of a pair side by side, as
// the tile of the compute type has them: a shift, the code's value, a product and a rounding make
// 16 neighbours of the tile. They are stored (Run), or multiplied by few rows at once (Multiply).
// What takes time is the number of operations, whichever units they want. Included once by each
// set's file; see simd.h on why all of it is unnamed and forced inline.
#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/expand.h"

namespace forebay::kernels {
namespace {

#if defined(__AVX512F__)

constexpr bool kTablesAreFast = true;

// What 16 columns have.
FB_INLINE Vector FloatsAt(const std::byte* p) {
  return {_mm512_loadu_ps(reinterpret_cast<const float*>(p))};
}
FB_INLINE Vector HalvesAt(const std::byte* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// What the first or last 8 of them have, each twice.
FB_INLINE Vector Twice(Vector a, int half) {
  const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return {
      _mm512_permutexvar_ps(half == 0 ? low : _mm512_add_epi32(low, _mm512_set1_epi32(8)), a.v)};
}

#else

constexpr bool kTablesAreFast = false;

FB_INLINE Vector FloatsAt(const std::byte* p) {
  const float* const from = reinterpret_cast<const float*>(p);
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
FB_INLINE Vector HalvesAt(const std::byte* p) {
  const __m128i* const from = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from + 1))};
}
FB_INLINE Vector Twice(Vector a, int half) {
  const __m256 eight = half == 0 ? a.lo : a.hi;
  return {_mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
          _mm256_permutevar8x32_ps(eight, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}

#endif

// The values of codes of up to 5 bits; of fewer bits again and again, so that bits above a code do
// not matter.
struct CodeTable {
  alignas(64) float values[32];
};
constexpr CodeTable TableOf(const FormTraits& traits) {
  CodeTable table{};
  for (int i = 0; i < 32; ++i) {
    const int code = traits.bits < 5 ? i % (1 << traits.bits) : i;
    table.values[i] = traits.codes == Codes::kIQ4    ? kIQ4Values[code % 16]
                      : traits.codes == Codes::kE2M1 ? kE2M1Values[code % 16]
                                                     : static_cast<float>(code - traits.offset);
    // as its scales are four times too large
    if (traits.scale == Scale::kE8M0) table.values[i] *= 0.25f;
  }
  return table;
}

constexpr int64_t kPlaneRowBytes = kPanelColumns * 2 * 4;
constexpr int64_t kBlockColumns = 8;  // of a vector

// 8 pairs of 8 columns in a plane of kWidth bits a code, those of 1 and 2 bits shifted as LaneShift
// says.
template <int kWidth>
struct PlaneUnit {
  Lanes lanes[kWidth == 8 ? 2 : 1];

  static FB_INLINE PlaneUnit Load(const std::byte* plane, int64_t unit, int64_t block) {
    const std::byte* const at = plane + unit * kWidth / 4 * kPlaneRowBytes + block * 64;
    if constexpr (kWidth == 8) return {{Lanes::Load(at), Lanes::Load(at + kPlaneRowBytes)}};
    if constexpr (kWidth == 4) return {{Lanes::Load(at)}};
    return {{Lanes::Load(at).ShiftedLeftBy(kWidth == 2 ? static_cast<int>(unit % 2) * 4
                                                       : static_cast<int>(unit % 4))}};
  }
  // The bits of pair kPair from bit kAt on, with those of others above and below.
  template <int kPair, int kAt = 0>
  FB_INLINE Lanes Above() const {
    constexpr int kPairInLane = kWidth == 8 ? kPair % 4 : kPair;
    constexpr int kBits = LaneShift(kWidth, kPairInLane) - kAt;
    const Lanes& from = lanes[kWidth == 8 ? kPair / 4 : 0];
    if constexpr (kBits < 0) return from.template ShiftedLeft<-kBits>();
    if constexpr (kBits == 0) return from;
    return from.template Shifted < kBits < 0 ? 0 : kBits > ();
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

  // What scales and minima of 16 columns are multiplied by in a block of outer scales.
  struct Outer {
    Vector scale, minimum;
  };
  FB_INLINE Outer OuterOf(int64_t outer_block, int64_t block) const {
    const int64_t at = outer_block * kPanelColumns + block * kBlockColumns;
    const auto load = [&](int64_t outer) __attribute__((always_inline)) {
      const std::byte* const from = part.tile + outer + at * kTraits.outer_scale_bytes();
      return kTraits.scale == Scale::kE4M3 ? FloatsAt(from) : HalvesAt(from);
    };
    Outer outer{Vector::Zero(), Vector::Zero()};
    if constexpr (kTraits.outer_scale_bytes() > 0) outer.scale = load(parts.outer_scales);
    if constexpr (kTraits.outer_minimum_bytes() > 0) outer.minimum = load(parts.outer_minima);
    return outer;
  }

  // Scales or minima at `values`, of 16 columns.
  FB_INLINE Vector ScalesAt(int64_t values, Vector outer, int64_t group, int64_t column) const {
    const std::byte* const at =
        part.tile + values + (group * kPanelColumns + column) * kTraits.scale_bytes();
    switch (kTraits.scale) {
      case Scale::kF16: return HalvesAt(at);
      case Scale::kF32: return FloatsAt(at);
      case Scale::kE8M0: return Lanes::UnsignedBytes(at).Plus(2).template ShiftedLeft<23>().Bits();
      case Scale::kSignedByte: return outer * Lanes::SignedBytes(at).Numbers();
      case Scale::kUnsignedByte: return outer * Lanes::UnsignedBytes(at).Numbers();
      case Scale::kE4M3: return E4M3Values(Lanes::UnsignedBytes(at)) * outer;
    }
    return Vector::Zero();
  }

  // Of `block` and the one after it.
  FB_INLINE void LoadAffine(int64_t group, const Outer& outer, int64_t block,
                            Affine* affine) const {
    const int64_t column = block * kBlockColumns;
    const Vector scale = ScalesAt(parts.scales, outer.scale, group, column);
    Vector other = Vector::Zero();
    if constexpr (kTraits.minimum == Minimum::kZeroPoint) {
      other =
          Lanes::UnsignedBytes(part.tile + parts.minima + group * kPanelColumns + column).Numbers();
    } else if constexpr (kTraits.minimum != Minimum::kNone) {
      other = ScalesAt(parts.minima, outer.minimum, group, column);
      if constexpr (kTraits.minimum == Minimum::kSubtracted) other = Negate(other);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) affine[i] = {Twice(scale, i), Twice(other, i)};
  }

  // A unit of a block: 8 pairs of 8 columns.
  struct Columns {
    Low low;
    // Of codes in two planes: those of even and of odd pairs, in bytes from bit kByteBit on, with
    // other bits above and below. Of fp8 bf16 in halves: of pairs 0 and 2, 1 and 3, 4 and 6, 5
    // and 7.
    Lanes joined[4];
  };
  static constexpr bool kInBytes = kTraits.high_bits() > 0;
  static constexpr bool kInHalves = kTablesAreFast && kTraits.codes == Codes::kE4M3;
  static constexpr int kByteBit = kTraits.low_bits() == 4 ? 0 : 4;

  template <int kOdd>
  static FB_INLINE Lanes Join(const Low& low, const High& high) {
    constexpr int kLowBits = kTraits.low_bits();
    constexpr uint32_t kMask = ((1u << kLowBits) - 1) << kByteBit;
    return low.template Above<kOdd, kByteBit>().Select(
        static_cast<int>(kMask * 0x01010101u), high.template Above<kOdd, kByteBit + kLowBits>());
  }
  FB_INLINE Columns Load(int64_t unit, int64_t block) const {
    Columns columns;
    columns.low = Low::Load(part.tile, unit, block);
    if constexpr (kInBytes) {
      const High high = High::Load(part.tile + parts.high, unit, block);
      columns.joined[0] = Join<0>(columns.low, high);
      columns.joined[1] = Join<1>(columns.low, high);
    }
#if defined(__AVX512F__)
    if constexpr (kInHalves) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const Lanes lanes = columns.low.lanes[i / 2];
        columns.joined[i] = E4M3Halves(i % 2 == 0 ? lanes : lanes.template Shifted<8>());
      }
    }
#endif
    if constexpr (kTablesAreFast && kTraits.codes == Codes::kSigned) {  // plus 128: no sign
      for (Lanes& lanes : columns.low.lanes) lanes = lanes.Xor(static_cast<int>(0x80808080u));
    }
    return columns;
  }

  // The code of pair kPair from the lowest bit on, with other bits above.
  template <int kPair>
  static FB_INLINE Lanes CodesAbove(const Columns& columns) {
    if constexpr (kInBytes) {
      constexpr int kBits = kPair / 2 * 8 + kByteBit;
      if constexpr (kBits == 0) return columns.joined[kPair % 2];
      return columns.joined[kPair % 2].template Shifted<kBits>();
    } else {
      return columns.low.template Above<kPair>();
    }
  }

  template <int kPair>
  static FB_INLINE Vector ValuesOf(const Columns& columns) {
    constexpr int kMask = (1 << kTraits.bits) - 1;
    if constexpr (!kTablesAreFast && kTraits.codes == Codes::kSigned) {
      return columns.low.lanes[kPair / 4].template SignedByte<kPair % 4>().Numbers();
    } else if constexpr (kInHalves) {
      const Lanes halves = columns.joined[kPair / 4 * 2 + kPair % 2];
      if constexpr (kPair % 4 < 2) return halves.template ShiftedLeft<16>().Bits();
      return halves.And(static_cast<int>(0xFFFF0000u)).Bits();
    } else {
      const Lanes codes = CodesAbove<kPair>(columns);
      if constexpr (kTraits.codes == Codes::kE4M3) {
        return E4M3Values(codes.And(kMask));
      } else if constexpr (kTraits.bits <= 4 &&
                           (kTablesAreFast || kTraits.codes != Codes::kUnsigned)) {
        return codes.EntriesOf(kTable.values);
      } else {
        return UnsignedValues(codes, kTraits.codes == Codes::kSigned ? 128 : kTraits.offset);
      }
    }
  }

#if defined(__AVX512F__)
  static FB_INLINE Vector UnsignedValues(Lanes codes, int offset) {
    if constexpr (kTraits.bits == 5) return codes.EntriesOf32(kTable.values);
    return codes.LowNumbers((1 << kTraits.bits) - 1, static_cast<float>(offset));
  }
#else
  static FB_INLINE Vector UnsignedValues(Lanes codes, int offset) {
    const Vector values = codes.And((1 << kTraits.bits) - 1).Numbers();
    return offset == 0 ? values : values - Vector::Set(static_cast<float>(offset));
  }
#endif

  template <int kPair>
  static FB_INLINE Vector Weights(const Columns& columns, const Affine& affine) {
    const Vector values = ValuesOf<kPair>(columns);
    if constexpr (kTraits.minimum == Minimum::kNone) return values * affine.scale;
    if constexpr (kTraits.minimum == Minimum::kZeroPoint)
      return (values - affine.other) * affine.scale;
    return Fma(values, affine.scale, affine.other);
  }

  template <int kPair>
  static FB_INLINE void StorePair(const Columns* columns, const Affine* affine, T* out) {
    StoreTwo(out + kPair * 2 * kPanelColumns, Weights<kPair>(columns[0], affine[0]),
             Weights<kPair>(columns[1], affine[1]));
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

  // Bytes from a part's data to the same data of the part that is expanded next.
  struct Distances {
    int64_t low = 0, high = 0, scales = 0;
  };
  FB_INLINE Distances DistancesToNext(int64_t group) const {
    if (part.next_tile == nullptr) return {};
    const int64_t tiles = part.next_tile - part.tile, pairs = part.next_pair - part.pair;
    const auto in_plane = [&](int bits) { return tiles + pairs * bits / 32 * kPlaneRowBytes; };
    const int64_t groups = group == 0 ? 0 : 2 * pairs / group;
    return {in_plane(kTraits.low_bits()), in_plane(kTraits.high_bits()),
            tiles + groups * kPanelColumns * kTraits.scale_bytes()};
  }

  // Of the next part's planes, one step of 16 kTwos columns of a unit after another. The order is
  // that of memory: reads of the same lines by columns would show the CPU's own prefetchers none.
  struct CodesAhead {
    const char *low, *high;

    template <int kBits, int kTwos>
    static FB_INLINE void Step(const char*& at) {
      constexpr int kBytes = kBits * 32 * kTwos;
#pragma GCC unroll 8
      for (int i = 0; i < kBytes; i += 64) _mm_prefetch(at + i, _MM_HINT_T0);
      at += kBytes;
    }
    template <int kTwos>
    FB_INLINE void Step() {
      Step<kTraits.low_bits(), kTwos>(low);
      Step<kTraits.high_bits(), kTwos>(high);
    }
  };
  FB_INLINE CodesAhead AheadOf(const Distances& next) const {
    const char* const tile = reinterpret_cast<const char*>(part.tile);
    const auto in_plane = [&](int bits) { return part.pair * bits / 32 * kPlaneRowBytes; };
    return {tile + next.low + in_plane(kTraits.low_bits()),
            tile + next.high + parts.high + in_plane(kTraits.high_bits())};
  }

  FB_INLINE void PrefetchScales(int64_t group, const Distances& next) const {
    constexpr int64_t kBytes = kPanelColumns * kTraits.scale_bytes();
    const char* const at = reinterpret_cast<const char*>(part.tile) + next.scales + group * kBytes;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kBytes; i += 64) {
      _mm_prefetch(at + parts.scales + i, _MM_HINT_T0);
      if (kTraits.minimum_bytes() > 0) _mm_prefetch(at + parts.minima + i, _MM_HINT_T0);
    }
  }

  // Pairs [pair, end) of one group of scales.
  FB_INLINE void RunGroup(int64_t pair, int64_t end, int64_t group, int64_t outer_block,
                          const Distances& next, CodesAhead& ahead) const {
    T* const out = reinterpret_cast<T*>(part.out);
    PrefetchScales(group, next);
    for (int64_t block = 0; block < kPanelColumns / kBlockColumns; block += 2) {
      Affine affine[2];
      LoadAffine(group, OuterOf(outer_block, block), block, affine);
      for (int64_t unit = pair / 8; 8 * unit < end; ++unit) {
        const Columns columns[2] = {Load(unit, block), Load(unit, block + 1)};
        ahead.template Step<1>();
        RunUnit(columns, affine, 8 * unit < pair ? pair - 8 * unit : 0,
                end - 8 * unit < 8 ? end - 8 * unit : 8,
                out + (8 * unit - part.pair) * 2 * kPanelColumns + block * 2 * kBlockColumns);
      }
    }
  }

  // Calls run(pair, end, group, outer_block) for the pairs of each group of scales.
  template <typename Run>
  FB_INLINE void ForGroups(int64_t group, int64_t outer_group, Run run) const {
    const int64_t end = part.pair + part.num_pairs;
    for (int64_t pair = part.pair; pair < end;) {
      const int64_t k = part.begin + 2 * pair;
      const int64_t border = group == 0 ? end : ((k / group + 1) * group - part.begin) / 2;
      const int64_t stop = border < end ? border : end;
      run(pair, stop, (group == 0 ? 0 : k / group) - parts.first_group,
          (outer_group == 0 ? 0 : k / outer_group) - parts.first_outer);
      pair = stop;
    }
  }

  static void Run(const TilePart& part, int64_t group, int64_t outer_group) {
    const TileParts parts = PartsOf(part.form, part.begin, part.end);
    const FormExpander expander{part, parts};
    const Distances next = expander.DistancesToNext(group);
    CodesAhead ahead = expander.AheadOf(next);
    expander.ForGroups(
        group, outer_group,
        [&](int64_t pair, int64_t end, int64_t at, int64_t outer) __attribute__((always_inline)) {
          expander.RunGroup(pair, end, at, outer, next, ahead);
        });
  }

#if defined(__AVX512BF16__)
  // Sums of 16 kTwos columns.
  template <int kRows, int kTwos>
  struct Sums {
    __m512 of[kRows][kTwos];

    template <int kPair>
    FB_INLINE void AddPair(const Columns* columns, const Affine* affine, const uint32_t* x) {
#pragma GCC unroll 2
      for (int i = 0; i < kTwos; ++i) {
        const auto weights = [&](int j) __attribute__((always_inline)) {
          return Weights<kPair>(columns[j], affine[j]).v;
        };
        const __m512bh w = _mm512_cvtne2ps_pbh(weights(2 * i + 1), weights(2 * i));
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          const __m512bh row = (__m512bh)_mm512_set1_epi32(static_cast<int>(x[kPair * kRows + r]));
          of[r][i] = _mm512_dpbf16_ps(of[r][i], row, w);
        }
      }
    }
    FB_INLINE void AddUnit(const Columns* columns, const Affine* affine, const uint32_t* x) {
      AddPair<0>(columns, affine, x);
      AddPair<1>(columns, affine, x);
      AddPair<2>(columns, affine, x);
      AddPair<3>(columns, affine, x);
      AddPair<4>(columns, affine, x);
      AddPair<5>(columns, affine, x);
      AddPair<6>(columns, affine, x);
      AddPair<7>(columns, affine, x);
    }
  };

  // Few rows leave registers for 32 columns at a time, and need them: a sum is one chain.
  // REQUIRES: groups of 2^n values.
  template <int kRows>
  static void Multiply(const RowsByPart& rows, int64_t group, int64_t outer_group) {
    constexpr int kTwos = kRows <= 2 ? 2 : 1;
    const TilePart& part = rows.part;
    const TileParts parts = PartsOf(part.form, part.begin, part.end);
    const FormExpander expander{part, parts};
    const Distances next = expander.DistancesToNext(group);
    CodesAhead ahead = expander.AheadOf(next);
    const int64_t begin = part.begin + 2 * part.pair, end = begin + 2 * part.num_pairs;
    const int group_bits = group == 0 ? 0 : __builtin_ctzll(static_cast<uint64_t>(group));
    for (int64_t block = 0; block < kPanelColumns / kBlockColumns; block += 2 * kTwos) {
      float* const at = rows.sums + block * kBlockColumns;
      Sums<kRows, kTwos> sums;
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int i = 0; i < kTwos; ++i) {
          sums.of[r][i] =
              rows.resume ? _mm512_load_ps(at + r * kPanelColumns + i * 16) : _mm512_setzero_ps();
        }
      }
      constexpr int kBlocks = 2 * kTwos;
      Outer outer[kTwos];
      const uint32_t* x = rows.x;
      int64_t unit = part.pair / 8;
      for (int64_t k = begin; k < end;) {
        const int64_t here = group == 0 ? 0 : (k >> group_bits) - parts.first_group;
        if (block == 0) expander.PrefetchScales(here, next);
        if (k == begin || (outer_group > 0 && k % outer_group == 0)) {
          const int64_t outer_here = outer_group == 0 ? 0 : k / outer_group - parts.first_outer;
#pragma GCC unroll 2
          for (int i = 0; i < kTwos; ++i) outer[i] = expander.OuterOf(outer_here, block + 2 * i);
        }
        Affine affine[kBlocks];
#pragma GCC unroll 2
        for (int i = 0; i < kTwos; ++i)
          expander.LoadAffine(here, outer[i], block + 2 * i, affine + 2 * i);
        const int64_t border = group == 0 ? end : (k | (group - 1)) + 1;
        const int64_t stop = border < end ? border : end;
        for (; k < stop; k += 16, ++unit, x += 8 * kRows) {
          Columns columns[kBlocks];
#pragma GCC unroll 4
          for (int i = 0; i < kBlocks; ++i) columns[i] = expander.Load(unit, block + i);
          ahead.template Step<kTwos>();
          sums.AddUnit(columns, affine, x);
        }
      }
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int i = 0; i < kTwos; ++i)
          _mm512_store_ps(at + r * kPanelColumns + i * 16, sums.of[r][i]);
      }
    }
  }
  static void Multiply(const RowsByPart& rows, int64_t group, int64_t outer_group) {
    switch (rows.rows) {
      case 1: return Multiply<1>(rows, group, outer_group);
      case 2: return Multiply<2>(rows, group, outer_group);
      case 3: return Multiply<3>(rows, group, outer_group);
      case 4: return Multiply<4>(rows, group, outer_group);
      case 5: return Multiply<5>(rows, group, outer_group);
      default: return Multiply<6>(rows, group, outer_group);
    }
  }
#endif
};

// Calls FormExpander<T, form>::f(argument, group, outer_group) for the form.
#define FB_FORM(T, f, argument, form, group, outer_group) \
  case TileForm::form:                                    \
    return FormExpander<T, TileForm::form>::f(argument, group, outer_group)
#define FB_SWITCH_FORM(tile_form, T, f, argument)                                              \
  switch (tile_form) {                                                                         \
    FB_FORM(T, f, argument, kQ8_0, 32, 0);                                                     \
    FB_FORM(T, f, argument, kQ6_K, 16, 256);                                                   \
    FB_FORM(T, f, argument, kQ5_K, 32, 256);                                                   \
    FB_FORM(T, f, argument, kQ4_K, 32, 256);                                                   \
    FB_FORM(T, f, argument, kQ3_K, 16, 256);                                                   \
    FB_FORM(T, f, argument, kQ2_K, 16, 256);                                                   \
    FB_FORM(T, f, argument, kQ5_1, 32, 0);                                                     \
    FB_FORM(T, f, argument, kQ5_0, 32, 0);                                                     \
    FB_FORM(T, f, argument, kQ4_1, 32, 0);                                                     \
    FB_FORM(T, f, argument, kQ4_0, 32, 0);                                                     \
    FB_FORM(T, f, argument, kIQ4_XS, 32, 256);                                                 \
    FB_FORM(T, f, argument, kIQ4_NL, 32, 0);                                                   \
    FB_FORM(T, f, argument, kMXFP4, 32, 0);                                                    \
    FB_FORM(T, f, argument, kNVFP4, 16, 0);                                                    \
    FB_FORM(T, f, argument, kF8Block, 128, 0);                                                 \
    case TileForm::kF8Row:                                                                     \
      return FormExpander<T, TileForm::kF8Block>::f(argument, 0, 0);                           \
      FB_FORM(T, f, argument, kInt8Row, 0, 0);                                                 \
      FB_FORM(T, f, argument, kW4Row, 0, 0);                                                   \
    case TileForm::kW4Group32: return FormExpander<T, TileForm::kW4Row>::f(argument, 32, 0);   \
    case TileForm::kW4Group64: return FormExpander<T, TileForm::kW4Row>::f(argument, 64, 0);   \
    case TileForm::kW4Group128: return FormExpander<T, TileForm::kW4Row>::f(argument, 128, 0); \
    case TileForm::kExpanded:                                                                  \
    case TileForm::kW8A8: return;                                                              \
  }

template <typename T>
FB_INLINE void ExpandTo(const TilePart& part) {
  FB_SWITCH_FORM(part.form, T, Run, part);
}

FB_INLINE void ExpandTile(const TilePart& part) {
  if (part.dtype == tensor::DType::kF32) return ExpandTo<float>(part);
  ExpandTo<BF16>(part);
}

#if defined(__AVX512BF16__)
FB_INLINE void MultiplyRowsByPart(const RowsByPart& rows) {
  FB_SWITCH_FORM(rows.part.form, BF16, Multiply, rows);
}
#endif

#undef FB_SWITCH_FORM
#undef FB_FORM

}  // namespace
}  // namespace forebay::kernels
