#include "job/line_server.h"

#include <utility>

#include "base/hash.h"

namespace forebay::job {

LineServer::LineServer(runtime::Runtime& runtime, Session& session, RequestParser parser,
                       AnswerLines::Parts answers)
    : session_(session),
      parser_(std::move(parser)),
      answers_(std::move(answers)),
      inbox_(std::make_shared<Inbox>(runtime)) {}

void LineServer::Add(std::vector<Line> lines) {
  std::vector<Session::Submitted> submitted;
  std::vector<int64_t> numbers;
  for (Line& line : lines) {
    const InputLine input{line.number, base::HashBytes(line.text)};
    BuiltLine built = parser_.Parse(&line.text, line.number);
    built.request.service = Service::kBatch;  // nobody waits for a line of a file
    if (built.error) {
      ready_.push_back(answers_.Refused(input, built.line.custom_id, std::move(*built.error)));
      continue;
    }
    // The line's number is the request's name here; the session has its own.
    built.request.id = line.number;
    answers_.Expect(input, std::move(built.line), built.request);
    numbers.push_back(line.number);
    submitted.push_back({.request = std::move(built.request), .tag = line.number});
  }
  const std::vector<int64_t> ids = session_.Submit(std::move(submitted), inbox_);
  for (size_t i = 0; i < ids.size(); ++i) inputs_.emplace(numbers[i], ids[i]);
}

std::vector<AnswerLine> LineServer::Take(runtime::TimeNs timeout) {
  std::vector<AnswerLine> answers = std::exchange(ready_, {});
  for (Delivery& delivery : inbox_->Take(answers.empty() ? timeout : 0)) {
    if (!delivery.result) continue;
    inputs_.erase(delivery.tag);
    delivery.result->id = delivery.tag;
    AnswerLine answer = answers_.Finish(&*delivery.result);
    const bool given_up = answer.error && (EndedBySession(answer.error->code) ||
                                           answer.error->code == "request_cancelled");
    if (!given_up) answers.push_back(std::move(answer));
  }
  return answers;
}

void LineServer::CancelAll() {
  ready_.clear();
  for (const auto& [line, id] : inputs_) session_.Cancel(id);
}

}  // namespace forebay::job
