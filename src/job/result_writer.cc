#include "job/result_writer.h"

#include <utility>

#include "base/check.h"

namespace forebay::job {

ResultWriter::ResultWriter(Parts parts)
    : parts_(std::move(parts)),
      lines_({parts_.text, parts_.fingerprints, parts_.style, parts_.unix_seconds}) {
  const auto pending = static_cast<int64_t>(parts_.file.size() - parts_.log.num_done());
  tail_begins_at_ = pending - pending / 20;
}

InputLine ResultWriter::InputOf(size_t ordinal) const {
  const LineEntry& entry = parts_.file[ordinal];
  return {.line = entry.line, .hash = entry.hash};
}

void ResultWriter::Expect(size_t ordinal, ParsedLine line, const Request& request) {
  lines_.Expect(InputOf(ordinal), std::move(line), request);
}

base::Status ResultWriter::WriteError(size_t ordinal, const std::optional<std::string>& custom_id,
                                      const LineError& error) {
  return Append(lines_.Refused(InputOf(ordinal), custom_id, error));
}

bool ResultWriter::Finish(RequestResult result) {
  const AnswerLine answer = lines_.Finish(&result);
  if (!answer.error) {
    parts_.counters.done_prompt_tokens += result.prompt_tokens;
    parts_.counters.done_output_tokens += result.completion_tokens;
  }
  return Append(answer).ok();
}

base::Status ResultWriter::Append(const AnswerLine& answer) {
  if (answer.error) {
    ++parts_.counters.failed;
    const std::lock_guard lock(mutex_);
    parts_.failures.Add(answer.error->code, answer.input.line + 1, answer.error->message);
  }
  const std::optional<size_t> ordinal = parts_.file.Find(answer.input.line);
  FB_CHECK(ordinal, "a result for line {}, which the input lacks", answer.input.line + 1);
  FB_RETURN_IF_ERROR(parts_.log.Append(*ordinal, answer.text));
  if (++parts_.counters.done == tail_begins_at_)
    parts_.counters.tail_began_ns = parts_.runtime.Now();
  if (parts_.log.GroupIsFull()) parts_.group_is_full.Set();
  return {};
}

}  // namespace forebay::job
