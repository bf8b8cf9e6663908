// The text of a model: its tokenizer and chat template, as a job uses them.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "job/lines/text_pipeline.h"
#include "job/model_templates.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/formats/gguf.h"

namespace forebay::job {

inline constexpr base::ErrorCode kTokenizerNotFound{"tokenizer_not_found"};
inline constexpr base::ErrorCode kPairsUnknown{"pairs_unknown"};

struct ModelTextOptions {
  std::string path;                         // the model: a folder or a GGUF file
  const weights::GgufFile* gguf = nullptr;  // its metadata, if it is a GGUF file
  // --chat-template: a file, or the template itself; "": the model's own
  std::string chat_template;
  bool skip_tokenizer = false;  // token ids only
  // message contents may spell special tokens, as in other engines
  bool parse_special_in_content = false;
  std::tm now = {};  // what strftime_now reads
};

class ModelText : public TextPipeline {
 public:
  static base::Result<std::unique_ptr<ModelText>> Load(const ModelTextOptions& options);

  // Null where the tokenizer is skipped.
  const text::Tokenizer* tokenizer() const { return tokenizer_.get(); }
  const ModelTemplates& templates() const { return templates_; }
  // Does a template read the clock?
  bool uses_clock() const;
  std::string clock() const;  // "2026-03-07T14:05:09"
  void set_now(const std::tm& now) { options_.now = now; }
  // What of the model's files can change an answer, but for tokenizer.json: templates, and the
  // files beside it that say what tokens mean.
  uint64_t Fingerprint() const;

  // The chat as text. Errors are the request's fault.
  base::Result<text::RenderedText> RenderPrompt(const ChatPrompt& prompt) const;
  std::vector<int32_t> Encode(const text::RenderedText& rendered, bool add_special_tokens) const;

  bool has_tokenizer() const override { return tokenizer_ != nullptr; }
  std::string TokenBytes(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::optional<int32_t> SpecialToken(std::string_view content) const override;
  std::string Decode(std::span<const int32_t> ids) const override;
  base::Result<std::vector<int32_t>> RenderChat(const ChatPrompt& prompt) override;
  base::Result<std::vector<int32_t>> Tokenize(std::string_view text,
                                              bool add_special_tokens) override;
  // A pair is joined by --chat-template, if that is given, as messages of the roles query and
  // document; else as the tokenizer's file says. Also kPairsUnknown.
  base::Result<PooledTokens> TokenizePooled(const PooledText& text) override;

 private:
  explicit ModelText(const ModelTextOptions& options) : options_(options) {}
  base::Status LoadTemplates();
  base::Result<PooledTokens> RenderPair(const PooledText& text);

  ModelTextOptions options_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  uint64_t files_hash_ = 0;  // of the folder's files that say what tokens mean
  ModelTemplates templates_;
};

}  // namespace forebay::job
