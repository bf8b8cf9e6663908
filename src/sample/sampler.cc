#include "sample/sampler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/rng.h"
#include "sample/select.h"
#include "sample/softmax.h"

namespace forebay::sample {
namespace {

// A row whose mean weight is more than one such part of the greatest is surely flat.
constexpr double kFlatTokens = 1024;

bool HasPenalties(const SampleInput& input) {
  const SamplingParams& params = *input.params;
  return input.counts != nullptr && (params.repetition_penalty != 1 ||
                                     params.frequency_penalty != 0 || params.presence_penalty != 0);
}

bool ChangesLogits(const SampleInput& input) {
  return !input.params->logit_bias.empty() || !input.params->allowed_token_ids.empty() ||
         HasPenalties(input) || !input.banned.empty();
}

// The row after allowed tokens, logit_bias, penalties and bans: the input itself where none
// applies, else a copy in `scratch`.
std::span<const float> Penalize(const SampleInput& input, SampleScratch* scratch) {
  if (!ChangesLogits(input)) return input.logits;
  const SamplingParams& params = *input.params;
  std::vector<float>& row = scratch->processed;
  const auto in_vocabulary = [&](int32_t token) {
    return token >= 0 && token < static_cast<int64_t>(input.logits.size());
  };
  if (params.allowed_token_ids.empty()) {
    row.assign(input.logits.begin(), input.logits.end());
  } else {
    row.assign(input.logits.size(), kNone);
    for (const int32_t token : params.allowed_token_ids) {
      if (in_vocabulary(token)) row[token] = input.logits[token];
    }
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (in_vocabulary(token)) row[token] += bias;
  }
  if (HasPenalties(input)) {
    for (const auto& [token, output_count] : input.counts->entries()) {
      if (!in_vocabulary(token)) continue;
      float& x = row[token];
      x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
      if (output_count == 0) continue;
      x -= params.frequency_penalty * static_cast<float>(output_count);
      x -= params.presence_penalty;
    }
  }
  for (const int32_t token : input.banned) {
    if (in_vocabulary(token)) row[token] = kNone;
  }
  return row;
}

// As Penalize, but bans that leave no token ban none.
std::span<const float> Process(const SampleInput& input, SampleScratch* scratch) {
  const std::span<const float> row = Penalize(input, scratch);
  if (input.banned.empty() || RowMax(row) != kNone) return row;
  SampleInput without_bans = input;
  without_bans.banned = {};
  return Penalize(without_bans, scratch);
}

// What a draw needs of a row at a temperature above 0.
struct Softmax {
  std::span<const float> row;
  float max = kNone;
  double scale = 1;  // 1 / temperature
  // What stays: all tokens, with scratch.chunk_sums; scratch.candidates; or tokens that
  // scratch.weights has above 0, with chunk_sums the running sums up to each chunk's end.
  enum Kept { kAll, kCandidates, kWeights } kept = kAll;
  double total = 0;  // sum of the kept tokens' weights

  double Weight(size_t token) const { return Exp((row[token] - static_cast<double>(max)) * scale); }
};

// A logit below which no weight is above `weight`; a little lower than that, since the logarithm
// and the logits' differences are rounded.
double LogitFloor(const Softmax& softmax, double weight) {
  return weight > 0 ? softmax.max + (Log(weight) - 1e-6) / softmax.scale : kNone;
}

// Puts the tokens that pass min_p and top_k and are not below `floor` into scratch->candidates;
// returns their weights' sum.
double Gather(const Softmax& softmax, const SamplingParams& params, double floor,
              SampleScratch* scratch) {
  const auto vocabulary = static_cast<int64_t>(softmax.row.size());
  double lowest = std::max(floor, LogitFloor(softmax, params.min_p));
  if (params.top_k > 0 && params.top_k < vocabulary)
    lowest = std::max<double>(lowest, KthLargest(softmax.row, params.top_k, &scratch->selected));
  scratch->candidates.clear();
  double total = 0;
  ForEachAtLeast(softmax.row, lowest, [&](int32_t token, float x) {
    const double weight = softmax.Weight(token);
    if (!(weight > 0 && weight >= params.min_p)) return;
    scratch->candidates.push_back({token, x, weight});
    total += weight;
  });
  return total;
}

// Keeps what top_p leaves of a row of which much may stay; scratch->weights are the row's. False:
// no way but by candidates.
bool KeepFlat(Softmax* softmax, double total, double limit, SampleScratch* scratch) {
  const std::span<const float> row = softmax->row;
  std::vector<double>& weights = scratch->weights;
  const double floor = LogitFloor(*softmax, limit / static_cast<double>(row.size()));
  if (!DropTailOfRow({row, softmax->max, softmax->scale}, total, floor, limit, &weights,
                     &scratch->pool))
    return false;
  softmax->kept = Softmax::kWeights;
  scratch->chunk_sums.clear();
  double sum = 0;
  for (size_t begin = 0; begin < row.size(); begin += kChunkTokens) {
    for (size_t i = begin; i < std::min(row.size(), begin + kChunkTokens); ++i) sum += weights[i];
    scratch->chunk_sums.push_back(sum);
  }
  softmax->total = sum;
  return true;
}

void KeepTopP(Softmax* softmax, const SamplingParams& params, SampleScratch* scratch) {
  const double drop_share = 1.0 - static_cast<double>(params.top_p);
  double dropped = 0, limit = 0;
  if (params.min_p > 0 || params.top_k > 0) {
    limit = drop_share * Gather(*softmax, params, kNone, scratch);
  } else {
    const double total =
        SumExp(softmax->row, softmax->max, softmax->scale, &scratch->chunk_sums, &scratch->weights);
    limit = drop_share * total;
    // Tokens below a floor need not be looked at if together they weigh no more than the limit.
    // Where none of them weighs more than limit / vocabulary that is sure; higher floors are tried
    // first, since few tokens pass them.
    const double least = limit / static_cast<double>(softmax->row.size());
    const bool flat = total * kFlatTokens >= static_cast<double>(softmax->row.size());
    bool tried = false;
    for (double weight = 4096 * least; weight >= least; weight /= 16) {
      // Once two floors were too high, many tokens are likely to pass the next.
      if (!tried && (flat || weight < 256 * least)) {
        tried = true;
        if (KeepFlat(softmax, total, limit, scratch)) return;
      }
      // The likeliest token weighs 1 and always stays.
      dropped = std::max(0.0, total - Gather(*softmax, params,
                                             LogitFloor(*softmax, std::min(weight, 1.0)), scratch));
      if (dropped <= limit) break;
    }
  }
  DropTail(&scratch->candidates, dropped, limit, &scratch->pool);
  softmax->total = 0;
  for (const Candidate& candidate : scratch->candidates) softmax->total += candidate.weight;
}

// REQUIRES: temperature > 0, some logit is above -inf.
Softmax Prepare(std::span<const float> row, float max, const SamplingParams& params,
                SampleScratch* scratch) {
  if (max == std::numeric_limits<float>::infinity()) {
    max = std::numeric_limits<float>::max();
    if (row.data() != scratch->processed.data()) scratch->processed.assign(row.begin(), row.end());
    for (float& x : scratch->processed) x = x > max ? max : x;
    row = scratch->processed;
  }
  Softmax softmax{.row = row, .max = max, .scale = 1.0 / static_cast<double>(params.temperature)};
  if (params.top_p < 1) {
    softmax.kept = Softmax::kCandidates;
    KeepTopP(&softmax, params, scratch);
  } else if (params.min_p > 0 || params.top_k > 0) {
    softmax.kept = Softmax::kCandidates;
    softmax.total = Gather(softmax, params, kNone, scratch);
  } else {
    softmax.total = SumExp(row, max, softmax.scale, &scratch->chunk_sums);
  }
  return softmax;
}

int32_t DrawCandidate(double target, const SampleScratch& scratch) {
  double sum = 0;
  for (const Candidate& candidate : scratch.candidates) {
    sum += candidate.weight;
    if (sum > target) return candidate.token;
  }
  return scratch.candidates.back().token;
}

int32_t DrawWeighted(double target, const SampleScratch& scratch) {
  const std::vector<double>&sums = scratch.chunk_sums, &weights = scratch.weights;
  const size_t chunk = static_cast<size_t>(std::ranges::upper_bound(sums, target) - sums.begin());
  if (chunk < sums.size()) {
    double sum = chunk == 0 ? 0 : sums[chunk - 1];
    for (size_t token = chunk * kChunkTokens;; ++token) {
      sum += weights[token];
      if (sum > target) return static_cast<int32_t>(token);
    }
  }
  size_t last = weights.size() - 1;
  while (weights[last] == 0) --last;
  return static_cast<int32_t>(last);
}

// First finds the chunk in which the cumulative sum passes the target, then the token in it.
int32_t DrawAny(const Softmax& softmax, double target, const SampleScratch& scratch) {
  const std::vector<double>& sums = scratch.chunk_sums;
  double before = 0;
  size_t chunk = 0;
  while (chunk + 1 < sums.size() && before + sums[chunk] <= target) before += sums[chunk++];
  const size_t end = std::min(softmax.row.size(), (chunk + 1) * kChunkTokens);
  // Rounding may leave the target just above the chunk's own running sum: then its last possible
  // token is meant.
  size_t drawn = chunk * kChunkTokens;
  double sum = before;
  for (size_t token = drawn; token < end; ++token) {
    const double weight = softmax.Weight(token);
    if (weight == 0) continue;
    drawn = token;
    sum += weight;
    if (sum > target) break;
  }
  return static_cast<int32_t>(drawn);
}

int32_t Choose(std::span<const float> row, const SampleInput& input, SampleScratch* scratch) {
  if (input.params->temperature == 0) return ArgMax(row);
  const float max = RowMax(row);
  if (max == kNone) return 0;
  const Softmax softmax = Prepare(row, max, *input.params, scratch);
  const double target = base::ToUnitDouble(DrawBits(input.key)) * softmax.total;
  switch (softmax.kept) {
    case Softmax::kAll: return DrawAny(softmax, target, *scratch);
    case Softmax::kCandidates: return DrawCandidate(target, *scratch);
    case Softmax::kWeights: break;
  }
  return DrawWeighted(target, *scratch);
}

}  // namespace

uint64_t DrawBits(const SampleKey& key) {
  // Two different first values keep requests with a seed apart from those that the job's seed
  // serves.
  uint64_t bits = base::Mix64(key.has_request_seed ? 0x72657175657374ull : 0x6A6F62ull);
  bits = base::Combine64(bits, key.seed);
  if (!key.has_request_seed) bits = base::Combine64(bits, static_cast<uint64_t>(key.line));
  bits = base::Combine64(bits, static_cast<uint64_t>(key.choice));
  return base::Combine64(bits, static_cast<uint64_t>(key.position));
}

void AppendBanned(const std::vector<std::vector<int32_t>>& bad_words,
                  std::span<const int32_t> generated, std::vector<int32_t>* banned) {
  for (const std::vector<int32_t>& word : bad_words) {
    const auto begin = std::span(word).first(word.size() - 1);
    if (begin.size() <= generated.size() && std::ranges::equal(begin, generated.last(begin.size())))
      banned->push_back(word.back());
  }
}

bool HasPlainDraw(const SampleInput& input) {
  // Weights above 0 lie within 708 temperatures: their logits' span is a float.
  constexpr float kMostTemperature = 1e6f;
  return !ChangesLogits(input) && input.params->temperature <= kMostTemperature;
}

bool IsPlain(const SampleInput& input) { return HasPlainDraw(input) && input.params->logprobs < 0; }

SampleOutput Sample(const SampleInput& input, SampleScratch* scratch) {
  FB_CHECK(!input.logits.empty() && input.params != nullptr, "nothing to sample from");
  SampleOutput output;
  output.token = Choose(Process(input, scratch), input, scratch);
  if (input.params->logprobs >= 0)
    output.logprobs = LogprobsOf(input.logits, output.token, input.params->logprobs, scratch);
  return output;
}

Distribution ProcessedDistribution(const SampleInput& input, SampleScratch* scratch) {
  const std::span<const float> row = Process(input, scratch);
  const float max = RowMax(row);
  if (input.params->temperature == 0 || max == kNone) return {{ArgMax(row)}, {1.0}};
  const Softmax softmax = Prepare(row, max, *input.params, scratch);
  Distribution distribution;
  const auto add = [&](int32_t token, double weight) {
    if (weight == 0) return;
    distribution.tokens.push_back(token);
    distribution.probabilities.push_back(weight / softmax.total);
  };
  if (softmax.kept == Softmax::kCandidates) {
    for (const Candidate& candidate : scratch->candidates) add(candidate.token, candidate.weight);
  } else {
    for (size_t token = 0; token < row.size(); ++token) {
      add(static_cast<int32_t>(token),
          softmax.kept == Softmax::kAll ? softmax.Weight(token) : scratch->weights[token]);
    }
  }
  return distribution;
}

}  // namespace forebay::sample
