// forebay tokenize: JSONL on standard input, token ids on standard output, one line each.
#include "cli/commands.h"
#include "cli/open_text.h"
#include "cli/outcome.h"
#include "job/lines/line_parser.h"
#include "settings/run_options.h"

namespace forebay::cli {
namespace {

struct TokenizeFlags {
  job::ModelTextOptions model;
  std::string now;
  bool no_special = false;
  bool chat = false;
};

void WriteIds(base::JsonWriter& writer, const std::vector<int32_t>& ids) {
  writer.Key("ids").BeginArray();
  for (const int32_t id : ids) writer.Int(id);
  writer.EndArray();
}

// A line as `run` reads it, so that what it is refused for is refused here, and its tokens are
// those that `run` computes.
base::Status TokenizeChat(const job::ModelText& text, simdjson::dom::element line,
                          base::JsonWriter& writer) {
  job::LineParser parser({.vocab_size = text.tokenizer()->vocab_size()});
  std::string json = simdjson::minify(line);
  job::ParsedLine parsed;
  if (const auto error = parser.Parse(&json, &parsed))
    return base::Status(base::kInvalidArgument, error->message);
  if (parsed.endpoint != job::Endpoint::kChat)
    return base::Status(base::kInvalidArgument, "expected a chat, {\"messages\": [...]}");
  FB_ASSIGN_OR_RETURN(const text::RenderedText rendered, text.RenderPrompt(parsed.chat));
  WriteIds(writer, text.Encode(rendered, parsed.chat.add_special_tokens));
  writer.Key("prompt").String(rendered.text);
  return base::Status::Ok();
}

base::Status TokenizeLine(job::ModelText& text, const TokenizeFlags& flags,
                          simdjson::dom::element line, base::JsonWriter& writer) {
  if (flags.chat) return TokenizeChat(text, line, writer);
  std::string_view content;
  if (!line.is_object() || line["text"].get(content) != simdjson::SUCCESS) {
    return base::Status(base::kInvalidArgument, "expected an object {\"text\": \"...\"}");
  }
  FB_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, text.Tokenize(content, !flags.no_special));
  WriteIds(writer, ids);
  return base::Status::Ok();
}

int Tokenize(TokenizeFlags& flags) {
  auto now = settings::ParseNow(flags.now);
  if (!now.ok()) return Fail(now.status(), 2);
  flags.model.now = *now;
  auto opened = OpenText(flags.model);
  if (!opened.ok()) return Fail(opened.status());
  return AnswerLines([&](simdjson::dom::element line, base::JsonWriter& writer) {
    return TokenizeLine(*opened->text, flags, line, writer);
  });
}

}  // namespace

void AddTokenizeCommand(Command app, int* exit_code) {
  auto flags = std::make_shared<TokenizeFlags>();
  const Command command =
      app.add_subcommand("tokenize",
                         "Token ids of JSONL on standard input: {\"text\"} lines, "
                         "or with --chat {\"messages\",...} lines");
  command.add_option("-m,--model", flags->model.path, "Folder with tokenizer files, or GGUF file")
      .required();
  command.add_flag("--no-special", flags->no_special,
                   "Add no special tokens around a text (no BOS)");
  command.add_flag("--chat", flags->chat,
                   "Lines are chats as `run` takes them: {\"messages\",...} or a batch line");
  command.add_option("--chat-template", flags->model.chat_template,
                     "Template file, or the template itself");
  command.add_option("--now", flags->now,
                     "Clock of strftime_now, as 2026-03-07T14:05:09 (default: now)");
  command.add_flag("--parse-special-in-content", flags->model.parse_special_in_content,
                   "Let message contents spell special tokens, as other engines do");
  command.callback([flags, exit_code] { *exit_code = Tokenize(*flags); });
}

}  // namespace forebay::cli
