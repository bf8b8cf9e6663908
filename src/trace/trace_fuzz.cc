// Any bytes as a trace, CSV or synthetic, end in rows within the limits or in an error.
#include <sstream>

#include "base/check.h"
#include "trace/synthetic_trace.h"
#include "trace/trace.h"

namespace {

void Check(const forebay::base::Result<forebay::trace::LengthTrace>& trace) {
  if (!trace.ok()) return;
  double time = 0;
  for (const forebay::trace::TraceRow& row : trace->rows) {
    FB_CHECK(row.prompt_tokens >= 1 && row.prompt_tokens <= forebay::trace::kMostTraceTokens,
             "prompt of {}", row.prompt_tokens);
    FB_CHECK(row.output_tokens >= 1 && row.output_tokens <= forebay::trace::kMostTraceTokens,
             "output of {}", row.output_tokens);
    FB_CHECK(row.arrival_seconds >= time, "arrival at {} after {}", row.arrival_seconds, time);
    time = row.arrival_seconds;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::istringstream stream(text);
  Check(forebay::trace::ParseTrace(stream, "trace", {}));
  // A short one: what is drawn is not what is tried.
  Check(forebay::trace::MakeSyntheticTrace("synthetic:" + text + ",n=3"));
  return 0;
}
