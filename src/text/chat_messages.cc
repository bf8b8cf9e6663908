#include "text/chat_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "text/jinja/json_reader.h"
#include "text/jinja/print.h"

namespace forebay::text {
namespace {

using base::Result;
using base::Status;
using jinja::Arena;
using jinja::DictEntry;
using jinja::Kind;
using jinja::Value;

Status Invalid(size_t index, const std::string& what) {
  return Status(kChatMessagesInvalid, fmt::format("messages[{}] {}", index, what));
}

std::string_view JsonTypeName(const Value& v) {
  switch (v.kind()) {
    case Kind::kNone: return "null";
    case Kind::kBool: return "a boolean";
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat: return "a number";
    case Kind::kString: return "a string";
    case Kind::kList: return "an array";
    default: return "an object";
  }
}

Value NewDict(Arena& arena, const std::vector<DictEntry>& entries) {
  const std::span<DictEntry> kept = arena.NewArray<DictEntry>(entries.size());
  std::copy(entries.begin(), entries.end(), kept.begin());
  return jinja::MakeDict(arena, kept);
}

Value NewList(Arena& arena, const std::vector<Value>& items) {
  return Value::Array(Kind::kList, arena.CopyArray(std::span<const Value>(items)));
}

Value* FindEntry(std::vector<DictEntry>& entries, std::string_view key) {
  for (DictEntry& entry : entries) {
    if (entry.key.text() == key) return &entry.value;
  }
  return nullptr;
}

// reasoning_content, thinking or reasoning, the first that is there, becomes the first two of them.
void NameReasoning(std::vector<DictEntry>& message) {
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = FindEntry(message, name);
    if (found == nullptr) continue;
    const Value reasoning = *found;
    if (FindEntry(message, "reasoning_content") == nullptr)
      message.push_back({Value::String("reasoning_content"), reasoning});
    if (FindEntry(message, "thinking") == nullptr)
      message.push_back({Value::String("thinking"), reasoning});
    return;
  }
}

// The text of a part, or an error for one that is no text.
Result<Value> PartText(size_t message, size_t index, const Value& part) {
  if (part.IsString()) return part;
  const std::string where = fmt::format("messages[{}].content[{}]", message, index);
  if (!part.Is(Kind::kDict)) {
    return Status(kChatMessagesInvalid, fmt::format("{} is {}; expected an object with a type",
                                                    where, JsonTypeName(part)));
  }
  const Value* type = Find(part.dict(), "type");
  if (type == nullptr || !type->IsString()) {
    return Status(kChatMessagesInvalid, fmt::format("{} has no type; expected \"text\"", where));
  }
  const std::string_view name = type->text();
  const bool is_text = name == "text" || name == "input_text" || name == "output_text";
  if (!is_text && name != "refusal") {
    return Status(kChatContentUnsupported,
                  fmt::format("{} is of type \"{}\"; the model takes text only", where, name));
  }
  const Value* text = Find(part.dict(), is_text ? "text" : "refusal");
  if (text == nullptr || !text->IsString()) {
    return Status(kChatMessagesInvalid, fmt::format("{} has no text; expected a string", where));
  }
  return *text;
}

// Content parts as one text, or as parts {"type": "text", "text": ...}.
Result<Value> PrepareParts(Arena& arena, size_t message, const Value& content, bool keep_parts) {
  std::vector<Value> texts;
  size_t size = 0;
  for (size_t i = 0; i < content.items().size(); ++i) {
    FB_ASSIGN_OR_RETURN(const Value text, PartText(message, i, content.items()[i]));
    size += text.text().size() + 1;
    texts.push_back(text);
  }
  if (keep_parts) {
    for (Value& text : texts) {
      text = NewDict(
          arena, {{Value::String("type"), Value::String("text")}, {Value::String("text"), text}});
    }
    return NewList(arena, texts);
  }
  if (texts.size() == 1) return texts[0];
  const std::span<char> joined = arena.NewArray<char>(size);
  size_t at = 0;
  for (const Value& text : texts) {
    if (at > 0) joined[at++] = '\n';
    at += text.text().copy(joined.data() + at, text.text().size());
  }
  return Value::String({joined.data(), at}, jinja::Origin::kRequest);
}

// As json.dumps writes it.
Result<Value> ToJson(Arena& arena, const Value& value) {
  try {
    jinja::Runtime runtime(arena, {}, {});
    jinja::TextBuilder out(runtime);
    jinja::PrintJson(runtime, value, {}, &out);
    return runtime.NewString(out.text(), jinja::Origin::kRequest);
  } catch (const jinja::Failure& failure) {
    return failure.status;
  }
}

// A call's arguments as the template wants them; null where the call has none.
Result<Value> PrepareArguments(Arena& arena, const Value* given, bool as_text) {
  const bool is_text = given != nullptr && given->IsString();
  const bool none = given == nullptr || given->Is(Kind::kNone) ||
                    (is_text && (given->text().empty() || given->text() == "null"));
  if (none) return as_text ? Value::String("{}") : NewDict(arena, {});
  if (as_text == is_text) return *given;
  if (as_text) return ToJson(arena, *given);
  FB_ASSIGN_OR_RETURN(const Value parsed, jinja::ReadJson(arena, given->text()));
  return parsed.Is(Kind::kNone) ? NewDict(arena, {}) : parsed;
}

Result<Value> PrepareToolCall(Arena& arena, size_t message, size_t index, const Value& call,
                              bool as_text) {
  const Value* function = call.Is(Kind::kDict) ? Find(call.dict(), "function") : nullptr;
  if (function == nullptr || !function->Is(Kind::kDict)) return call;
  Result<Value> arguments = PrepareArguments(arena, Find(function->dict(), "arguments"), as_text);
  if (!arguments.ok()) {
    return arguments.status().WithContext(
        fmt::format("messages[{}].tool_calls[{}].function.arguments", message, index));
  }
  const auto with = [&](const Value& dict, std::string_view key, const Value& value) {
    std::vector<DictEntry> entries(dict.dict().entries.begin(), dict.dict().entries.end());
    if (Value* entry = FindEntry(entries, key)) {
      *entry = value;
    } else {
      entries.push_back({Value::String(key), value});
    }
    return NewDict(arena, entries);
  };
  return with(call, "function", with(*function, "arguments", *arguments));
}

bool IsEmpty(const Value& value) {
  return (value.IsString() && value.text().empty()) ||
         (value.Is(Kind::kList) && value.items().empty()) ||
         (value.Is(Kind::kDict) && value.dict().entries.empty());
}

Status PrepareOpenAi(Arena& arena, size_t index, std::vector<DictEntry>& message,
                     const MessageForm& form) {
  std::erase_if(message, [](const DictEntry& entry) {
    const std::string_view key = entry.key.text();
    const bool optional =
        key == "tool_calls" || key == "function_call" || key == "refusal" || key == "audio";
    return optional && IsEmpty(entry.value);
  });
  if (Value* content = FindEntry(message, "content")) {
    if (content->Is(Kind::kList)) {
      FB_ASSIGN_OR_RETURN(*content, PrepareParts(arena, index, *content, form.keep_parts));
    } else if (!content->IsString()) {
      return Invalid(index,
                     fmt::format("has a content that is {}; expected a string or a list of parts",
                                 JsonTypeName(*content)));
    }
  }
  Value* calls = FindEntry(message, "tool_calls");
  if (calls == nullptr) return Status::Ok();
  if (!calls->Is(Kind::kList)) return Invalid(index, "has tool_calls that are no list");
  std::vector<Value> prepared;
  for (size_t i = 0; i < calls->items().size(); ++i) {
    FB_ASSIGN_OR_RETURN(const Value call,
                        PrepareToolCall(arena, index, i, calls->items()[i], form.text_arguments));
    prepared.push_back(call);
  }
  *calls = NewList(arena, prepared);
  if (form.fills_content && FindEntry(message, "content") == nullptr)
    message.push_back({Value::String("content"), Value::String("")});
  return Status::Ok();
}

}  // namespace

Result<Value> PrepareMessages(Arena& arena, const Value& messages, MessageStyle style,
                              const MessageForm& form) {
  if (!messages.Is(Kind::kList)) {
    return Status(kChatMessagesInvalid, fmt::format("messages is {}; expected a list of messages",
                                                    JsonTypeName(messages)));
  }
  if (messages.items().empty())
    return Status(kChatMessagesInvalid, "messages is empty; expected at least one message");
  const std::span<Value> prepared = arena.NewArray<Value>(messages.items().size());
  for (size_t i = 0; i < prepared.size(); ++i) {
    const Value& given = messages.items()[i];
    if (!given.Is(Kind::kDict))
      return Invalid(i, fmt::format("is {}; expected an object", JsonTypeName(given)));
    const Value* role = Find(given.dict(), "role");
    if (role == nullptr) return Invalid(i, "has no role");
    if (!role->IsString())
      return Invalid(i,
                     fmt::format("has a role that is {}; expected a string", JsonTypeName(*role)));
    std::vector<DictEntry> message;
    for (const DictEntry& entry : given.dict().entries) {
      if (!entry.value.Is(Kind::kNone)) message.push_back(entry);
    }
    NameReasoning(message);
    if (style == MessageStyle::kOpenAi) FB_RETURN_IF_ERROR(PrepareOpenAi(arena, i, message, form));
    prepared[i] = NewDict(arena, message);
  }
  return Value::Array(Kind::kList, prepared);
}

Result<Value> TagLastMessage(Arena& arena, const Value& messages, std::string_view tag) {
  const size_t last = messages.items().size() - 1;
  const auto tagged = [&](const Value& text) {
    return Value::String(arena.Copy(std::string(text.text()).append(tag)), jinja::Origin::kRequest);
  };
  std::vector<Value> all(messages.items().begin(), messages.items().end());
  const std::span<const DictEntry> given = all[last].dict().entries;
  std::vector<DictEntry> message(given.begin(), given.end());
  Value* content = FindEntry(message, "content");
  if (content != nullptr && content->IsString()) {
    *content = tagged(*content);
  } else {
    // The last part that has a text.
    std::vector<Value> parts;
    if (content != nullptr && content->Is(Kind::kList))
      parts.assign(content->items().begin(), content->items().end());
    const auto part = std::find_if(parts.rbegin(), parts.rend(), [](const Value& v) {
      const Value* text = v.Is(Kind::kDict) ? Find(v.dict(), "text") : nullptr;
      return text != nullptr && text->IsString();
    });
    if (part == parts.rend())
      return Invalid(last, "has no text to go on with (continue_final_message)");
    std::vector<DictEntry> entries(part->dict().entries.begin(), part->dict().entries.end());
    Value* text = FindEntry(entries, "text");
    *text = tagged(*text);
    *part = NewDict(arena, entries);
    *content = NewList(arena, parts);
  }
  all[last] = NewDict(arena, message);
  return NewList(arena, all);
}

}  // namespace forebay::text
