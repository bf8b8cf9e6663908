// forebay tokenize: JSONL on standard input, token ids on standard output, one line each.
#include "cli/commands.h"
#include "cli/open_text.h"

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

// The member as JSON text; "" if there is none or it is null.
std::string Member(simdjson::dom::element line, std::string_view key) {
  simdjson::dom::element value;
  if (line[key].get(value) != simdjson::SUCCESS || value.is_null()) return "";
  return simdjson::minify(value);
}

base::Status TokenizeChat(const job::ModelText& text, const TokenizeFlags& flags, simdjson::dom::element line,
                          base::JsonWriter& writer) {
  const std::string messages = Member(line, "messages"), tools = Member(line, "tools"),
                    documents = Member(line, "documents"), kwargs = Member(line, "chat_template_kwargs");
  text::ChatInput input{.messages_json = messages, .tools_json = tools, .documents_json = documents, .kwargs_json = kwargs,
                        .add_generation_prompt = true, .style = text::MessageStyle::kAsGiven, .now = flags.model.now};
  bool flag = false;
  if (line["add_generation_prompt"].get(flag) == simdjson::SUCCESS) input.add_generation_prompt = flag;
  if (line["continue_final_message"].get(flag) == simdjson::SUCCESS) input.continue_final_message = flag;
  FB_ASSIGN_OR_RETURN(const text::RenderedText rendered, text.Render(input));
  WriteIds(writer, text.Encode(rendered, false));
  writer.Key("prompt").String(rendered.text);
  return base::Status::Ok();
}

base::Status TokenizeLine(job::ModelText& text, const TokenizeFlags& flags, simdjson::dom::element line,
                          base::JsonWriter& writer) {
  if (flags.chat) return TokenizeChat(text, flags, line, writer);
  std::string_view content;
  if (!line.is_object() || line["text"].get(content) != simdjson::SUCCESS) {
    return base::Status(base::kInvalidArgument, "expected an object {\"text\": \"...\"}");
  }
  FB_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, text.Tokenize(content, !flags.no_special));
  WriteIds(writer, ids);
  return base::Status::Ok();
}

int Tokenize(TokenizeFlags& flags) {
  auto now = ParseNow(flags.now);
  if (!now.ok()) return Fail(now.status(), 2);
  flags.model.now = *now;
  auto opened = OpenText(flags.model);
  if (!opened.ok()) return Fail(opened.status());
  return AnswerLines([&](simdjson::dom::element line, base::JsonWriter& writer) {
    return TokenizeLine(*opened->text, flags, line, writer);
  });
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand(
      "tokenize", "Token ids of JSONL on standard input: {\"text\"} lines, or with --chat {\"messages\",...} lines");
  command->add_option("-m,--model", flags->model.path, "Folder with tokenizer files, or GGUF file")->required();
  command->add_flag("--no-special", flags->no_special, "Add no special tokens around a text (no BOS)");
  command->add_flag("--chat", flags->chat, "Lines are chats: {\"messages\",\"tools\"?,\"add_generation_prompt\"?,...}");
  command->add_option("--chat-template", flags->model.chat_template, "Template file, or the template itself");
  command->add_option("--now", flags->now, "Clock of strftime_now, as 2026-03-07T14:05:09 (default: now)");
  command->add_flag("--parse-special-in-content", flags->model.parse_special_in_content,
                    "Let message contents spell special tokens, as other engines do");
  command->callback([flags, exit_code] { *exit_code = Tokenize(*flags); });
}

}  // namespace forebay::cli
