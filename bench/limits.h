// What this machine can do at this moment: register-only arithmetic and streaming reads, all workers at once.
#pragma once

#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "kernels/testing/team.h"

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

inline std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, family, model, name;
  while (std::getline(file, line) && !line.empty()) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("cpu family")) family = value;
    if (line.starts_with("model\t")) model = value;
    if (line.starts_with("model name")) name = value;
  }
  return name + " (family " + family + ", model " + model + ")";
}

inline void PinToCore(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

// 16 independent chains of one instruction for `rounds` rounds; operands are not zero, since zeros save power.
#define FB_PEAK_LOOP(name, isa, vector, load, step, store)                                              \
  __attribute__((target(isa), noinline)) inline void name(int64_t rounds, const float* data, float* out) { \
    vector a = load(data), b = load(data + 16);                                                         \
    vector s0 = a, s1 = a, s2 = a, s3 = a, s4 = a, s5 = a, s6 = a, s7 = a, s8 = a, s9 = a, s10 = a, s11 = a; \
    for (int64_t i = 0; i < rounds; ++i) {                                                              \
      s0 = step(s0, a, b), s1 = step(s1, a, b), s2 = step(s2, a, b), s3 = step(s3, a, b);               \
      s4 = step(s4, a, b), s5 = step(s5, a, b), s6 = step(s6, a, b), s7 = step(s7, a, b);               \
      s8 = step(s8, a, b), s9 = step(s9, a, b), s10 = step(s10, a, b), s11 = step(s11, a, b);           \
      asm volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5));                    \
      asm volatile("" : "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9), "+v"(s10), "+v"(s11));                  \
    }                                                                                                   \
    vector sums[12] = {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11};                               \
    for (vector s : sums) store(out, s);                                                                \
  }
#define FB_DOT(s, a, b) _mm512_dpbf16_ps(s, (__m512bh)(a), (__m512bh)(b))
#define FB_FMA512(s, a, b) _mm512_fmadd_ps(a, b, s)
#define FB_FMA256(s, a, b) _mm256_fmadd_ps(a, b, s)
FB_PEAK_LOOP(DotLoop, "avx512f,avx512bf16", __m512, _mm512_loadu_ps, FB_DOT, _mm512_storeu_ps)
FB_PEAK_LOOP(Fma512Loop, "avx512f", __m512, _mm512_loadu_ps, FB_FMA512, _mm512_storeu_ps)
FB_PEAK_LOOP(Fma256Loop, "avx2,fma", __m256, _mm256_loadu_ps, FB_FMA256, _mm256_storeu_ps)

struct PeakProbe {
  void (*loop)(int64_t rounds, const float* data, float* out);
  double flops_per_round;
};
inline constexpr PeakProbe kDotProbe{&DotLoop, 12 * 64.0};
inline constexpr PeakProbe kFma512Probe{&Fma512Loop, 12 * 32.0};
inline constexpr PeakProbe kFma256Probe{&Fma256Loop, 12 * 16.0};

// flop/s of all workers.
inline double MeasurePeak(kernels::testing::Team& team, int workers, const PeakProbe& probe) {
  constexpr int64_t kRounds = 400'000;  // 1 to 2 ms
  const double start = Now();
  team.Run([&](const device::WorkerContext&) {
    float data[32], out[16];
    for (int i = 0; i < 32; ++i) data[i] = 0.001f * static_cast<float>(i + 1);
    probe.loop(kRounds, data, out);
    asm volatile("" ::"m"(out));
  });
  return kRounds * probe.flops_per_round * workers / (Now() - start);
}

// Reads everything once, 4 KiB ahead: the fastest of the distances and widths tried.
__attribute__((target("avx512f"), noinline)) inline void ReadAll512(const std::byte* data, int64_t bytes) {
  __m512i sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(data + i + 4096 + j * 64), _MM_HINT_T0);
      sum[j] = _mm512_add_epi64(sum[j], _mm512_load_si512(data + i + j * 64));
    }
  }
  asm volatile("" ::"v"(sum[0]), "v"(sum[1]), "v"(sum[2]), "v"(sum[3]));
}
__attribute__((target("avx2"), noinline)) inline void ReadAll256(const std::byte* data, int64_t bytes) {
  __m256i sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      const auto* line = reinterpret_cast<const __m256i*>(data + i + j * 64);
      _mm_prefetch(reinterpret_cast<const char*>(line) + 4096, _MM_HINT_T0);
      sum[j] = _mm256_add_epi64(_mm256_add_epi64(sum[j], _mm256_load_si256(line)), _mm256_load_si256(line + 1));
    }
  }
  asm volatile("" ::"x"(sum[0]), "x"(sum[1]), "x"(sum[2]), "x"(sum[3]));
}

// bytes/s of all workers that read `bytes` from `data` on, each its own part.
inline double MeasureStream(kernels::testing::Team& team, const std::byte* data, int64_t bytes) {
  const auto read_all = __builtin_cpu_supports("avx512f") ? &ReadAll512 : &ReadAll256;
  const double start = Now();
  team.Run([&](const device::WorkerContext& context) {
    const device::Range part = device::StaticPart(context, bytes, 4096);
    read_all(data + part.begin, part.end - part.begin);
  });
  return static_cast<double>(bytes) / (Now() - start);
}

}  // namespace forebay::bench
