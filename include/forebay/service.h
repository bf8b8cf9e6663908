// The service class of a request.
#pragma once

#include <cstdint>

namespace forebay {

// Batch: only the end of the whole batch matters. Interactive: a person reads along.
enum class Service : uint8_t { kBatch, kInteractive };
inline constexpr int kNumServices = 2;

}  // namespace forebay
