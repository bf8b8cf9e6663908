#include "job/result_writer.h"

#include <utility>

#include "base/check.h"

namespace forebay::job {
namespace {

// Log probabilities whose line is written in pieces: as text one takes 20 to 100 bytes.
constexpr size_t kManyLogprobs = 1 << 17;
constexpr size_t kPiece = 1 << 20;  // bytes

size_t LogprobsOf(const RequestResult& result) {
  size_t count = 0;
  const auto add = [&](const std::vector<PositionLogprobs>& positions) {
    for (const PositionLogprobs& position : positions) count += position.top.size();
  };
  for (const Choice& choice : result.choices) add(choice.logprobs);
  for (const auto& prompt : result.prompt_logprobs) add(prompt);
  return count;
}

}  // namespace

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
  if (result.error_message.empty() && LogprobsOf(result) > kManyLogprobs)
    return AppendLong(&result).ok();
  const AnswerLine answer = lines_.Finish(&result);
  if (!answer.error) {
    parts_.counters.done_prompt_tokens += result.prompt_tokens;
    parts_.counters.CountOutput(result.completion_tokens);
  }
  return Append(answer).ok();
}

base::Status ResultWriter::Append(const AnswerLine& answer) {
  if (answer.error) {
    ++parts_.counters.failed;
    const std::lock_guard lock(mutex_);
    parts_.failures.Add(answer.error->code, answer.input.line + 1, answer.error->message);
  }
  FB_RETURN_IF_ERROR(parts_.log.Append(OrdinalOf(answer.input), answer.text));
  CountDone();
  return {};
}

base::Status ResultWriter::AppendLong(RequestResult* result) {
  const size_t ordinal = OrdinalOf(lines_.InputOf(result->id));
  const auto give = [&](const ResultsLog::PieceSink& sink) {
    const AnswerLine answer = lines_.Finish(result, [&](std::string* text) {
      if (text->size() < kPiece) return;
      sink(*text);
      text->clear();
    });
    sink(answer.text);
  };
  parts_.counters.done_prompt_tokens += result->prompt_tokens;
  parts_.counters.CountOutput(result->completion_tokens);
  FB_RETURN_IF_ERROR(parts_.log.AppendPieces(ordinal, give));
  CountDone();
  return {};
}

size_t ResultWriter::OrdinalOf(const InputLine& input) const {
  const std::optional<size_t> ordinal = parts_.file.Find(input.line);
  FB_CHECK(ordinal, "a result for line {}, which the input lacks", input.line + 1);
  return *ordinal;
}

void ResultWriter::CountDone() {
  if (++parts_.counters.done == tail_begins_at_)
    parts_.counters.tail_began_ns = parts_.runtime.Now();
  if (parts_.log.GroupIsFull()) parts_.group_is_full.Set();
}

}  // namespace forebay::job
