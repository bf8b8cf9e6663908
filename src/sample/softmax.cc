#include "sample/softmax.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace forebay::sample {
namespace {

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
struct Loops {
  static constexpr size_t kWidth = sizeof(Doubles) / sizeof(double);

  [[gnu::always_inline]] static Doubles Load(const float* x) {
    Floats floats;
    std::memcpy(&floats, x, sizeof floats);
    return __builtin_convertvector(floats, Doubles);
  }

  template <bool kKeep>
  [[gnu::always_inline]] static double ChunkSum(const Weighing& chunk, double* weights) {
    Doubles sums[kLanes / kWidth] = {};
    const size_t whole = chunk.row.size() / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 8
      for (size_t part = 0; part < kLanes / kWidth; ++part) {
        const Doubles w = Exp<Doubles, Bits>(
            (Load(chunk.row.data() + i + kWidth * part) - chunk.max) * chunk.scale);
        if (kKeep) std::memcpy(weights + i + kWidth * part, &w, sizeof w);
        sums[part] += w;
      }
    }
    double lanes[kLanes];
    std::memcpy(lanes, sums, sizeof(lanes));
    for (size_t i = whole; i < chunk.row.size(); ++i) {
      const double w = Exp((chunk.row[i] - chunk.max) * chunk.scale);
      if (kKeep) weights[i] = w;
      lanes[i - whole] += w;
    }
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    }
    return lanes[0];
  }

  [[gnu::always_inline]] static void SumsUpTo(std::span<const float> row, const double* weights,
                                              const double* borders, double* sums) {
    Doubles lanes[kBorders] = {};
    const size_t whole = row.size() / kWidth * kWidth;
    for (size_t i = 0; i < whole; i += kWidth) {
      const Doubles x = Load(row.data() + i);
      Doubles w;
      std::memcpy(&w, weights + i, sizeof w);
#pragma GCC unroll 4
      for (int b = 0; b < kBorders; ++b) lanes[b] += x <= borders[b] ? w : Doubles{};
    }
    for (int b = 0; b < kBorders; ++b) {
      sums[b] = 0;
      for (size_t lane = 0; lane < kWidth; ++lane) sums[b] += lanes[b][lane];
      for (size_t i = whole; i < row.size(); ++i) sums[b] += row[i] <= borders[b] ? weights[i] : 0;
    }
  }

  [[gnu::always_inline]] static void ClearBelow(std::span<const float> row, double border,
                                                double* weights) {
    const size_t whole = row.size() / kWidth * kWidth;
    for (size_t i = 0; i < whole; i += kWidth) {
      Doubles w;
      std::memcpy(&w, weights + i, sizeof w);
      w = Load(row.data() + i) >= border ? w : Doubles{};
      std::memcpy(weights + i, &w, sizeof w);
    }
    for (size_t i = whole; i < row.size(); ++i) weights[i] = row[i] >= border ? weights[i] : 0;
  }
};

using Loops128 = Loops<Float2, Double2, Bits2>;
using Loops256 = Loops<Float4, Double4, Bits4>;
using Loops512 = Loops<Float8, Double8, Bits8>;

// What a machine can run is a function's attribute; the loops are inlined into it.
#define FB_ROW_LOOPS(loops, attribute)                                                           \
  attribute double ChunkSum##loops(const Weighing& chunk) {                                      \
    return Loops##loops::ChunkSum<false>(chunk, nullptr);                                        \
  }                                                                                              \
  attribute double WeighChunk##loops(const Weighing& chunk, double* weights) {                   \
    return Loops##loops::ChunkSum<true>(chunk, weights);                                         \
  }                                                                                              \
  attribute void SumsUpTo##loops(std::span<const float> row, const double* weights,              \
                                 const double* borders, double* sums) {                          \
    Loops##loops::SumsUpTo(row, weights, borders, sums);                                         \
  }                                                                                              \
  attribute void ClearBelow##loops(std::span<const float> row, double border, double* weights) { \
    Loops##loops::ClearBelow(row, border, weights);                                              \
  }
FB_ROW_LOOPS(128, )
FB_ROW_LOOPS(256, __attribute__((target("avx2"))))
FB_ROW_LOOPS(512, __attribute__((target("avx512f,avx512dq"))))
#undef FB_ROW_LOOPS

constexpr RowLoops kRowLoops[] = {{&ChunkSum512, &WeighChunk512, &SumsUpTo512, &ClearBelow512},
                                  {&ChunkSum256, &WeighChunk256, &SumsUpTo256, &ClearBelow256},
                                  {&ChunkSum128, &WeighChunk128, &SumsUpTo128, &ClearBelow128}};

}  // namespace

std::span<const RowLoops> AllRowLoops() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  return std::span(kRowLoops).subspan(avx512 ? 0 : __builtin_cpu_supports("avx2") ? 1 : 2);
}

bool AllNan(std::span<const float> row) {
  return std::ranges::all_of(row, [](float x) { return std::isnan(x); });
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
    const float max =
        RowMax(row.subspan(begin, std::min<size_t>(kChunkTokens, row.size() - begin)));
    if (max > best) {
      best = max;
      best_chunk = begin;
    }
  }
  if (best == kNone) return 0;
  return static_cast<int32_t>(std::find(row.begin() + best_chunk, row.end(), best) - row.begin());
}

double SumExp(std::span<const float> row, float max, double scale, std::vector<double>* chunk_sums,
              std::vector<double>* weights) {
  const RowLoops& loops = AllRowLoops().front();
  chunk_sums->clear();
  if (weights != nullptr) weights->resize(row.size());
  double total = 0;
  for (size_t begin = 0; begin < row.size(); begin += kChunkTokens) {
    const Weighing chunk{row.subspan(begin, std::min<size_t>(kChunkTokens, row.size() - begin)),
                         max, scale};
    chunk_sums->push_back(weights == nullptr ? loops.chunk_sum(chunk)
                                             : loops.weigh_chunk(chunk, weights->data() + begin));
    total += chunk_sums->back();
  }
  return total;
}

}  // namespace forebay::sample
