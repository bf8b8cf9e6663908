#include "schedule/hand_out.h"

#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "schedule/policy.h"

namespace forebay::schedule {

double ExpectedTokens(const LengthView& length, double mean_output) {
  const double output = length.most_output < 0 ? mean_output : static_cast<double>(length.most_output);
  return static_cast<double>(length.prompt_tokens) + output * static_cast<double>(length.choices);
}

bool LongerFirst(const LengthView& a, const LengthView& b) {
  const auto key = [](const LengthView& length) {
    const bool bounded = length.most_output >= 0;
    return std::pair(bounded ? length.most_output : std::numeric_limits<int64_t>::max(), bounded ? length.prompt_tokens : 0);
  };
  return key(a) > key(b);
}

std::vector<int32_t> Deal(std::span<const double> tokens, std::vector<double> held) {
  using Load = std::pair<double, int32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (size_t replica = 0; replica < held.size(); ++replica) {
    if (held[replica] >= 0) least.emplace(held[replica], static_cast<int32_t>(replica));
  }
  std::vector<int32_t> replicas;
  for (const double request : tokens) {
    const auto [load, replica] = least.top();
    least.pop();
    least.emplace(load + request, replica);
    replicas.push_back(replica);
  }
  return replicas;
}

Taking Policy::HandOut(const QueueView& view) const {
  const Taking next = view.at_end ? Taking::kLongest : Taking::kNext;
  if (view.held == 0 || view.remaining < 0) return next;
  const double share = (view.remaining_tokens + view.held_tokens_by_all) / view.replicas;
  return view.held_tokens < share ? next : Taking::kNothing;
}

}  // namespace forebay::schedule
