#include "job/check_lines.h"

#include <fmt/core.h>

#include "base/log.h"
#include "job/job.h"
#include "job/request_builder.h"

namespace forebay::job {

base::Status CheckAllLines(const JobFile& input, const RequestRules& rules, TextPipeline& text,
                           const Engine& engine, const std::function<bool()>& ending) {
  RequestBuilder builder(input, rules, text, &engine);
  int64_t num_bad = 0;
  for (size_t ordinal = 0; ordinal < input.size() && !ending(); ++ordinal) {
    FB_ASSIGN_OR_RETURN(const BuiltLine built, builder.Build(ordinal));
    if (!built.error) continue;
    ++num_bad;
    base::Log(base::LogLevel::kError,
              fmt::format("{}: line {}: {} [{}]", input.path(), input[ordinal].line + 1,
                          built.error->message, built.error->code));
  }
  if (num_bad == 0) return {};
  return base::Status(
      kBadLines, fmt::format("{}: {} of {} lines are bad; --strict runs nothing then", input.path(),
                             num_bad, input.size()));
}

}  // namespace forebay::job
