// What is known of a request before it runs, and how requests are ordered and levelled by it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::schedule {

struct LengthView {
  int64_t prompt_tokens = 0;  // tokens of all prompts
  int64_t choices = 1;
  int64_t most_output = -1;  // tokens of a choice, as the request bounds them; -1: it does not
};

// Tokens that the request will come to. `mean_output`: of choices that have finished, for those
// without a bound.
double ExpectedTokens(const LengthView& length, double mean_output);

// The job's end: by what may take longest, which is the output, since its tokens come one after
// another. One without a bound may be the longest.
bool LongerFirst(const LengthView& a, const LengthView& b);

// Deals requests to replicas: each, in the order given, to the one that then has least (Graham's
// list scheduling). `tokens`: of the requests; `held`: of the replicas, negative: it takes none.
// The result has a replica for each request.
std::vector<int32_t> Deal(std::span<const double> tokens, std::vector<double> held);

// What remains of a job, dealt to the replicas, the longest first: each takes its own, and then
// what others have left. Taking one costs O(1).
class LastRequests {
 public:
  // `lengths`: in the job's order, by which indices go. `held`: as Deal has it.
  LastRequests(std::span<const LengthView> lengths, double mean_output, std::vector<double> held);

  int64_t left() const { return lists_.back().left; }
  // Some that were dealt to the replica are left.
  bool has_own(int replica) const { return lists_[replica].left > 0; }
  // Tokens of the outputs that the replica would take from, and of their longest one.
  double outputs(int replica) { return ListOf(replica).outputs; }
  double longest_output(int replica);
  // The next in the job's order, or the one that may take longest. REQUIRES: left() > 0.
  int32_t Take(int replica, bool longest);
  // Nobody has taken it yet.
  bool has(int32_t index) const { return replicas_[index] >= 0; }
  // REQUIRES: has(index).
  void Remove(int32_t index);

 private:
  struct List {
    std::vector<int32_t> in_order, longest_first;
    size_t next_in_order = 0, next_longest = 0;
    int64_t left = 0;
    double outputs = 0;
  };

  List& ListOf(int replica) { return lists_[replica].left > 0 ? lists_[replica] : lists_.back(); }
  // The next of `order` that is not taken.
  int32_t Next(const std::vector<int32_t>& order, size_t* next) const;

  const double mean_output_;
  const std::vector<LengthView> lengths_;
  std::vector<int32_t> replicas_;  // [lengths] -1: taken
  std::vector<List> lists_;        // by replica, and of all
};

}  // namespace forebay::schedule
