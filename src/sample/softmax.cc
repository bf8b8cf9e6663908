#include "sample/softmax.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace forebay::sample {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

using Float2 = float __attribute__((vector_size(8)));
using Float4 = float __attribute__((vector_size(16)));
using Float8 = float __attribute__((vector_size(32)));
using Double2 = double __attribute__((vector_size(16)));
using Double4 = double __attribute__((vector_size(32)));
using Double8 = double __attribute__((vector_size(64)));
using Bits2 = uint64_t __attribute__((vector_size(16)));
using Bits4 = uint64_t __attribute__((vector_size(32)));
using Bits8 = uint64_t __attribute__((vector_size(64)));

// Each width does the same operations in the same order, so that all give the same bits.
template <typename Floats, typename Doubles, typename Bits>
[[gnu::always_inline]] inline double ChunkSumOf(std::span<const float> chunk, double max, double scale) {
  constexpr size_t kWidth = sizeof(Doubles) / sizeof(double);
  Doubles sums[kLanes / kWidth] = {};
  const size_t whole = chunk.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 8
    for (size_t part = 0; part < kLanes / kWidth; ++part) {
      Floats x;
      std::memcpy(&x, chunk.data() + i + kWidth * part, sizeof x);
      sums[part] += Exp<Doubles, Bits>((__builtin_convertvector(x, Doubles) - max) * scale);
    }
  }
  double lanes[kLanes];
  std::memcpy(lanes, sums, sizeof(lanes));
  for (size_t i = whole; i < chunk.size(); ++i) lanes[i - whole] += Exp((chunk[i] - max) * scale);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

double ChunkSum128(std::span<const float> chunk, double max, double scale) { return ChunkSumOf<Float2, Double2, Bits2>(chunk, max, scale); }
__attribute__((target("avx2"))) double ChunkSum256(std::span<const float> chunk, double max, double scale) {
  return ChunkSumOf<Float4, Double4, Bits4>(chunk, max, scale);
}
__attribute__((target("avx512f,avx512dq"))) double ChunkSum512(std::span<const float> chunk, double max, double scale) {
  return ChunkSumOf<Float8, Double8, Bits8>(chunk, max, scale);
}

constexpr ChunkSum kChunkSums[] = {&ChunkSum512, &ChunkSum256, &ChunkSum128};

}  // namespace

std::span<const ChunkSum> ChunkSums() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  return std::span(kChunkSums).subspan(avx512 ? 0 : __builtin_cpu_supports("avx2") ? 1 : 2);
}

double Log(double x) {
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kSqrtHalf = std::bit_cast<uint64_t>(0x1.6a09e667f3bcdp-1);
  const auto e = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  const double s = (m - 1) / (m + 1);
  double series = 0;
  for (int power = 19; power >= 3; power -= 2) series = (series + 1.0 / power) * (s * s);
  return static_cast<double>(e) * 0x1.62e42fefa39efp-1 + 2 * (s + s * series);
}

float RowMax(std::span<const float> row) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, kNone);
  const size_t whole = row.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = row[i + lane];
      lanes[lane] = x > lanes[lane] ? x : lanes[lane];
    }
  }
  float max = kNone;
  for (size_t i = whole; i < row.size(); ++i) max = row[i] > max ? row[i] : max;
  for (const float x : lanes) max = x > max ? x : max;
  return max;
}

int32_t ArgMax(std::span<const float> row) {
  float best = kNone;
  size_t best_chunk = 0;
  for (size_t begin = 0; begin < row.size(); begin += kChunkTokens) {
    const float max = RowMax(row.subspan(begin, std::min<size_t>(kChunkTokens, row.size() - begin)));
    if (max > best) {
      best = max;
      best_chunk = begin;
    }
  }
  if (best == kNone) return 0;
  return static_cast<int32_t>(std::find(row.begin() + best_chunk, row.end(), best) - row.begin());
}

double SumExp(std::span<const float> row, float max, double scale, std::vector<double>* chunk_sums) {
  const ChunkSum chunk_sum = ChunkSums().front();
  chunk_sums->clear();
  double total = 0;
  for (size_t begin = 0; begin < row.size(); begin += kChunkTokens) {
    chunk_sums->push_back(
        chunk_sum(row.subspan(begin, std::min<size_t>(kChunkTokens, row.size() - begin)), max, scale));
    total += chunk_sums->back();
  }
  return total;
}

}  // namespace forebay::sample
