// How the weights of a tile are stored: a row of one table for each form. Files' types name a form
// (weights/formats), kernels have an expander a form, and nothing else tells forms apart.
//
// The weight of code c is, of its group of K,
//
//   value(c) x scale  or  value(c) x scale + minimum  or  (c - zero point) x scale
//
// in fp32, each operation rounded; a product and the sum with its minimum may be one fused
// multiply-add, since the product is exact in every form with a minimum. Then the weight is rounded
// once to the compute type. These are the bits that a tile of the compute type holds.
//
// A tile of k = end - begin values of K by 64 columns, parts one behind the other:
//
//   planes of codes   [rows][64 columns][2] of 32 bits: a lane has one element (even or odd) of
//                     32 / width consecutive pairs of its column, each at LaneShift. Low bits of
//                     codes first, then the high bits of 3-, 5- and 6-bit codes. Padded with code 0
//                     to whole lanes of at least 8 pairs.
//   scales            [groups][64], of the groups that [begin, end) touches
//   minima            [groups][64], or zero points
//   outer scales      [blocks][64]: what scales are multiplied by
//   outer minima      [blocks][64]: what minima are multiplied by, and then subtracted
//
// Of kW8A8, whose codes layers multiply as they are (ARCHITECTURE.md, "Type `w8a8`"):
//
//   codes             [ceil(k / 4)][64 columns][4] of 8 bits, padded with 0
//   scales            [64] of fp32
//   sums              [64] of int32: of each column's codes
//
// Columns without an output have zeros. Groups and blocks count from the first column of the
// tensor: borders of leaves may cut them, and each tile has what it touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace forebay::kernels {

enum class TileForm : uint8_t {
  kExpanded,  // values of the compute type, pairs along K
  kQ8_0,
  kQ6_K,
  kQ5_K,
  kQ4_K,
  kQ3_K,
  kQ2_K,
  kQ5_1,
  kQ5_0,
  kQ4_1,
  kQ4_0,
  kIQ4_XS,
  kIQ4_NL,
  kMXFP4,
  kNVFP4,
  kF8Block,
  kF8Row,
  kInt8Row,
  kW4Group32,
  kW4Group64,
  kW4Group128,
  kW4Row,
  kW8A8,  // no expander: layers multiply its codes with codes of their inputs
};
inline constexpr int kNumTileForms = static_cast<int>(TileForm::kW8A8) + 1;
// Those that kernels multiply as values of the compute type.
inline constexpr int kNumValueForms = static_cast<int>(TileForm::kW8A8);

// What a code stands for.
enum class Codes : uint8_t {
  kUnsigned,  // itself, less FormTraits::offset
  kSigned,    // itself, in two's complement
  kIQ4,       // an entry of the table of ggml's IQ4 types
  kE2M1,      // fp4: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and negative
  kE4M3,      // fp8
};

// How a scale is stored, and its minimum if there is one.
enum class Scale : uint8_t {
  kF16,
  kF32,
  kE8M0,          // a power of two
  kSignedByte,    // x an fp16 of 256 values
  kUnsignedByte,  // the same
  kE4M3,          // fp8, x an fp32 of the row
};

enum class Minimum : uint8_t {
  kNone,
  kAdded,       // stored like its scale
  kSubtracted,  // the same
  kZeroPoint,   // a byte, which is subtracted from the code
};

struct FormTraits {
  std::string_view name;
  int bits;  // of a code; of kExpanded: those of the compute type
  Codes codes;
  int offset;  // of unsigned codes
  int group;   // values of K that have one scale; 0: all of the row
  Scale scale;
  Minimum minimum;

  constexpr int low_bits() const { return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits; }
  constexpr int high_bits() const { return bits - low_bits(); }
  // Bytes of a column's scale of a group, and of a block of outer scales.
  constexpr int scale_bytes() const {
    return scale == Scale::kF16 ? 2 : scale == Scale::kF32 ? 4 : 1;
  }
  constexpr int minimum_bytes() const {
    return minimum == Minimum::kNone ? 0 : minimum == Minimum::kZeroPoint ? 1 : scale_bytes();
  }
  constexpr bool scales_of_256() const {
    return scale == Scale::kSignedByte || scale == Scale::kUnsignedByte;
  }
  constexpr int outer_scale_bytes() const {
    return scales_of_256() ? 2 : scale == Scale::kE4M3 ? 4 : 0;
  }
  constexpr int outer_minimum_bytes() const {
    return scales_of_256() && minimum != Minimum::kNone ? 2 : 0;
  }
  // Values of K of a block; 0: all of the row.
  constexpr int outer_group() const { return scales_of_256() ? 256 : 0; }
};

// In the order of TileForm.
inline constexpr FormTraits kTileForms[kNumTileForms] = {
    {"expanded", 0, Codes::kSigned, 0, 0, Scale::kF32, Minimum::kNone},
    {"q8_0", 8, Codes::kSigned, 0, 32, Scale::kF16, Minimum::kNone},
    {"q6_k", 6, Codes::kUnsigned, 32, 16, Scale::kSignedByte, Minimum::kNone},
    {"q5_k", 5, Codes::kUnsigned, 0, 32, Scale::kUnsignedByte, Minimum::kSubtracted},
    {"q4_k", 4, Codes::kUnsigned, 0, 32, Scale::kUnsignedByte, Minimum::kSubtracted},
    {"q3_k", 3, Codes::kUnsigned, 4, 16, Scale::kSignedByte, Minimum::kNone},
    {"q2_k", 2, Codes::kUnsigned, 0, 16, Scale::kUnsignedByte, Minimum::kSubtracted},
    {"q5_1", 5, Codes::kUnsigned, 0, 32, Scale::kF16, Minimum::kAdded},
    {"q5_0", 5, Codes::kUnsigned, 16, 32, Scale::kF16, Minimum::kNone},
    {"q4_1", 4, Codes::kUnsigned, 0, 32, Scale::kF16, Minimum::kAdded},
    {"q4_0", 4, Codes::kUnsigned, 8, 32, Scale::kF16, Minimum::kNone},
    {"iq4_xs", 4, Codes::kIQ4, 0, 32, Scale::kSignedByte, Minimum::kNone},
    {"iq4_nl", 4, Codes::kIQ4, 0, 32, Scale::kF16, Minimum::kNone},
    {"mxfp4", 4, Codes::kE2M1, 0, 32, Scale::kE8M0, Minimum::kNone},
    {"nvfp4", 4, Codes::kE2M1, 0, 16, Scale::kE4M3, Minimum::kNone},
    {"fp8_block", 8, Codes::kE4M3, 0, 128, Scale::kF32, Minimum::kNone},
    {"fp8_row", 8, Codes::kE4M3, 0, 0, Scale::kF32, Minimum::kNone},
    {"int8_row", 8, Codes::kSigned, 0, 0, Scale::kF32, Minimum::kNone},
    {"w4_g32", 4, Codes::kUnsigned, 0, 32, Scale::kF32, Minimum::kZeroPoint},
    {"w4_g64", 4, Codes::kUnsigned, 0, 64, Scale::kF32, Minimum::kZeroPoint},
    {"w4_g128", 4, Codes::kUnsigned, 0, 128, Scale::kF32, Minimum::kZeroPoint},
    {"w4_row", 4, Codes::kUnsigned, 0, 0, Scale::kF32, Minimum::kZeroPoint},
    {"w8a8", 8, Codes::kSigned, 0, 0, Scale::kF32, Minimum::kNone},
};
constexpr const FormTraits& TraitsOf(TileForm form) { return kTileForms[static_cast<int>(form)]; }

// The values of 4-bit codes that are no numbers themselves.
inline constexpr float kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr float kE2M1Values[16] = {0,     0.5f,  1,     1.5f,  2,     3,     4,     6,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
// The greatest E8M0 scale that is stored: the greatest code times a greater one is no fp32.
inline constexpr int kMostE8M0 = 251;

// The lowest bit of a lane's pair number `pair` in a plane of `width` bits a code. Of 4 and 8 bits
// pairs follow one another. Of 1 and 2 bits pairs 2 b and 2 b + 1 of each unit of 8 pairs lie in
// byte b, so that few shifts bring the high bits of a unit above the low ones: a shift left by the
// unit's number in the lane, times 4 (of 2 bits) or 1 (of 1 bit), moves its even pairs to bit 4 or
// 3 of their bytes, and its odd ones to bit 6 or 7.
constexpr int LaneShift(int width, int pair) {
  const int unit = pair / 8, byte = pair % 8 / 2 * 8, odd = pair % 2;
  if (width == 2) return byte + 4 + 2 * odd - 4 * unit;
  if (width == 1) return byte + 3 + 4 * odd - unit;
  return pair * width;
}

// Values of K in a lane of kW8A8, and bytes of 64 lanes.
inline constexpr int kQuadValues = 4;
inline constexpr int kQuadBytes = 64 * kQuadValues;

// Where the parts of a tile of values [begin, end) of the tensor's K begin, in bytes.
struct TileParts {
  // `minima`: of kW8A8 the sums.
  int64_t high = 0, scales = 0, minima = 0, outer_scales = 0, outer_minima = 0;
  int64_t bytes = 0;
  int64_t first_group = 0, num_groups = 0, first_outer = 0, num_outer = 0;
};
// REQUIRES: a form that is not kExpanded.
TileParts PartsOf(TileForm form, int64_t begin, int64_t end);

// A row of a tensor as codes and scales, from the first value of K on: codes [K], the others as
// in a tile, for one column.
struct StoredRow {
  const uint8_t* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* minima = nullptr;
  const std::byte* outer_scales = nullptr;
  const std::byte* outer_minima = nullptr;
};

// Groups and blocks of a row of K values.
struct StoredRowSizes {
  int64_t groups, outer;
};
constexpr StoredRowSizes SizesOf(TileForm form, int64_t k) {
  const FormTraits& traits = TraitsOf(form);
  const auto count = [k](int group) { return group == 0 ? 1 : (k + group - 1) / group; };
  return {count(traits.group), count(traits.outer_group())};
}

// Exact value of an fp8 (4 bits of exponent, 3 of mantissa, no infinity).
float E4M3Value(uint8_t bits);

// The weights [begin, end) of the row, as the form defines them, before they are rounded to the
// compute type: the oracle of all expanders.
void ExpandRow(TileForm form, const StoredRow& row, int64_t begin, int64_t end, float* out);

}  // namespace forebay::kernels
