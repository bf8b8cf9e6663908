// The table of request parameters: name, endpoint, type, range, where the value goes.
// docs/formats/requests.md is the same table for people; a test keeps the two equal.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "job/lines/job_defaults.h"
#include "job/lines/parsed_line.h"

namespace forebay::job {

// What OpenAI's completions endpoint generates where the request does not say.
inline constexpr int32_t kCompletionTokens = 16;

// What the engine and the flags say about every request.
struct RequestRules {
  // generation_config.json's where it has any, else the API's
  SamplingParams defaults;
  JobDefaults job_defaults;  // --defaults: of all that a line leaves out
  // one of which `model` must name, as the last part of a path; none, or "*" among them: any string
  std::vector<std::string> model_names;
  int32_t vocab_size = 0;
  int32_t max_logprobs = 20;  // --max-logprobs; -1: up to the whole vocabulary
  // `max_tokens` beyond the context ends there, as vLLM's LLM has it; else it is refused, as
  // OpenAI's API does.
  bool ends_at_context = false;
  // Tokens of a prompt and its answer at most, where no engine says how many; 0: nobody knows.
  int64_t context = 0;
  std::shared_ptr<const Labels> labels;  // of the model's head; null: it has none
};

// A line on its way through the table, with what must be seen whole before it makes sense.
struct LineDraft {
  const RequestRules* rules = nullptr;
  ParsedLine* line = nullptr;
  std::optional<int32_t> max_tokens, max_completion_tokens, best_of, logprobs, top_logprobs;
  bool chat_logprobs = false;
};

using FloatField = float& (*)(LineDraft&);
using BoolField = bool& (*)(LineDraft&);
using IntField = void (*)(LineDraft&, int64_t);
using Special = std::optional<LineError> (*)(LineDraft&, simdjson::dom::element);
struct Ignored {};  // accepted, whatever it holds
// Refused, but for the value (as JSON) that asks for nothing.
struct Refused {
  std::string_view harmless = "";
};

enum EndpointSet : uint8_t {
  kInChat = 1 << static_cast<int>(Endpoint::kChat),
  kInCompletion = 1 << static_cast<int>(Endpoint::kCompletion),
  kInLikelihood = 1 << static_cast<int>(Endpoint::kLikelihood),
  kInEmbedding = 1 << static_cast<int>(Endpoint::kEmbedding),
  kInClassify = 1 << static_cast<int>(Endpoint::kClassify),
  kInScore = 1 << static_cast<int>(Endpoint::kScore),
  kInRerank = 1 << static_cast<int>(Endpoint::kRerank),
  kInHeads = kInClassify | kInScore | kInRerank,
  kInVectors = kInEmbedding | kInHeads,
  kInBoth = kInChat | kInCompletion,
  kInPrompts = kInCompletion | kInLikelihood,
  kInTokens = kInBoth | kInLikelihood,
  kInAll = kInTokens | kInVectors,
};

struct Parameter {
  std::string_view name;
  EndpointSet endpoints;
  std::variant<FloatField, IntField, BoolField, Special, Ignored, Refused> target;
  double min = 0, max = 0;  // bounds of numbers
  bool above_min = false;   // min itself is out of range

  bool belongs_to(Endpoint endpoint) const { return endpoints >> static_cast<int>(endpoint) & 1; }
};

std::span<const Parameter> Parameters();

// Puts one value, which is not null, where it belongs.
std::optional<LineError> Apply(const Parameter& parameter, simdjson::dom::element value,
                               LineDraft& draft);

// Checks that need several parameters, and the defaults that depend on the endpoint.
std::optional<LineError> Finish(LineDraft& draft);

}  // namespace forebay::job
