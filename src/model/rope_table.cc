#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/parallel_for.h"

namespace forebay::model {
namespace {

struct CosSin {
  double cos, sin;
};

CosSin CosSinOf(double angle) { return {std::cos(angle), std::sin(angle)}; }

// What `library() * scale` is as fp32. `value` differs from library() by less than kError: most
// often both round alike.
template <typename Library>
float RoundScaled(double value, double scale, const Library& library) {
  constexpr double kError = 0x1p-49;
  const auto low = static_cast<float>((value - kError) * scale),
             high = static_cast<float>((value + kError) * scale);
  return low == high ? low : static_cast<float>(library() * scale);
}

}  // namespace

// Angles are exact in double (24 bits of the frequency, 24 of the position), so that the angle of a
// block's position is that of the block's first plus that of its place in the block. The addition
// theorems err by less than 6 x 2^-53.
void FillRope(const RopeSpec& rope, int64_t positions, int num_threads, float* cos_table,
              float* sin_table) {
  const std::vector<float>& frequencies = rope.FrequenciesOf(positions);
  const auto half = static_cast<int64_t>(frequencies.size());
  const auto angle = [&](int64_t position, int64_t i) {
    return static_cast<double>(position) * frequencies[i];
  };
  const auto scale_of = [&](int64_t i) { return frequencies[i] == 0 ? 1.0f : rope.cos_sin_scale; };
  constexpr int64_t kPositionsAtOnce = 256;
  std::vector<CosSin> places;  // [kPositionsAtOnce, half]
  for (int64_t place = 0; place < kPositionsAtOnce; ++place) {
    for (int64_t i = 0; i < half; ++i) places.push_back(CosSinOf(angle(place, i)));
  }
  runtime::ParallelFor(num_threads, [&](runtime::Tickets& tickets) {
    std::vector<CosSin> first(half);
    for (int64_t begin = tickets.Next() * kPositionsAtOnce; begin < positions;
         begin = tickets.Next() * kPositionsAtOnce) {
      for (int64_t i = 0; i < half; ++i) first[i] = CosSinOf(angle(begin, i));
      for (int64_t p = begin; p < std::min(positions, begin + kPositionsAtOnce); ++p) {
        for (int64_t i = 0; i < half; ++i) {
          const CosSin& a = first[i];
          const CosSin& b = places[(p - begin) * half + i];
          cos_table[p * half + i] = RoundScaled(a.cos * b.cos - a.sin * b.sin, scale_of(i),
                                                [&] { return std::cos(angle(p, i)); });
          sin_table[p * half + i] = RoundScaled(a.sin * b.cos + a.cos * b.sin, scale_of(i),
                                                [&] { return std::sin(angle(p, i)); });
        }
      }
    }
  });
}

void FillTemperature(const ModelConfig& config, int64_t positions, float* table) {
  for (int64_t position = 0; position < positions; ++position) {
    const double floors = std::floor(static_cast<double>(position + config.temperature_shift) /
                                     config.temperature_floor);
    table[position] = static_cast<float>(std::log(floors + 1) * config.temperature_scale + 1);
  }
}

}  // namespace forebay::model
