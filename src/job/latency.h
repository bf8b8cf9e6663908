// How long requests took, from their arrival on.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "job/summary.h"

namespace forebay::job {

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
// By nearest rank; zeros where there are no values. Sorts them.
Percentiles PercentilesOf(std::span<double> values);

// Times of the requests that did not fail, in seconds since each one's arrival.
struct Latencies {
  Percentiles first_token;  // TTFT
  Percentiles token;        // TPOT: from the first token to the last, by the tokens after the first
  Percentiles completion;
  double tokens_per_s_user = 0;  // mean of what the requests had: 1 / TPOT
};

// Keeps 24 bytes a request.
class LatencyBook {
 public:
  // A request that did not fail and ends now; times are seconds on one clock. `first_token` < 0: it
  // has none. `longest`: tokens of its longest choice.
  void Add(double arrival, double first_token, double end, int64_t longest);
  Latencies Summarize() const;

 private:
  std::vector<double> first_token_, token_, completion_;
};

// In the names of `vllm bench serve`.
void AddLatencies(const Latencies& latencies, JobSummary* summary);
// A line a kind, through base::Log.
void LogLatencies(const Latencies& latencies);

}  // namespace forebay::job
