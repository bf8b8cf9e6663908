// How long requests took, from their arrival on.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "job/summary.h"

namespace forebay::job {

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
// By nearest rank; zeros where there are no values. Sorts them.
Percentiles PercentilesOf(std::span<double> values);

// Times of a request that did not fail, in seconds since the run's begin.
struct RequestTimes {
  double arrival = 0, first_token = -1, end = 0;  // first_token < 0: it has none
  int64_t longest = 0;                            // tokens of its longest choice
  double deadline = std::numeric_limits<double>::infinity();

  // From the first token to the last, by the tokens after the first; < 0: there are none.
  double token() const {
    return first_token < 0 || longest < 2 ? -1
                                          : (end - first_token) / static_cast<double>(longest - 1);
  }
};

// The part of a run in which it is neither begun nor ended: of one that came to its end from a
// quarter of its time to three, of one that was broken off from a half of it to .95.
struct SteadyWindow {
  double begin = 0, end = 0;  // seconds since the run's begin
};
SteadyWindow SteadyWindowOf(double seconds, bool broken_off);

// When tokens came, where a run was told of each.
struct TokenTimes {
  bool any = false;
  Percentiles between;  // ITL: from a choice's token to its next one
  // output tokens a second, in the 1 s and in the 10 s that had most
  double peak_1s = 0, peak_10s = 0;
  // Tokens a second in the steady window; a prompt's count when its first token comes.
  SteadyWindow steady;
  double steady_prompt = 0, steady_output = 0;
};

// Latencies of the requests that did not fail; percentiles in seconds since each one's arrival.
struct Latencies {
  Percentiles first_token;  // TTFT
  Percentiles token;        // TPOT: from the first token to the last, by the tokens after the first
  Percentiles completion;
  double tokens_per_s_user = 0;        // mean of what the requests had: 1 / TPOT
  std::vector<RequestTimes> requests;  // as they ended
  int64_t unfinished = 0;              // requests that came and have no result
  // Requests with a deadline, those that ended after theirs, and by how many seconds at most.
  int64_t with_deadline = 0, late = 0;
  double most_late = 0;
  TokenTimes tokens;
};

// What follows from the requests alone.
Latencies Summarize(std::vector<RequestTimes> requests);

// Many durations in bounded memory: percentiles within .03 %, mean and maximum exact.
class DurationBook {
 public:
  void Add(double seconds);
  Percentiles Summarize() const;

 private:
  std::map<uint32_t, int64_t> counts_;  // by the leading bits of a duration
  int64_t count_ = 0;
  double sum_ = 0, max_ = 0;
};

// The most tokens that came within a stretch of so many seconds, wherever it begins.
class PeakBook {
 public:
  explicit PeakBook(double seconds) : seconds_(seconds) {}
  // Times ascend.
  void Add(double time, int64_t tokens);
  double per_second() const { return static_cast<double>(peak_) / seconds_; }

 private:
  const double seconds_;
  std::deque<std::pair<double, int64_t>> recent_;
  int64_t sum_ = 0, peak_ = 0;
};

// How many prompt and output tokens came when, in bounded memory: stretches that double in length
// when a run outgrows them.
class TokenBook {
 public:
  void Add(double time, int64_t prompt, int64_t output);
  struct Tokens {
    double prompt = 0, output = 0;
  };
  // Those within; of a stretch at its border so much as lies inside.
  Tokens Within(const SteadyWindow& window) const;

 private:
  static constexpr size_t kStretches = 4096;

  double seconds_ = 1e-3;  // how long a stretch is
  std::vector<Tokens> stretches_;
};

// In the names of `vllm bench serve`, each after `prefix`.
void AddLatencies(const Latencies& latencies, JobSummary* summary, const std::string& prefix = "");
// A line a kind, through base::Log, each after `prefix`.
void LogLatencies(const Latencies& latencies, const std::string& prefix = "");

}  // namespace forebay::job
