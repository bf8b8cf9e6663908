// Causes for which streams wait, and seconds of each.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace forebay {

enum class WaitCause : uint8_t {
  kPull,     // weights that the rank pulls
  kPeer,     // another rank
  kStaging,  // a slot or staging memory that is still being read
  kKv        // KV cache on its way below the device or back
};
inline constexpr int kNumWaitCauses = 4;

constexpr std::string_view Name(WaitCause cause) {
  constexpr std::string_view kNames[kNumWaitCauses] = {"pull", "peer", "staging", "kv"};
  return kNames[static_cast<int>(cause)];
}

// Seconds by cause.
struct WaitSeconds {
  std::array<double, kNumWaitCauses> by_cause{};

  double operator[](WaitCause cause) const { return by_cause[static_cast<size_t>(cause)]; }
  double total() const {
    double sum = 0;
    for (const double seconds : by_cause) sum += seconds;
    return sum;
  }
  void Add(const WaitSeconds& other, double part = 1) {
    for (size_t i = 0; i < by_cause.size(); ++i) by_cause[i] += part * other.by_cause[i];
  }
};

}  // namespace forebay
