// Cutting a range into consecutive parts as even as can be, the larger ones first: 8 over 3 is 3,
// 3, 2.
#pragma once

#include <algorithm>
#include <cstdint>

namespace forebay::base {

struct Part {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool contains(int64_t element) const { return begin <= element && element < end; }
  friend bool operator==(const Part&, const Part&) = default;
};

// Part `index` of `count` of [0, total).
constexpr Part EvenPart(int64_t total, int64_t count, int64_t index) {
  const int64_t base = total / count, larger = total % count;
  const int64_t begin = index * base + std::min(index, larger);
  return {begin, begin + base + (index < larger ? 1 : 0)};
}

// The index of the part that has this element.
constexpr int64_t PartOf(int64_t total, int64_t count, int64_t element) {
  const int64_t base = total / count, larger = total % count;
  const int64_t in_larger = larger * (base + 1);
  return element < in_larger ? element / (base + 1) : larger + (element - in_larger) / base;
}

}  // namespace forebay::base
