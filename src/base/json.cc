#include "base/json.h"

namespace forebay::base {

Result<simdjson::dom::element> ParseJson(simdjson::dom::parser& parser, std::string_view text) {
  simdjson::dom::element element;
  const auto error = parser.parse(text.data(), text.size()).get(element);
  if (error)
    return Status(kJsonInvalid, fmt::format("invalid JSON: {}", simdjson::error_message(error)));
  return element;
}

Result<simdjson::dom::element> ParseJsonFile(simdjson::dom::parser& parser, const std::string& path,
                                             uint64_t max_bytes) {
  FB_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, max_bytes));
  auto parsed = ParseJson(parser, content);
  if (!parsed.ok()) return parsed.status().WithContext(path);
  return parsed;
}

}  // namespace forebay::base
