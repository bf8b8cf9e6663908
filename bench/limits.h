// What this machine can do at this moment: register-only arithmetic and streaming reads, all workers at once.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "kernels/cpu/probes.h"
#include "kernels/testing/team.h"
#include "runtime/topology.h"

namespace forebay::bench {

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Anonymous memory on huge pages, never freed.
inline std::byte* HugeMemory(size_t bytes) {
  constexpr size_t kPage = 2 << 20;
  bytes = (bytes + kPage - 1) / kPage * kPage;
  void* memory = mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* start = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage);
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
using kernels::PeakProbe;

// flop/s of all workers.
inline double MeasurePeak(kernels::testing::Team& team, int workers, const PeakProbe& probe) {
  constexpr int64_t kRounds = 500'000;  // 1 to 2 ms
  const double start = Now();
  team.Run([&](const device::WorkerContext&) {
    float data[32];
    for (int i = 0; i < 32; ++i) data[i] = 0.001f * static_cast<float>(i + 1);
    probe.loop(kRounds, data);
  });
  return kRounds * probe.flops_per_round * workers / (Now() - start);
}

// bytes/s of all workers that read `bytes` from `data` on, each its own part.
inline double MeasureStream(kernels::testing::Team& team, const std::byte* data, int64_t bytes) {
  const double start = Now();
  team.Run([&](const device::WorkerContext& context) {
    const device::Range part = device::StaticPart(context, bytes, 4096);
    kernels::ReadAll(data + part.begin, part.end - part.begin);
  });
  return static_cast<double>(bytes) / (Now() - start);
}

}  // namespace forebay::bench
