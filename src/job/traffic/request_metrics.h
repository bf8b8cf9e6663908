// What requests took, counted as vLLM counts it: for whoever shows it to people, in Python or to
// Prometheus.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "engine/meters.h"
#include "forebay/request.h"
#include "runtime/runtime.h"

namespace forebay::job {

// What stays of a request whose prompts go to the engine.
struct RequestAsked {
  runtime::TimeNs arrival = 0;
  int32_t n = 1;
  int32_t max_tokens = -1;  // -1: no bound but the context
};

// Not thread-safe.
class RequestMetrics {
 public:
  // Buckets of tokens end at `max_model_len`.
  explicit RequestMetrics(int64_t max_model_len);

  // A request has ended at `now`, on the clock of its arrival and first token.
  void Add(const RequestAsked& asked, const RequestResult& result, runtime::TimeNs now);

  struct Named {
    const char* name;  // vLLM's
    base::Histogram histogram;
  };
  // All histograms, `meters`' too.
  std::vector<Named> Histograms(const engine::Meters& meters) const;

  // Choices by how they ended; those of requests that were given up, or failed, count by what was
  // asked for.
  struct Ends {
    int64_t stop = 0, length = 0, abort = 0, error = 0;
  };
  const Ends& ends() const { return ends_; }

 private:
  base::Histogram first_token_, end_, token_;                              // seconds
  base::Histogram queue_, inference_, prefill_, decode_;                   // seconds
  base::Histogram prompt_tokens_, tokens_, most_tokens_, max_tokens_, n_;  // counts
  Ends ends_;
};

}  // namespace forebay::job
