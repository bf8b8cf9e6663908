// What one line of the input asks for, before its text becomes tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "forebay/labels.h"
#include "forebay/request.h"

namespace forebay::job {

// kLikelihood: how likely a model finds given continuations of a prompt. kEmbedding: a vector of
// each text; kClassify: what the model's head says of each; kScore and kRerank: how near texts are
// to others, or what the head says of the pairs.
enum class Endpoint : uint8_t {
  kChat,
  kCompletion,
  kLikelihood,
  kEmbedding,
  kClassify,
  kScore,
  kRerank
};
inline bool IsPooled(Endpoint endpoint) { return endpoint >= Endpoint::kEmbedding; }

// What becomes of pooled prompts.
struct VectorStyle {
  int32_t dimensions = 0;  // of a vector's begin; 0: all
  // Vectors have length 1; nothing: as the model says.
  std::optional<bool> normalize;
  bool base64 = false;
  int32_t queries = 0;  // so many of the line's prompts are compared with the others
  int32_t top_n = 0;    // so many of the nearest are shown; 0: all
  // Of the model's head; null: it has none.
  std::shared_ptr<const Labels> labels;
  bool activation = true;  // its numbers become scores by the labels' rule; false: they are scores

  bool pairs() const { return labels != nullptr && queries > 0; }
};

// A chat's prompt as JSON text, for the template; empty where the request has none.
struct ChatPrompt {
  std::string messages;              // an array, not empty
  std::string tools;                 // an array
  std::string documents;             // an array
  std::string chat_template_kwargs;  // an object
  std::string reasoning_effort;      // a variable of the template; "": none
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;
};

// A completion's prompt: text, or token ids (never none).
using Prompt = std::variant<std::string, std::vector<int32_t>>;

// docs/formats/requests.md lists every parameter.
struct ParsedLine {
  std::optional<std::string> custom_id;
  Endpoint endpoint = Endpoint::kCompletion;
  ChatPrompt chat;  // kChat
  // kCompletion; kLikelihood: one; kEmbedding, kClassify; kScore, kRerank: queries, then texts
  std::vector<Prompt> prompts;
  VectorStyle vectors;
  // kLikelihood: of the prompt's kind, text or ids
  std::vector<Prompt> continuations;
  bool add_special_tokens = true;

  int32_t n = 1;
  SamplingParams sampling;
  std::vector<std::string> bad_words;
  // A prompt's last so many tokens stay; 0: all, -1: as many as the context has room for.
  int32_t truncate_prompt_tokens = 0;
  bool echo = false;
  std::optional<int32_t> report_prompt_logprobs;  // `prompt_logprobs`, shown apart from echo's
  int32_t prompt_logprobs_from = 0;               // position in the prompt; 0 is 1
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
  std::optional<Service> service;  // as `service_tier` says
};

// Why a line has no answer: what a client of the API would get.
struct LineError {
  int http_status = 400;
  std::string message;
  std::string param;  // empty: none is at fault
  std::string code;   // stable
  std::string type = "invalid_request_error";
};

}  // namespace forebay::job
