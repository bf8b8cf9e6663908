// Operations that measure what a machine could do: products from registers, bytes read once.
#pragma once

#include "device/device.h"
#include "kernels/cpu/probes.h"

namespace forebay::profile {

inline constexpr int64_t kPeakRounds = 500'000;  // 1 to 3 ms

struct PeakArgs {
  void (*loop)(int64_t rounds, const float* data);
};
inline void RunPeak(const PeakArgs& args, const device::WorkerContext&) {
  float data[32];
  for (int i = 0; i < 32; ++i) data[i] = 0.001f * static_cast<float>(i + 1);
  args.loop(kPeakRounds, data);
}

struct ReadArgs {
  const std::byte* data;
  int64_t bytes;
};
// In small pieces, so that no worker waits for a slower one. REQUIRES: whole MiB.
inline void RunRead(const ReadArgs& args, const device::WorkerContext& context) {
  constexpr int64_t kPiece = 1 << 20;
  for (int64_t at; (at = kPiece * context.ticket->fetch_add(1)) < args.bytes;)
    kernels::ReadAll(args.data + at, kPiece);
}

}  // namespace forebay::profile
