// forebay detokenize: {"ids"} lines on standard input, {"text"} lines on standard output.
#include "cli/commands.h"
#include "cli/open_text.h"
#include "cli/outcome.h"

namespace forebay::cli {
namespace {

struct DetokenizeFlags {
  job::ModelTextOptions model;
  bool skip_special = false;
};

base::Status DetokenizeLine(const text::Tokenizer& tokenizer, bool skip_special,
                            simdjson::dom::element line, base::JsonWriter& writer) {
  simdjson::dom::array array;
  if (!line.is_object() || line["ids"].get(array) != simdjson::SUCCESS) {
    return base::Status(base::kInvalidArgument, "expected an object {\"ids\": [...]}");
  }
  std::vector<int32_t> ids;
  for (const simdjson::dom::element value : array) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= tokenizer.vocab_size()) {
      return base::Status(base::kInvalidArgument,
                          fmt::format("ids[{}] is no token id; expected 0 to {}", ids.size(),
                                      tokenizer.vocab_size() - 1));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  writer.Key("text").String(tokenizer.Decode(ids, skip_special));
  return base::Status::Ok();
}

int Detokenize(const DetokenizeFlags& flags) {
  auto opened = OpenText(flags.model);
  if (!opened.ok()) return Fail(opened.status());
  return AnswerLines([&](simdjson::dom::element line, base::JsonWriter& writer) {
    return DetokenizeLine(*opened->text->tokenizer(), flags.skip_special, line, writer);
  });
}

}  // namespace

void AddDetokenizeCommand(Command app, int* exit_code) {
  auto flags = std::make_shared<DetokenizeFlags>();
  const Command command =
      app.add_subcommand("detokenize", "Text of token ids: {\"ids\"} lines on standard input");
  command.add_option("-m,--model", flags->model.path, "Folder with tokenizer files, or GGUF file")
      .required();
  command.add_flag("--skip-special", flags->skip_special, "Leave special tokens out");
  command.callback([flags, exit_code] { *exit_code = Detokenize(*flags); });
}

}  // namespace forebay::cli
