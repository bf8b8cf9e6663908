// A text pipeline for tests: a token is a byte; 256 is the special token "<s>".
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "job/lines/text_pipeline.h"

namespace forebay::job {

class FakePipeline : public TextPipeline {
 public:
  static constexpr int32_t kBegin = 256, kVocabulary = 257;

  bool has_tokenizer() const override { return true; }
  std::string TokenBytes(int32_t id) const override {
    return id == kBegin ? "<s>" : std::string(1, static_cast<char>(id));
  }
  bool IsSpecial(int32_t id) const override { return id == kBegin; }
  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += TokenBytes(id);
    return text;
  }
  base::Result<std::vector<int32_t>> RenderChat(const ChatPrompt& prompt) override {
    return Tokenize(prompt.messages, prompt.add_special_tokens);
  }
  base::Result<std::vector<int32_t>> Tokenize(std::string_view text,
                                              bool add_special_tokens) override {
    if (text.find("bad template") != text.npos)
      return base::Status({"template_error"}, "the template says no");
    std::vector<int32_t> ids;
    if (add_special_tokens) ids.push_back(kBegin);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  base::Result<PooledTokens> TokenizePooled(const PooledText& text) override {
    PooledTokens tokens;
    FB_ASSIGN_OR_RETURN(tokens.ids, Tokenize(text.first, text.add_special_tokens));
    if (text.second) {
      tokens.second = static_cast<int32_t>(tokens.ids.size());
      FB_ASSIGN_OR_RETURN(const std::vector<int32_t> second, Tokenize(*text.second, false));
      tokens.ids.insert(tokens.ids.end(), second.begin(), second.end());
    }
    if (text.most_tokens > 0) {
      tokens.ids.resize(std::min(tokens.ids.size(), static_cast<size_t>(text.most_tokens)));
      tokens.ids.shrink_to_fit();
    }
    return tokens;
  }
};

// A folder without a tokenizer.
class NoTokenizer : public FakePipeline {
 public:
  bool has_tokenizer() const override { return false; }
  std::string TokenBytes(int32_t) const override { return ""; }
  bool IsSpecial(int32_t) const override { return false; }
};

}  // namespace forebay::job
