#include "weights/formats/tensor_info.h"

#include <limits>

namespace forebay::weights {
namespace {

using kernels::TileForm;
using tensor::DType;

struct GgmlRow {
  uint32_t id;
  StoredType type;
};

// enum ggml_type and the block sizes of ggml's type traits (ggml.h, ggml-common.h).
constexpr GgmlRow kGgmlTypes[] = {
    {0, {"F32", {1, 4}, DType::kF32}},
    {1, {"F16", {1, 2}, DType::kF16}},
    {2, {"Q4_0", {32, 18}, DType::kQ4_0, TileForm::kQ4_0}},
    {3, {"Q4_1", {32, 20}, DType::kQ4_1, TileForm::kQ4_1}},
    {6, {"Q5_0", {32, 22}, {}, TileForm::kQ5_0}},
    {7, {"Q5_1", {32, 24}, {}, TileForm::kQ5_1}},
    {8, {"Q8_0", {32, 34}, DType::kQ8_0, TileForm::kQ8_0}},
    {9, {"Q8_1", {32, 36}, {}}},
    {10, {"Q2_K", {256, 84}, {}, TileForm::kQ2_K}},
    {11, {"Q3_K", {256, 110}, {}, TileForm::kQ3_K}},
    {12, {"Q4_K", {256, 144}, {}, TileForm::kQ4_K}},
    {13, {"Q5_K", {256, 176}, {}, TileForm::kQ5_K}},
    {14, {"Q6_K", {256, 210}, {}, TileForm::kQ6_K}},
    {15, {"Q8_K", {256, 292}, {}}},
    {16, {"IQ2_XXS", {256, 66}, {}}},
    {17, {"IQ2_XS", {256, 74}, {}}},
    {18, {"IQ3_XXS", {256, 98}, {}}},
    {19, {"IQ1_S", {256, 50}, {}}},
    {20, {"IQ4_NL", {32, 18}, {}, TileForm::kIQ4_NL}},
    {21, {"IQ3_S", {256, 110}, {}}},
    {22, {"IQ2_S", {256, 82}, {}}},
    {23, {"IQ4_XS", {256, 136}, {}, TileForm::kIQ4_XS}},
    {24, {"I8", {1, 1}, {}}},
    {25, {"I16", {1, 2}, {}}},
    {26, {"I32", {1, 4}, DType::kI32}},
    {27, {"I64", {1, 8}, DType::kI64}},
    {28, {"F64", {1, 8}, {}}},
    {29, {"IQ1_M", {256, 56}, {}}},
    {30, {"BF16", {1, 2}, DType::kBF16}},
    {34, {"TQ1_0", {256, 54}, {}}},
    {35, {"TQ2_0", {256, 66}, {}}},
    {39, {"MXFP4", {32, 17}, {}, TileForm::kMXFP4}},
};

// The dtypes of the safetensors format that are whole bytes.
constexpr StoredType kSafetensorsTypes[] = {
    {"F32", {1, 4}, DType::kF32}, {"F16", {1, 2}, DType::kF16}, {"BF16", {1, 2}, DType::kBF16},
    {"I64", {1, 8}, DType::kI64}, {"I32", {1, 4}, DType::kI32}, {"U64", {1, 8}, DType::kU64},
    {"U8", {1, 1}, DType::kU8},   {"F64", {1, 8}, {}},          {"U32", {1, 4}, {}},
    {"I16", {1, 2}, {}},          {"U16", {1, 2}, {}},          {"I8", {1, 1}, {}},
    {"BOOL", {1, 1}, {}},         {"F8_E4M3", {1, 1}, {}},      {"F8_E5M2", {1, 1}, {}},
    {"F8_E8M0", {1, 1}, {}},      {"C64", {1, 8}, {}},
};

}  // namespace

constexpr StoredType kUnreadableType = {"unknown", {1, 1}, {}};

const StoredType* FindGgmlType(uint32_t id) {
  for (const GgmlRow& row : kGgmlTypes) {
    if (row.id == id) return &row.type;
  }
  return nullptr;
}

tensor::BlockFormat BlocksOf(TileForm form) {
  for (const GgmlRow& row : kGgmlTypes) {
    if (form != TileForm::kExpanded && row.type.form == form) return row.type.format;
  }
  return {1, 0};
}

const StoredType* FindSafetensorsType(std::string_view name) {
  for (const StoredType& type : kSafetensorsTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

tensor::Shape MakeShape(std::span<const uint64_t> extents) {
  const auto at = [&](size_t i) { return static_cast<int64_t>(extents[i]); };
  switch (extents.size()) {
    case 0: return {};
    case 1: return {at(0)};
    case 2: return {at(0), at(1)};
    case 3: return {at(0), at(1), at(2)};
    default: return {at(0), at(1), at(2), at(3)};
  }
}

std::optional<uint64_t> StoredBytes(const StoredType& type, std::span<const uint64_t> extents) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  // Extents of 0 count as 1 here, so that the product in any order (Shape::elements) stays below
  // 2^63 too.
  uint64_t bound = 1;
  bool empty = false;
  for (const uint64_t extent : extents) {
    if (extent == 0) empty = true;
    if (__builtin_mul_overflow(bound, extent == 0 ? 1 : extent, &bound) || bound > kMost)
      return std::nullopt;
  }
  const uint64_t columns = extents.empty() ? 1 : extents.back();
  if (columns % type.format.elements != 0) return std::nullopt;
  if (empty) return 0;
  uint64_t bytes;
  if (__builtin_mul_overflow(bound / type.format.elements, uint64_t{type.format.bytes}, &bytes))
    return std::nullopt;
  return bytes <= kMost ? std::optional(bytes) : std::nullopt;
}

}  // namespace forebay::weights
