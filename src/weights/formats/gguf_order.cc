#include "weights/formats/gguf_order.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "weights/tensor_reader.h"

namespace forebay::weights {
namespace {

using base::Result;
using base::ShownName;
using base::Status;

constexpr std::array<std::string_view, 7> kTurnsNeighbours = {
    "llama", "granite", "granitehybrid", "nemotron_h", "nemotron_h_moe", "smollm3", "mistral3"};
constexpr std::array<std::string_view, 2> kTilesValueHeads = {"qwen35", "qwen35moe"};
constexpr std::array<std::string_view, 3> kDeltaNets = {"qwen35", "qwen35moe", "qwen3next"};

constexpr std::array<std::string_view, 3> kMamba2 = {"nemotron_h", "nemotron_h_moe",
                                                     "granitehybrid"};

constexpr int64_t kMostCount = 1 << 20;  // of heads, of a head's elements

template <size_t size>
bool IsOneOf(const std::array<std::string_view, size>& names, std::string_view name) {
  return std::ranges::count(names, name) > 0;
}

// Of an array with an entry a layer, the greatest: layers without attention have 0.
Result<int64_t> Count(const GgufFile& gguf, const std::string& key) {
  const auto checked = [&](auto value) -> Result<int64_t> {
    if (1 <= value && value <= decltype(value){kMostCount}) return static_cast<int64_t>(value);
    return Status(kTensorShape,
                  fmt::format("key {} is {}; expected 1 to {}", key, value, kMostCount));
  };
  if (const auto by_layer = gguf.GetInts(key); by_layer.ok() && !by_layer->empty())
    return checked(std::ranges::max(*by_layer));
  FB_ASSIGN_OR_RETURN(const uint64_t value, gguf.GetUint(key));
  return checked(value);
}

Status SetTurnedRows(const GgufFile& gguf, const std::string& architecture, bool of_keys,
                     TensorInfo* tensor) {
  const std::string all = architecture + ".attention.head_count", of_kv = all + "_kv";
  FB_ASSIGN_OR_RETURN(const int64_t heads, Count(gguf, of_keys && gguf.Has(of_kv) ? of_kv : all));
  const int64_t rows = tensor->shape[0], head = rows / heads;
  if (rows % heads != 0 || head % 2 != 0) {
    return Status(kTensorShape, fmt::format("tensor {}: {} rows; expected {} heads of an even size",
                                            ShownName(tensor->own_name), rows, heads));
  }
  if (head > 0) {
    tensor->rearranged = std::make_shared<const Rearrangement>(
        Rearrangement{.rows = {.outer = 2, .inner = head / 2}});
  }
  return Status::Ok();
}

// Value heads of `unit` rows each, behind `first` rows of other things.
struct TiledHeads {
  int64_t first, unit;
  bool of_columns = false;
};

Status SetTiledHeads(const GgufFile& gguf, const std::string& architecture, std::string_view part,
                     const TensorInfo& tensor, Rearrangement* out) {
  const std::string prefix = architecture + ".ssm.";
  FB_ASSIGN_OR_RETURN(const int64_t key_heads, Count(gguf, prefix + "group_count"));
  FB_ASSIGN_OR_RETURN(const int64_t value_heads, Count(gguf, prefix + "time_step_rank"));
  FB_ASSIGN_OR_RETURN(const int64_t key_dim, Count(gguf, prefix + "state_size"));
  FB_ASSIGN_OR_RETURN(const int64_t values, Count(gguf, prefix + "inner_size"));
  const int64_t keys = 2 * key_heads * key_dim, value_dim = values / value_heads;
  TiledHeads heads{0, 1};  // in_proj_b and _a, A_log, dt_bias
  if (part == "in_proj_qkv.weight" || part == "conv1d.weight") {
    heads = {keys, value_dim};
  } else if (part == "in_proj_z.weight") {
    heads = {0, value_dim};
  } else if (part == "out_proj.weight") {
    heads = {0, value_dim, true};
  } else if (part == "norm.weight") {
    return Status::Ok();
  }
  const int64_t found = heads.of_columns || tensor.shape.rank() == 1 ? tensor.columns()
                                                                     : tensor.shape[0],
                expected = heads.first + value_heads * heads.unit;
  if (value_heads % key_heads != 0 || values % value_heads != 0 || found != expected) {
    return Status(
        kTensorShape,
        fmt::format("tensor {}: {} {}; expected {}: {} value heads of {} in {} groups",
                    ShownName(tensor.own_name), found, heads.of_columns ? "columns" : "rows",
                    expected, value_heads, heads.unit, key_heads));
  }
  RowOrder& order = heads.of_columns ? out->columns : out->rows;
  order = {.first = heads.first,
           .outer = key_heads,
           .inner = value_heads / key_heads,
           .unit = heads.unit};
  return Status::Ok();
}

void SetConvolutionShape(TensorInfo* tensor) {
  if (tensor->shape.rank() == 2) tensor->shape = {tensor->shape[0], 1, tensor->shape[1]};
}

void SetMamba2Order(TensorInfo* tensor) {
  const std::string_view name = tensor->name;
  const bool decay = name.ends_with(".A_log");
  if (name.ends_with(".conv1d.weight")) SetConvolutionShape(tensor);
  if (decay)
    tensor->rearranged = std::make_shared<const Rearrangement>(Rearrangement{.negated_exp = true});
  const bool norm = name.ends_with(".mixer.norm.weight") || name.ends_with(".mamba.norm.weight");
  if (tensor->shape.rank() == 2 && (decay || norm || name.ends_with(".D")))
    tensor->shape = {tensor->shape.elements()};
}

}  // namespace

Status SetGgufOrder(const GgufFile& gguf, std::string_view architecture, TensorInfo* tensor) {
  constexpr std::string_view kDeltaNet = ".linear_attn.";
  if (tensor->type == &kUnreadableType || tensor->shape.rank() == 0) return Status::Ok();
  const std::string prefix(architecture);
  const std::string_view name = tensor->name;
  const bool q = name.find(".q_proj.") != std::string_view::npos,
             k = name.find(".k_proj.") != std::string_view::npos;
  if ((q || k) && IsOneOf(kTurnsNeighbours, architecture))
    return SetTurnedRows(gguf, prefix, k, tensor);
  if (IsOneOf(kMamba2, architecture)) SetMamba2Order(tensor);
  if (architecture == "lfm2" && name.ends_with(".conv.conv.weight")) SetConvolutionShape(tensor);
  const size_t at = name.find(kDeltaNet);
  if (at == std::string_view::npos || !IsOneOf(kDeltaNets, architecture)) return Status::Ok();
  const std::string_view part = name.substr(at + kDeltaNet.size());
  Rearrangement rearranged{.negated_exp = part == "A_log"};
  if (IsOneOf(kTilesValueHeads, architecture))
    FB_RETURN_IF_ERROR(SetTiledHeads(gguf, prefix, part, *tensor, &rearranged));
  tensor->rearranged = std::make_shared<const Rearrangement>(std::move(rearranged));
  if (part == "conv1d.weight") SetConvolutionShape(tensor);
  return Status::Ok();
}

}  // namespace forebay::weights
