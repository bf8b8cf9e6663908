#include "trace/job_lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace forebay::trace {

base::Result<LengthTrace> MeasureJob(const job::JobFile& file, job::RequestRules rules,
                                     job::TextPipeline& text, const OutputLengths& lengths,
                                     int64_t max_model_len) {
  LengthTrace trace{.name = file.path()};
  job::RequestBuilder builder(file, std::move(rules), text, nullptr);
  const auto lines = static_cast<int64_t>(file.size()),
             measured = std::min(lines, kMostMeasuredLines);
  std::string first_error;
  for (int64_t i = 0; i < measured; ++i) {
    // Of `lines` those that the measured one stands for.
    const int64_t line = i * lines / measured, stands_for = (i + 1) * lines / measured - line;
    FB_ASSIGN_OR_RETURN(const job::BuiltLine built, builder.Build(static_cast<size_t>(line)));
    if (built.error) {
      if (first_error.empty()) first_error = built.error->message;
      continue;
    }
    const Request& request = built.request;
    const int64_t wanted = request.sampling.most_tokens();
    for (const std::vector<int32_t>& prompt : request.prompts) {
      const auto tokens = static_cast<int64_t>(prompt.size());
      const int64_t room = max_model_len - tokens;
      const int64_t most = wanted < 0 ? room : std::min(room, wanted);
      if (most < 1) continue;
      const auto found = lengths.find(request.line);
      const int64_t output = found != lengths.end() ? std::min<int64_t>(found->second, most) : most;
      const TraceRow row{.prompt_tokens = static_cast<int32_t>(tokens),
                         .output_tokens = static_cast<int32_t>(std::max<int64_t>(1, output))};
      trace.rows.insert(trace.rows.end(), static_cast<size_t>(stands_for * request.n), row);
    }
  }
  if (!trace.rows.empty()) return trace;
  return base::Status(
      kTraceInvalid,
      fmt::format("{}: none of {} lines can run{}{}; expected at least one", file.path(), measured,
                  first_error.empty() ? "" : ", the first for: ", first_error));
}

}  // namespace forebay::trace
