#include "weights/random_reader.h"

#include <algorithm>

#include "base/rng.h"

namespace forebay::weights {

RandomReader::RandomReader(uint64_t seed, std::map<std::string, tensor::Shape, std::less<>> shapes)
    : seed_(seed), shapes_(std::move(shapes)) {}

bool RandomReader::Has(std::string_view name) const { return shapes_.find(name) != shapes_.end(); }

base::Result<tensor::Shape> RandomReader::ShapeOf(std::string_view name) const {
  const auto found = shapes_.find(name);
  if (found == shapes_.end())
    return base::Status(kTensorMissing, fmt::format("tensor {} is not in the table", name));
  return found->second;
}

base::Status RandomReader::ReadRows(std::string_view name, int64_t begin, int64_t end,
                                    float* out) const {
  FB_ASSIGN_OR_RETURN(const tensor::Shape shape, ShapeOf(name));
  const int64_t columns = shape[shape.rank() - 1];
  if (shape.rank() == 1 && name.ends_with("norm.weight")) {
    std::fill_n(out, columns, 1.0f);
    return base::Status::Ok();
  }
  uint64_t key = seed_;
  for (const char c : name) key = base::Combine64(key, static_cast<unsigned char>(c));
  // uniform in (-scale, scale) has deviation scale / sqrt(3)
  const float scale = 0.02f * 1.7320508f;
  const auto value = [&](uint64_t bits) {
    return (static_cast<float>(bits & 0xFFFFFF) * 0x1p-23f - 1.0f) * scale;
  };
  for (int64_t row = begin; row < end; ++row) {
    base::Rng rng(base::Combine64(key, static_cast<uint64_t>(row)));
    for (int64_t column = 0; column < columns; column += 2) {
      const uint64_t bits = rng.Next();
      *out++ = value(bits >> 40);
      if (column + 1 < columns) *out++ = value(bits);
    }
  }
  return base::Status::Ok();
}

}  // namespace forebay::weights
