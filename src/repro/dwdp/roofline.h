// The roofline of a context step of DeepSeek-R1 by which the paper says when pulled experts hide
// (its section 3): a layer's operators one after another, each by its flops or its bytes.
#pragma once

#include <cstdint>

#include "cost/operation.h"
#include "cost/profile.h"

namespace forebay::repro {

struct ContextLayer {
  double compute_seconds = 0;   // one layer with experts
  double prefetch_seconds = 0;  // the experts that the rank does not hold
  double exchange_seconds = 0;  // rows to their experts and back
  double dwdp_seconds() const {
    return compute_seconds > prefetch_seconds ? compute_seconds : prefetch_seconds;
  }
  double dep_seconds() const { return compute_seconds + exchange_seconds; }
  double speedup() const { return dep_seconds() / dwdp_seconds(); }
};

struct ContextSetting {
  int ranks = 4;
  double link_part = 1;  // what copies reach of the datasheet's rate
  // Scores and values of attention; the projections are fp8, as the model's makers store them.
  cost::NumberFormat core = cost::NumberFormat::kBF16;
};

// One prompt of so many tokens on gb200-nvl72, experts in NVFP4.
ContextLayer RooflineOfContext(double tokens, const ContextSetting& setting);

// From how many tokens on a layer hides its prefetch.
double HidingTokens(const ContextSetting& setting);

// The tokens of the prompt, of 1K to 128K, that gains most.
double BestTokens(const ContextSetting& setting);

// DeepSeek-R1's.
int64_t LayersWithExperts();

// What a rank of a layer with experts sends and gets where rows go to their experts as `sent` and
// come back in bf16, each to a rank once, whichever of its experts they choose there.
double ExchangeBytes(double tokens, int ranks, cost::NumberFormat sent);

// Bytes of a layer's experts that a rank does not hold, where each is held once.
double MissingExpertBytes(int ranks);

}  // namespace forebay::repro
