#include "weights/formats/quantised_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "base/log.h"
#include "tensor/fp16.h"
#include "weights/tensor_reader.h"

namespace forebay::weights {
namespace {

using base::ShownName;
using base::Status;
using kernels::TileForm;
using Packing = QuantParts::Packing;

constexpr int64_t kEight = 8;        // codes in 32 bits
constexpr int64_t kBlockSide = 128;  // of fp8
constexpr int64_t kNvfp4Group = 16;  // values of K with one scale
constexpr int64_t kMxfp4Group = 32;
// Column c of AWQ's eight is the code of this place from the lowest bits on.
constexpr int kAwqPlace[kEight] = {0, 4, 1, 5, 2, 6, 3, 7};

template <typename T>
T At(std::span<const std::byte> data, int64_t i) {
  T value;
  std::memcpy(&value, data.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float ScaleAt(const QuantParts& parts, int64_t entry) {
  switch (parts.scale_type) {
    case tensor::DType::kF16: return tensor::HalfToFloat(At<uint16_t>(parts.scales, entry));
    case tensor::DType::kBF16: return tensor::ToFloat(At<tensor::BF16>(parts.scales, entry));
    default: return At<float>(parts.scales, entry);
  }
}

int ZeroPoint(const QuantParts& parts, int64_t row, int64_t group) {
  if (parts.zeros.empty()) return 8;
  const auto word = At<uint32_t>(
      parts.zeros, row / kEight * parts.zero_row_stride + group * parts.zero_group_stride);
  const int64_t place = parts.awq_order ? kAwqPlace[row % kEight] : row % kEight;
  return static_cast<int>(word >> (4 * place) & 15) + parts.zero_add;
}

// The codes of row `row` of the tensors.
void ReadCodes(const QuantParts& parts, int64_t row, int64_t k, uint8_t* codes) {
  const std::byte* const data = parts.codes.data();
  switch (parts.packing) {
    case Packing::kBytes:
      std::memcpy(codes, data + row * parts.code_stride, static_cast<size_t>(k));
      return;
    case Packing::kNibbles: {
      const auto* in = reinterpret_cast<const uint8_t*>(data + row * parts.code_stride);
      for (int64_t i = 0; i < k; ++i) codes[i] = in[i / 2] >> (i % 2 * 4) & 15;
      return;
    }
    case Packing::kEightColumns: {
      const std::byte* const column = data + row / kEight * 4;
      const int shift = 4 * kAwqPlace[row % kEight];
      for (int64_t i = 0; i < k; ++i) {
        uint32_t word;
        std::memcpy(&word, column + i * parts.code_stride, sizeof(word));
        codes[i] = static_cast<uint8_t>(word >> shift & 15);
      }
      return;
    }
    case Packing::kEightRows:
      for (int64_t i = 0; i < k; i += kEight) {
        uint32_t word;
        std::memcpy(&word, data + i / kEight * parts.code_stride + row * 4, sizeof(word));
        for (int64_t j = 0; j < std::min(kEight, k - i); ++j)
          codes[i + j] = static_cast<uint8_t>(word >> (4 * j) & 15);
      }
  }
}

void ReadRow(const QuantParts& parts, int64_t row, int64_t k, StoredRowMemory* out) {
  out->Resize(parts.form, k);
  ReadCodes(parts, row, k, out->codes.data());
  const int64_t groups = kernels::SizesOf(parts.form, k).groups;
  const int64_t first = row / parts.scale_rows * parts.scale_row_stride;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t entry = first + group * parts.scale_group_stride;
    if (parts.scale_type == tensor::DType::kU8) {
      out->scales[static_cast<size_t>(group)] = parts.scales[static_cast<size_t>(entry)];
    } else {
      const float scale = ScaleAt(parts, entry);
      std::memcpy(out->scales.data() + group * 4, &scale, sizeof(scale));
    }
    if (!out->minima.empty())
      out->minima[static_cast<size_t>(group)] =
          static_cast<std::byte>(ZeroPoint(parts, row, group));
  }
  if (!out->outer_scales.empty()) {
    const float given = At<float>(parts.outer, 0), outer = parts.outer_divides ? 1 / given : given;
    std::memcpy(out->outer_scales.data(), &outer, sizeof(outer));
  }
}

Status Invalid(const std::string& name, std::string_view what) {
  return Status(kQuantisedTensors, fmt::format("tensor {}: {}", ShownName(name), what));
}

std::string Described(const TensorInfo& tensor) {
  return fmt::format("{} is {} {}", ShownName(tensor.name), tensor.type->name,
                     tensor.shape.ToString());
}

// The form of 4 bits with so many groups in a row of k values; kExpanded: there is none.
TileForm FourBitForm(int64_t k, int64_t groups) {
  if (groups == 1) return TileForm::kW4Row;
  if (groups < 1 || k % groups != 0) return TileForm::kExpanded;
  switch (k / groups) {
    case 32: return TileForm::kW4Group32;
    case 64: return TileForm::kW4Group64;
    case 128: return TileForm::kW4Group128;
    default: return TileForm::kExpanded;
  }
}

bool IsFloat(const TensorInfo& tensor) {
  return tensor.type->name == "F16" || tensor.type->name == "BF16" || tensor.type->name == "F32";
}

// Joins the tensors of a list.
class Joiner {
 public:
  explicit Joiner(std::vector<TensorInfo>* tensors) : tensors_(*tensors) {
    for (const TensorInfo& tensor : tensors_) by_name_[tensor.name] = &tensor;
  }

  Status Run() {
    for (const TensorInfo& tensor : tensors_) {
      const std::string_view name = tensor.name;
      if (tensor.data.empty()) continue;  // of an extent of 0 beside any others
      if (name.ends_with(".weight_packed")) {
        FB_RETURN_IF_ERROR(tensor.type->name == "U8" ? JoinNvfp4(tensor) : JoinPacked(tensor));
      } else if (name.ends_with(".qweight")) {
        FB_RETURN_IF_ERROR(JoinColumns(tensor));
      } else if (name.ends_with(".weight") && tensor.type->name == "U8") {
        FB_RETURN_IF_ERROR(JoinNvfp4(tensor));
      } else if (name.ends_with(".weight") &&
                 (tensor.type->name == "F8_E4M3" || tensor.type->name == "I8")) {
        FB_RETURN_IF_ERROR(JoinBytes(tensor));
      } else if (name.ends_with("_blocks") && tensor.shape.rank() == 4) {
        FB_RETURN_IF_ERROR(JoinMxfp4(tensor));
      }
    }
    std::vector<TensorInfo> kept;
    for (TensorInfo& tensor : tensors_) {
      if (taken_.contains(tensor.name)) continue;
      if (tensor.name.ends_with(".weight_scale") || tensor.name.ends_with(".weight_scale_inv")) {
        return Status(kScaleWithoutWeight,
                      fmt::format("tensor {}: its weight is missing or not quantised; expected "
                                  "F8_E4M3, I8, or packed codes",
                                  ShownName(tensor.name)));
      }
      kept.push_back(std::move(tensor));
    }
    std::ranges::move(joined_, std::back_inserter(kept));
    tensors_ = std::move(kept);
    return Status::Ok();
  }

 private:
  // The tensor beside those named `stem`, which is taken; null: there is none.
  const TensorInfo* Take(const std::string& stem, std::string_view suffix) {
    const auto found = by_name_.find(stem + std::string(suffix));
    if (found == by_name_.end()) return nullptr;
    taken_.insert(found->first);
    return found->second;
  }
  static std::string Stem(const TensorInfo& tensor, std::string_view suffix) {
    return tensor.name.substr(0, tensor.name.size() - suffix.size());
  }

  void Add(const TensorInfo& codes, std::string name, int64_t rows, int64_t columns,
           QuantParts parts) {
    TensorInfo matrix = codes;
    matrix.own_name = codes.name;
    matrix.name = std::move(name);
    matrix.shape = {rows, columns};
    parts.codes = codes.data;
    matrix.parts = std::make_shared<const QuantParts>(std::move(parts));
    taken_.insert(codes.name);
    joined_.push_back(std::move(matrix));
  }

  // compressed-tensors' pack-quantized.
  Status JoinPacked(const TensorInfo& codes) {
    const std::string stem = Stem(codes, "_packed"), base = Stem(codes, ".weight_packed");
    const TensorInfo* const scales = Take(stem, "_scale");
    const TensorInfo* const zeros = Take(stem, "_zero_point");
    const TensorInfo* const shape = Take(stem, "_shape");
    if (scales == nullptr) return Invalid(codes.name, "its scales, weight_scale, are missing");
    if (Take(stem, "_g_idx") != nullptr)
      return Invalid(codes.name,
                     "its groups are out of order (weight_g_idx); expected a model "
                     "without activation order");
    if (codes.shape.rank() != 2 || codes.type->name != "I32" || scales->shape.rank() != 2 ||
        !IsFloat(*scales) || scales->shape[0] != codes.shape[0])
      return WrongScales(codes, *scales);
    const int64_t rows = codes.shape[0];
    int64_t columns = codes.shape[1] * kEight;
    if (shape != nullptr && shape->type->name == "I64" && shape->shape.elements() == 2)
      columns = At<int64_t>(shape->data, 1);
    if (columns <= (codes.shape[1] - 1) * kEight || columns > codes.shape[1] * kEight)
      return Invalid(codes.name, fmt::format("holds rows of {} values in {} words of eight 4-bit "
                                             "codes; expected 4 bits a weight",
                                             columns, codes.shape[1]));
    const int64_t groups = scales->shape[1];
    QuantParts parts{.packing = Packing::kNibbles, .form = FourBitForm(columns, groups)};
    if (parts.form == TileForm::kExpanded) return WrongGroups(codes, columns, groups);
    parts.code_stride = codes.shape[1] * 4;
    SetScales(*scales, groups, 1, &parts);
    if (zeros != nullptr) {
      if (zeros->type->name != "I32" ||
          zeros->shape != tensor::Shape{(rows + kEight - 1) / kEight, groups})
        return WrongScales(codes, *zeros);
      parts.zeros = zeros->data;
      parts.zero_row_stride = groups;
      parts.zero_group_stride = 1;
    }
    Add(codes, base + ".weight", rows, columns, std::move(parts));
    return Status::Ok();
  }

  // AWQ and GPTQ, whose scales have a row for each group.
  Status JoinColumns(const TensorInfo& codes) {
    const std::string base = Stem(codes, ".qweight");
    const TensorInfo* const scales = Take(base, ".scales");
    const TensorInfo* const zeros = Take(base, ".qzeros");
    const TensorInfo* const order = Take(base, ".g_idx");
    if (scales == nullptr) return Invalid(codes.name, "its scales are missing");
    if (zeros == nullptr) return Invalid(codes.name, "its zero points, qzeros, are missing");
    if (codes.shape.rank() != 2 || codes.type->name != "I32" || scales->shape.rank() != 2 ||
        !IsFloat(*scales))
      return WrongScales(codes, *scales);
    const int64_t groups = scales->shape[0], rows = scales->shape[1];
    const bool awq = codes.shape[1] * kEight == rows;
    if (!awq && codes.shape[1] != rows)
      return Invalid(codes.name, fmt::format("has {} columns beside scales of {} outputs; expected "
                                             "4-bit codes of AWQ ({}) or GPTQ ({})",
                                             codes.shape[1], rows, rows / kEight, rows));
    const int64_t columns = awq ? codes.shape[0] : codes.shape[0] * kEight;
    QuantParts parts{.packing = awq ? Packing::kEightColumns : Packing::kEightRows,
                     .form = FourBitForm(columns, groups)};
    if (parts.form == TileForm::kExpanded) return WrongGroups(codes, columns, groups);
    parts.code_stride = codes.shape[1] * 4;
    SetScales(*scales, 1, rows, &parts);
    if (zeros->type->name != "I32" || zeros->shape != tensor::Shape{groups, rows / kEight} ||
        rows % kEight != 0)
      return WrongScales(codes, *zeros);
    parts.zeros = zeros->data;
    parts.zero_row_stride = 1;
    parts.zero_group_stride = rows / kEight;
    parts.awq_order = awq;
    parts.zero_add = awq ? 0 : 1;
    if (order != nullptr) FB_RETURN_IF_ERROR(CheckOrder(*order, columns, columns / groups));
    if (!awq) FB_RETURN_IF_ERROR(CheckZeros(*zeros));
    Add(codes, base + ".weight", rows, columns, std::move(parts));
    return Status::Ok();
  }

  Status JoinNvfp4(const TensorInfo& codes) {
    const bool packed = codes.name.ends_with("_packed");
    const std::string base = Stem(codes, packed ? ".weight_packed" : ".weight");
    const TensorInfo* const scales = Take(base, ".weight_scale");
    const TensorInfo* const outer = Take(base, packed ? ".weight_global_scale" : ".weight_scale_2");
    Take(base, packed ? ".input_global_scale" : ".input_scale");
    if (scales == nullptr || outer == nullptr) {
      return Invalid(codes.name, fmt::format("its {} is missing", scales == nullptr ? "weight_scale"
                                                                  : packed ? "weight_global_scale"
                                                                           : "weight_scale_2"));
    }
    if (codes.shape.rank() != 2 || outer->type->name != "F32" || outer->shape.elements() != 1)
      return WrongScales(codes, *outer);
    const int64_t rows = codes.shape[0], columns = codes.shape[1] * 2;
    if (scales->type->name != "F8_E4M3" || columns % kNvfp4Group != 0 ||
        scales->shape != tensor::Shape{rows, columns / kNvfp4Group})
      return WrongScales(codes, *scales);
    QuantParts parts{.packing = Packing::kNibbles, .form = TileForm::kNVFP4};
    parts.code_stride = codes.shape[1];
    SetScales(*scales, scales->shape[1], 1, &parts);
    parts.outer = outer->data;
    parts.outer_divides = packed;
    Add(codes, base + ".weight", rows, columns, std::move(parts));
    return Status::Ok();
  }

  Status JoinBytes(const TensorInfo& codes) {
    const TensorInfo* scales = Take(codes.name, "_scale");
    if (scales == nullptr) scales = Take(codes.name, "_scale_inv");
    if (scales == nullptr) return Status::Ok();  // no reader has it: an error where it is used
    Take(Stem(codes, ".weight"), ".input_scale");
    const bool fp8 = codes.type->name == "F8_E4M3";
    const tensor::Shape& shape = scales->shape;
    if (codes.shape.rank() != 2 || !IsFloat(*scales)) return WrongScales(codes, *scales);
    const int64_t rows = codes.shape[0], columns = codes.shape[1];
    const auto blocks = [](int64_t n) { return (n + kBlockSide - 1) / kBlockSide; };
    QuantParts parts{.packing = Packing::kBytes,
                     .form = fp8 ? TileForm::kF8Row : TileForm::kInt8Row};
    parts.code_stride = columns;
    if (shape.elements() == 1) {
      SetScales(*scales, 0, 0, &parts);
    } else if (shape == tensor::Shape{rows, 1} || shape == tensor::Shape{rows}) {
      SetScales(*scales, 1, 0, &parts);
    } else if (fp8 && shape == tensor::Shape{blocks(rows), blocks(columns)}) {
      parts.form = TileForm::kF8Block;
      parts.scale_rows = kBlockSide;
      SetScales(*scales, blocks(columns), 1, &parts);
    } else {
      return WrongScales(codes, *scales);
    }
    // A block that is the whole matrix is a block too: groups of K are numbered alike.
    Add(codes, codes.name, rows, columns, std::move(parts));
    return Status::Ok();
  }

  Status JoinMxfp4(const TensorInfo& codes) {
    const std::string stem = Stem(codes, "_blocks");
    const TensorInfo* const scales = Take(stem, "_scales");
    if (scales == nullptr) return Invalid(codes.name, "its scales are missing");
    const int64_t experts = codes.shape[0], rows = codes.shape[1], blocks = codes.shape[2];
    if (codes.type->name != "U8" || codes.shape[3] != kMxfp4Group / 2 ||
        scales->type->name != "U8" || scales->shape != tensor::Shape{experts, rows, blocks})
      return WrongScales(codes, *scales);
    const size_t at = stem.rfind('.');
    const std::string prefix = stem.substr(0, at + 1), matrix = stem.substr(at + 1);
    if (matrix != "gate_up_proj" && matrix != "down_proj")
      return Invalid(codes.name, "expected gate_up_proj or down_proj of experts");
    for (int64_t expert = 0; expert < experts; ++expert) {
      QuantParts parts{.packing = Packing::kNibbles, .form = TileForm::kMXFP4};
      parts.code_stride = blocks * kMxfp4Group / 2;
      TensorInfo own = codes;
      own.data = codes.data.subspan(static_cast<size_t>(expert * rows * parts.code_stride),
                                    static_cast<size_t>(rows * parts.code_stride));
      SetScales(*scales, blocks, 1, &parts);
      parts.scales = scales->data.subspan(static_cast<size_t>(expert * rows * blocks),
                                          static_cast<size_t>(rows * blocks));
      const auto add = [&](std::string_view name, int64_t first_row, int64_t row_step) {
        QuantParts of_rows = parts;
        of_rows.first_row = first_row;
        of_rows.row_step = row_step;
        Add(own, fmt::format("{}{}.{}.weight", prefix, expert, name), rows / row_step,
            blocks * kMxfp4Group, std::move(of_rows));
      };
      if (matrix == "down_proj") {
        add("down_proj", 0, 1);
      } else {
        add("gate_proj", 0, 2);
        add("up_proj", 1, 2);
      }
    }
    return Status::Ok();
  }

  static void SetScales(const TensorInfo& scales, int64_t row_stride, int64_t group_stride,
                        QuantParts* parts) {
    parts->scales = scales.data;
    parts->scale_type = IsFloat(scales) ? *scales.type->dtype : tensor::DType::kU8;
    parts->scale_row_stride = row_stride;
    parts->scale_group_stride = group_stride;
  }

  static Status WrongScales(const TensorInfo& codes, const TensorInfo& scales) {
    return Status(kTensorShape,
                  fmt::format("tensor {} beside {}: the shapes or types do not belong "
                              "together; expected a scale a group, row or block",
                              Described(codes), Described(scales)));
  }
  static Status WrongGroups(const TensorInfo& codes, int64_t columns, int64_t groups) {
    return Invalid(codes.name, fmt::format("{} values of a row have {} groups; expected groups of "
                                           "32, 64 or 128 values, or one",
                                           columns, groups));
  }
  // Groups one behind the other.
  static Status CheckOrder(const TensorInfo& order, int64_t columns, int64_t group) {
    if (order.type->name != "I32" || order.shape != tensor::Shape{columns})
      return Invalid(order.name, fmt::format("expected I32 [{}]", columns));
    for (int64_t k = 0; k < columns; ++k) {
      if (At<int32_t>(order.data, k) == k / group) continue;
      return Invalid(order.name, fmt::format("value {} is in group {}; expected {}: models with "
                                             "activation order (desc_act) are not read",
                                             k, At<int32_t>(order.data, k), k / group));
    }
    return Status::Ok();
  }
  // GPTQ stores zero points less 1: 15 stands for 16.
  static Status CheckZeros(const TensorInfo& zeros) {
    for (int64_t i = 0; i < zeros.shape.elements(); ++i) {
      const auto word = At<uint32_t>(zeros.data, i);
      if ((word & word >> 1 & word >> 2 & word >> 3 & 0x11111111u) == 0) continue;
      return Invalid(zeros.name,
                     fmt::format("word {} has a zero point of 16; expected at most 15", i));
    }
    return Status::Ok();
  }

  std::vector<TensorInfo>& tensors_;
  std::map<std::string, const TensorInfo*, std::less<>> by_name_;
  std::set<std::string, std::less<>> taken_;
  std::vector<TensorInfo> joined_;
};

}  // namespace

Status JoinQuantised(std::vector<TensorInfo>* tensors) { return Joiner(tensors).Run(); }

void ReadParts(const TensorInfo& tensor, int64_t begin, int64_t end, StoredRowMemory* out) {
  const QuantParts& parts = *tensor.parts;
  for (int64_t row = begin; row < end; ++row)
    ReadRow(parts, parts.first_row + row * parts.row_step, tensor.columns(), &out[row - begin]);
}

}  // namespace forebay::weights
