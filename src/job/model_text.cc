#include "job/model_text.h"

#include <algorithm>
#include <filesystem>

#include "base/hash.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "engine/load_tokenizer.h"

namespace forebay::job {
namespace {

namespace fs = std::filesystem;

constexpr base::ErrorCode kTokenizerSkipped{"tokenizer_skipped"};

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

base::Status NoTokenizer(std::string_view what) {
  return base::Status(
      kTokenizerSkipped,
      fmt::format("{} needs a tokenizer, but --skip-tokenizer-init is set; give token ids", what));
}

// Variables of the template as JSON; chat_template_kwargs count before reasoning_effort.
std::string KwargsOf(const ChatPrompt& prompt) {
  if (prompt.reasoning_effort.empty()) return prompt.chat_template_kwargs;
  std::string kwargs = fmt::format("{{\"reasoning_effort\":\"{}\"", prompt.reasoning_effort);
  const std::string_view more = prompt.chat_template_kwargs;
  if (more.size() > 2) kwargs += fmt::format(",{}", more.substr(1));
  return more.size() > 2 ? kwargs : kwargs + "}";
}

}  // namespace

base::Result<std::unique_ptr<ModelText>> ModelText::Load(const ModelTextOptions& options) {
  std::unique_ptr<ModelText> loaded(new ModelText(options));
  if (options.skip_tokenizer) return loaded;
  if (!options.gguf && !Exists(options.path + "/tokenizer.json")) {
    return base::Status(
        kTokenizerNotFound,
        fmt::format("{}: has no tokenizer.json; expected one for prompts of text (token ids go "
                    "without, with --skip-tokenizer-init)",
                    options.path));
  }
  FB_ASSIGN_OR_RETURN(loaded->tokenizer_, engine::LoadTokenizer(options.path, options.gguf));
  FB_RETURN_IF_ERROR(loaded->LoadTemplates());
  return loaded;
}

base::Status ModelText::LoadTemplates() {
  ModelTemplates::Options options{.path = options_.path,
                                  .gguf = options_.gguf,
                                  .given = options_.chat_template,
                                  .special_tokens = tokenizer_->named()};
  for (const char* file :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    const std::string path = options_.path + "/" + file;
    if (options_.gguf || !Exists(path)) continue;
    FB_ASSIGN_OR_RETURN(std::string text, base::ReadFile(path));
    files_hash_ = base::HashBytes(text, files_hash_);
    if (path.ends_with("/tokenizer_config.json")) options.config = std::move(text);
  }
  FB_ASSIGN_OR_RETURN(templates_, ModelTemplates::Load(options));
  return base::Status::Ok();
}

bool ModelText::uses_clock() const { return templates_.uses_clock(); }

std::string ModelText::clock() const {
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &options_.now)};
}

uint64_t ModelText::Fingerprint() const {
  base::Hasher hasher;
  templates_.AddTo(&hasher);
  hasher.Update(fmt::format("{:016x}", files_hash_));
  return hasher.Finish();
}

std::vector<int32_t> ModelText::Encode(const text::RenderedText& rendered,
                                       bool add_special_tokens) const {
  std::vector<text::Segment> segments;
  for (const text::RenderedSegment& segment : rendered.segments) {
    segments.push_back({std::string_view(rendered.text).substr(segment.offset, segment.length),
                        segment.trusted || options_.parse_special_in_content});
  }
  return tokenizer_->EncodeSegments(segments, add_special_tokens);
}

std::string ModelText::TokenBytes(int32_t id) const {
  return tokenizer_ ? tokenizer_->TokenBytes(id) : std::string();
}

bool ModelText::IsSpecial(int32_t id) const { return tokenizer_ && tokenizer_->IsSpecial(id); }

std::optional<int32_t> ModelText::SpecialToken(std::string_view content) const {
  const auto id = tokenizer_ ? tokenizer_->TokenToId(content) : std::nullopt;
  return id && tokenizer_->IsSpecial(*id) ? id : std::nullopt;
}

std::string ModelText::Decode(std::span<const int32_t> ids) const {
  return tokenizer_ ? tokenizer_->Decode(ids, false) : std::string();
}

base::Result<text::RenderedText> ModelText::RenderPrompt(const ChatPrompt& prompt) const {
  if (!tokenizer_) return NoTokenizer("a chat request");
  text::ChatInput input;
  input.messages_json = prompt.messages;
  input.tools_json = prompt.tools;
  input.documents_json = prompt.documents;
  const std::string kwargs = KwargsOf(prompt);
  input.kwargs_json = kwargs;
  input.add_generation_prompt = prompt.add_generation_prompt;
  input.continue_final_message = prompt.continue_final_message;
  input.now = options_.now;
  return templates_.Render(input);
}

base::Result<std::vector<int32_t>> ModelText::RenderChat(const ChatPrompt& prompt) {
  FB_ASSIGN_OR_RETURN(const text::RenderedText rendered, RenderPrompt(prompt));
  return Encode(rendered, prompt.add_special_tokens);
}

base::Result<std::vector<int32_t>> ModelText::Tokenize(std::string_view text,
                                                       bool add_special_tokens) {
  if (!tokenizer_) return NoTokenizer("a text prompt");
  return tokenizer_->Encode(text,
                            {.add_special_tokens = add_special_tokens, .parse_special = true});
}

base::Result<PooledTokens> ModelText::RenderPair(const PooledText& text) {
  const auto render = [&](std::string_view query, std::string_view document) {
    ChatPrompt prompt;
    base::JsonWriter writer(&prompt.messages);
    writer.BeginArray();
    writer.BeginObject().Key("role").String("query").Key("content").String(query).EndObject();
    writer.BeginObject().Key("role").String("document");
    writer.Key("content").String(document).EndObject().EndArray();
    return RenderChat(prompt);
  };
  PooledTokens tokens;
  FB_ASSIGN_OR_RETURN(tokens.ids, render(text.first, *text.second));
  if (text.most_tokens <= 0 || std::ssize(tokens.ids) <= text.most_tokens) return tokens;
  const auto encode = [&](std::string_view part) {
    return tokenizer_->Encode(part, {.add_special_tokens = false, .parse_special = false});
  };
  std::vector<int32_t> query = encode(text.first), document = encode(*text.second);
  const size_t lengths[] = {query.size(), document.size()};
  // Tokens at a text's borders may merge with the template's, so one cut is not always enough.
  while (std::ssize(tokens.ids) > text.most_tokens && !(query.empty() && document.empty())) {
    const size_t both = query.size() + document.size();
    const auto goes = static_cast<size_t>(std::ssize(tokens.ids) - text.most_tokens);
    text::Tokenizer::CutPair(&query, &document, both - std::min(both, goes));
    // A text that is not cut stays as it was given.
    const auto text_of = [&](const std::vector<int32_t>& ids, size_t length,
                             std::string_view given) {
      return ids.size() == length ? std::string(given) : tokenizer_->Decode(ids, false);
    };
    FB_ASSIGN_OR_RETURN(tokens.ids, render(text_of(query, lengths[0], text.first),
                                           text_of(document, lengths[1], *text.second)));
  }
  return tokens;
}

base::Result<PooledTokens> ModelText::TokenizePooled(const PooledText& text) {
  if (!tokenizer_) return NoTokenizer("a text");
  if (!text.second) {
    return PooledTokens{
        .ids = tokenizer_->Encode(text.first, {.add_special_tokens = text.add_special_tokens,
                                               .most_tokens = text.most_tokens})};
  }
  if (!options_.chat_template.empty()) return RenderPair(text);
  auto pair = tokenizer_->EncodePair(text.first, *text.second, text.most_tokens);
  if (!pair) {
    return base::Status(kPairsUnknown,
                        "the model's tokenizer does not say how two texts become one prompt; "
                        "expected a post-processor with a pair in its tokenizer.json, or "
                        "--chat-template for messages of the roles query and document");
  }
  return PooledTokens{.ids = std::move(pair->ids), .second = static_cast<int32_t>(pair->second)};
}

}  // namespace forebay::job
