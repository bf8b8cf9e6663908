#include "weights/formats/expert_tensors.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <map>
#include <optional>

#include "base/log.h"
#include "weights/formats/dequantize.h"
#include "weights/tensor_reader.h"

namespace forebay::weights {
namespace {

using base::ShownName;
using base::Status;

constexpr std::string_view kExperts = ".experts.";

// "X.experts.gate_up_proj" -> "X.experts." and "gate_up_proj"; nothing: it is no stack's name.
struct StackName {
  std::string prefix;
  std::string_view matrix;
};
// A tensor's name as that of a stack of `rank` dimensions, one of `matrices`. A stack of matrices
// may have ".weight" at its end.
std::optional<StackName> ParseStack(const TensorInfo& tensor, int rank,
                                    std::initializer_list<std::string_view> matrices) {
  if (tensor.shape.rank() != rank) return std::nullopt;
  if (tensor.data.empty()) return std::nullopt;  // of an extent of 0 beside any others
  if (rank == 2 && tensor.type->format.elements != 1) return std::nullopt;  // no bias is quantised
  const std::string_view name = tensor.name;
  const size_t at = name.rfind(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  const size_t end = at + kExperts.size();
  std::string_view matrix = name.substr(end);
  if (rank == 3 && matrix.ends_with(".weight")) matrix.remove_suffix(7);
  for (const std::string_view known : matrices) {
    if (matrix == known) return StackName{std::string(name.substr(0, end)), known};
  }
  return std::nullopt;
}

// Granite's names of a stack, as the others': "X.input_linear.weight" [experts, 2 out, in] and
// "X.output_linear.weight" [experts, in, out].
void UseCommonName(TensorInfo* tensor) {
  constexpr std::string_view kMoe = ".block_sparse_moe.";
  if (tensor->shape.rank() != 3) return;
  for (const auto& [there, here] : {std::pair{"input_linear.weight", "experts.gate_up_proj"},
                                    {"output_linear.weight", "experts.down_proj"}}) {
    const std::string end = std::string(kMoe) + there;
    if (!tensor->name.ends_with(end)) continue;
    tensor->name.replace(tensor->name.size() - std::strlen(there), std::string::npos, here);
    return;
  }
}

// "X.experts.gate_up_proj" [experts, a, b].
std::optional<StackName> ParseMatrices(const TensorInfo& tensor) {
  return ParseStack(tensor, 3, {"gate_proj", "up_proj", "down_proj", "gate_up_proj"});
}

// "X.experts.gate_up_proj_bias" [experts, 2 out] and "X.experts.down_proj_bias" [experts, in].
std::optional<StackName> ParseBiases(const TensorInfo& tensor) {
  return ParseStack(tensor, 2, {"gate_up_proj_bias", "down_proj_bias"});
}

// "X.experts.gate_proj.bias" [experts, out]: beside a stack of matrices.
std::optional<StackName> ParseRowBiases(const TensorInfo& tensor) {
  return ParseStack(tensor, 2, {"gate_proj.bias", "up_proj.bias", "down_proj.bias"});
}

// The stacks of a layer.
struct Layer {
  std::optional<TensorInfo> gate_up, down, gate_up_bias, down_bias;
};

// Expert `expert` of a stack: the matrix [rows, columns] that begins `skipped` rows (stored
// transposed: columns of the file) into the expert's own [a, b].
struct Slice {
  int64_t rows, columns, skipped;
  bool transposed;
  int64_t step = 1;
};
TensorInfo SliceOf(const TensorInfo& stack, int64_t expert, const Slice& slice, std::string name) {
  const size_t bytes = stack.data.size() / static_cast<size_t>(stack.shape[0]);
  TensorInfo tensor = stack;
  tensor.name = std::move(name);
  tensor.shape = {slice.rows, slice.columns};
  tensor.data = stack.data.subspan(static_cast<size_t>(expert) * bytes, bytes);
  // A part of the expert's rows, or of its columns; a block of quants does not cross a row.
  const size_t row_bytes = bytes / static_cast<size_t>(stack.shape[1]);
  if (slice.transposed) {
    tensor.transposed_stride = stack.shape[2];
    tensor.step = static_cast<int32_t>(slice.step);
    tensor.data =
        tensor.data.subspan(static_cast<size_t>(slice.skipped) * stack.type->format.bytes);
  } else {
    tensor.data = tensor.data.subspan(static_cast<size_t>(slice.skipped) * row_bytes,
                                      static_cast<size_t>(slice.rows) * row_bytes);
  }
  return tensor;
}

std::string NameOf(const std::string& prefix, int64_t expert, std::string_view matrix) {
  return fmt::format("{}{}.{}.weight", prefix, expert, matrix);
}

// An expert's bias: every step-th element of its row from `first` on.
TensorInfo BiasOf(const TensorInfo& stack, int64_t expert, int64_t first, int64_t step,
                  std::string name) {
  const auto element = static_cast<size_t>(stack.type->format.bytes);
  const auto width = static_cast<size_t>(stack.shape[1]);
  TensorInfo tensor = stack;
  tensor.name = std::move(name);
  tensor.shape = {stack.shape[1] / step};
  tensor.step = static_cast<int32_t>(step);
  const size_t begin = static_cast<size_t>(expert) * width + static_cast<size_t>(first);
  tensor.data = stack.data.subspan(begin * element, (width - static_cast<size_t>(first)) * element);
  return tensor;
}

// Biases of both stacks, or of none.
Status SplitBiases(const std::string& prefix, const Layer& layer, std::vector<TensorInfo>* out) {
  if (!layer.gate_up_bias || !layer.down_bias) {
    return Status(kTensorMissing,
                  fmt::format("{} has no {} beside it",
                              ShownName(prefix + (layer.gate_up_bias ? "gate_up_proj_bias"
                                                                     : "down_proj_bias")),
                              layer.gate_up_bias ? "down_proj_bias" : "gate_up_proj_bias"));
  }
  const tensor::Shape &fused = layer.gate_up_bias->shape, &down = layer.down_bias->shape,
                      &weight = layer.gate_up->shape;
  if (fused != tensor::Shape{weight[0], weight[2]} || down != tensor::Shape{weight[0], weight[1]}) {
    return Status(
        kTensorShape,
        fmt::format("{} {} and {} {} do not fit {} {}", ShownName(prefix + "gate_up_proj_bias"),
                    fused.ToString(), ShownName(prefix + "down_proj_bias"), down.ToString(),
                    ShownName(prefix + "gate_up_proj"), weight.ToString()));
  }
  for (int64_t expert = 0; expert < fused[0]; ++expert) {
    const std::string expert_prefix = fmt::format("{}{}.", prefix, expert);
    out->push_back(BiasOf(*layer.gate_up_bias, expert, 0, 2, expert_prefix + "gate_proj.bias"));
    out->push_back(BiasOf(*layer.gate_up_bias, expert, 1, 2, expert_prefix + "up_proj.bias"));
    out->push_back(BiasOf(*layer.down_bias, expert, 0, 1, expert_prefix + "down_proj.bias"));
  }
  return Status::Ok();
}

// gate and up in one stack, whose orientation the shapes of both stacks tell: hidden is what both
// share.
Status SplitFused(const std::string& prefix, const Layer& layer, std::vector<TensorInfo>* out) {
  if (!layer.gate_up || !layer.down) {
    return Status(kTensorMissing,
                  fmt::format("{} has no {} beside it",
                              ShownName(prefix + (layer.gate_up ? "gate_up_proj" : "down_proj")),
                              layer.gate_up ? "down_proj" : "gate_up_proj"));
  }
  const tensor::Shape &fused = layer.gate_up->shape, &down = layer.down->shape;
  const bool transposed = fused[1] == down[2] && fused[2] == 2 * down[1];
  const bool biased = layer.gate_up_bias || layer.down_bias;  // gpt-oss: always transposed
  const bool straight = !biased && fused[2] == down[1] && fused[1] == 2 * down[2];
  if (fused[0] != down[0] || transposed == straight) {
    return Status(
        kTensorShape,
        fmt::format("{} {} and {} {} fit neither [experts, hidden, 2 width] and [experts, width, "
                    "hidden] nor their transposes",
                    ShownName(prefix + "gate_up_proj"), fused.ToString(),
                    ShownName(prefix + "down_proj"), down.ToString()));
  }
  if (transposed && layer.gate_up->type->format.elements != 1) {
    return Status(kTensorTypeUnsupported,
                  fmt::format("{} is {} and stored transposed; expected F32, F16 or BF16",
                              ShownName(prefix + "gate_up_proj"), layer.gate_up->type->name));
  }
  if (biased) FB_RETURN_IF_ERROR(SplitBiases(prefix, layer, out));
  const int64_t hidden = transposed ? fused[1] : fused[2], width = transposed ? down[1] : down[2];
  // Where there are biases gate and up take turns.
  const int64_t up = biased ? 1 : width, step = biased ? 2 : 1;
  for (int64_t expert = 0; expert < fused[0]; ++expert) {
    out->push_back(SliceOf(*layer.gate_up, expert, {width, hidden, 0, transposed, step},
                           NameOf(prefix, expert, "gate_proj")));
    out->push_back(SliceOf(*layer.gate_up, expert, {width, hidden, up, transposed, step},
                           NameOf(prefix, expert, "up_proj")));
    out->push_back(SliceOf(*layer.down, expert, {hidden, width, 0, transposed},
                           NameOf(prefix, expert, "down_proj")));
  }
  return Status::Ok();
}

}  // namespace

Status SplitExpertStacks(std::vector<TensorInfo>* tensors) {
  std::vector<TensorInfo> kept, split;
  std::map<std::string, Layer> fused;
  for (TensorInfo& tensor : *tensors) UseCommonName(&tensor);
  // down_proj stands beside gate_up_proj, or beside gate_proj and up_proj.
  for (const TensorInfo& tensor : *tensors) {
    const auto stack = ParseMatrices(tensor);
    if (stack && stack->matrix == "gate_up_proj") fused[stack->prefix].gate_up = tensor;
  }
  for (TensorInfo& tensor : *tensors) {
    const auto stack = ParseMatrices(tensor);
    const auto bias = ParseBiases(tensor);
    if (const auto layer = bias ? fused.find(bias->prefix) : fused.end(); layer != fused.end()) {
      (bias->matrix == "down_proj_bias" ? layer->second.down_bias : layer->second.gate_up_bias) =
          tensor;
    } else if (const auto rows = ParseRowBiases(tensor)) {
      for (int64_t expert = 0; expert < tensor.shape[0]; ++expert)
        split.push_back(BiasOf(tensor, expert, 0, 1,
                               fmt::format("{}{}.{}", rows->prefix, expert, rows->matrix)));
    } else if (!stack) {
      kept.push_back(std::move(tensor));
    } else if (const auto layer = fused.find(stack->prefix); layer != fused.end()) {
      if (stack->matrix == "down_proj") layer->second.down = tensor;
    } else {
      const Slice whole{tensor.shape[1], tensor.shape[2], 0, false};
      for (int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
        split.push_back(
            SliceOf(tensor, expert, whole, NameOf(stack->prefix, expert, stack->matrix)));
      }
    }
  }
  for (const auto& [prefix, layer] : fused) FB_RETURN_IF_ERROR(SplitFused(prefix, layer, &split));
  std::ranges::move(split, std::back_inserter(kept));
  *tensors = std::move(kept);
  return Status::Ok();
}

void ExpandTransposed(const TensorInfo& tensor, int64_t begin, int64_t end, float* out) {
  const int64_t columns = tensor.columns(), count = end - begin;
  const auto element = static_cast<int64_t>(tensor.type->format.bytes);
  const int64_t span = (count - 1) * tensor.step + 1;  // elements from the first row to the last
  std::vector<float> run(static_cast<size_t>(std::max<int64_t>(span, 0)));
  for (int64_t column = 0; column < columns && count > 0; ++column) {
    ExpandElements(
        *tensor.type->dtype,
        tensor.data.data() + (column * tensor.transposed_stride + begin * tensor.step) * element,
        span, run.data());
    for (int64_t row = 0; row < count; ++row)
      out[row * columns + column] = run[static_cast<size_t>(row * tensor.step)];
  }
}

}  // namespace forebay::weights
