#include "trace/output_lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/json.h"
#include "job/lines/result_id.h"

namespace forebay::trace {
namespace {

struct ResultLength {
  int64_t line = 0;
  int64_t tokens = 0;  // a choice; 0: none
};

// Nothing where the document is no result.
std::optional<ResultLength> LengthOf(simdjson::dom::element result) {
  std::string_view id;
  int64_t status = 0, tokens = 0;
  if (result["id"].get(id) || result["response"]["status_code"].get(status)) return std::nullopt;
  const auto parsed = job::ParseResultId(id);
  if (!parsed) return std::nullopt;
  ResultLength length{.line = parsed->line - 1};
  if (status >= 400) return length;
  simdjson::dom::array choices;
  if (result["response"]["body"]["usage"]["completion_tokens"].get(tokens) ||
      result["response"]["body"]["choices"].get(choices)) {
    return std::nullopt;
  }
  const auto count = static_cast<int64_t>(choices.size());
  if (tokens < 0 || tokens > INT32_MAX || (count == 0 && tokens > 0)) return std::nullopt;
  if (count > 0) length.tokens = (tokens + count - 1) / count;
  return length;
}

}  // namespace

base::Result<OutputLengths> ReadOutputLengths(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return base::Status(base::kIoError,
                        fmt::format("{}: cannot open the results: {}", path, std::strerror(errno)));
  OutputLengths lengths;
  simdjson::dom::parser parser;
  int64_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (file.eof()) break;
    const auto parsed = base::ParseJson(parser, text);
    const auto length = parsed.ok() ? LengthOf(*parsed) : std::nullopt;
    if (!length) {
      return base::Status(
          kOutputLengthsInvalid,
          fmt::format(
              "{}: line {}: no result of forebay run; expected a line of its results file, with "
              "response.body.usage.completion_tokens",
              path, number));
    }
    if (length->tokens > 0) lengths[length->line] = static_cast<int32_t>(length->tokens);
  }
  if (file.bad())
    return base::Status(base::kIoError,
                        fmt::format("{}: cannot read the results: {}", path, std::strerror(errno)));
  return lengths;
}

}  // namespace forebay::trace
