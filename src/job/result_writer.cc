#include "job/result_writer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::job {

ResultWriter::ResultWriter(Parts parts) : parts_(std::move(parts)) {
  const auto pending = static_cast<int64_t>(parts_.file.size() - parts_.log.num_done());
  tail_begins_at_ = pending - pending / 20;
}

ResultId ResultWriter::IdOf(size_t ordinal) const {
  const LineEntry& entry = parts_.file[ordinal];
  ResultId id{.line = int64_t{entry.line} + 1, .hash = parts_.fingerprints};
  id.hash.input = entry.hash;
  return id;
}

void ResultWriter::Expect(size_t ordinal, ParsedLine line, const Request& request) {
  Expected expected{.ordinal = ordinal, .line = std::move(line)};
  if (NeedsPromptTokens(expected.line)) expected.prompts = request.prompts;
  expected.line.chat = ChatPrompt();
  if (!expected.line.echo) expected.line.prompts.clear();
  const std::lock_guard lock(mutex_);
  expected_.emplace(request.line, std::move(expected));
}

base::Status ResultWriter::WriteError(size_t ordinal, const std::optional<std::string>& custom_id, const LineError& error) {
  std::string text;
  AppendErrorResult(IdOf(ordinal), custom_id, error, &text);
  return Append(ordinal, text, true);
}

bool ResultWriter::Finish(RequestResult result) {
  Expected expected;
  {
    const std::lock_guard lock(mutex_);
    const auto found = expected_.extract(result.line);
    FB_CHECK(!found.empty(), "a result for line {}, which has none to come", result.line + 1);
    expected = std::move(found.mapped());
  }
  if (!result.error_message.empty()) {
    return WriteError(expected.ordinal, expected.line.custom_id, ToLineError(result)).ok();
  }
  std::sort(result.choices.begin(), result.choices.end(), [](const Choice& a, const Choice& b) { return a.index < b.index; });
  std::string text;
  AppendResult(parts_.style, IdOf(expected.ordinal), parts_.unix_seconds(), {expected.line, expected.prompts, result},
               parts_.text, &text);
  parts_.counters.done_prompt_tokens += result.prompt_tokens;
  parts_.counters.done_output_tokens += result.completion_tokens;
  return Append(expected.ordinal, text, false).ok();
}

base::Status ResultWriter::Append(size_t ordinal, const std::string& text, bool failed) {
  FB_RETURN_IF_ERROR(parts_.log.Append(ordinal, text));
  if (failed) ++parts_.counters.failed;
  if (++parts_.counters.done == tail_begins_at_) parts_.counters.tail_began_ns = parts_.runtime.Now();
  if (parts_.log.GroupIsFull()) parts_.group_is_full.Set();
  return {};
}

}  // namespace forebay::job
