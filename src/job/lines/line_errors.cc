#include "job/lines/line_errors.h"

#include <fmt/core.h>

#include "base/json.h"
#include "job/lines/messages.h"

namespace forebay::job {
namespace {

constexpr size_t kMostShown = 40;

std::string_view TypeName(simdjson::dom::element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::ARRAY: return "an array";
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "a boolean";
    case simdjson::dom::element_type::NULL_VALUE: return "null";
    default: return "a number";
  }
}

}  // namespace

std::string Shorten(std::string_view text) {
  if (text.size() <= kMostShown) return std::string(text);
  size_t end = kMostShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string Describe(simdjson::dom::element value) {
  if (value.is_array() || value.is_object() || value.is_null()) return std::string(TypeName(value));
  if (value.is_string()) {
    std::string quoted;
    base::AppendJsonString(&quoted, Shorten(value.get_string().value_unsafe()));
    return quoted + " (a string)";
  }
  std::string text;
  AppendJson(value, &text);
  return value.is_bool() ? text + " (a boolean)" : text;
}

LineError WrongType(std::string_view param, simdjson::dom::element found,
                    std::string_view expected) {
  return {.message = fmt::format("`{}` is {}; expected {}", param, Describe(found), expected),
          .param = std::string(param),
          .code = "invalid_type"};
}

LineError OutOfRange(std::string_view param, simdjson::dom::element found,
                     std::string_view expected) {
  LineError error = WrongType(param, found, expected);
  error.code = "invalid_value";
  return error;
}

LineError InvalidValue(std::string_view param, std::string message) {
  return {.message = std::move(message), .param = std::string(param), .code = "invalid_value"};
}

LineError Missing(std::string_view param, std::string_view expected) {
  return {.message = fmt::format("`{}` is missing; expected {}", param, expected),
          .param = std::string(param),
          .code = "missing_required_parameter"};
}

LineError Unsupported(std::string_view param, std::string_view what) {
  return {
      .message = std::string(what), .param = std::string(param), .code = "unsupported_parameter"};
}

}  // namespace forebay::job
