// Any bytes as a line of the input.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "job/lines/line_parser.h"
#include "job/lines/result_format.h"

using namespace forebay;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static job::LineParser parser({.model_names = {"tiny"}, .vocab_size = 1000, .max_logprobs = 20});
  static simdjson::dom::parser checker;
  std::string text(reinterpret_cast<const char*>(data), size);
  job::ParsedLine line;
  if (const auto error = parser.Parse(&text, &line)) {
    FB_CHECK(error->http_status >= 400 && error->http_status < 500 && !error->message.empty(), "{}",
             error->http_status);
    FB_CHECK(error->message.size() < 1000, "an error of {} bytes", error->message.size());
    std::string result;
    job::AppendErrorResult({1, {}}, line.custom_id, *error, &result);
    FB_CHECK(base::ParseJson(checker, result).ok(), "{}", result);
    return 0;
  }
  const SamplingParams& s = line.sampling;
  FB_CHECK(s.temperature >= 0 && s.temperature <= 2 && s.top_p >= 0 && s.top_p <= 1 && s.top_k >= 0,
           "a value out of range");
  FB_CHECK(s.min_p >= 0 && s.min_p <= 1 && s.repetition_penalty > 0 && line.n >= 1,
           "a value out of range");
  FB_CHECK(s.max_tokens >= -1 &&
               (s.max_tokens != 0 || line.echo || s.prompt_logprobs >= 0 ||
                job::IsPooled(line.endpoint)) &&
               s.min_tokens >= 0,
           "max_tokens {}", s.max_tokens);
  if (line.endpoint == job::Endpoint::kChat) {
    FB_CHECK(base::ParseJson(checker, line.chat.messages).ok(), "{}", line.chat.messages);
  } else {
    FB_CHECK(!line.prompts.empty(), "no prompt");
  }
  return 0;
}
