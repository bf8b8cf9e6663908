// What a machine can do at this moment: loops that use registers alone, or only read. Profiles and benchmarks time them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace forebay::kernels {

// Independent chains of one instruction that fill the registers, as sums do in a kernel, for `rounds` rounds. data: 32
// operands, not zero, since zeros save power.
#define FB_PEAK_LOOP(instruction, width, chains, a, b)                                            \
  asm volatile("vmovups (%1), %%" width a "\n vmovups 64(%1), %%" width b                         \
               "\n .irp r, " chains "\n vmovaps %%" width a ", %%" width "\\r\n .endr\n 1:"       \
               "\n .irp r, " chains "\n " instruction " %%" width b ", %%" width a ", %%" width    \
               "\\r\n .endr\n dec %0\n jnz 1b"                                                   \
               : "+r"(rounds)                                                                     \
               : "r"(data)                                                                        \
               : "memory", "cc", FB_PEAK_CLOBBERS)
#define FB_24 "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23"
#define FB_PEAK_CLOBBERS                                                                                              \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25"
__attribute__((target("avx512f"), noinline)) inline void DotLoop(int64_t rounds, const float* data) {
  FB_PEAK_LOOP("vdpbf16ps", "zmm", FB_24, "24", "25");
}
__attribute__((target("avx512f"), noinline)) inline void Fma512Loop(int64_t rounds, const float* data) {
  FB_PEAK_LOOP("vfmadd231ps", "zmm", FB_24, "24", "25");
}
#undef FB_PEAK_CLOBBERS
#define FB_PEAK_CLOBBERS                                                                                              \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"
__attribute__((target("avx2"), noinline)) inline void Fma256Loop(int64_t rounds, const float* data) {
  FB_PEAK_LOOP("vfmadd231ps", "ymm", "0,1,2,3,4,5,6,7,8,9,10,11", "14", "15");
}

struct PeakProbe {
  void (*loop)(int64_t rounds, const float* data);
  double flops_per_round;
};
inline constexpr PeakProbe kDotProbe{&DotLoop, 24 * 64.0};
inline constexpr PeakProbe kFma512Probe{&Fma512Loop, 24 * 32.0};
inline constexpr PeakProbe kFma256Probe{&Fma256Loop, 12 * 16.0};

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

inline void ReadAll(const std::byte* data, int64_t bytes) {
  (__builtin_cpu_supports("avx512f") ? &ReadAll512 : &ReadAll256)(data, bytes);
}

}  // namespace forebay::kernels
