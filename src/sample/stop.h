// When a choice ends, and the text it leaves. The habits are vLLM's: an end id or a stop id ends
// the choice and leaves no text of its own; a stop string may span tokens and is cut off, with what
// follows it; include_stop_str_in_output keeps both. Before min_tokens none of them counts. If the
// length and a stop string end a choice with the same token, the string is the reason. Among
// several stop strings in the new text the earliest counts, then the first of the list.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "forebay/request.h"

namespace forebay::sample {

struct Finish {
  FinishReason reason = FinishReason::kLength;
  // a stop id that ended it; unset for an end-of-sequence id
  std::optional<int32_t> stop_token;
  std::optional<std::string> stop_string;
};

// One choice's. For each token: AddToken, then, if wants_text(), AddText of the text that it
// completed (if there is a tokenizer at all); then finish() is decided.
class StopConditions {
 public:
  // `end_tokens`: the model's end-of-sequence ids and the generation config's. `max_output`: tokens
  // until the context's end; params.max_tokens may lower it. `params` must outlive this object.
  StopConditions(const SamplingParams& params, std::span<const int32_t> end_tokens,
                 int64_t max_output);

  // Ids that must not be drawn next: all that could end the choice, until min_tokens were
  // generated.
  std::span<const int32_t> banned() const;

  // Returns whether the token ends the choice.
  bool AddToken(int32_t token);
  // So many tokens come of which none ends the choice.
  void Skip(int64_t tokens) { generated_ += tokens; }
  // False if the last token's text does not belong to the output.
  bool wants_text() const { return text_wanted_; }
  // `held`: what the text goes on with if no token changes it any more. It ends the choice as other
  // text does, and else is no part of the text yet.
  void AddText(std::string_view piece, std::string_view held = {});

  const std::optional<Finish>& finish() const { return finish_; }
  int64_t generated() const { return generated_; }
  const std::string& text() const { return text_; }
  // How much of text() no stop string can take away any more.
  size_t settled_text() const;
  std::string TakeText() { return std::move(text_); }

 private:
  // First what each token asks for.
  int64_t generated_ = 0;
  int64_t max_output_;
  std::vector<int32_t> ending_;  // end ids, then stop ids
  size_t num_end_tokens_;
  const SamplingParams* params_;
  bool text_wanted_ = true;
  std::string text_;
  // a stop string that ends before it was ruled out, or came before min_tokens; of the text and
  // what was held
  size_t searched_ = 0;
  std::optional<Finish> finish_;
};

}  // namespace forebay::sample
