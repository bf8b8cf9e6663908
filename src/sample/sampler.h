// From one row of logits to one token. Pure functions of (logits, parameters, history, key): never
// of time, rank or slot, and the same bits on every machine (softmax.h).
//
// Logits that are NaN count as -inf, +inf as the greatest float. If all are -inf, token 0 is taken;
// the caller first asks whether a row is all NaN (AllNan), from which no token may be drawn.
// Order: allowed_token_ids, logit_bias (added), repetition penalty (a logit above 0 is divided,
// else multiplied), frequency, presence penalty, banned ids; at temperature 0 the greatest, the
// lowest id on a tie; else temperature, min_p (drops what is below min_p times the maximum), top_k
// (all ties with the k-th stay), top_p (drops from the least likely on, of equal ones the highest
// id first, while the running sum is at most 1 - top_p of what top_k left; one stays), and the
// draw.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "forebay/request.h"
#include "kernels/draw_row.h"

namespace forebay::sample {

// What the draw of one token is keyed by: the request's seed, or the job's seed and the line.
struct SampleKey {
  bool has_request_seed = false;
  uint64_t seed = 0;  // the request's, else the job's
  int64_t line = 0;   // only without a request seed
  int32_t choice = 0;
  int64_t position = 0;  // position of the token that is drawn
};

// Tokens so far, for penalties. Counts are kept by the caller between steps.
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
  Entry& Find(int32_t token);
  size_t Probe(int32_t token) const;
  void Grow();

  std::vector<Entry> entries_;  // in order of first appearance
  std::vector<int32_t> index_;  // open-addressing table into entries_, a power of two, -1: empty
};

struct SampleInput {
  std::span<const float> logits;  // [vocab], raw; not changed
  const SamplingParams* params = nullptr;
  const TokenCounts* counts = nullptr;  // null where no penalty is on
  // ids set to -inf (end tokens before min_tokens, what would end a bad word)
  std::span<const int32_t> banned;
  SampleKey key;
};

// Whether nothing but temperature, min_p, top_k, top_p and the key decides the draw: then kernels
// may draw it (kernels/draw.h). Plain: and no log probability is asked for.
bool HasPlainDraw(const SampleInput& input);
bool IsPlain(const SampleInput& input);

// Appends the tokens that would complete one of `bad_words` behind `generated`.
void AppendBanned(const std::vector<std::vector<int32_t>>& bad_words,
                  std::span<const int32_t> generated, std::vector<int32_t>* banned);

struct SampleOutput {
  int32_t token = 0;
  // filled if params->logprobs >= 0, from the raw logits (before any step)
  PositionLogprobs logprobs;
};

// A token that may be drawn. Its weight is e^((logit - maximum) / temperature).
struct Candidate {
  int32_t token;
  float logit;
  double weight;
};

// Scratch of one worker, reused between rows: no allocation after the first rows of a vocabulary.
struct SampleScratch {
  std::vector<float> processed;
  std::vector<float> selected;
  std::vector<double> chunk_sums, weights;
  std::vector<Candidate> candidates, pool;
};

// The draw inverts the cumulative sum of the kept tokens' weights in ascending id.
SampleOutput Sample(const SampleInput& input, SampleScratch* scratch);

// 64 random bits for a key; tests pin some values, since results depend on them.
uint64_t DrawBits(const SampleKey& key);

// The distribution that Sample draws from: tokens with a probability above 0 (that is, above e^-708
// of the greatest), ascending id. For tests.
struct Distribution {
  std::vector<int32_t> tokens;
  std::vector<double> probabilities;
};
Distribution ProcessedDistribution(const SampleInput& input, SampleScratch* scratch);

// Log probabilities of one row for a given token: the `top_k` best (kAllLogprobs: all), ties to the
// lower id, and the token itself. A rank is the number of tokens with a greater logit, plus one:
// equal logits share it. A logit that is -inf or NaN has log probability -inf.
PositionLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int32_t top_k,
                            SampleScratch* scratch);
// The same of what kernels have found in the row (kernels/draw.h). REQUIRES: it is not all NaN.
PositionLogprobs LogprobsOf(const kernels::LikelyHead& head, const kernels::LikelyToken* top);

}  // namespace forebay::sample
