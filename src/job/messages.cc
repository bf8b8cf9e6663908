#include "job/messages.h"

#include <fmt/core.h>

#include <string_view>

#include "base/json.h"
#include "job/line_errors.h"

namespace forebay::job {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

// Calls append(i-th item) between commas.
template <typename Container, typename Append>
void AppendList(const Container& items, char open, char close, std::string* out, const Append& append) {
  out->push_back(open);
  bool first = true;
  for (const auto item : items) {
    if (!first) out->push_back(',');
    first = false;
    append(item);
  }
  out->push_back(close);
}

void AppendKey(std::string_view key, std::string* out) {
  base::AppendJsonString(out, key);
  out->push_back(':');
}

void AppendDouble(double value, std::string* out) {
  const size_t begin = out->size();
  base::JsonWriter(out).Double(value);
  if (out->find_first_of(".e", begin) == std::string::npos) *out += ".0";
}

LineError In(size_t message, LineError error) {
  error.message = fmt::format("messages[{}]: {}", message, error.message);
  error.param = "messages";
  return error;
}

// Joins the text parts of a message's content.
std::optional<LineError> JoinParts(simdjson::dom::array parts, std::string* text) {
  bool first = true;
  for (const element part : parts) {
    std::string_view type = "text", words;
    simdjson::dom::object object;
    if (part.is_string()) {
      words = part.get_string().value_unsafe();
    } else if (part.get(object)) {
      return WrongType("content", part, "text parts {\"type\":\"text\",\"text\":...}");
    } else if (const auto given = object["type"]; !given.error() && given.get(type)) {
      return WrongType("content[].type", given.value_unsafe(), "a string");
    } else if (type != "text") {
      return Unsupported("content", fmt::format("content parts of type \"{}\" are not supported; expected \"text\"", Shorten(type)));
    } else if (object["text"].get(words)) {
      return Missing("content[].text", "a string");
    }
    if (!first) text->push_back('\n');
    first = false;
    *text += words;
  }
  return std::nullopt;
}

std::optional<LineError> AppendContent(element content, std::string* out) {
  simdjson::dom::array parts;
  if (content.get(parts)) {
    if (!content.is_string() && !content.is_null()) return WrongType("content", content, "a string or a list of text parts");
    AppendJson(content, out);
    return std::nullopt;
  }
  std::string text;
  if (auto error = JoinParts(parts, &text)) return error;
  base::AppendJsonString(out, text);
  return std::nullopt;
}

// Longer `arguments` stay text: a second parse of a large line would cost another 15 bytes a byte.
constexpr size_t kMostArgumentBytes = 64 << 10;

// {"name", "arguments": JSON text or a value}
std::optional<LineError> AppendFunction(simdjson::dom::object function, std::string* out) {
  std::optional<LineError> error;
  AppendList(function, '{', '}', out, [&](const auto& member) {
    AppendKey(member.key, out);
    std::string_view text;
    if (member.key != "arguments" || member.value.get(text) || text.size() > kMostArgumentBytes) return AppendJson(member.value, out);
    simdjson::dom::parser parser;
    const auto parsed = base::ParseJson(parser, text.empty() ? "{}" : text);
    if (!parsed.ok()) error = InvalidValue("messages", "`tool_calls[].function.arguments` is no valid JSON");
    if (parsed.ok()) AppendJson(*parsed, out);
  });
  return error;
}

std::optional<LineError> AppendToolCalls(simdjson::dom::array calls, std::string* out) {
  std::optional<LineError> error;
  AppendList(calls, '[', ']', out, [&](element call) {
    simdjson::dom::object object;
    if (call.get(object)) return AppendJson(call, out);
    AppendList(object, '{', '}', out, [&](const auto& member) {
      AppendKey(member.key, out);
      simdjson::dom::object function;
      if (member.key != "function" || member.value.get(function)) return AppendJson(member.value, out);
      if (auto failed = AppendFunction(function, out)) error = std::move(failed);
    });
  });
  return error;
}

std::optional<LineError> AppendMessage(element message, std::string* out) {
  simdjson::dom::object object;
  if (message.get(object)) {
    return InvalidValue("messages", fmt::format("is {}; expected an object with `role` and `content`", Describe(message)));
  }
  bool has_role = false;
  std::optional<LineError> error;
  AppendList(object, '{', '}', out, [&](const auto& member) {
    if (error) return;
    AppendKey(member.key, out);
    simdjson::dom::array calls;
    if (member.key == "content") {
      error = AppendContent(member.value, out);
    } else if (member.key == "tool_calls" && !member.value.get(calls)) {
      error = AppendToolCalls(calls, out);
    } else {
      if (member.key == "role") has_role = member.value.is_string();
      AppendJson(member.value, out);
    }
  });
  if (!error && !has_role) return Missing("role", "a string");
  return error;
}

}  // namespace

void AppendJson(element value, std::string* out) {
  base::JsonWriter writer(out);
  switch (value.type()) {
    case element_type::ARRAY:
      AppendList(value.get_array().value_unsafe(), '[', ']', out, [&](element item) { AppendJson(item, out); });
      break;
    case element_type::OBJECT:
      AppendList(value.get_object().value_unsafe(), '{', '}', out, [&](const auto& member) {
        AppendKey(member.key, out);
        AppendJson(member.value, out);
      });
      break;
    case element_type::STRING: writer.String(value.get_string().value_unsafe()); break;
    case element_type::INT64: writer.Int(value.get_int64().value_unsafe()); break;
    case element_type::UINT64: writer.UInt(value.get_uint64().value_unsafe()); break;
    case element_type::DOUBLE: AppendDouble(value.get_double().value_unsafe(), out); break;
    case element_type::BOOL: writer.Bool(value.get_bool().value_unsafe()); break;
    case element_type::NULL_VALUE: writer.Null(); break;
  }
}

std::optional<LineError> AppendMessages(element messages, std::string* out) {
  simdjson::dom::array array;
  if (messages.get(array)) return WrongType("messages", messages, "an array of messages");
  if (array.begin() == array.end()) return InvalidValue("messages", "`messages` is empty; expected at least one message");
  size_t index = 0;
  std::optional<LineError> error;
  AppendList(array, '[', ']', out, [&](element message) {
    if (error) return;
    if (auto failed = AppendMessage(message, out)) error = In(index, std::move(*failed));
    ++index;
  });
  return error;
}

}  // namespace forebay::job
