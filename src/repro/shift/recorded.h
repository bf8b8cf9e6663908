// Recorded traffic: when requests came, and how long they and their answers were.
#pragma once

#include <cstdint>

#include "trace/trace.h"

namespace forebay::repro {

// Every second request of the busiest 15 minutes of one of the two Azure LLM inference traces of
// November 2023 (AzurePublicDataset, CC BY 4.0, in the form in which Vidur publishes them).
enum class Recording : uint8_t { kNone, kAzureCode, kAzureConversation };

int64_t RequestsOf(Recording which);
// The first `requests` of it, at `rate` requests a second on average: all gaps are the recorded
// ones times the same number. 0: all at once. REQUIRES: 2 <= requests <= RequestsOf(which).
trace::LengthTrace RecordedTrace(Recording which, int64_t requests, double rate);

}  // namespace forebay::repro
