// The logprobs of a choice in the three shapes that the API has.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "forebay/request.h"
#include "job/lines/text_pipeline.h"

namespace forebay::job {

struct LogprobStyle {
  const TokenText& text;
  bool tokens_as_ids = false;  // "token_id:<id>" in place of a token's text
  // Called after each position, between two values: the writer's string may be emptied.
  const std::function<void()>& drain;
};

// Chat: {"content":[{"token","logprob","bytes","top_logprobs":[...]}],"refusal":null}; `count`
// alternatives.
void AppendChatLogprobs(const LogprobStyle& style, int32_t count,
                        std::span<const PositionLogprobs> positions, base::JsonWriter& writer);

// A run of tokens of a completion, and the logprobs of each (none: null, as for a prompt's first
// token).
struct TokenRun {
  std::span<const int32_t> tokens;
  std::span<const PositionLogprobs> positions;
  // The whole run's text, for prompts; specials that are not in it have no width.
  std::string_view text;
  bool is_prompt = false;
  bool skip_special = true;
};

// Completions: {"text_offset","token_logprobs","tokens","top_logprobs"} over the runs, one behind
// the other. Offsets count characters.
void AppendCompletionLogprobs(const LogprobStyle& style, int32_t count,
                              std::span<const TokenRun> runs, base::JsonWriter& writer);

// vLLM's prompt_logprobs: [null, {"<id>":{"logprob","rank","decoded_token"}}, ...].
void AppendPromptLogprobs(const LogprobStyle& style, int32_t count,
                          std::span<const PositionLogprobs> positions, base::JsonWriter& writer);

}  // namespace forebay::job
