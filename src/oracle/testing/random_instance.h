// Small packing problems for tests, keyed by a seed: 5 to 10 requests that stay 2 to 20 steps, and
// a capacity of .3 to .6 of all they hold together.
#pragma once

#include <algorithm>

#include "base/rng.h"
#include "oracle/instance.h"

namespace forebay::oracle {

inline Instance RandomInstance(uint64_t seed, Form form, int most_requests = 10) {
  base::Rng rng(base::Combine64(seed, static_cast<uint64_t>(form)));
  std::vector<Lengths> requests(5 + rng.Below(static_cast<uint64_t>(most_requests) - 4));
  int64_t sum = 0, most = 0;
  for (Lengths& lengths : requests) {
    lengths.prompt = 1 + static_cast<int64_t>(rng.Below(40));
    lengths.output = 2 + static_cast<int64_t>(rng.Below(19));
    sum += lengths.prompt + lengths.output;
    most = std::max(most, lengths.prompt + lengths.output);
  }
  const auto share = static_cast<int64_t>(static_cast<double>(sum) * (.3 + .3 * rng.Uniform()));
  return *MakeInstance(requests, std::max(most, share), form, 16);
}

}  // namespace forebay::oracle
