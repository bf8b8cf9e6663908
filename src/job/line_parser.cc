#include "job/line_parser.h"

#include <fmt/core.h>

#include <array>
#include <string_view>
#include <vector>

#include "job/line_errors.h"

namespace forebay::job {
namespace {

using simdjson::dom::element;

// A parser keeps buffers of some 14 bytes a byte of its longest line; after a longer one it is
// dropped.
constexpr size_t kLongLineBytes = 256 << 10;

constexpr std::string_view kChatUrl = "/v1/chat/completions";
constexpr std::string_view kCompletionUrl = "/v1/completions";

// The members of OpenAI's batch line.
struct Envelope {
  std::optional<element> custom_id, method, url, body;
};

std::optional<LineError> ReadEnvelope(const Envelope& envelope, Endpoint* endpoint,
                                      simdjson::dom::object* body) {
  std::string_view text;
  if (!envelope.custom_id) return Missing("custom_id", "a string");
  if (envelope.method) {
    if (envelope.method->get(text)) return WrongType("method", *envelope.method, "\"POST\"");
    if (text != "POST") return OutOfRange("method", *envelope.method, "\"POST\"");
  }
  if (!envelope.url)
    return Missing("url", fmt::format("\"{}\" or \"{}\"", kChatUrl, kCompletionUrl));
  if (envelope.url->get(text)) return WrongType("url", *envelope.url, "a string");
  if (text != kChatUrl && text != kCompletionUrl) {
    LineError error =
        OutOfRange("url", *envelope.url, fmt::format("\"{}\" or \"{}\"", kChatUrl, kCompletionUrl));
    error.http_status = 404;
    error.code = "invalid_url";
    return error;
  }
  *endpoint = text == kChatUrl ? Endpoint::kChat : Endpoint::kCompletion;
  if (!envelope.body) return Missing("body", "an object");
  if (envelope.body->get(*body)) return WrongType("body", *envelope.body, "an object");
  return std::nullopt;
}

}  // namespace

std::optional<LineError> LineParser::Parse(std::string* text, ParsedLine* line) {
  *line = ParsedLine();
  text->reserve(text->size() + simdjson::SIMDJSON_PADDING);
  element root;
  // The text has its padding, so simdjson need not copy it.
  const auto error = parser_.parse(text->data(), text->size(), false).get(root);
  std::optional<LineError> result;
  simdjson::dom::object object;
  if (error) {
    result = LineError{
        .message = fmt::format("the line is no valid JSON: {}", simdjson::error_message(error)),
        .code = "json_invalid"};
  } else if (root.get(object)) {
    result = LineError{.message = fmt::format("the line is {}; expected an object", Describe(root)),
                       .code = "invalid_type"};
  } else {
    result = ParseObject(object, line);
  }
  if (text->size() > kLongLineBytes) parser_ = simdjson::dom::parser();
  return result;
}

std::optional<LineError> LineParser::ParseObject(simdjson::dom::object object, ParsedLine* line) {
  Envelope envelope;
  std::optional<std::string> stranger;
  for (const auto member : object) {
    std::optional<element>* slot = member.key == "custom_id" ? &envelope.custom_id
                                   : member.key == "method"  ? &envelope.method
                                   : member.key == "url"     ? &envelope.url
                                   : member.key == "body"    ? &envelope.body
                                                             : nullptr;
    if (slot) {
      *slot = member.value.is_null() ? std::nullopt : std::optional<element>(member.value);
    } else if (!member.value.is_null() && !stranger) {
      stranger = Shorten(member.key);
    }
  }
  if (envelope.custom_id) {
    std::string_view text;
    if (envelope.custom_id->get(text))
      return WrongType("custom_id", *envelope.custom_id, "a string");
    line->custom_id = text;
  }
  if (!envelope.method && !envelope.url && !envelope.body) return ParseBody(object, true, line);
  if (stranger) {
    return LineError{
        .message = fmt::format(
            "unknown member `{}`; a batch line has `custom_id`, `method`, `url` and `body`",
            *stranger),
        .param = *stranger,
        .code = "unknown_parameter"};
  }
  simdjson::dom::object body;
  if (auto error = ReadEnvelope(envelope, &line->endpoint, &body)) return error;
  return ParseBody(body, false, line);
}

std::optional<LineError> LineParser::ParseBody(simdjson::dom::object body, bool is_convenience,
                                               ParsedLine* line) {
  const std::span<const Parameter> table = Parameters();
  std::vector<std::optional<element>> values(table.size());
  std::optional<std::string> unknown;
  for (const auto member : body) {
    if (is_convenience && member.key == "custom_id") continue;
    size_t row = 0;
    while (row < table.size() && table[row].name != member.key) ++row;
    const bool is_null = member.value.is_null();
    if (row < table.size()) {
      values[row] = is_null ? std::nullopt : std::optional<element>(member.value);
    } else if (!is_null && !unknown) {
      unknown = Shorten(member.key);
    }
  }
  const auto has = [&](std::string_view name) {
    for (size_t row = 0; row < table.size(); ++row) {
      if (table[row].name == name) return values[row].has_value();
    }
    return false;
  };
  if (is_convenience) {
    if (has("messages") == has("prompt")) {
      return InvalidValue(
          "messages",
          has("prompt")
              ? "the line has both `messages` and `prompt`; expected one of them"
              : "the line has none of `body`, `messages` and `prompt`; expected one of them");
    }
    line->endpoint = has("messages") ? Endpoint::kChat : Endpoint::kCompletion;
  }
  if (unknown) {
    return LineError{.message = fmt::format("unknown parameter `{}`", *unknown),
                     .param = *unknown,
                     .code = "unknown_parameter"};
  }

  const bool is_chat = line->endpoint == Endpoint::kChat;
  line->sampling = rules_.defaults;
  LineDraft draft{.rules = &rules_, .line = line};
  for (size_t row = 0; row < table.size(); ++row) {
    if (!values[row]) continue;
    if (!(table[row].endpoints & (is_chat ? kInChat : kInCompletion))) {
      return Unsupported(
          table[row].name,
          fmt::format("parameter `{}` belongs to {}, not to {}", table[row].name,
                      is_chat ? kCompletionUrl : kChatUrl, is_chat ? kChatUrl : kCompletionUrl));
    }
    if (auto error = Apply(table[row], *values[row], draft)) return error;
  }
  if (!has(is_chat ? "messages" : "prompt")) {
    return is_chat ? Missing("messages", "an array of messages")
                   : Missing("prompt", "text or token ids");
  }
  return Finish(draft);
}

}  // namespace forebay::job
