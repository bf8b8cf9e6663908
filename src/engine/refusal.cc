#include "engine/refusal.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/choices/sequence.h"

namespace forebay::engine {
namespace {

RequestResult BadRequest(const Request& request, std::string code, std::string param,
                         std::string message) {
  RequestResult result;
  result.id = request.id;
  result.http_status = 400;
  result.error_type = "invalid_request_error";
  result.error_code = std::move(code);
  result.error_param = std::move(param);
  result.error_message = std::move(message);
  return result;
}

int64_t MostLogprobBytes(const Request& request, const ModelFacts& facts) {
  const SamplingParams& params = request.sampling;
  int64_t read = 0, generated = 0;
  for (const std::vector<int32_t>& prompt : request.prompts) {
    const auto length = static_cast<int64_t>(prompt.size());
    const int64_t room = facts.max_model_len - length, most = params.most_tokens();
    read += length;
    generated += request.n * (most < 0 ? room : std::min(room, most));
  }
  // Who asks for all tokens' gets as many as there are.
  const auto alternatives = [&](int32_t asked) { return std::min(asked, facts.vocab_size); };
  return LogprobBytes(read, alternatives(params.prompt_logprobs)) +
         LogprobBytes(generated, alternatives(params.logprobs));
}

}  // namespace

std::optional<RequestResult> RefusalOf(const Request& request, const ModelFacts& facts) {
  if (!request.pooled && !facts.generates) {
    return BadRequest(request, "model_generates_nothing", "",
                      "the model has no head of tokens, and generates no text; expected a line of "
                      "/v1/embeddings, /v1/classify, /v1/score or /v1/rerank");
  }
  if (request.pooled && facts.vector_width == 0) {
    return BadRequest(request, "pooling_missing", "input",
                      "the model makes no vectors: it has no modules.json beside it that says how; "
                      "expected --pooling last, first or mean");
  }
  for (const std::vector<int32_t>& prompt : request.prompts) {
    if (prompt.empty())
      return BadRequest(request, "prompt_empty", "prompt",
                        "the prompt has no tokens; expected at least one");
    for (const int32_t token : prompt) {
      if (token >= 0 && token < facts.vocab_size) continue;
      return BadRequest(
          request, "token_out_of_vocabulary", "prompt",
          fmt::format("token id {} is outside the vocabulary of {}", token, facts.vocab_size));
    }
    const auto length = static_cast<int64_t>(prompt.size());
    const int64_t asked = request.sampling.max_tokens;
    const int64_t least = asked == 0 ? 0 : 1;
    if (length + std::max(asked, least) <= facts.max_model_len) continue;
    const bool fits_alone = length + least <= facts.max_model_len;
    std::string wanted;
    if (asked > 0 && fits_alone) wanted = fmt::format(" and {} tokens of output", asked);
    if (asked != 0 && !fits_alone) wanted = ", and the output at least one";
    return BadRequest(
        request, "context_length_exceeded", fits_alone ? "max_tokens" : "prompt",
        fmt::format("This model's maximum context length is {} tokens. However, the "
                    "{} has {} tokens{}. Shorten it or {}.",
                    facts.max_model_len, request.pooled ? "text" : "prompt", length, wanted,
                    fits_alone ? "lower max_tokens" : "set truncate_prompt_tokens"));
  }
  const auto outside = [&](std::string param, int32_t token) {
    std::string message = fmt::format("{} names token id {}, outside the vocabulary of {}", param,
                                      token, facts.vocab_size);
    return BadRequest(request, "token_out_of_vocabulary", std::move(param), std::move(message));
  };
  if (const int64_t bytes = MostLogprobBytes(request, facts); bytes > kMostLogprobBytes) {
    return BadRequest(
        request, "logprobs_too_many", "logprobs",
        fmt::format("the log probabilities of this request may take {} of memory; expected at most "
                    "{}: ask for fewer choices, prompts or alternatives, or lower max_tokens",
                    base::FormatBytes(static_cast<uint64_t>(bytes)),
                    base::FormatBytes(static_cast<uint64_t>(kMostLogprobBytes))));
  }
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    if (token < 0 || token >= facts.vocab_size) return outside("logit_bias", token);
  }
  for (const int32_t token : request.sampling.allowed_token_ids) {
    if (token < 0 || token >= facts.vocab_size) return outside("allowed_token_ids", token);
  }
  for (size_t i = 0; i < request.prompt_logprobs_from.size(); ++i) {
    const int64_t from = request.prompt_logprobs_from[i], length = std::ssize(request.prompts[i]);
    if (from < length) continue;
    return BadRequest(request, "invalid_value", "prompt_logprobs_from",
                      fmt::format("`prompt_logprobs_from` is {}, and the prompt has {} tokens; "
                                  "expected at most {}",
                                  from, length, length - 1));
  }
  return std::nullopt;
}

}  // namespace forebay::engine
