// A finished request -> its line in the results file, with the endpoint's full body
// (docs/formats/results-log.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "forebay/request.h"
#include "job/lines/parsed_line.h"
#include "job/lines/result_id.h"
#include "job/lines/text_pipeline.h"

namespace forebay::job {

// What all results of a job have in common.
struct ResultStyle {
  std::string model;
  std::string system_fingerprint;
  bool digests = false;  // --digest: each choice has "digest"
};

// A request's own part. `prompts` are the token ids of each prompt; they may be empty unless
// NeedsPromptTokens(line).
struct Answered {
  const ParsedLine& line;
  const std::vector<std::vector<int32_t>>& prompts;
  const RequestResult& result;
};

// Does the line's result show its prompts' tokens?
bool NeedsPromptTokens(const ParsedLine& line);
// Does it show them as the line gives them?
bool ShowsPrompts(const ParsedLine& line);

// Takes the string's first part away where it has become long.
using Drain = std::function<void(std::string* out)>;

// Appends the line, without LF. `created` is in seconds since 1970. `drain` (null: nobody takes
// anything away) is called now and then. REQUIRES: the result holds no error, and its choices are
// in the order of their indexes.
void AppendResult(const ResultStyle& style, const ResultId& id, int64_t created,
                  const Answered& answered, const TokenText& text, std::string* out,
                  const Drain& drain = nullptr);

// Appends the line of a request that failed: its 4xx or 5xx and OpenAI's error body; the top-level
// "error" is null.
void AppendErrorResult(const ResultId& id, const std::optional<std::string>& custom_id,
                       const LineError& error, std::string* out);

// An error of the engine's, as a line's.
LineError ToLineError(const RequestResult& result);

}  // namespace forebay::job
