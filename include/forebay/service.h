// The class of service of a request.
#pragma once

#include <cstdint>

namespace forebay {

// Batch: nobody waits before the whole batch is done. Interactive: a person reads along.
enum class Service : uint8_t { kBatch, kInteractive };
inline constexpr int kNumServices = 2;

}  // namespace forebay
