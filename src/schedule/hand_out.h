// What is known of a request before it runs, and how requests are ordered and levelled by it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::schedule {

struct LengthView {
  int64_t prompt_tokens = 0;  // of all prompts
  int64_t choices = 1;
  int64_t most_output = -1;   // tokens of a choice, as the request bounds them; -1: it does not
};

// Tokens that the request will come to. `mean_output`: of choices that have finished, for those without a bound.
double ExpectedTokens(const LengthView& length, double mean_output);

// The job's end: by what may take longest, which is the output, since its tokens come one after another. One without a bound may
// be the longest.
bool LongerFirst(const LengthView& a, const LengthView& b);

// Deals the job's last requests to replicas: each, in the order given, to the one that then has least (Graham's list scheduling).
// `tokens`: of the requests; `held`: of the replicas, negative: it takes none. The result has a replica for each request.
std::vector<int32_t> Deal(std::span<const double> tokens, std::vector<double> held);

}  // namespace forebay::schedule
