#include "job/model_templates.h"

#include <fmt/ranges.h>

#include <filesystem>

#include "base/log.h"
#include "base/read_file.h"

namespace forebay::job {
namespace {

using base::Result;
using base::Status;
using text::ChatTemplateSources;
using Source = ChatTemplateSources::Source;

// A file of the model's folder, or nothing.
Result<std::optional<Source>> ReadSource(const std::string& folder, const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(folder + "/" + file, error)) return std::optional<Source>();
  FB_ASSIGN_OR_RETURN(std::string text, base::ReadFile(folder + "/" + file));
  return std::optional(Source{std::move(text), file});
}

Result<ChatTemplateSources> ReadFolder(const std::string& folder, const std::string& config) {
  ChatTemplateSources found;
  if (!config.empty()) {
    auto own = text::FindChatTemplates(config);
    if (!own.ok()) return own.status().WithContext(folder + "/tokenizer_config.json");
    found = std::move(*own);
  }
  FB_ASSIGN_OR_RETURN(auto plain, ReadSource(folder, "chat_template.jinja"));
  FB_ASSIGN_OR_RETURN(auto tools, ReadSource(folder, "additional_chat_templates/tool_use.jinja"));
  if (plain) {
    if (found.plain && found.plain->text != plain->text) {
      base::Log(base::LogLevel::kWarning,
                fmt::format("{}: {} is another template than {}; the first is used", folder,
                            plain->where, found.plain->where));
    }
    found.plain = std::move(plain);
    found.with_tools.reset();
  }
  if (tools) found.with_tools = std::move(tools);
  return found;
}

Result<ChatTemplateSources> ReadGguf(const weights::GgufFile& gguf) {
  ChatTemplateSources found;
  const auto read = [&](const char* key, std::optional<Source>* to) -> Status {
    if (!gguf.Has(key)) return Status::Ok();
    FB_ASSIGN_OR_RETURN(const std::string_view text, gguf.GetString(key));
    *to = Source{std::string(text), key};
    return Status::Ok();
  };
  FB_RETURN_IF_ERROR(read("tokenizer.chat_template", &found.plain));
  FB_RETURN_IF_ERROR(read("tokenizer.chat_template.tool_use", &found.with_tools));
  return found;
}

// No template can do without a brace: a text without one is a file's name.
Result<ChatTemplateSources> ReadGiven(const std::string& given) {
  ChatTemplateSources found;
  found.plain = {given, "--chat-template"};
  if (given.find('{') == std::string::npos) {
    auto text = base::ReadFile(given);
    if (!text.ok()) return text.status().WithContext("--chat-template");
    found.plain->text = *std::move(text);
    found.plain->where = given;
  }
  return found;
}

}  // namespace

Result<ModelTemplates> ModelTemplates::Load(const Options& options) {
  auto found = !options.given.empty() ? ReadGiven(options.given)
               : options.gguf         ? ReadGguf(*options.gguf)
                                      : ReadFolder(options.path, options.config);
  if (!found.ok()) return found.status();
  ModelTemplates templates;
  templates.names_ = std::move(found->names);
  FB_RETURN_IF_ERROR(templates.Add(std::move(found->plain), options, &templates.plain_));
  FB_RETURN_IF_ERROR(templates.Add(std::move(found->with_tools), options, &templates.with_tools_));
  return templates;
}

Status ModelTemplates::Add(std::optional<Source> source, const Options& options,
                           std::optional<Slot>* slot) {
  if (!source) return Status::Ok();
  slot->emplace(Slot{.source = std::move(*source)});
  auto made =
      text::ChatTemplate::Create((*slot)->source.text, {.special_tokens = options.special_tokens});
  if (made.ok()) {
    if (!made->missing().empty()) {
      base::Log(base::LogLevel::kWarning,
                fmt::format("{}: the chat template {} names what is not known here: {}; chats that "
                            "come to it fail",
                            options.path, (*slot)->source.where, fmt::join(made->missing(), ", ")));
    }
    (*slot)->made = std::move(*made);
    return Status::Ok();
  }
  (*slot)->why = made.status().WithContext("chat template " + (*slot)->source.where);
  if (!options.given.empty()) return (*slot)->why;
  base::Log(base::LogLevel::kWarning,
            fmt::format("{}: {}; chats get this error, other requests run", options.path,
                        (*slot)->why.message()));
  return Status::Ok();
}

Result<text::RenderedText> ModelTemplates::Render(const text::ChatInput& input) const {
  const auto& slot = !input.tools_json.empty() && with_tools_ ? with_tools_ : plain_;
  if (slot && slot->made) return slot->made->Render(input);
  if (slot) return slot->why;
  return Status(text::kChatTemplateMissing,
                fmt::format("the model has no chat template{}; give one with --chat-template, or "
                            "use /v1/completions",
                            names_.empty() ? ""
                                           : fmt::format(" named \"default\" (it has: {})",
                                                         fmt::join(names_, ", "))));
}

bool ModelTemplates::uses_clock() const {
  const auto reads = [](const std::optional<Slot>& slot) {
    return slot && slot->made && slot->made->uses_clock();
  };
  return reads(plain_) || reads(with_tools_);
}

void ModelTemplates::AddTo(base::Hasher* hasher) const {
  for (const auto* slot : {&plain_, &with_tools_}) {
    if (*slot) hasher->Update((*slot)->source.text);
  }
}

std::string ModelTemplates::Names() const {
  const std::string plain = plain_ ? plain_->source.where : "none";
  return with_tools_ ? plain + ", with tools " + with_tools_->source.where : plain;
}

}  // namespace forebay::job
