#include "job/lines/vectors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "base/exp.h"

namespace forebay::job {
namespace {

double Dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

std::vector<float> VectorOf(std::span<const float> pooled, const VectorStyle& style) {
  if (style.dimensions > 0) pooled = pooled.first(static_cast<size_t>(style.dimensions));
  std::vector<float> vector(pooled.begin(), pooled.end());
  const double length = std::sqrt(Dot(pooled, pooled));
  if (!style.normalize.value_or(false) || length == 0) return vector;
  for (float& number : vector) number = static_cast<float>(number / length);
  return vector;
}

std::vector<double> CosinesOf(std::span<const std::vector<float>> pooled,
                              const VectorStyle& style) {
  const auto queries = static_cast<size_t>(style.queries);
  FB_CHECK(queries == 1 || 2 * queries == pooled.size(), "{} queries for {} texts", queries,
           pooled.size() - queries);
  std::vector<double> cosines;
  for (size_t i = queries; i < pooled.size(); ++i) {
    const std::span<const float> query = pooled[queries == 1 ? 0 : i - queries], text = pooled[i];
    const double lengths = std::sqrt(Dot(query, query) * Dot(text, text));
    cosines.push_back(lengths == 0 ? 0 : Dot(query, text) / lengths);
  }
  return cosines;
}

std::vector<double> ProbabilitiesOf(std::span<const float> numbers, const VectorStyle& style) {
  std::vector<double> scores(numbers.begin(), numbers.end());
  if (!style.activation || scores.empty()) return scores;
  const auto sigmoid = [](double x) {
    const double e = base::Exp(-std::fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
  };
  switch (style.labels->rule) {
    case Labels::Rule::kIdentity: break;
    case Labels::Rule::kSigmoid: std::ranges::transform(scores, scores.begin(), sigmoid); break;
    case Labels::Rule::kSoftmax: {
      const double most = *std::ranges::max_element(scores);
      double sum = 0;
      for (double& score : scores) sum += score = base::Exp(score - most);
      for (double& score : scores) score /= sum;
    }
  }
  return scores;
}

std::vector<double> ScoresOf(std::span<const std::vector<float>> pooled, const VectorStyle& style) {
  if (!style.pairs()) return CosinesOf(pooled, style);
  std::vector<double> scores;
  for (const std::vector<float>& numbers : pooled) {
    const std::vector<double> of_pair = ProbabilitiesOf(numbers, style);
    scores.push_back(of_pair.empty() ? 0 : of_pair[0]);
  }
  return scores;
}

std::string Base64(std::span<const float> numbers) {
  static_assert(std::endian::native == std::endian::little);
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* const bytes = reinterpret_cast<const unsigned char*>(numbers.data());
  const size_t size = numbers.size_bytes();
  std::string text;
  for (size_t at = 0; at < size; at += 3) {
    const size_t rest = std::min<size_t>(3, size - at);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < rest ? bytes[at + i] : 0u);
    for (size_t i = 0; i < 4; ++i) text += i <= rest ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

}  // namespace forebay::job
