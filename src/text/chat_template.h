// A model's chat template: from a request's messages to the text of its prompt, which remembers
// what the request wrote and what the template did.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace forebay::text {

// Each is the request's fault. Errors of the template itself are in text/jinja/errors.h, and those
// of malformed JSON are base::kJsonInvalid.
inline constexpr base::ErrorCode kChatMessagesInvalid{"chat_messages_invalid"};
inline constexpr base::ErrorCode kChatContentUnsupported{"chat_content_unsupported"};
inline constexpr base::ErrorCode kChatToolsInvalid{"chat_tools_invalid"};
inline constexpr base::ErrorCode kChatKwargsInvalid{"chat_kwargs_invalid"};
// tokenizer_config.json holds no usable template.
inline constexpr base::ErrorCode kChatTemplateMissing{"chat_template_missing"};

// Bytes [offset, offset + length) of a rendered text. Only trusted text may become special tokens.
struct RenderedSegment {
  size_t offset, length;
  bool trusted;  // the template or the operator wrote it, not the request
};

struct RenderedText {
  std::string text;
  std::vector<RenderedSegment> segments;  // in order, none empty, together the whole text
};

enum class MessageStyle : uint8_t {
  // As OpenAI's API means messages, and vLLM hands them to templates. A content of text parts
  // becomes one text, joined by newlines, unless the template loops over parts; parts that are no
  // text are refused. Arguments of tool calls, JSON in a string, become objects, unless the
  // template takes text alone.
  kOpenAi,
  // As transformers' apply_chat_template: the template sees what is there.
  kAsGiven,
};

struct MessageForm;  // text/chat_messages.h

// JSON of the request; empty text means that there is none.
struct ChatInput {
  std::string_view messages_json;
  std::string_view tools_json;
  std::string_view documents_json;
  std::string_view kwargs_json;  // further variables of the template; they count as the request's
  bool add_generation_prompt = false;
  // The last message is left open, for the model to go on with. Excludes add_generation_prompt.
  bool continue_final_message = false;
  MessageStyle style = MessageStyle::kOpenAi;
  std::tm now = {};  // what strftime_now reads; ParseClock makes one
};

struct ChatTemplateOptions {
  // Variables such as {"bos_token", "<s>"}. Tokens that the model lacks are left out: they are
  // undefined.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // A JSON object of variables that the operator sets; a request's kwargs override them. They are
  // trusted.
  std::string kwargs_json;
};

class ChatTemplate {
 public:
  static base::Result<ChatTemplate> Create(std::string source, const ChatTemplateOptions& options);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Threads may call it at once. It takes up to 512 KiB of stack.
  base::Result<RenderedText> Render(const ChatInput& input) const;

  // Filters and tests that it names and nobody knows; a chat that comes to one fails.
  const std::vector<std::string>& missing() const;
  // True if the rendered text may depend on the clock.
  bool uses_clock() const;
  // True if the template loops over the parts of a message's content itself.
  bool iterates_content() const;
  std::string_view source() const;

 private:
  struct Parts;
  base::Result<RenderedText> Render(const ChatInput& input, const MessageForm& form) const;
  void AskForm(MessageForm* form) const;
  explicit ChatTemplate(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

// "2026-03-07T14:05:09" as a calendar time; kInvalidArgument otherwise.
base::Result<std::tm> ParseClock(std::string_view text);

// The templates that a model's files hold.
struct ChatTemplateSources {
  struct Source {
    std::string text;
    std::string where;  // the file, and the name in it
  };
  std::optional<Source> plain;       // "default"
  std::optional<Source> with_tools;  // "tool_use": for requests with tools
  std::vector<std::string> names;    // of all that are there
};

// Reads the member `chat_template` of a tokenizer_config.json: a string, or a list of {"name",
// "template"}. Other members of a list are skipped.
base::Result<ChatTemplateSources> FindChatTemplates(std::string_view tokenizer_config_json);

}  // namespace forebay::text
