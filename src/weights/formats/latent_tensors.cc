#include "weights/formats/latent_tensors.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "weights/formats/dequantize.h"
#include "weights/formats/unpack.h"
#include "weights/tensor_reader.h"

namespace forebay::weights {
namespace {

using base::ShownName;
using base::Status;

constexpr std::string_view kKeys = ".self_attn.k_b_proj.weight",
                           kValues = ".self_attn.v_b_proj.weight",
                           kJoined = ".self_attn.kv_b_proj.weight";

bool CanRead(const StoredType& type) {
  return type.dtype ? CanExpand(*type.dtype) : type.form != kernels::TileForm::kExpanded;
}

// Rows of `columns` elements, from row `first` on.
void ExpandPart(const StoredType& type, std::span<const std::byte> data, int64_t columns,
                int64_t first, int64_t rows, float* out) {
  const int64_t bytes = columns / type.format.elements * type.format.bytes;
  const std::byte* const from = data.data() + first * bytes;
  if (type.dtype) return ExpandElements(*type.dtype, from, rows * columns, out);
  for (int64_t row = 0; row < rows; ++row)
    ExpandBlocks(type.form, from + row * bytes, columns, out + row * columns);
}

}  // namespace

Status JoinLatent(std::vector<TensorInfo>* tensors) {
  std::map<std::string, TensorInfo> values;
  for (const TensorInfo& tensor : *tensors) {
    if (tensor.name.ends_with(kValues) && tensor.shape.rank() == 3)
      values[tensor.name.substr(0, tensor.name.size() - kValues.size())] = tensor;
  }
  if (values.empty()) return Status::Ok();
  std::vector<std::string> joined;
  for (TensorInfo& keys : *tensors) {
    if (!keys.name.ends_with(kKeys) || keys.shape.rank() != 3) continue;
    const std::string prefix = keys.name.substr(0, keys.name.size() - kKeys.size());
    const auto found = values.find(prefix);
    if (found == values.end() || !CanRead(*keys.type) || !CanRead(*found->second.type)) continue;
    const tensor::Shape &k = keys.shape, &v = found->second.shape;
    if (k[0] != v[0] || k[1] != v[2]) {
      return Status(kTensorShape,
                    fmt::format("{} {} and {} {} do not fit [heads, rank, key dim] and [heads, "
                                "value dim, rank]",
                                ShownName(keys.name), k.ToString(), ShownName(found->second.name),
                                v.ToString()));
    }
    const LatentParts parts{keys.type, keys.data, found->second.data, k[0], k[1], k[2], v[1]};
    keys = found->second;
    keys.name = prefix + std::string(kJoined);
    keys.shape = {parts.heads * (parts.key_dim + parts.value_dim), parts.rank};
    keys.rearranged = std::make_shared<const Rearrangement>(
        Rearrangement{.latent = std::make_shared<const LatentParts>(parts)});
    joined.push_back(prefix + std::string(kValues));
  }
  std::erase_if(*tensors, [&](const TensorInfo& tensor) {
    return std::ranges::count(joined, tensor.name) > 0;
  });
  return Status::Ok();
}

void ExpandLatent(const TensorInfo& tensor, int64_t begin, int64_t end, float* out) {
  const LatentParts& parts = *tensor.arrangement().latent;
  const int64_t of_head = parts.key_dim + parts.value_dim;
  std::vector<float> keys(static_cast<size_t>(parts.rank * parts.key_dim));
  for (int64_t row = begin; row < end;) {
    const int64_t head = row / of_head, within = row % of_head;
    if (within >= parts.key_dim) {
      const int64_t count = std::min(end - row, of_head - within);
      ExpandPart(*tensor.type, parts.values, parts.rank,
                 head * parts.value_dim + within - parts.key_dim, count,
                 out + (row - begin) * parts.rank);
      row += count;
      continue;
    }
    ExpandPart(*parts.key_type, parts.keys, parts.key_dim, head * parts.rank, parts.rank,
               keys.data());
    const int64_t last = std::min(end, row - within + parts.key_dim);
    for (int64_t key = within; row < last; ++row, ++key) {
      for (int64_t i = 0; i < parts.rank; ++i)
        out[(row - begin) * parts.rank + i] = keys[static_cast<size_t>(i * parts.key_dim + key)];
    }
  }
}

}  // namespace forebay::weights
