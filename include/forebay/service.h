// Who waits for an answer.
#pragma once

#include <cstdint>

namespace forebay {

// Nobody until the whole batch is there, or somebody who reads along.
enum class Service : uint8_t { kBatch, kInteractive };
inline constexpr int kNumServices = 2;

}  // namespace forebay
