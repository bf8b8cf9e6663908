// What a run without results takes its requests from.
#pragma once

#include <vector>

#include "base/status.h"
#include "forebay/engine.h"
#include "job/files/failures.h"

namespace forebay::trace {

class CountedSource : public RequestSource {
 public:
  virtual int64_t lines() const = 0;
  // Lines that were not given out so far, for an error of their own.
  virtual int64_t refused() const = 0;
  // Why.
  virtual const job::FailureTally& failures() const = 0;
  // When the requests come that it gives out, in their order: job::Arrivals.
  virtual std::vector<double> arrivals() const { return {}; }
  // What broke the input.
  virtual base::Status status() const { return {}; }
};

}  // namespace forebay::trace
