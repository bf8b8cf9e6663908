#include "job/model_text.h"

#include <filesystem>

#include "base/hash.h"
#include "base/json.h"
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

// "<s>", or {"content": "<s>", ...}.
std::optional<std::string> TokenContent(simdjson::dom::element value) {
  std::string_view text;
  if (value.is_object() && value["content"].get(text) == simdjson::SUCCESS)
    return std::string(text);
  if (value.get(text) == simdjson::SUCCESS) return std::string(text);
  return std::nullopt;
}

using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

base::Status ReadSpecialTokens(const std::string& config, const std::string& path,
                               SpecialTokens* tokens) {
  simdjson::dom::parser parser;
  auto parsed = base::ParseJson(parser, config);
  if (!parsed.ok()) return parsed.status().WithContext(path);
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    simdjson::dom::element value;
    if ((*parsed)[key].get(value) != simdjson::SUCCESS) continue;
    if (const auto content = TokenContent(value)) tokens->emplace_back(key, *content);
  }
  return base::Status::Ok();
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

base::Status ModelText::AddTemplate(std::string source,
                                    std::optional<text::ChatTemplate>* to) const {
  FB_ASSIGN_OR_RETURN(
      *to, text::ChatTemplate::Create(std::move(source), {.special_tokens = special_tokens_}));
  return base::Status::Ok();
}

base::Status ModelText::LoadTemplates() {
  std::optional<std::string> own, with_tools;
  if (options_.gguf) {
    if (const auto bos = tokenizer_->bos())
      special_tokens_.emplace_back("bos_token", tokenizer_->TokenText(*bos));
    if (const auto eos = tokenizer_->eos())
      special_tokens_.emplace_back("eos_token", tokenizer_->TokenText(*eos));
    if (options_.gguf->Has("tokenizer.chat_template")) {
      FB_ASSIGN_OR_RETURN(own, options_.gguf->GetString("tokenizer.chat_template"));
    }
  } else if (const std::string path = options_.path + "/tokenizer_config.json"; Exists(path)) {
    FB_ASSIGN_OR_RETURN(const std::string config, base::ReadFile(path));
    FB_RETURN_IF_ERROR(ReadSpecialTokens(config, path, &special_tokens_));
    config_hash_ = base::HashBytes(config);
    FB_ASSIGN_OR_RETURN(own, text::FindChatTemplate(config, "", false));
    FB_ASSIGN_OR_RETURN(with_tools, text::FindChatTemplate(config, "", true));
  }
  if (const std::string path = options_.path + "/chat_template.jinja";
      !options_.gguf && Exists(path)) {
    FB_ASSIGN_OR_RETURN(own, base::ReadFile(path));
    with_tools = own;
  }
  if (!options_.chat_template.empty()) {
    own = options_.chat_template;
    if (own->find('{') == std::string::npos) {  // no template can do without: a file's name
      FB_ASSIGN_OR_RETURN(own, base::ReadFile(options_.chat_template));
    }
    with_tools = own;
  }
  if (own) FB_RETURN_IF_ERROR(AddTemplate(*own, &template_).WithContext("chat template"));
  if (with_tools && with_tools != own)
    FB_RETURN_IF_ERROR(AddTemplate(*with_tools, &tool_template_).WithContext("chat template"));
  return base::Status::Ok();
}

bool ModelText::uses_clock() const {
  return (template_ && template_->uses_clock()) || (tool_template_ && tool_template_->uses_clock());
}

std::string ModelText::clock() const {
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &options_.now)};
}

uint64_t ModelText::Fingerprint() const {
  base::Hasher hasher;
  for (const auto* chat_template : {&template_, &tool_template_}) {
    if (*chat_template) hasher.Update((*chat_template)->source());
  }
  for (const auto& [name, token] : special_tokens_) hasher.Update(name + "=" + token + ";");
  hasher.Update(fmt::format("{:016x}", config_hash_));
  return hasher.Finish();
}

base::Result<text::RenderedText> ModelText::Render(const text::ChatInput& input) const {
  if (!tokenizer_) return NoTokenizer("a chat request");
  const auto& chosen = !input.tools_json.empty() && tool_template_ ? tool_template_ : template_;
  if (!chosen) {
    return base::Status(text::kChatTemplateMissing,
                        "the model has no chat template; give one with --chat-template, or "
                        "use /v1/completions");
  }
  return chosen->Render(input);
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

std::string ModelText::Decode(std::span<const int32_t> ids) const {
  return tokenizer_ ? tokenizer_->Decode(ids, false) : std::string();
}

base::Result<text::RenderedText> ModelText::RenderPrompt(const ChatPrompt& prompt) const {
  text::ChatInput input;
  input.messages_json = prompt.messages;
  input.tools_json = prompt.tools;
  input.kwargs_json = prompt.chat_template_kwargs;
  input.add_generation_prompt = prompt.add_generation_prompt;
  input.continue_final_message = prompt.continue_final_message;
  input.now = options_.now;
  return Render(input);
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

}  // namespace forebay::job
