// When a job's requests come, where they are not all there from the begin
// (docs/formats/arrivals.md). Pure, but for reading the file that is named.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"

namespace forebay::job {

inline constexpr base::ErrorCode kArrivalsInvalid{"arrivals_invalid"};

// Ninety days, in seconds: simulated devices count picoseconds in 64 bits, which are 106 days.
inline constexpr double kLatestArrival = 90 * 86400;

// In the names of `vllm bench serve`.
struct ArrivalOptions {
  double request_rate = std::numeric_limits<double>::infinity();  // requests a second
  double burstiness = 1;        // shape of the gamma distribution of gaps; 1: a Poisson process
  int64_t max_concurrency = 0;  // requests between their arrival and their result; 0: any number
  std::string source;           // a file of times, or "bursts:..."

  // The file of times; empty: there is none.
  std::string file() const { return source.starts_with("bursts:") ? "" : source; }
  // Requests come over time.
  bool timed() const {
    return request_rate < std::numeric_limits<double>::infinity() || !source.empty();
  }
};

// When the k-th request that a run takes comes.
struct Arrivals {
  std::vector<double> seconds;  // since the run's begin, ascending; empty: all are there at once
  int64_t max_concurrency = 0;  // 0: any number

  bool any() const { return !seconds.empty() || max_concurrency > 0; }
};

// When each of `count` requests arrives. kInvalidArgument: a rate, burstiness or concurrency that
// is not above 0, or two sources of arrivals; kArrivalsInvalid, kIoError: a file or a text of
// bursts that cannot be used, or has fewer arrivals than there are requests; or the last one is
// after kLatestArrival.
base::Result<Arrivals> PlanArrivals(const ArrivalOptions& options, int64_t count, uint64_t seed);

}  // namespace forebay::job
