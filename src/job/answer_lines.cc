#include "job/answer_lines.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::job {

ResultId AnswerLines::IdOf(const InputLine& input) const {
  ResultId id{.line = input.line + 1, .hash = parts_.fingerprints};
  id.hash.input = input.hash;
  return id;
}

void AnswerLines::Expect(const InputLine& input, ParsedLine line, const Request& request) {
  Expected expected{.input = input, .line = std::move(line)};
  if (NeedsPromptTokens(expected.line)) expected.prompts = request.prompts;
  expected.line.chat = ChatPrompt();
  if (!ShowsPrompts(expected.line)) expected.line.prompts.clear();
  const std::lock_guard lock(mutex_);
  expected_.emplace(request.id, std::move(expected));
}

AnswerLine AnswerLines::Refused(const InputLine& input, const std::optional<std::string>& custom_id,
                                LineError error) const {
  AnswerLine answer{.input = input};
  AppendErrorResult(IdOf(input), custom_id, error, &answer.text);
  answer.error = std::move(error);
  return answer;
}

InputLine AnswerLines::InputOf(int64_t id) {
  const std::lock_guard lock(mutex_);
  return expected_.at(id).input;
}

AnswerLine AnswerLines::Finish(RequestResult* result, const Drain& drain) {
  Expected expected;
  {
    const std::lock_guard lock(mutex_);
    auto found = expected_.extract(result->id);
    FB_CHECK(!found.empty(), "a result for request {}, which has none to come", result->id);
    expected = std::move(found.mapped());
  }
  if (!result->error_message.empty())
    return Refused(expected.input, expected.line.custom_id, ToLineError(*result));
  std::ranges::sort(result->choices, {}, &Choice::index);
  AnswerLine answer{.input = expected.input};
  AppendResult(parts_.style, IdOf(expected.input), parts_.unix_seconds(),
               {expected.line, expected.prompts, *result}, parts_.text, &answer.text, drain);
  return answer;
}

}  // namespace forebay::job
