// A tensor is dense and row-major: a pointer, a type, a shape.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>

#include "tensor/dtype.h"

namespace forebay::tensor {

// Up to four extents, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    FB_CHECK(extents.size() <= kMaxRank, "{} extents, at most {}", extents.size(), kMaxRank);
    for (const int64_t extent : extents) extents_[rank_++] = extent;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[i]; }
  int64_t elements() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= extents_[i];
    return product;
  }
  std::string ToString() const;  // "[3, 64]"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

// Borrows memory that someone else owns, on any device: only code of that device may follow the
// pointer.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  uint64_t bytes() const { return BytesOf(dtype, static_cast<uint64_t>(shape.elements())); }
  int64_t rows() const { return shape.rank() > 1 ? shape[0] : 1; }
  int64_t columns() const { return shape[shape.rank() - 1]; }

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// Owns zeroed host memory, 64-byte aligned; for tests and tools. What runs lives in a device's
// Arena.
class TensorBuffer {
 public:
  TensorBuffer(DType dtype, Shape shape);
  const TensorView& view() const { return view_; }
  template <typename T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  TensorView view_;
};

}  // namespace forebay::tensor
