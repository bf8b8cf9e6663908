#include "trace/line_source.h"

#include <fmt/core.h>

#include <utility>

#include "base/log.h"

namespace forebay::trace {
namespace {

constexpr int64_t kMostReported = 5;

}  // namespace

std::optional<Request> LineSource::Next(bool) {
  while (!ended()) {
    const size_t next = next_++, ordinal = order_.empty() ? next : order_[next];
    base::Result<job::BuiltLine> built = builder_.Build(ordinal);
    if (!built.ok()) {
      status_ = built.status();
      return std::nullopt;
    }
    if (built->error) {
      Refuse(ordinal, *built->error);
      continue;
    }
    Request request = std::move(built->request);
    request.sampling.ignore_eos = true;
    request.sampling.stop.clear();
    request.sampling.stop_token_ids.clear();
    if (const auto found = lengths_.find(request.line); found != lengths_.end())
      request.ends_after = found->second;
    return request;
  }
  return std::nullopt;
}

void LineSource::Refuse(size_t ordinal, const job::LineError& error) {
  const int64_t line = int64_t{file_[ordinal].line} + 1;
  failures_.Add(error.code, line, error.message);
  if (++refused_ > kMostReported) return;
  base::Log(base::LogLevel::kWarning,
            fmt::format("{}: line {}: {} [{}]", file_.path(), line, error.message, error.code));
}

}  // namespace forebay::trace
