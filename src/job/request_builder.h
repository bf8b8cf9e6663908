// From a line of the input to a request that the engine takes, or to the error that its result
// reports.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "forebay/engine.h"
#include "job/files/job_file.h"
#include "job/lines/line_parser.h"
#include "job/lines/text_pipeline.h"

namespace forebay::job {

struct BuiltLine {
  ParsedLine line;
  Request request;
  std::optional<LineError> error;  // then `line` has custom_id alone and `request` nothing
};

// Parses a line's text, tokenizes, and asks the engine whether it would take the request. For one
// thread.
class RequestParser {
 public:
  // Without an engine nobody is asked.
  RequestParser(RequestRules rules, TextPipeline& text, const Engine* engine)
      : ends_at_context_(rules.ends_at_context),
        context_(rules.context),
        parser_(std::move(rules)),
        text_(text),
        engine_(engine) {}

  // `line` becomes the request's id and the key of its draws. `text` may grow its capacity.
  BuiltLine Parse(std::string* text, int64_t line);
  // Its two halves, for requests that differ in their prompts alone: what is asked for; tokens, and
  // the engine's word.
  std::optional<LineError> Read(std::string* text, ParsedLine* parsed) {
    return parser_.Parse(text, parsed);
  }
  BuiltLine Build(ParsedLine parsed, int64_t line);

 private:
  // A stop string that spells a special token never shows in a text without such tokens: the token
  // itself stops.
  void StopAtSpecialTokens(SamplingParams* sampling) const;
  std::optional<LineError> BanWords(const ParsedLine& line, SamplingParams* sampling);
  std::optional<LineError> Tokenize(const ParsedLine& line, Request* request);
  std::optional<LineError> AddPrompt(base::Result<std::vector<int32_t>> ids, std::string_view param,
                                     Request* request) const;
  std::optional<LineError> AddContinuations(const ParsedLine& line, Request* request);
  std::optional<LineError> AddTexts(const ParsedLine& line, Request* request);
  // By `truncate_prompt_tokens`, which leaves room for an answer's token at least; 0: all, or
  // nobody knows, or none fits, which the engine says.
  int64_t MostPromptTokens(const ParsedLine& line, const Request& request) const;
  // Cuts the prompts from the `first` one on.
  std::optional<LineError> Truncate(const ParsedLine& line, size_t first, Request* request) const;
  // Whether the engine refuses the request for its last prompt, so that no other one is needed: a
  // short line may name a long text again and again.
  bool IsRefused(const ParsedLine& line, const Request& request) const;

  // The engine speaks of prompts; a line's error names what the line has in their place.
  LineError ErrorOf(const RequestResult& refusal, const ParsedLine& line,
                    const Request& request) const;

  // What the line wants of vectors, as far as the model decides it.
  void CheckVectors(BuiltLine* built) const;
  void EndAtContext(Request* request) const;

  const bool ends_at_context_;
  const int64_t context_;  // without an engine
  LineParser parser_;
  TextPipeline& text_;
  const Engine* const engine_;
};

// The error of a line that is too long to be read; nothing where it is not.
std::optional<LineError> TooLong(const LineEntry& entry);

// The same of a file's lines.
class RequestBuilder {
 public:
  RequestBuilder(const JobFile& file, RequestRules rules, TextPipeline& text, const Engine* engine)
      : file_(file), parser_(std::move(rules), text, engine) {}

  // An error here ends the job: the file cannot be read, or changed.
  base::Result<BuiltLine> Build(size_t ordinal);

 private:
  const JobFile& file_;
  RequestParser parser_;
  std::string buffer_;
};

}  // namespace forebay::job
