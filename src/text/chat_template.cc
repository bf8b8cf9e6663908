#include "text/chat_template.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "text/chat_messages.h"
#include "text/jinja/json_reader.h"
#include "text/jinja/template.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

using base::Result;
using base::Status;
using jinja::Arena;
using jinja::Binding;
using jinja::Kind;
using jinja::Value;

// Stands at the end of a final message that the model is to go on with. Its last space shows
// whether the template trims messages.
constexpr std::string_view kContinueTag = "FOREBAY-GOES-ON-HERE-5b1f ";

// `json` as a value; None where there is no text. JSON errors name the field.
Result<Value> ReadField(Arena& arena, std::string_view json, std::string_view field) {
  if (json.empty()) return Value::None();
  Result<Value> value = jinja::ReadJson(arena, json);
  if (!value.ok()) return value.status().WithContext(field);
  return value;
}

// A list of objects, or None for null and for an empty list of tools.
Status CheckList(const Value& value, std::string_view field) {
  if (value.Is(Kind::kNone)) return Status::Ok();
  const bool ok =
      value.Is(Kind::kList) && std::all_of(value.items().begin(), value.items().end(),
                                           [](const Value& v) { return v.Is(Kind::kDict); });
  return ok ? Status::Ok()
            : Status(kChatToolsInvalid,
                     fmt::format("{} must be a list of objects, or null", field));
}

Status AddKwargs(const Value& kwargs, std::vector<Binding>* bindings) {
  if (kwargs.Is(Kind::kNone)) return Status::Ok();
  if (!kwargs.Is(Kind::kDict))
    return Status(kChatKwargsInvalid, "chat_template_kwargs must be an object");
  for (const jinja::DictEntry& entry : kwargs.dict().entries) {
    const std::string_view name = entry.key.text();
    for (const std::string_view taken : {"messages", "tools", "documents", "raise_exception",
                                         "strftime_now", "namespace", "range"}) {
      if (name == taken) {
        return Status(kChatKwargsInvalid,
                      fmt::format("chat_template_kwargs may not set '{}'", name));
      }
    }
    bindings->push_back({name, entry.value});
  }
  return Status::Ok();
}

std::vector<RenderedSegment> SegmentsOf(const jinja::Rendered& rendered, size_t size) {
  std::vector<RenderedSegment> segments;
  size_t begin = 0;
  for (size_t i = 0; i <= rendered.flips.size() && begin < size; ++i) {
    const size_t end = i < rendered.flips.size() ? std::min<size_t>(rendered.flips[i], size) : size;
    if (end > begin) segments.push_back({begin, end - begin, i % 2 == 0});
    begin = end;
  }
  return segments;
}

// How much of the text stays when it ends where the last message does.
Result<size_t> EndOfLastMessage(std::string_view text) {
  const std::string_view bare = kContinueTag.substr(0, kContinueTag.size() - 1);
  size_t at = text.rfind(bare);
  if (at == text.npos) {
    return Status(
        kChatMessagesInvalid,
        "continue_final_message: the chat template does not print the last message as it is");
  }
  if (text.substr(at, kContinueTag.size()) == kContinueTag) return at;
  const size_t end = text.substr(0, at).find_last_not_of(" \t\n\r\f\v");
  return end == text.npos ? 0 : end + 1;
}

}  // namespace

struct ChatTemplate::Parts {
  Parts(std::string text, jinja::Template parsed, size_t memory)
      : source(std::move(text)), jinja(std::move(parsed)), arena(memory) {}

  std::string source;
  jinja::Template jinja;
  MessageForm form;
  Arena arena;                    // holds the bindings below
  std::vector<Binding> bindings;  // the operator's
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Create(std::string source, const ChatTemplateOptions& options) {
  FB_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::Parse(source));
  size_t memory = 16 * options.kwargs_json.size() + (size_t{4} << 20);
  for (const auto& [name, text] : options.special_tokens) memory += name.size() + text.size();
  auto parts = std::make_unique<Parts>(std::move(source), std::move(parsed), memory);
  parts->form.keep_parts = parts->jinja.IteratesContent();
  for (const auto& [name, text] : options.special_tokens) {
    parts->bindings.push_back({parts->arena.Copy(name), Value::String(parts->arena.Copy(text))});
  }
  if (!options.kwargs_json.empty()) {
    const std::string_view json = parts->arena.Copy(options.kwargs_json);
    Result<Value> kwargs = jinja::ReadJson(parts->arena, json, jinja::Origin::kTemplate);
    if (!kwargs.ok()) return kwargs.status().WithContext("chat_template_kwargs");
    FB_RETURN_IF_ERROR(AddKwargs(*kwargs, &parts->bindings));
  }
  Parts* const unfinished = parts.get();
  ChatTemplate made(std::move(parts));
  made.AskForm(&unfinished->form);
  return made;
}

// A template that can print a call whose arguments are an object gets objects, and one that can do
// without a content beside the call gets none.
void ChatTemplate::AskForm(MessageForm* form) const {
  if (parts_->source.find("arguments") == std::string::npos) return;
  const auto renders = [&](std::string_view answer, const MessageForm& asked) {
    const std::string messages = fmt::format(
        R"([{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{{"id":"call00001",)"
        R"("type":"function","function":{{"name":"f","arguments":{{"a":"b"}}}}}}]}}{}])",
        answer);
    return Render({.messages_json = messages}, asked).ok();
  };
  // Some templates want an answer to each call; others fail on what they do not know.
  constexpr std::string_view kAnswers[] = {
      "", R"(,{"role":"tool","tool_call_id":"call00001","name":"f","content":"r"})"};
  MessageForm asked = *form;
  for (const bool fills_content : {false, true}) {
    for (const bool text_arguments : {false, true}) {
      asked.fills_content = fills_content;
      asked.text_arguments = text_arguments;
      for (const std::string_view answer : kAnswers) {
        if (!renders(answer, asked)) continue;
        *form = asked;
        return;
      }
    }
  }
}

Result<RenderedText> ChatTemplate::Render(const ChatInput& input) const {
  return Render(input, parts_->form);
}

Result<RenderedText> ChatTemplate::Render(const ChatInput& input, const MessageForm& form) const {
  if (input.continue_final_message && input.add_generation_prompt) {
    return Status(kChatMessagesInvalid,
                  "continue_final_message and add_generation_prompt exclude each other");
  }
  const jinja::Limits limits;
  const size_t input_bytes = input.messages_json.size() + input.tools_json.size() +
                             input.documents_json.size() + input.kwargs_json.size();
  Arena arena(limits.memory_bytes + 16 * input_bytes);
  FB_ASSIGN_OR_RETURN(Value messages, ReadField(arena, input.messages_json, "messages"));
  FB_ASSIGN_OR_RETURN(messages, PrepareMessages(arena, messages, input.style, form));
  if (input.continue_final_message) {
    FB_ASSIGN_OR_RETURN(messages, TagLastMessage(arena, messages, kContinueTag));
  }
  FB_ASSIGN_OR_RETURN(const Value tools, ReadField(arena, input.tools_json, "tools"));
  FB_RETURN_IF_ERROR(CheckList(tools, "tools"));
  FB_ASSIGN_OR_RETURN(const Value documents, ReadField(arena, input.documents_json, "documents"));
  FB_RETURN_IF_ERROR(CheckList(documents, "documents"));
  FB_ASSIGN_OR_RETURN(const Value kwargs,
                      ReadField(arena, input.kwargs_json, "chat_template_kwargs"));

  std::vector<Binding> bindings = parts_->bindings;
  bindings.push_back({"messages", messages});
  bindings.push_back({"tools", tools});
  bindings.push_back({"documents", documents});
  bindings.push_back({"add_generation_prompt", Value::Bool(input.add_generation_prompt)});
  FB_RETURN_IF_ERROR(AddKwargs(kwargs, &bindings));

  FB_ASSIGN_OR_RETURN(jinja::Rendered rendered,
                      parts_->jinja.Render(arena, bindings, input.now, limits));
  if (input.continue_final_message) {
    FB_ASSIGN_OR_RETURN(const size_t end, EndOfLastMessage(rendered.text));
    rendered.text.resize(end);
  }
  RenderedText result;
  result.segments = SegmentsOf(rendered, rendered.text.size());
  result.text = std::move(rendered.text);
  return result;
}

const std::vector<std::string>& ChatTemplate::missing() const { return parts_->jinja.missing(); }
bool ChatTemplate::uses_clock() const { return parts_->jinja.Uses("strftime_now"); }
bool ChatTemplate::iterates_content() const { return parts_->form.keep_parts; }
std::string_view ChatTemplate::source() const { return parts_->source; }

Result<std::tm> ParseClock(std::string_view text) {
  // YYYY-MM-DDThh:mm:ss
  static constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  bool ok = text.size() == kForm.size();
  for (size_t i = 0; ok && i < kForm.size(); ++i) {
    ok = kForm[i] == 'd' ? IsAsciiDigit(text[i]) : text[i] == kForm[i];
  }
  const auto number = [&](size_t at, size_t count) {
    int value = 0;
    for (size_t i = at; ok && i < at + count; ++i) value = value * 10 + (text[i] - '0');
    return value;
  };
  std::tm time = {};
  time.tm_year = number(0, 4) - 1900;
  time.tm_mon = number(5, 2) - 1;
  time.tm_mday = number(8, 2);
  time.tm_hour = number(11, 2);
  time.tm_min = number(14, 2);
  time.tm_sec = number(17, 2);
  const std::tm given = time;
  const std::time_t seconds = ok ? timegm(&time) : -1;  // fills in the weekday and day of the year
  ok = ok && gmtime_r(&seconds, &time) != nullptr && time.tm_mon == given.tm_mon &&
       time.tm_mday == given.tm_mday && time.tm_hour == given.tm_hour &&
       time.tm_min == given.tm_min && time.tm_sec == given.tm_sec;
  if (!ok) {
    return Status(base::kInvalidArgument,
                  fmt::format("'{}' is no time; expected one such as 2026-03-07T14:05:09", text));
  }
  return time;
}

Result<ChatTemplateSources> FindChatTemplates(std::string_view tokenizer_config_json) {
  constexpr char kWhere[] = "tokenizer_config.json";
  simdjson::dom::parser parser;
  FB_ASSIGN_OR_RETURN(const simdjson::dom::element config,
                      base::ParseJson(parser, tokenizer_config_json));
  ChatTemplateSources found;
  simdjson::dom::element value;
  std::string_view text, name;
  if (config.at_key("chat_template").get(value)) return found;
  if (!value.get(text)) {
    found.plain = {std::string(text), kWhere};
    found.names = {"default"};
    return found;
  }
  simdjson::dom::array list;
  if (value.get(list)) return found;
  for (const simdjson::dom::element item : list) {
    if (item["name"].get(name) || item["template"].get(text)) continue;
    found.names.emplace_back(name);
    ChatTemplateSources::Source source{std::string(text), fmt::format("{}, {}", kWhere, name)};
    if (name == "default") found.plain = std::move(source);
    if (name == "tool_use") found.with_tools = std::move(source);
  }
  return found;
}

}  // namespace forebay::text
