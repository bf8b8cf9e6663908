#include "cli/open_text.h"

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "base/log.h"

namespace forebay::cli {

base::Result<OpenedText> OpenText(job::ModelTextOptions options) {
  OpenedText opened;
  std::error_code error;
  if (std::filesystem::is_regular_file(options.path, error)) {
    FB_ASSIGN_OR_RETURN(opened.source, weights::WeightSource::Open(options.path));
    options.gguf = opened.source->gguf();
  }
  FB_ASSIGN_OR_RETURN(opened.text, job::ModelText::Load(options));
  return opened;
}

base::Result<std::tm> ParseNow(const std::string& text) {
  if (!text.empty()) return text::ParseClock(text);
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

int Fail(const base::Status& status, int exit_code) {
  base::Log(base::LogLevel::kError, status.ToString());
  return exit_code;
}

int AnswerLines(const AnswerLine& answer) {
  simdjson::dom::parser parser;
  std::string line, out;
  while (std::getline(std::cin, line)) {
    out.clear();
    base::JsonWriter writer(&out);
    writer.BeginObject();
    const auto parsed = base::ParseJson(parser, line);
    const base::Status status = parsed.ok() ? answer(*parsed, writer) : parsed.status();
    if (!status.ok()) {
      out.clear();
      writer = base::JsonWriter(&out);
      writer.BeginObject().Key("error").String(status.ToString());
    }
    writer.EndObject();
    out += '\n';
    std::fwrite(out.data(), 1, out.size(), stdout);
  }
  return FinishOutput();
}

int FinishOutput() {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && !std::ferror(stdout)) return 0;
  return Fail(base::Status(base::kIoError, "standard output: not all lines could be written"));
}

}  // namespace forebay::cli
