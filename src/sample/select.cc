#include "sample/select.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

namespace forebay::sample {
namespace {

// Below this many candidates sorting is as fast as halving.
constexpr size_t kSortedPool = 512;
// Two orders of adding a row's weights differ by less than this share of their total.
constexpr double kDoubt = 1e-9;
// Passes over a row before its candidates are looked at after all; normal rows take up to 9.
constexpr int kMostPasses = 12;

// Two logits with the border of what is dropped between them, and the sum of all weights up to
// each.
struct Bracket {
  float low, high;
  double sum_low, sum_high;
};

// Calls visit(token, logit) in ascending id for logits above `low` and up to `high`, which are few.
template <typename Visit>
void ForEachBetween(std::span<const float> row, float low, float high, Visit visit) {
  using Floats = float __attribute__((vector_size(16)));
  using Mask = int32_t __attribute__((vector_size(16)));
  constexpr size_t kGroup = 16;
  for (size_t begin = 0; begin < row.size(); begin += kGroup) {
    const size_t end = std::min(row.size(), begin + kGroup);
    if (end - begin == kGroup) {
      Mask inside = {};
      for (size_t part = 0; part < kGroup; part += 4) {
        Floats x;
        std::memcpy(&x, row.data() + begin + part, sizeof x);
        inside |= (x > low) & (x <= high);
      }
      if ((inside[0] | inside[1] | inside[2] | inside[3]) == 0) continue;
    }
    for (size_t i = begin; i < end; ++i) {
      if (row[i] > low && row[i] <= high) visit(static_cast<int32_t>(i), row[i]);
    }
  }
}

// Narrows the bracket by sums up to some logits. False: one is too near to the limit.
bool Narrow(const Weighing& row, const std::vector<double>& weights,
            const double (&logits)[kBorders], double limit, double doubt, Bracket* bracket) {
  double borders[kBorders], sums[kBorders];
  for (int i = 0; i < kBorders; ++i) borders[i] = static_cast<float>(logits[i]);
  AllRowLoops().front().sums_up_to(row.row, weights.data(), borders, sums);
  for (int i = 0; i < kBorders; ++i) {
    const float border = static_cast<float>(borders[i]);
    if (std::fabs(sums[i] - limit) < doubt) return false;
    if (sums[i] < limit && border > bracket->low) bracket->low = border, bracket->sum_low = sums[i];
    if (sums[i] > limit && border < bracket->high)
      bracket->high = border, bracket->sum_high = sums[i];
  }
  return true;
}

// The bracket around few tokens.
std::optional<Bracket> FindBracket(const Weighing& row, const std::vector<double>& weights,
                                   double total, double floor, double limit) {
  const double quarter = (row.max - floor) / 4, doubt = kDoubt * total;
  Bracket bracket{kNone, static_cast<float>(row.max), 0, total};
  if (!Narrow(row, weights, {floor, floor + quarter, floor + 2 * quarter, floor + 3 * quarter},
              limit, doubt, &bracket))
    return {};
  // After three passes in a row that shut no token out, what lies between is a cluster of equal
  // logits, or nearly.
  int idle = 0;
  for (int pass = 1; pass < kMostPasses && idle < 3 && bracket.low > kNone; ++pass) {
    const double between = bracket.sum_high - bracket.sum_low;
    // Each token between weighs at least what the lower end would.
    if (between <= kSortedPool / 2 * Exp((bracket.low - row.max) * row.scale)) return bracket;
    // Most likely the border lies near the line between both ends; if nothing is there, anywhere.
    const double width = static_cast<double>(bracket.high) - bracket.low;
    const double middle =
        bracket.low + width * (idle > 0 ? 0.5 : (limit - bracket.sum_low) / between);
    const double near = width * (idle > 0 ? 0.1 : 1.0 / 64),
                 far = width * (idle > 0 ? 0.3 : 1.0 / 8);
    if (!Narrow(row, weights, {middle - far, middle - near, middle + near, middle + far}, limit,
                doubt, &bracket))
      return {};
    idle = bracket.sum_high - bracket.sum_low == between ? idle + 1 : 0;
  }
  return {};
}

}  // namespace

float KthLargest(std::span<const float> row, int64_t k, std::vector<float>* buffer) {
  const auto kth = [&] {
    std::nth_element(buffer->begin(), buffer->begin() + (k - 1), buffer->end(), std::greater<>());
    return (*buffer)[k - 1];
  };
  // The k-th largest of the groups' maxima is a lower bound: k tokens are at least as great.
  float bound = kNone;
  buffer->clear();
  if (2 * k * kGroupTokens <= row.size()) {
    for (size_t begin = 0; begin < row.size(); begin += kGroupTokens)
      buffer->push_back(RowMax(row.subspan(begin, std::min(kGroupTokens, row.size() - begin))));
    bound = kth();
    buffer->clear();
  }
  ForEachAtLeast(row, bound, [&](int32_t, float x) {
    if (x > kNone) buffer->push_back(x);
  });
  return static_cast<int64_t>(buffer->size()) < k ? kNone : kth();
}

void DropTail(std::vector<Candidate>* candidates, double dropped, double limit,
              std::vector<Candidate>* pool) {
  if (candidates->empty()) return;
  *pool = *candidates;
  // Halve the range of logits around the border: a lower half that fits below the limit is dropped,
  // else the upper half is kept; what remains in the pool is undecided.
  while (pool->size() > kSortedPool) {
    const auto [low, high] = std::ranges::minmax(*pool, {}, &Candidate::logit);
    const float middle = low.logit + (high.logit - low.logit) / 2;
    if (!(middle < high.logit)) break;
    double sum = dropped;
    for (const Candidate& candidate : *pool) {
      if (candidate.logit <= middle) sum += candidate.weight;
    }
    const bool drop_lower = sum <= limit;
    if (drop_lower) dropped = sum;
    std::erase_if(*pool, [&](const Candidate& candidate) {
      return (candidate.logit <= middle) == drop_lower;
    });
  }
  std::ranges::sort(*pool, MoreLikely);
  while (pool->size() > 1 && dropped + pool->back().weight <= limit) {
    dropped += pool->back().weight;
    pool->pop_back();
  }
  const Candidate border = pool->back();
  std::erase_if(*candidates,
                [&](const Candidate& candidate) { return MoreLikely(border, candidate); });
}

bool DropTailOfRow(const Weighing& row, double total, double floor, double limit,
                   std::vector<double>* weights, std::vector<Candidate>* pool) {
  const std::optional<Bracket> bracket = FindBracket(row, *weights, total, floor, limit);
  if (!bracket) return false;
  pool->clear();
  ForEachBetween(row.row, bracket->low, bracket->high, [&](int32_t token, float x) {
    pool->push_back({token, x, (*weights)[static_cast<size_t>(token)]});
  });
  std::ranges::sort(*pool, MoreLikely);
  double dropped = bracket->sum_low;
  for (; !pool->empty(); pool->pop_back()) {
    const Candidate& last = pool->back();
    dropped += last.weight;
    if (std::fabs(dropped - limit) < kDoubt * total) return false;
    if (dropped > limit) {
      AllRowLoops().front().clear_below(row.row, last.logit, weights->data());
      return true;
    }
    (*weights)[static_cast<size_t>(last.token)] = 0;
  }
  return false;
}

}  // namespace forebay::sample
