#include "weights/formats/expert_tensors.h"

#include <algorithm>
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
std::optional<StackName> ParseStack(const TensorInfo& tensor) {
  if (tensor.shape.rank() != 3) return std::nullopt;
  std::string_view name = tensor.name;
  const size_t at = name.rfind(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view matrix = name.substr(at + kExperts.size());
  if (matrix.ends_with(".weight")) matrix.remove_suffix(7);
  for (const std::string_view known : {"gate_proj", "up_proj", "down_proj", "gate_up_proj"}) {
    if (matrix == known) return StackName{std::string(name.substr(0, at + kExperts.size())), known};
  }
  return std::nullopt;
}

// The stacks of a layer.
struct Layer {
  std::optional<TensorInfo> gate_up, down;
};

// Expert `expert` of a stack: the matrix [rows, columns] that begins `skipped` rows (stored
// transposed: columns of the file) into the expert's own [a, b].
struct Slice {
  int64_t rows, columns, skipped;
  bool transposed;
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
  const bool straight = fused[2] == down[1] && fused[1] == 2 * down[2];
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
  const int64_t hidden = transposed ? fused[1] : fused[2], width = transposed ? down[1] : down[2];
  for (int64_t expert = 0; expert < fused[0]; ++expert) {
    out->push_back(SliceOf(*layer.gate_up, expert, {width, hidden, 0, transposed},
                           NameOf(prefix, expert, "gate_proj")));
    out->push_back(SliceOf(*layer.gate_up, expert, {width, hidden, width, transposed},
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
  // down_proj stands beside gate_up_proj, or beside gate_proj and up_proj.
  for (const TensorInfo& tensor : *tensors) {
    const auto stack = ParseStack(tensor);
    if (stack && stack->matrix == "gate_up_proj") fused[stack->prefix].gate_up = tensor;
  }
  for (TensorInfo& tensor : *tensors) {
    const auto stack = ParseStack(tensor);
    if (!stack) {
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
  std::vector<float> run(static_cast<size_t>(count));
  for (int64_t column = 0; column < columns; ++column) {
    ExpandElements(*tensor.type->dtype,
                   tensor.data.data() + (column * tensor.transposed_stride + begin) * element,
                   count, run.data());
    for (int64_t row = 0; row < count; ++row)
      out[row * columns + column] = run[static_cast<size_t>(row)];
  }
}

}  // namespace forebay::weights
