#include "job/lines/line_parser.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "job/lines/line_errors.h"

namespace forebay::job {
namespace {

using simdjson::dom::element;

// A parser keeps buffers of some 14 bytes a byte of its longest line; after a longer one it is
// dropped.
constexpr size_t kLongLineBytes = 256 << 10;

// An endpoint: its URL, the parameter that it needs and is known by, and a further one that some
// need; with what they hold.
struct EndpointRow {
  Endpoint endpoint;
  std::string_view url, needs, expected, also = "", also_expected = "";
};
constexpr EndpointRow kEndpoints[] = {
    {Endpoint::kChat, "/v1/chat/completions", "messages", "an array of messages"},
    {Endpoint::kCompletion, "/v1/completions", "prompt", "text or token ids"},
    {Endpoint::kScore, "/v1/score", "text_1", "text or token ids", "text_2", "text or token ids"},
    // A score line with `continuations`.
    {Endpoint::kLikelihood, "/v1/score", "continuations", "a list of what may follow `prompt`",
     "prompt", "text or token ids"},
    {Endpoint::kEmbedding, "/v1/embeddings", "input", "text or token ids"},
    {Endpoint::kClassify, "/v1/classify", "input", "text or token ids"},
    {Endpoint::kRerank, "/v1/rerank", "query", "a string", "documents", "a list of strings"},
};

const EndpointRow& RowOf(Endpoint endpoint) {
  return *std::ranges::find(kEndpoints, endpoint, &EndpointRow::endpoint);
}

std::string AllUrls() {
  std::vector<std::string_view> urls;
  for (const EndpointRow& row : kEndpoints) {
    if (std::ranges::count(urls, row.url) == 0) urls.push_back(row.url);
  }
  return fmt::format("one of {}", fmt::join(urls, ", "));
}

// An endpoint as messages call it: its URL, and what tells it from another one of that URL.
std::string NameOf(const EndpointRow& row) {
  if (std::ranges::count(kEndpoints, row.url, &EndpointRow::url) == 1) return std::string(row.url);
  return fmt::format("{} with `{}`", row.url, row.needs);
}

LineError OfAnotherEndpoint(const Parameter& parameter, const EndpointRow& endpoint) {
  std::vector<std::string> owners;
  for (const EndpointRow& row : kEndpoints) {
    if (parameter.belongs_to(row.endpoint)) owners.push_back(NameOf(row));
  }
  return Unsupported(parameter.name,
                     fmt::format("parameter `{}` belongs to {}, not to {}", parameter.name,
                                 fmt::join(owners, " and "), NameOf(endpoint)));
}

// The members of OpenAI's batch line.
struct Envelope {
  std::optional<element> custom_id, method, url, body;
};

// The endpoint that a URL names, as clients write it: with or without a host, "/v1" and a slash at
// the end.
std::optional<Endpoint> EndpointOf(std::string_view url) {
  if (const size_t host = url.find("://"); host != std::string_view::npos) {
    const size_t path = url.find('/', host + 3);
    url = path == std::string_view::npos ? "" : url.substr(path);
  }
  if (url.ends_with('/')) url.remove_suffix(1);
  for (const EndpointRow& row : kEndpoints) {
    if (url == row.url || (url.starts_with('/') && url == row.url.substr(3))) return row.endpoint;
  }
  return std::nullopt;
}

std::optional<LineError> UnknownUrl(element url) {
  LineError error = OutOfRange("url", url, AllUrls());
  error.http_status = 404;
  error.code = "invalid_url";
  return error;
}

// Without a URL, as other vendors' batch files have it, the body says what it is.
template <typename Has>
std::optional<Endpoint> EndpointByBody(const Has& has) {
  const bool messages = has("messages"), prompt = has("prompt");
  if (!messages) {
    for (const Endpoint endpoint :
         {Endpoint::kLikelihood, Endpoint::kEmbedding, Endpoint::kScore, Endpoint::kRerank}) {
      if (has(RowOf(endpoint).needs)) return endpoint;
    }
    // One of two: the other is missed by its name.
    for (const Endpoint endpoint : {Endpoint::kScore, Endpoint::kRerank}) {
      if (!prompt && has(RowOf(endpoint).also)) return endpoint;
    }
  }
  if (messages == prompt) return std::nullopt;
  return messages ? Endpoint::kChat : Endpoint::kCompletion;
}

bool Has(simdjson::dom::object body, std::string_view name) {
  element value;
  return body.at_key(name).get(value) == simdjson::SUCCESS && !value.is_null();
}

std::optional<LineError> ReadEnvelope(const Envelope& envelope, Endpoint* endpoint,
                                      simdjson::dom::object* body) {
  std::string_view text;
  if (!envelope.custom_id) return Missing("custom_id", "a string");
  if (envelope.method) {
    if (envelope.method->get(text)) return WrongType("method", *envelope.method, "\"POST\"");
    if (text != "POST") return OutOfRange("method", *envelope.method, "\"POST\"");
  }
  std::optional<Endpoint> named;
  if (envelope.url) {
    if (envelope.url->get(text)) return WrongType("url", *envelope.url, "a string");
    named = EndpointOf(text);
    if (!named) return UnknownUrl(*envelope.url);
  }
  if (!envelope.body) return Missing("body", "an object");
  if (envelope.body->get(*body)) return WrongType("body", *envelope.body, "an object");
  if (!named) named = EndpointByBody([&](std::string_view name) { return Has(*body, name); });
  if (named == Endpoint::kScore && (Has(*body, "continuations") || Has(*body, "prompt")))
    named = Endpoint::kLikelihood;
  if (!named) return Missing("url", AllUrls());
  *endpoint = *named;
  return std::nullopt;
}

// Steps over a JSON string that begins at text[begin]; its end, or npos.
size_t EndOfString(std::string_view text, size_t begin) {
  for (size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

// The JSON text of the string `custom_id` of a line that is no valid JSON elsewhere; "" if there is
// none.
std::string_view FindCustomId(std::string_view text) {
  constexpr std::string_view kKey = "\"custom_id\"", kBlank = " \t";
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (text[i] != '"') continue;
    const size_t end = EndOfString(text, i);
    if (end == std::string_view::npos) return "";
    if (depth == 1 && text.substr(i, end - i) == kKey) {
      size_t value = text.find_first_not_of(kBlank, end);
      if (value == std::string_view::npos || text[value] != ':') return "";
      value = text.find_first_not_of(kBlank, value + 1);
      if (value == std::string_view::npos || text[value] != '"') return "";
      return text.substr(value, EndOfString(text, value) - value);
    }
    i = end - 1;
  }
  return "";
}

// Whether an escape names half of a character beyond 16 bits and the other half does not follow.
bool HasLoneSurrogate(std::string_view text) {
  const auto unit = [&](size_t i) {  // of \uXXXX at text[i], or 0
    unsigned value = 0;
    if (i + 6 > text.size() || text[i] != '\\' || text[i + 1] != 'u') return value;
    const char* const digits = text.data() + i + 2;
    return std::from_chars(digits, digits + 4, value, 16).ptr == digits + 4 ? value : 0;
  };
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] != '\\') continue;
    const unsigned first = unit(i);
    if (first >= 0xDC00 && first < 0xE000) return true;
    if (first >= 0xD800 && first < 0xDC00) {
      const unsigned second = unit(i + 6);
      if (second < 0xDC00 || second >= 0xE000) return true;
      i += 6;
    }
    ++i;
  }
  return false;
}

// Whether a number is written that JSON does not have, as Python's json writes it.
bool HasNoNumber(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      const size_t end = EndOfString(text, i);
      if (end == std::string_view::npos) return false;
      i = end - 1;
    } else if (text.substr(i).starts_with("NaN") || text.substr(i).starts_with("Infinity")) {
      return true;
    }
  }
  return false;
}

// What to write instead of a parameter that other programs have.
std::string_view InsteadOf(std::string_view parameter) {
  constexpr std::pair<std::string_view, std::string_view> kInstead[] = {
      {"extra_body", "its members belong beside the others"},
      {"max_new_tokens", "expected `max_tokens`"},
      {"max_output_tokens", "expected `max_tokens`"},
      {"max_length", "expected `max_tokens`"},
      {"do_sample", "`temperature` 0 is greedy, more than 0 samples"},
      {"num_return_sequences", "expected `n`"},
      {"stop_sequences", "expected `stop`"},
      {"system", "expected a message with the role system"},
  };
  const auto* const found =
      std::ranges::find(kInstead, parameter, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kInstead) ? "" : found->second;
}

LineError UnknownParameter(std::string_view name) {
  const std::string_view instead = InsteadOf(name);
  const std::string shown = Shorten(name);
  return {.message = fmt::format("unknown parameter `{}`{}{}", shown, instead.empty() ? "" : "; ",
                                 instead),
          .param = shown,
          .code = "unknown_parameter"};
}

}  // namespace

std::optional<LineError> LineParser::Parse(std::string* text, ParsedLine* line) {
  *line = ParsedLine();
  text->reserve(text->size() + simdjson::SIMDJSON_PADDING);
  element root;
  // A file that was joined of several has a BOM at the begin of later lines too.
  const size_t begin = text->starts_with("\xEF\xBB\xBF") ? 3 : 0;
  // The text has its padding, so simdjson need not copy it.
  const auto error = parser_.parse(text->data() + begin, text->size() - begin, false).get(root);
  std::optional<LineError> result;
  simdjson::dom::object object;
  if (error) {
    result = NoJson(*text, error, line);
  } else if (root.get(object)) {
    result = LineError{.message = fmt::format("the line is {}; expected an object", Describe(root)),
                       .code = "invalid_type"};
  } else {
    result = ParseObject(object, line);
  }
  if (text->size() > kLongLineBytes) parser_ = simdjson::dom::parser();
  return result;
}

LineError LineParser::NoJson(std::string_view text, simdjson::error_code error, ParsedLine* line) {
  const std::string why =
      HasLoneSurrogate(text) ? "an escape such as \\ud83d is half a character; expected a pair of "
                               "them, as a program that does not cut texts writes it"
      : HasNoNumber(text) ? "NaN and Infinity are no numbers of JSON; expected a number, or null "
                            "where there is none"
                          : simdjson::error_message(error);
  // The answer is found by it, so it is read where the rest cannot be.
  std::string_view id;
  const simdjson::padded_string json(FindCustomId(text));
  if (json.size() > 0 && !parser_.parse(json).get_string().get(id)) line->custom_id = id;
  return {.message = "the line is no valid JSON: " + why, .code = "json_invalid"};
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
      unknown = member.key;
    }
  }
  const auto has = [&](std::string_view name) {
    for (size_t row = 0; row < table.size(); ++row) {
      if (table[row].name == name) return values[row].has_value();
    }
    return false;
  };
  if (is_convenience) {
    const auto endpoint = EndpointByBody(has);
    if (!endpoint) {
      return InvalidValue(
          "messages",
          has("messages")
              ? "the line has both `messages` and `prompt`; expected one of them"
              : "the line has none of `body`, `messages`, `prompt`, `input`, `text_1` and `query`; "
                "expected one of them");
    }
    line->endpoint = *endpoint;
  }
  if (unknown) return UnknownParameter(*unknown);

  const EndpointRow& endpoint = RowOf(line->endpoint);
  // Two names of one thing: a line's own value holds, under either.
  const bool says_length = has("max_tokens") || has("max_completion_tokens");
  for (size_t row = 0; row < table.size(); ++row) {
    const Parameter& parameter = table[row];
    if (values[row] || !parameter.belongs_to(line->endpoint)) continue;
    if (says_length &&
        (parameter.name == "max_tokens" || parameter.name == "max_completion_tokens"))
      continue;
    values[row] = rules_.job_defaults.Find(parameter.name);
  }
  line->sampling = rules_.defaults;
  LineDraft draft{.rules = &rules_, .line = line};
  for (size_t row = 0; row < table.size(); ++row) {
    if (!values[row]) continue;
    if (!table[row].belongs_to(line->endpoint)) return OfAnotherEndpoint(table[row], endpoint);
    if (auto error = Apply(table[row], *values[row], draft)) return error;
  }
  if (!has(endpoint.needs)) return Missing(endpoint.needs, endpoint.expected);
  if (!endpoint.also.empty() && !has(endpoint.also))
    return Missing(endpoint.also, endpoint.also_expected);
  return Finish(draft);
}

}  // namespace forebay::job
