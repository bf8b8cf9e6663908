// Requests (one for each line of the input) and their results, as plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forebay/service.h"

namespace forebay {

// How tokens are sampled. Defaults are the OpenAI API's; `generation_config.json` may change them
// (docs/formats/requests.md: precedence). Order of application: logit_bias, repetition, frequency
// and presence penalty, temperature, min_p, top_k, top_p.
struct SamplingParams {
  float temperature = 1.0f;                           // >= 0; 0 is greedy, lowest id on a tie
  float top_p = 1.0f;                                 // [0, 1]; 0: the likeliest token alone
  int32_t top_k = 0;                                  // 0: off; ties with the k-th token stay
  float min_p = 0.0f;                                 // [0, 1]
  float presence_penalty = 0.0f;                      // [-2, 2], over generated tokens
  float frequency_penalty = 0.0f;                     // [-2, 2], over generated tokens
  float repetition_penalty = 1.0f;                    // > 0, over prompt and generated tokens
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id -> added to its logit
  // Ascending; all other tokens count as -inf. Empty: all tokens are allowed.
  std::vector<int32_t> allowed_token_ids;
  // Token sequences that no choice generates: after the others, the last token of one is banned.
  std::vector<std::vector<int32_t>> bad_words;
  std::optional<int64_t> seed;  // keys the generator; else the job's seed and the line key it

  // the most generated tokens; -1: not given; 0: prompt only
  int32_t max_tokens = -1;
  // used if max_tokens is not given, within the context; -1: up to the context's end
  int32_t default_max_tokens = -1;
  // the bound of the two that applies; -1: the context's end
  int32_t most_tokens() const { return max_tokens >= 0 ? max_tokens : default_max_tokens; }
  // before so many tokens no end-of-sequence, stop id or stop string ends the choice
  int32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;  // stop strings, matched on the generated text
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;

  // Log probabilities reported with each generated token: -1 none; 0 the drawn token's; k > 0 also
  // the k likeliest; kAllLogprobs: the whole vocabulary.
  int32_t logprobs = -1;
  // The same for prompt tokens (`echo` with logprobs); -1 none.
  int32_t prompt_logprobs = -1;
};
inline constexpr int32_t kAllLogprobs = INT32_MAX;

// One line of the input, tokenised. A request has prompts.size() * n choices; choice c continues
// prompt c / n.
struct Request {
  int64_t id = 0;  // unique in a run; its result has the same id
  // The key of its draws if it has no seed: for a job's request the 0-based line in the input.
  int64_t line = 0;
  std::vector<std::vector<int32_t>> prompts;  // token ids, none empty
  // With prompt_logprobs, one for each prompt: the first position whose log probability is wanted
  // (>= 1, before its end). Empty: all. Earlier rows may come from the prefix cache.
  std::vector<int32_t> prompt_logprobs_from;
  // For prompts that are pairs of texts, one for each prompt: where the second text's tokens begin;
  // they have another token type. Empty: no prompt is a pair.
  std::vector<int32_t> second_texts;
  int32_t n = 1;  // choices of each prompt, >= 1
  SamplingParams sampling;
  // For traces and replays: every choice ends after this many tokens, whatever is sampled (0: off;
  // capped by max_tokens). Only the engine's commit reads it, never a policy.
  int32_t ends_after = 0;
  // True: no text is generated; each prompt becomes a vector of ModelFacts::vector_width numbers,
  // or the output of the model's head.
  bool pooled = false;
  bool stream = false;  // ResultSink::Progress gets its tokens as they are drawn
  Service service = Service::kBatch;
  // The deadline of a batch's answer, in seconds since the run began; infinite: none.
  double deadline_seconds = std::numeric_limits<double>::infinity();
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm
  int32_t rank = 0;   // 1: the most likely token
};

// Log probabilities at one position, the most likely token first. `chosen` is the index in `top` of
// the position's own token, which is always among them.
struct PositionLogprobs {
  std::vector<TokenLogprob> top;
  int32_t chosen = 0;
};

enum class FinishReason : uint8_t { kStop, kLength };

struct Choice {
  int32_t index = 0;
  std::vector<int32_t> tokens;  // generated ids, the stopping token included
  std::string text;             // their text, cut before a stop string
  FinishReason finish_reason = FinishReason::kLength;
  // the stop id or stop string that ended it; none for EOS and length
  std::optional<int32_t> stop_token;
  std::optional<std::string> stop_string;
  std::vector<PositionLogprobs> logprobs;  // one for each generated token, if asked for
  // ARCHITECTURE.md, "One request, one answer"; 0: off
  uint64_t digest = 0;
};

// The new output of a streaming request's choice since its last piece. All pieces together are the
// choice's text, tokens and log probabilities. Text is held back while a stop string may still
// remove it, and until its last character is complete.
struct ChoicePiece {
  int64_t id = 0;      // the request's
  int32_t choice = 0;  // its index
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<PositionLogprobs> logprobs;  // one for each token, if asked for
};

// The result of a request. Either `error_message` is set, or there is a choice for each one that
// the request asked for.
struct RequestResult {
  int64_t id = 0;  // the request's
  std::vector<Choice> choices;
  // One list for each prompt, if asked for; its entry 0 (the first token) is empty.
  std::vector<std::vector<PositionLogprobs>> prompt_logprobs;
  std::vector<std::vector<float>> vectors;  // one for each prompt of a pooled request
  int64_t prompt_tokens = 0;                // all prompts, each counted once
  int64_t completion_tokens = 0;            // all choices
  // prompt tokens with KV from the prefix index; not part of the answer
  int64_t cached_tokens = 0;
  // When its first choice was admitted, on whichever replica, and when its first token was known,
  // on the runtime's clock; -1: never. Not part of the answer.
  int64_t admitted_ns = -1, first_token_ns = -1;
  int http_status = 200;   // 4xx or 5xx with an error
  std::string error_type;  // OpenAI's "type", e.g. "invalid_request_error"
  std::string error_message;
  std::string error_param;  // the parameter at fault, if one is
  std::string error_code;   // stable code
};

}  // namespace forebay
