#include "cli/open_text.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "cli/outcome.h"
#include "engine/open_model.h"
#include "job/job.h"

namespace forebay::cli {

base::Result<OpenedText> OpenText(job::ModelTextOptions options) {
  OpenedText opened;
  std::error_code error;
  const bool is_built_in = options.path.starts_with("builtin:");
  if (!is_built_in && !std::filesystem::exists(options.path, error)) {
    return base::Status(engine::kModelNotFound,
                        fmt::format("model {}: no such file or folder; expected a folder with "
                                    "tokenizer files, or a GGUF file",
                                    options.path));
  }
  if (std::filesystem::is_regular_file(options.path, error)) {
    FB_ASSIGN_OR_RETURN(opened.source, weights::WeightSource::Open(options.path));
    options.gguf = opened.source->gguf();
  }
  FB_ASSIGN_OR_RETURN(opened.text, job::ModelText::Load(options));
  return opened;
}

int AnswerLines(const AnswerLine& answer) {
  simdjson::dom::parser parser;
  std::string line, out;
  int64_t num_lines = 0, num_failed = 0;
  while (std::getline(std::cin, line)) {
    out.clear();
    base::JsonWriter writer(&out);
    writer.BeginObject();
    const auto parsed = base::ParseJson(parser, line);
    const base::Status status = parsed.ok() ? answer(*parsed, writer) : parsed.status();
    ++num_lines;
    num_failed += !status.ok();
    if (!status.ok()) {
      out.clear();
      writer = base::JsonWriter(&out);
      writer.BeginObject().Key("error").String(status.ToString());
    }
    writer.EndObject();
    out += '\n';
    std::fwrite(out.data(), 1, out.size(), stdout);
  }
  if (std::ferror(stdin) != 0) {
    return Fail(base::Status(base::kIoError, fmt::format("standard input: cannot be read behind "
                                                         "line {}: {}",
                                                         num_lines, std::strerror(errno))));
  }
  if (num_failed == 0) return 0;
  return Fail(base::Status(job::kBadLines,
                           fmt::format("standard input: {} of {} lines failed; their answers say "
                                       "why",
                                       num_failed, num_lines)));
}

}  // namespace forebay::cli
