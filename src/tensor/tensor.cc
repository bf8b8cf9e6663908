#include "tensor/tensor.h"

#include <cstdlib>
#include <cstring>

namespace forebay::tensor {

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(extents_[i]);
  return text + "]";
}

TensorBuffer::TensorBuffer(DType dtype, Shape shape) {
  view_.dtype = dtype;
  view_.shape = shape;
  const uint64_t bytes = base::RoundUp(view_.bytes() + 1, 64);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
  FB_CHECK(memory_ != nullptr, "{} bytes of host memory are not to be had", bytes);
  std::memset(memory_.get(), 0, bytes);
  view_.data = memory_.get();
}

void TensorBuffer::Free::operator()(std::byte* p) const { std::free(p); }

}  // namespace forebay::tensor
