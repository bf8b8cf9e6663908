// Lines of a job whose files another process keeps, answered here: bytes of input lines come in,
// bytes of result lines go out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "job/answer_lines.h"
#include "job/request_builder.h"
#include "job/session.h"

namespace forebay::job {

// For one thread. The answers are those that `forebay run` would write.
class LineServer {
 public:
  // `parser` and `answers` are those of the session's model. Runtime, session and model must
  // outlive the server.
  LineServer(runtime::Runtime& runtime, Session& session, RequestParser parser,
             AnswerLines::Parts answers);

  struct Line {
    int64_t number = 0;  // the physical line of the whole input, from 0: the key of its draws
    std::string text;    // its bytes, without the line's end
  };
  void Add(std::vector<Line> lines);
  // Result lines that are there, without LF; blocks while there is none, until `timeout` has
  // passed. A request that was ended by the session's end has none: its line is someone else's
  // then.
  std::vector<AnswerLine> Take(runtime::TimeNs timeout);
  // Lines that were added and have no result yet.
  size_t held() const { return inputs_.size() + ready_.size(); }
  // Gives up all that is held.
  void CancelAll();

 private:
  Session& session_;
  RequestParser parser_;
  AnswerLines answers_;
  const std::shared_ptr<Inbox> inbox_;
  std::unordered_map<int64_t, int64_t> inputs_;  // lines in the session's hands -> its ids
  std::vector<AnswerLine> ready_;                // without a request
};

}  // namespace forebay::job
