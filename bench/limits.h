// What this machine can do at this moment: register-only arithmetic and streaming reads, all
// workers at once.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "kernels/cpu/probes.h"
#include "kernels/testing/team.h"
#include "runtime/topology.h"

namespace forebay::bench {

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor time of the calling thread, which others on its core change least.
inline double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// What times a team: where the calling thread works alone, its processor time.
using Clock = double (*)();
inline Clock ClockOf(int workers) { return workers == 1 ? &ThreadSeconds : &Now; }

// Anonymous memory on huge pages, never freed.
inline std::byte* HugeMemory(size_t bytes) {
  constexpr size_t kPage = 2 << 20;
  bytes = (bytes + kPage - 1) / kPage * kPage;
  void* memory =
      mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* start = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory) + kPage - 1) /
                                             kPage * kPage);
  madvise(start, bytes, MADV_HUGEPAGE);
  return start;
}

using runtime::CpuName;

inline void PinToCore(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

using kernels::kDotProbe;
using kernels::kFma256Probe;
using kernels::kFma512Probe;
using kernels::kTileFeedProbe;
using kernels::PeakProbe;

// Calls piece(i) for i in [0, pieces) on whichever worker is free: neither waits for a slower core.
template <typename Piece>
double SecondsOf(kernels::testing::Team& team, int64_t pieces, const Piece& piece,
                 Clock clock = &Now) {
  const double start = clock();
  team.Run([&](const device::WorkerContext& context) {
    for (int64_t i; (i = context.ticket->fetch_add(1)) < pieces;) piece(i);
  });
  return clock() - start;
}

// flop/s of all workers.
inline double MeasurePeak(kernels::testing::Team& team, int workers, const PeakProbe& probe,
                          Clock clock = &Now) {
  constexpr int64_t kRounds = 10'000;  // 20 to 40 us
  const int64_t pieces = 50 * workers;
  float data[32];
  for (int i = 0; i < 32; ++i) data[i] = 0.001f * static_cast<float>(i + 1);
  const double seconds = SecondsOf(
      team, pieces, [&](int64_t) { probe.loop(kRounds, data); }, clock);
  return static_cast<double>(kRounds * pieces) * probe.flops_per_round / seconds;
}

// bytes/s of all workers that read `bytes`, whole pieces of 1 MiB, from `data` on.
inline double MeasureStream(kernels::testing::Team& team, const std::byte* data, int64_t bytes,
                            Clock clock = &Now) {
  constexpr int64_t kPiece = 1 << 20;
  const double seconds = SecondsOf(
      team, bytes / kPiece, [&](int64_t i) { kernels::ReadAll(data + i * kPiece, kPiece); }, clock);
  return static_cast<double>(bytes) / seconds;
}

}  // namespace forebay::bench
