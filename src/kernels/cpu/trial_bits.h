// Random operands for trying an instruction against its model. No NaN, and no sum of a few of their
// products overflows.
#pragma once

#include <cstdint>

namespace forebay::kernels {
namespace {

enum class TrialKind : uint8_t {
  kRounding,    // magnitudes from 2^-7 to 2^0
  kDenormal,    // products around the denormal border
  kAnySize,     // below 2
  kCancelling,  // few magnitudes far apart, so that equal products of opposite sign are common
};
constexpr int kTrialKinds = 4;

class TrialBits {
 public:
  // A pair of bf16, or an fp32 to add to.
  uint32_t Next(TrialKind kind, bool is_sum = false) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const uint32_t bits = static_cast<uint32_t>(state_ >> 32);
    switch (kind) {
      case TrialKind::kRounding: return (bits & 0x83FF83FFu) | 0x3C003C00u;
      case TrialKind::kDenormal: return (bits & 0x83FF83FFu) | (is_sum ? 0u : 0x1C001C00u);
      case TrialKind::kAnySize: return bits & 0xBFFFBFFFu;
      case TrialKind::kCancelling: break;
    }
    return (bits & 0x86038603u) | 0x3C003C00u;
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15u;
};

}  // namespace
}  // namespace forebay::kernels
