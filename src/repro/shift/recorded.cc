#include "repro/shift/recorded.h"

#include <span>

#include "base/check.h"

namespace forebay::repro {
namespace {

struct RecordedRequest {
  int32_t gap_ms, prompt, output;  // since the request before
};
constexpr RecordedRequest kAzureCode[] = {
#include "repro/shift/azure_code.inc"
};
constexpr RecordedRequest kAzureConversation[] = {
#include "repro/shift/azure_conversation.inc"
};

std::span<const RecordedRequest> Requests(Recording which) {
  switch (which) {
    case Recording::kNone: return {};
    case Recording::kAzureCode: return kAzureCode;
    case Recording::kAzureConversation: return kAzureConversation;
  }
  FB_CHECK(false, "no recording {}", static_cast<int>(which));
}

}  // namespace

int64_t RequestsOf(Recording which) { return std::ssize(Requests(which)); }

trace::LengthTrace RecordedTrace(Recording which, int64_t requests, double rate) {
  const auto taken = Requests(which).first(static_cast<size_t>(requests));
  int64_t span_ms = 0;
  for (const RecordedRequest& request : taken) span_ms += request.gap_ms;
  const double second =
      rate > 0 ? static_cast<double>(requests) / rate / static_cast<double>(span_ms) : 0;
  trace::LengthTrace trace{.name = "recorded"};
  int64_t at_ms = 0;
  for (const RecordedRequest& request : taken) {
    at_ms += request.gap_ms;
    trace.rows.push_back({.arrival_seconds = second * static_cast<double>(at_ms),
                          .prompt_tokens = request.prompt,
                          .output_tokens = request.output});
  }
  return trace;
}

}  // namespace forebay::repro
