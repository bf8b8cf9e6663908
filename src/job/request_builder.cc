#include "job/request_builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "job/result_format.h"

namespace forebay::job {
namespace {

constexpr size_t kKeepBufferBytes = 1 << 20;

LineError FromStatus(const base::Status& status, std::string_view param) {
  return {.message = status.message(), .param = std::string(param), .code = status.code().name};
}

}  // namespace

std::optional<LineError> TooLong(const LineEntry& entry) {
  if (entry.length <= kMaxLineBytes) return std::nullopt;
  return LineError{.http_status = 413,
                   .message = fmt::format("the line has {} bytes; expected at most {}",
                                          entry.length, kMaxLineBytes),
                   .code = "line_too_long"};
}

base::Result<BuiltLine> RequestBuilder::Build(size_t ordinal) {
  const LineEntry& entry = file_[ordinal];
  if (auto error = TooLong(entry)) return BuiltLine{.error = std::move(error)};
  FB_RETURN_IF_ERROR(file_.Read(ordinal, &buffer_));
  BuiltLine built = parser_.Parse(&buffer_, entry.line);
  built.request.service = Service::kBatch;  // nobody waits for a line of a file
  if (buffer_.size() > kKeepBufferBytes) buffer_ = std::string();
  return built;
}

BuiltLine RequestParser::Parse(std::string* text, int64_t line) {
  ParsedLine parsed;
  if (auto error = Read(text, &parsed))
    return {.line = {.custom_id = std::move(parsed.custom_id)}, .error = std::move(error)};
  return Build(std::move(parsed), line);
}

BuiltLine RequestParser::Build(ParsedLine parsed, int64_t line) {
  BuiltLine built{.line = std::move(parsed)};
  built.request = {.id = line,
                   .line = line,
                   .n = built.line.n,
                   .sampling = built.line.sampling,
                   .service = built.line.service.value_or(Service::kBatch)};
  StopAtSpecialTokens(&built.request.sampling);
  built.error = Tokenize(built.line, &built.request);
  if (!built.error && engine_ != nullptr) {
    if (ends_at_context_) EndAtContext(&built.request);
    if (const auto refusal = engine_->Refusal(built.request)) built.error = ToLineError(*refusal);
  }
  if (built.error) {
    built.line = {.custom_id = std::move(built.line.custom_id)};
    built.request = Request();
  }
  return built;
}

void RequestParser::EndAtContext(Request* request) const {
  int32_t& most = request->sampling.max_tokens;
  for (const std::vector<int32_t>& prompt : request->prompts) {
    const int64_t left = engine_->facts().max_model_len - static_cast<int64_t>(prompt.size());
    if (left > 0 && most > left) most = static_cast<int32_t>(left);
  }
}

void RequestParser::StopAtSpecialTokens(SamplingParams* sampling) const {
  if (!sampling->skip_special_tokens) return;
  std::vector<int32_t>& ids = sampling->stop_token_ids;
  for (const std::string& stop : sampling->stop) {
    const std::optional<int32_t> id = text_.SpecialToken(stop);
    if (id && std::ranges::count(ids, *id) == 0) ids.push_back(*id);
  }
}

std::optional<LineError> RequestParser::Tokenize(const ParsedLine& line, Request* request) {
  if (!text_.has_tokenizer() && !line.sampling.stop.empty()) {
    return LineError{.message =
                         "`stop` strings need a tokenizer, but --skip-tokenizer-init is set; use "
                         "`stop_token_ids`",
                     .param = "stop",
                     .code = "unsupported_parameter"};
  }
  const bool is_chat = line.endpoint == Endpoint::kChat;
  const std::string_view param = is_chat ? "messages" : "prompt";
  const auto add = [&](base::Result<std::vector<int32_t>> ids) -> std::optional<LineError> {
    if (!ids.ok()) return FromStatus(ids.status(), param);
    if (ids->empty()) {
      return LineError{.message = fmt::format("`{}` has no tokens; expected at least one", param),
                       .param = std::string(param),
                       .code = "prompt_empty"};
    }
    request->prompts.push_back(std::move(*ids));
    return std::nullopt;
  };
  if (is_chat) return add(text_.RenderChat(line.chat));
  for (const Prompt& prompt : line.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    auto error = text ? add(text_.Tokenize(*text, line.add_special_tokens))
                      : add(std::get<std::vector<int32_t>>(prompt));
    if (error) return error;
  }
  return std::nullopt;
}

}  // namespace forebay::job
