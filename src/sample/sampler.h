// From one row of logits to one token. Pure functions of (logits, parameters, history, key): never of time, rank or slot.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "forebay/request.h"

namespace forebay::sample {

// What the draw of one token is keyed by (DESIGN section 6): the request's seed, or the job's seed and the line.
struct SampleKey {
  bool has_request_seed = false;
  uint64_t seed = 0;       // the request's, else the job's
  int64_t line = 0;        // only without a request seed
  int32_t choice = 0;
  int64_t position = 0;    // of the token that is drawn
};

// Tokens so far, for penalties and min_tokens. Counts are kept by the caller between steps.
class TokenCounts {
 public:
  void AddPrompt(std::span<const int32_t> tokens);
  void AddOutput(int32_t token);
  struct Entry {
    int32_t token;
    int32_t output_count;  // 0: only in the prompt
  };
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;           // in order of first appearance
  std::vector<int32_t> index_;           // open-addressing table into entries_
};

struct SampleInput {
  std::span<const float> logits;              // [vocab], raw; not changed
  const SamplingParams* params = nullptr;
  const TokenCounts* counts = nullptr;        // null where no penalty is on
  std::span<const int32_t> banned;            // ids set to -inf (end tokens before min_tokens)
  SampleKey key;
};

struct SampleOutput {
  int32_t token = 0;
  PositionLogprobs logprobs;                  // filled if params->logprobs >= 0, from the raw logits (before any step)
};

// Scratch of one worker, reused between rows: no allocation after the first rows of a vocabulary.
struct SampleScratch {
  std::vector<float> processed;
  std::vector<int32_t> order;
};

SampleOutput Sample(const SampleInput& input, SampleScratch* scratch);

// The distribution that Sample draws from: kept tokens with their probabilities, ascending id. For tests.
struct Distribution {
  std::vector<int32_t> tokens;
  std::vector<double> probabilities;
};
Distribution ProcessedDistribution(const SampleInput& input, SampleScratch* scratch);

// Log probabilities of one row for a given token: the `top_k` best (kAllLogprobs: all), ties to the lower id, and the
// token itself; its rank counts tokens with a greater logit, plus one.
PositionLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int32_t top_k, SampleScratch* scratch);

}  // namespace forebay::sample
