#include "weights/formats/dequantize.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/fp16.h"

namespace forebay::weights {
namespace {

using tensor::DType;
using tensor::HalfToFloat;

constexpr int64_t kBlock = 32;  // elements, of every quantised type here

inline float UpperHalfToFloat(uint16_t upper) {
  return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
}

float LoadHalf(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return HalfToFloat(half);
}

template <float (*convert)(uint16_t)>
void Expand16(const std::byte* source, int64_t count, float* out) {
  int64_t i = 0;
  uint16_t bits[kBlock];
  for (; i + kBlock <= count; i += kBlock) {
    std::memcpy(bits, source + 2 * i, sizeof(bits));
    for (int64_t j = 0; j < kBlock; ++j) out[i + j] = convert(bits[j]);
  }
  std::memcpy(bits, source + 2 * i, 2 * (count - i));
  for (int64_t j = 0; i + j < count; ++j) out[i + j] = convert(bits[j]);
}

void ExpandQ8_0(const std::byte* source, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, source += 34, out += kBlock) {
    const float scale = LoadHalf(source);
    int8_t quants[kBlock];
    std::memcpy(quants, source + 2, sizeof(quants));
    for (int64_t j = 0; j < kBlock; ++j) out[j] = scale * static_cast<float>(quants[j]);
  }
}

// The low four bits of the 16 bytes are elements 0..15, the high ones 16..31.
void ExpandQ4_0(const std::byte* source, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, source += 18, out += kBlock) {
    const float scale = LoadHalf(source);
    uint8_t quants[kBlock / 2];
    std::memcpy(quants, source + 2, sizeof(quants));
    for (int64_t j = 0; j < kBlock / 2; ++j)
      out[j] = scale * static_cast<float>((quants[j] & 15) - 8);
    for (int64_t j = 0; j < kBlock / 2; ++j)
      out[j + kBlock / 2] = scale * static_cast<float>((quants[j] >> 4) - 8);
  }
}

void ExpandQ4_1(const std::byte* source, int64_t blocks, float* out) {
  for (int64_t b = 0; b < blocks; ++b, source += 20, out += kBlock) {
    const float scale = LoadHalf(source), minimum = LoadHalf(source + 2);
    uint8_t quants[kBlock / 2];
    std::memcpy(quants, source + 4, sizeof(quants));
    for (int64_t j = 0; j < kBlock / 2; ++j)
      out[j] = scale * static_cast<float>(quants[j] & 15) + minimum;
    for (int64_t j = 0; j < kBlock / 2; ++j)
      out[j + kBlock / 2] = scale * static_cast<float>(quants[j] >> 4) + minimum;
  }
}

}  // namespace

bool CanExpand(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1: return true;
    default: return false;
  }
}

void ExpandElements(DType dtype, const std::byte* source, int64_t count, float* out) {
  FB_CHECK(count % tensor::FormatOf(dtype).elements == 0, "{} elements of {}", count, Name(dtype));
  if (count == 0) return;  // `out` may be null then
  switch (dtype) {
    case DType::kF32: std::memcpy(out, source, static_cast<size_t>(count) * sizeof(float)); return;
    case DType::kF16: return Expand16<HalfToFloat>(source, count, out);
    case DType::kBF16: return Expand16<UpperHalfToFloat>(source, count, out);
    case DType::kQ8_0: return ExpandQ8_0(source, count / kBlock, out);
    case DType::kQ4_0: return ExpandQ4_0(source, count / kBlock, out);
    case DType::kQ4_1: return ExpandQ4_1(source, count / kBlock, out);
    default: FB_CHECK(false, "{} cannot be expanded", Name(dtype));
  }
}

int64_t FindNotFinite(const float* values, int64_t count) {
  constexpr uint32_t kMagnitude = 0x7FFFFFFFu, kInfinity = 0x7F800000u;
  constexpr int64_t kChunk = 256;  // short enough to stop early, long enough for vector code
  const auto magnitude = [&](int64_t i) { return std::bit_cast<uint32_t>(values[i]) & kMagnitude; };
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    uint32_t found = 0;
    for (int64_t j = 0; j < kChunk; ++j)
      found |= (magnitude(i + j) + (0x80000000u - kInfinity)) & 0x80000000u;
    if (found != 0) break;
  }
  for (; i < count; ++i) {
    if (magnitude(i) >= kInfinity) return i;
  }
  return -1;
}

int64_t FlushDenormals(std::span<tensor::BF16> values) {
  constexpr int kMagnitude = 0x7FFF, kInfinity = 0x7F80, kLeastNormal = 0x0080;
  uint16_t not_finite = 0;
  for (tensor::BF16& value : values) {
    const uint16_t magnitude = value.bits & kMagnitude;
    not_finite |= magnitude >= kInfinity ? 1 : 0;
    value.bits &= magnitude < kLeastNormal ? 0x8000 : 0xFFFF;
  }
  if (not_finite == 0) return -1;
  const auto is_bad = [](tensor::BF16 value) { return (value.bits & kMagnitude) >= kInfinity; };
  return std::ranges::find_if(values, is_bad) - values.begin();
}

}  // namespace forebay::weights
