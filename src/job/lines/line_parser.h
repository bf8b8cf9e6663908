// One line of the input -> what it asks for, or the error that its result line reports.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "job/lines/parameters.h"
#include "job/lines/parsed_line.h"

namespace forebay::job {

// Owns a JSON parser that the next line reuses; one for each thread. Allocates at most 16 bytes a
// byte of the line, and keeps no more than a few MB between lines.
//
// A line is OpenAI's {"custom_id","method","url","body"}, or, for convenience, the body alone with
// an optional "custom_id". Without a "url" the endpoint is the one that has "messages" or "prompt".
// Where an object repeats a member, the last one counts; null means absent.
class LineParser {
 public:
  explicit LineParser(RequestRules rules) : rules_(std::move(rules)) {}

  // Fills `line`; on an error custom_id alone (where it can be read). `text` may grow its capacity.
  std::optional<LineError> Parse(std::string* text, ParsedLine* line);

 private:
  // The error of a line that is no JSON; its custom_id is taken where it can be found.
  LineError NoJson(std::string_view text, simdjson::error_code error, ParsedLine* line);
  std::optional<LineError> ParseObject(simdjson::dom::object object, ParsedLine* line);
  std::optional<LineError> ParseBody(simdjson::dom::object body, bool is_convenience,
                                     ParsedLine* line);

  const RequestRules rules_;
  simdjson::dom::parser parser_;
};

}  // namespace forebay::job
