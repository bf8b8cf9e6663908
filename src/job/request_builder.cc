#include "job/request_builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "job/lines/line_errors.h"
#include "job/lines/result_format.h"

namespace forebay::job {
namespace {

constexpr size_t kKeepBufferBytes = 1 << 20;

LineError FromStatus(const base::Status& status, std::string_view param) {
  return {.message = status.message(), .param = std::string(param), .code = status.code().name};
}

// The parameter that holds a line's prompts.
std::string_view ParamOf(Endpoint endpoint, bool is_query) {
  switch (endpoint) {
    case Endpoint::kEmbedding:
    case Endpoint::kClassify: return "input";
    case Endpoint::kScore: return is_query ? "text_1" : "text_2";
    case Endpoint::kRerank: return is_query ? "query" : "documents";
    case Endpoint::kChat: return "messages";
    default: return "prompt";
  }
}

LineError NeedsTokenizer(std::string_view param, std::string_view instead) {
  return {.message = fmt::format("`{}` strings need a tokenizer, but --skip-tokenizer-init is set; "
                                 "use {}",
                                 param, instead),
          .param = std::string(param),
          .code = "unsupported_parameter"};
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
                   .pooled = IsPooled(built.line.endpoint),
                   .service = built.line.service.value_or(Service::kBatch)};
  // Of an encoder a line that asks for text is refused before its template or tokens are.
  if (engine_ != nullptr && !engine_->facts().generates && !built.request.pooled)
    built.error = ToLineError(*engine_->Refusal(built.request));
  StopAtSpecialTokens(&built.request.sampling);
  if (!built.error) built.error = BanWords(built.line, &built.request.sampling);
  if (!built.error) built.error = Tokenize(built.line, &built.request);
  if (!built.error) built.error = Truncate(built.line, 0, &built.request);
  if (!built.error && engine_ != nullptr) {
    if (ends_at_context_) EndAtContext(&built.request);
    CheckVectors(&built);
  }
  if (!built.error && engine_ != nullptr) {
    if (const auto refusal = engine_->Refusal(built.request))
      built.error = ErrorOf(*refusal, built.line, built.request);
  }
  if (built.error) {
    built.line = {.custom_id = std::move(built.line.custom_id)};
    built.request = Request();
  }
  return built;
}

LineError RequestParser::ErrorOf(const RequestResult& refusal, const ParsedLine& line,
                                 const Request& request) const {
  LineError error = ToLineError(refusal);
  if (error.param == "input") error.param = ParamOf(line.endpoint, true);  // there are no vectors
  if (error.param != "prompt") return error;
  // The first prompt that would be refused alone. Of pairs the second texts stand for them.
  Request alone{.n = request.n, .sampling = request.sampling, .pooled = request.pooled};
  size_t index = 0;
  for (; index + 1 < request.prompts.size(); ++index) {
    alone.prompts.assign(1, request.prompts[index]);
    if (engine_->Refusal(alone)) break;
  }
  const auto queries = static_cast<size_t>(line.vectors.queries);
  const bool is_query = !line.vectors.pairs() && index < queries;
  if (!line.vectors.pairs() && !is_query) index -= queries;
  error.param = ParamOf(line.endpoint, is_query);
  const bool is_one_of_many = line.endpoint != Endpoint::kLikelihood &&
                              (is_query ? queries : line.prompts.size() - queries) > 1;
  if (is_one_of_many) error.message = fmt::format("{}[{}]: {}", error.param, index, error.message);
  return error;
}

void RequestParser::CheckVectors(BuiltLine* built) const {
  const ModelFacts& facts = engine_->facts();
  VectorStyle& style = built->line.vectors;
  if (!built->request.pooled || facts.vector_width == 0) return;
  if (!style.normalize) style.normalize = facts.normalizes;
  if (style.dimensions <= facts.vector_width) return;
  built->error = LineError{.message = fmt::format("`dimensions` is {}; expected at most {}, the "
                                                  "vectors' width",
                                                  style.dimensions, facts.vector_width),
                           .param = "dimensions",
                           .code = "invalid_value"};
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

std::optional<LineError> RequestParser::BanWords(const ParsedLine& line, SamplingParams* sampling) {
  if (line.bad_words.empty()) return std::nullopt;
  if (!text_.has_tokenizer()) return NeedsTokenizer("bad_words", "`logit_bias`");
  for (const std::string& word : line.bad_words) {
    // A word is told apart from a part of another by the space before it.
    const std::string bare = word.substr(word.find_first_not_of(' '));
    for (const std::string& text : {bare, " " + bare}) {
      auto ids = text_.Tokenize(text, false);
      if (!ids.ok()) return FromStatus(ids.status(), "bad_words");
      if (!ids->empty()) sampling->bad_words.push_back(std::move(*ids));
    }
  }
  const std::vector<int32_t>& allowed = sampling->allowed_token_ids;
  const auto is_banned = [&](int32_t token) {
    return std::ranges::count(sampling->bad_words, std::vector{token}) > 0;
  };
  if (allowed.empty() || !std::ranges::all_of(allowed, is_banned)) return std::nullopt;
  return InvalidValue("allowed_token_ids",
                      "`allowed_token_ids` holds only tokens that `bad_words` bans; expected one "
                      "that is left");
}

std::optional<LineError> RequestParser::Tokenize(const ParsedLine& line, Request* request) {
  if (!text_.has_tokenizer() && !line.sampling.stop.empty())
    return NeedsTokenizer("stop", "`stop_token_ids`");
  if (line.endpoint == Endpoint::kLikelihood) return AddContinuations(line, request);
  if (IsPooled(line.endpoint)) return AddTexts(line, request);
  if (line.endpoint == Endpoint::kChat) {
    if (auto error = AddPrompt(text_.RenderChat(line.chat), "messages", request)) return error;
  }
  for (const Prompt& prompt : line.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    auto error = text ? AddPrompt(text_.Tokenize(*text, line.add_special_tokens), "prompt", request)
                      : AddPrompt(std::get<std::vector<int32_t>>(prompt), "prompt", request);
    if (error) return error;
  }
  if (line.prompt_logprobs_from > 0)
    request->prompt_logprobs_from.assign(request->prompts.size(), line.prompt_logprobs_from);
  return std::nullopt;
}

std::optional<LineError> RequestParser::AddPrompt(base::Result<std::vector<int32_t>> ids,
                                                  std::string_view param, Request* request) const {
  if (!ids.ok()) return FromStatus(ids.status(), param);
  if (ids->empty()) {
    return LineError{.message = fmt::format("`{}` has no tokens; expected at least one", param),
                     .param = std::string(param),
                     .code = "prompt_empty"};
  }
  request->prompts.push_back(std::move(*ids));
  return std::nullopt;
}

// Each text, or each text of the second kind together with the one that it is compared with.
std::optional<LineError> RequestParser::AddTexts(const ParsedLine& line, Request* request) {
  const auto queries = static_cast<size_t>(line.vectors.queries);
  // Special tokens alone say nothing of a text that is empty.
  for (size_t i = 0; i < line.prompts.size(); ++i) {
    const auto* text = std::get_if<std::string>(&line.prompts[i]);
    if (text != nullptr && text->empty())
      return AddPrompt(std::vector<int32_t>(), ParamOf(line.endpoint, i < queries), request);
  }
  const int64_t most = MostPromptTokens(line, *request);
  for (size_t i = line.vectors.pairs() ? queries : 0; i < line.prompts.size(); ++i) {
    const std::string_view param = ParamOf(line.endpoint, i < queries);
    const auto* text = std::get_if<std::string>(&line.prompts[i]);
    if (text == nullptr) {
      if (auto error = AddPrompt(std::get<std::vector<int32_t>>(line.prompts[i]), param, request))
        return error;
      continue;
    }
    PooledText asked{
        .first = *text, .add_special_tokens = line.add_special_tokens, .most_tokens = most};
    if (line.vectors.pairs()) {
      asked.first = std::get<std::string>(line.prompts[queries == 1 ? 0 : i - queries]);
      asked.second = *text;
    }
    auto tokens = text_.TokenizePooled(asked);
    if (!tokens.ok()) return FromStatus(tokens.status(), param);
    if (most > 0 && std::ssize(tokens->ids) > most) {
      return LineError{
          .message = fmt::format("`truncate_prompt_tokens` leaves {} tokens; the tokenizer adds {} "
                                 "to each text",
                                 most, tokens->ids.size()),
          .param = "truncate_prompt_tokens",
          .code = "invalid_value"};
    }
    if (asked.second) request->second_texts.push_back(tokens->second);
    if (auto error = AddPrompt(std::move(tokens->ids), param, request)) return error;
    if (IsRefused(line, *request)) break;
  }
  return std::nullopt;
}

// Text is tokenized together with the prompt, as lm_eval does it: white space at the prompt's end
// goes to the continuation, and what follows as many tokens as the prompt has alone is scored.
std::optional<LineError> RequestParser::AddContinuations(const ParsedLine& line, Request* request) {
  std::string text, space;
  std::vector<int32_t> context;
  if (const auto* given = std::get_if<std::string>(&line.prompts[0])) {
    text = given->substr(0, given->find_last_not_of(" \t\n\v\f\r") + 1);
    space = given->substr(text.size());
    auto ids = text_.Tokenize(text, line.add_special_tokens);
    if (!ids.ok()) return FromStatus(ids.status(), "prompt");
    context = std::move(*ids);
  } else {
    context = std::get<std::vector<int32_t>>(line.prompts[0]);
  }
  if (context.empty()) {
    return LineError{.message =
                         "`prompt` has no tokens before its white space at the end; expected "
                         "at least one, such as the model's BOS",
                     .param = "prompt",
                     .code = "prompt_empty"};
  }
  for (const Prompt& continuation : line.continuations) {
    std::vector<int32_t> whole = context;
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&continuation)) {
      whole.insert(whole.end(), ids->begin(), ids->end());
    } else {
      auto tokens = text_.Tokenize(text + space + std::get<std::string>(continuation),
                                   line.add_special_tokens);
      if (!tokens.ok()) return FromStatus(tokens.status(), "continuations");
      whole = std::move(*tokens);
    }
    if (whole.size() <= context.size()) {
      return LineError{
          .message = fmt::format("continuations[{}] adds no token to the prompt; expected at least "
                                 "one",
                                 request->prompts.size()),
          .param = "continuations",
          .code = "continuation_empty"};
    }
    request->prompts.push_back(std::move(whole));
    request->prompt_logprobs_from.push_back(static_cast<int32_t>(context.size()));
    if (auto error = Truncate(line, request->prompts.size() - 1, request)) return error;
    if (IsRefused(line, *request)) break;
  }
  return std::nullopt;
}

int64_t RequestParser::MostPromptTokens(const ParsedLine& line, const Request& request) const {
  if (line.truncate_prompt_tokens >= 0) return line.truncate_prompt_tokens;
  const int64_t context = engine_ != nullptr ? engine_->facts().max_model_len : context_;
  const SamplingParams& sampling = request.sampling;
  const int32_t answer = sampling.max_tokens == 0 ? 0 : std::max(1, sampling.most_tokens());
  return std::max<int64_t>(0, context - answer);
}

bool RequestParser::IsRefused(const ParsedLine& line, const Request& request) const {
  return engine_ != nullptr && line.truncate_prompt_tokens == 0 &&
         std::ssize(request.prompts.back()) > engine_->facts().max_model_len;
}

std::optional<LineError> RequestParser::Truncate(const ParsedLine& line, size_t first,
                                                 Request* request) const {
  const int64_t most = MostPromptTokens(line, *request);
  if (most == 0) return std::nullopt;
  for (size_t i = first; i < request->prompts.size(); ++i) {
    std::vector<int32_t>& prompt = request->prompts[i];
    const int64_t cut = std::ssize(prompt) - most;
    if (cut <= 0) continue;
    prompt = std::vector<int32_t>(prompt.begin() + cut, prompt.end());  // without the others' room
    if (line.endpoint != Endpoint::kLikelihood) continue;
    int32_t& from = request->prompt_logprobs_from[i];
    if (from <= cut) {
      return LineError{
          .message = fmt::format("`truncate_prompt_tokens` leaves {} tokens, and continuations[{}] "
                                 "has {}; expected at least one token before it",
                                 most, i, std::ssize(prompt) + cut - from),
          .param = "truncate_prompt_tokens",
          .code = "invalid_value"};
    }
    from -= static_cast<int32_t>(cut);
  }
  return std::nullopt;
}

}  // namespace forebay::job
