// What a job asks for: one Request a line of the input, and what comes back for it. Plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forebay/service.h"

namespace forebay {

// How tokens are chosen. Defaults are the OpenAI API's; `generation_config.json` may change them
// (docs/formats/requests.md says which wins). Order of the steps: logit_bias, repetition, frequency
// and presence penalty, temperature, min_p, top_k, top_p.
struct SamplingParams {
  float temperature = 1.0f;                           // >= 0; 0 is greedy, lowest id on a tie
  float top_p = 1.0f;                                 // [0, 1]; 0: the likeliest alone
  int32_t top_k = 0;                                  // 0: off; ties with the k-th stay
  float min_p = 0.0f;                                 // [0, 1]
  float presence_penalty = 0.0f;                      // [-2, 2], over generated tokens
  float frequency_penalty = 0.0f;                     // [-2, 2], over generated tokens
  float repetition_penalty = 1.0f;                    // > 0, over prompt and generated tokens
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id -> added to its logit
  // Ascending: all others count as -inf. Empty: any may be drawn.
  std::vector<int32_t> allowed_token_ids;
  // Token sequences that no choice generates: the last token of one is banned behind its others.
  std::vector<std::vector<int32_t>> bad_words;
  std::optional<int64_t> seed;  // keys the generator; without it the job's seed and the line do

  // generated tokens asked for at most; -1: not asked; 0: prompt only
  int32_t max_tokens = -1;
  // where none were asked for, within the context; -1: up to the context's end
  int32_t default_max_tokens = -1;
  // the bound that holds of the two; -1: the context's end alone
  int32_t most_tokens() const { return max_tokens >= 0 ? max_tokens : default_max_tokens; }
  // before it no end-of-sequence, stop id or stop string ends the choice
  int32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;  // stop strings, matched on the generated text
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;

  // Top alternatives reported with each generated token: -1 none, 0 the chosen token alone, k > 0
  // the k best and the chosen one; kAllLogprobs: the whole vocabulary.
  int32_t logprobs = -1;
  // The same for prompt tokens (`echo` with logprobs); -1 none.
  int32_t prompt_logprobs = -1;
};
inline constexpr int32_t kAllLogprobs = INT32_MAX;

// One line of the input, tokenised. A request has prompts.size() * n choices; choice c continues
// prompt c / n.
struct Request {
  int64_t id = 0;  // unique in a run: its result comes back by it
  // The key of its draws where it has no seed: of a job's request the 0-based line in the input.
  int64_t line = 0;
  std::vector<std::vector<int32_t>> prompts;  // token ids, none empty
  // With prompt_logprobs, one a prompt: its log probabilities are wanted from this position on (>=
  // 1, before its end). Empty: of all. Rows before are found computed where others share them.
  std::vector<int32_t> prompt_logprobs_from;
  int32_t n = 1;  // choices a prompt, >= 1
  SamplingParams sampling;
  // Traces and replays: every choice ends after this many tokens, whatever is sampled (0: off; at
  // most max_tokens count). Only the engine's commit reads it, never a policy.
  int32_t ends_after = 0;
  // Nothing is generated: each prompt becomes a vector, of ModelFacts::vector_width numbers.
  bool pooled = false;
  bool stream = false;  // ResultSink::Progress is told of its tokens as they come
  Service service = Service::kBatch;
  // By when a batch wants the answer, in seconds since the run's begin; infinite: whenever.
  double deadline_seconds = std::numeric_limits<double>::infinity();
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm
  int32_t rank = 0;   // 1: the most likely token
};

// Alternatives of one position, most likely first; the position's own token is always among them:
// it is `chosen`, an index into `top`.
struct PositionLogprobs {
  std::vector<TokenLogprob> top;
  int32_t chosen = 0;
};

enum class FinishReason : uint8_t { kStop, kLength };

struct Choice {
  int32_t index = 0;
  std::vector<int32_t> tokens;  // generated ids, the one that stopped it included
  std::string text;             // their text, cut before a stop string
  FinishReason finish_reason = FinishReason::kLength;
  // stop reason, where a stop id or string (not EOS) ended it
  std::optional<int32_t> stop_token;
  std::optional<std::string> stop_string;
  std::vector<PositionLogprobs> logprobs;  // one a generated token, if asked for
  // ARCHITECTURE.md, "One request, one answer"; 0: off
  uint64_t digest = 0;
};

// What a choice has got since its last piece, of a request that streams. All pieces of a choice put
// together are its text, tokens and log probabilities. Text is held back while a stop string may
// still take it away, and until its last character is whole.
struct ChoicePiece {
  int64_t id = 0;      // the request's
  int32_t choice = 0;  // its index
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<PositionLogprobs> logprobs;  // one a token, if asked for
};

// What a request came to. Either `error_message` is empty and there is a choice for each asked, or
// it is set.
struct RequestResult {
  int64_t id = 0;  // the request's
  std::vector<Choice> choices;
  // One a prompt, if asked for; entry 0 (nothing comes before the first token) is empty.
  std::vector<std::vector<PositionLogprobs>> prompt_logprobs;
  std::vector<std::vector<float>> vectors;  // one a prompt, of a request that is pooled
  int64_t prompt_tokens = 0;                // all prompts, each counted once
  int64_t completion_tokens = 0;            // all choices
  // prompt tokens with KV from the prefix index; not part of the answer
  int64_t cached_tokens = 0;
  // When the first of its choices got its place, wherever that was, and when its first token was
  // known, on the runtime's clock; -1: never. Not part of the answer.
  int64_t admitted_ns = -1, first_token_ns = -1;
  int http_status = 200;   // 4xx or 5xx with an error
  std::string error_type;  // OpenAI's "type", e.g. "invalid_request_error"
  std::string error_message;
  std::string error_param;  // the parameter at fault, if one is
  std::string error_code;   // stable code
};

}  // namespace forebay
