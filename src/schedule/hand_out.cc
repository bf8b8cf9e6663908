#include "schedule/hand_out.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "schedule/policy.h"

namespace forebay::schedule {

namespace {

// A choice counts as half as long where it keeps its replica from others: bounds are seldom
// reached. By simulated jobs (bench/results/tail.md): at 1 a job whose bounds are twice too high
// took up to 20 % longer than in the job's order, at .5 none did.
constexpr double kChainWeight = 0.5;

double ChoiceOutput(const LengthView& length, double mean_output) {
  return length.most_output < 0 ? mean_output : static_cast<double>(length.most_output);
}

double Outputs(const LengthView& length, double mean_output) {
  return ChoiceOutput(length, mean_output) * static_cast<double>(length.choices);
}

}  // namespace

double ExpectedTokens(const LengthView& length, double mean_output) {
  return static_cast<double>(length.prompt_tokens) + Outputs(length, mean_output);
}

bool LongerFirst(const LengthView& a, const LengthView& b) {
  const auto key = [](const LengthView& length) {
    const bool bounded = length.most_output >= 0;
    return std::pair(bounded ? length.most_output : std::numeric_limits<int64_t>::max(),
                     bounded ? length.prompt_tokens : 0);
  };
  return key(a) > key(b);
}

std::vector<int32_t> Deal(std::span<const double> tokens, std::vector<double> held) {
  using Load = std::pair<double, int32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (size_t replica = 0; replica < held.size(); ++replica) {
    // Who has left is dealt nothing.
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

LastRequests::LastRequests(std::span<const LengthView> lengths, double mean_output,
                           std::vector<double> held)
    : mean_output_(mean_output),
      lengths_(lengths.begin(), lengths.end()),
      replicas_(lengths.size()),
      lists_(held.size() + 1) {
  std::vector<int32_t> longest_first(lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  std::ranges::stable_sort(longest_first, LongerFirst,
                           [&](int32_t index) { return lengths_[index]; });
  std::vector<double> tokens;
  for (const int32_t index : longest_first)
    tokens.push_back(ExpectedTokens(lengths_[index], mean_output));
  const std::vector<int32_t> dealt = Deal(tokens, std::move(held));
  for (size_t i = 0; i < dealt.size(); ++i) {
    const int32_t index = longest_first[i];
    replicas_[index] = dealt[i];
    lists_[dealt[i]].longest_first.push_back(index);
  }
  lists_.back().longest_first = std::move(longest_first);
  for (List& list : lists_) {
    list.in_order = list.longest_first;
    std::ranges::sort(list.in_order);
    list.left = static_cast<int64_t>(list.in_order.size());
    for (const int32_t index : list.in_order) list.outputs += Outputs(lengths_[index], mean_output);
  }
}

int32_t LastRequests::Next(const std::vector<int32_t>& order, size_t* next) const {
  // A request stands in four orders and is taken once: where it was taken from another, it is
  // passed over here.
  while (replicas_[order[*next]] < 0) ++*next;
  return order[*next];
}

double LastRequests::longest_output(int replica) {
  List& list = ListOf(replica);
  return list.left > 0
             ? ChoiceOutput(lengths_[Next(list.longest_first, &list.next_longest)], mean_output_)
             : 0;
}

int32_t LastRequests::Take(int replica, bool longest) {
  List& list = ListOf(replica);
  const int32_t index = longest ? Next(list.longest_first, &list.next_longest)
                                : Next(list.in_order, &list.next_in_order);
  Remove(index);
  return index;
}

void LastRequests::Remove(int32_t index) {
  for (List* const each : {&lists_[std::exchange(replicas_[index], -1)], &lists_.back()}) {
    --each->left;
    each->outputs -= Outputs(lengths_[index], mean_output_);
  }
}

Taking Policy::HandOut(const QueueView& view) const {
  // Steps, as if each decoded what this replica's do now: a choice takes one a token.
  const auto rows = static_cast<double>(view.held_choices);
  const bool urgent = view.at_end && view.longest_output * rows >= view.outputs + view.held_tokens;
  const Taking next = urgent ? Taking::kLongest : Taking::kNext;
  if (view.held == 0 || view.replicas == 1) return next;
  const double share = (view.remaining_tokens + view.held_tokens_by_all) / view.replicas;
  if (view.remaining < 0) {
    const bool least = view.held_tokens <= view.least_held_tokens;
    return least || view.held_tokens + view.next_tokens <= share ? next : Taking::kNothing;
  }
  const double chain = view.held_longest_output * rows * kChainWeight;
  return std::max(view.held_tokens, chain) < share ? next : Taking::kNothing;
}

}  // namespace forebay::schedule
