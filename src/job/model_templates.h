// The chat templates of a model: which file gives each, and what of them cannot be read.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "text/chat_template.h"
#include "weights/formats/gguf.h"

namespace forebay::job {

// Immutable; threads may render at once. Precedence is that of Hugging Face's transformers:
// chat_template.jinja and additional_chat_templates/tool_use.jinja before tokenizer_config.json.
class ModelTemplates {
 public:
  struct Options {
    std::string path;                         // the model: a folder or a GGUF file
    const weights::GgufFile* gguf = nullptr;  // its metadata, if it is a GGUF file
    std::string config;                       // the text of a folder's tokenizer_config.json, or ""
    std::string given;                        // --chat-template: a file, or the template itself
    std::vector<std::pair<std::string, std::string>> special_tokens;
  };

  // A template of the model's own that cannot be read costs a warning, and chats that need it get
  // its error; `given` must be readable.
  static base::Result<ModelTemplates> Load(const Options& options);

  // By the template for tools where the model has one and the input has tools.
  base::Result<text::RenderedText> Render(const text::ChatInput& input) const;
  bool uses_clock() const;
  void AddTo(base::Hasher* hasher) const;
  // "chat_template.jinja, with tools additional_chat_templates/tool_use.jinja", or "none".
  std::string Names() const;

 private:
  struct Slot {
    text::ChatTemplateSources::Source source;
    std::optional<text::ChatTemplate> made;
    base::Status why;  // where it could not be made
  };

  base::Status Add(std::optional<text::ChatTemplateSources::Source> source, const Options& options,
                   std::optional<Slot>* slot);

  std::optional<Slot> plain_, with_tools_;
  std::vector<std::string> names_;  // of all that the files have
};

}  // namespace forebay::job
