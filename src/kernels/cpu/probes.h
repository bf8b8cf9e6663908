// What a machine can do at this moment: loops that use registers alone, or only read. Profiles and
// benchmarks time them.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/cpu/amx/tile_config.h"
#include "kernels/kernel_set.h"

namespace forebay::kernels {

// Independent chains of one instruction that fill the registers, as sums do in a kernel, for
// `rounds` rounds. data: 32 operands, not zero, since zeros save power.
#define FB_PEAK_LOOP(instruction, width, chains, a, b)                                          \
  asm volatile("vmovups (%1), %%" width a "\n vmovups 64(%1), %%" width b "\n .irp r, " chains  \
               "\n vmovaps %%" width a ", %%" width                                             \
               "\\r\n .endr\n 1:"                                                               \
               "\n .irp r, " chains "\n " instruction " %%" width b ", %%" width a ", %%" width \
               "\\r\n .endr\n dec %0\n jnz 1b"                                                  \
               : "+r"(rounds)                                                                   \
               : "r"(data)                                                                      \
               : "memory", "cc", FB_PEAK_CLOBBERS)
#define FB_24 "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23"
#define FB_PEAK_CLOBBERS                                                                        \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",      \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", \
      "xmm21", "xmm22", "xmm23", "xmm24", "xmm25"
__attribute__((target("avx512f"), noinline)) inline void DotLoop(int64_t rounds,
                                                                 const float* data) {
  FB_PEAK_LOOP("vdpbf16ps", "zmm", FB_24, "24", "25");
}
__attribute__((target("avx512f"), noinline)) inline void Fma512Loop(int64_t rounds,
                                                                    const float* data) {
  FB_PEAK_LOOP("vfmadd231ps", "zmm", FB_24, "24", "25");
}
__attribute__((target("avx512f"), noinline)) inline void Int8DotLoop(int64_t rounds,
                                                                     const float* data) {
  FB_PEAK_LOOP("vpdpbusd", "zmm", FB_24, "24", "25");
}
#undef FB_PEAK_CLOBBERS
#define FB_PEAK_CLOBBERS                                                                   \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
__attribute__((target("avx2"), noinline)) inline void Fma256Loop(int64_t rounds,
                                                                 const float* data) {
  FB_PEAK_LOOP("vfmadd231ps", "ymm", "0,1,2,3,4,5,6,7,8,9,10,11", "14", "15");
}

// Tiles of random numbers: random signs, magnitudes of 2^-7 to 2^0.
struct TileOperands {
  static constexpr int kSteps = 4;
  alignas(64) uint32_t tiles[kSteps][4][256];  // two of rows, two of columns: 16 KiB in all

  TileOperands() {
    uint64_t state = 1;
    for (auto& step : tiles) {
      for (auto& tile : step) {
        for (uint32_t& pair : tile) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          pair = (static_cast<uint32_t>(state >> 32) & 0x83FF83FFu) | 0x3C003C00u;
        }
      }
    }
  }
};

// Products of tiles, a round each: four independent sums, two tiles of rows by two of columns.
// REQUIRES: HardwareTileOrder() is known.
__attribute__((noinline)) inline void TileProductLoop(int64_t rounds, const float* data) {
  static const TileOperands operands;
  const TileConfig config(16);
  int64_t loops = rounds / 4;
  asm volatile(
      "ldtilecfg %2\n tileloadd (%1,%3,1), %%tmm4\n tileloadd 1024(%1,%3,1), %%tmm5\n tileloadd "
      "2048(%1,%3,1), %%tmm6"
      "\n tileloadd 3072(%1,%3,1), %%tmm7\n tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n "
      "tilezero %%tmm3"
      "\n 1: tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n tdpbf16ps "
      "%%tmm6, %%tmm5, %%tmm2"
      "\n tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n dec %0\n jnz 1b\n tilerelease"
      : "+r"(loops)
      : "r"(operands.tiles[0]), "m"(config), "r"(int64_t{64})
      : "memory", "cc");
}

// As TileProductLoop, but each product loads a tile from the first cache, as those of linear layers
// do: what these can reach at this moment. Where another has a part of the tile unit, products and
// loads add up.
__attribute__((noinline)) inline void TileFeedLoop(int64_t rounds, const float*) {
  static const TileOperands operands;
  const TileConfig config(16);
  asm volatile(
      "ldtilecfg %0\n tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3"
      :
      : "m"(config)
      : "memory");
  for (int64_t i = 0; i < rounds / 4; ++i) {
    asm volatile(
        "tileloadd 2048(%0,%1,1), %%tmm6\n tileloadd (%0,%1,1), %%tmm4\n tdpbf16ps %%tmm6, "
        "%%tmm4, %%tmm0\n tileloadd 3072(%0,%1,1), %%tmm7\n tdpbf16ps %%tmm7, %%tmm4, %%tmm1"
        "\n tileloadd 1024(%0,%1,1), %%tmm5\n tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n tdpbf16ps "
        "%%tmm7, %%tmm5, %%tmm3"
        :
        : "r"(operands.tiles[i % TileOperands::kSteps]), "r"(int64_t{64})
        : "memory");
  }
  asm volatile("tilerelease");
}

struct PeakProbe {
  void (*loop)(int64_t rounds, const float* data);
  double flops_per_round;
};
inline constexpr PeakProbe kDotProbe{&DotLoop, 24 * 64.0};
inline constexpr PeakProbe kInt8Probe{&Int8DotLoop, 24 * 128.0};
inline constexpr PeakProbe kFma512Probe{&Fma512Loop, 24 * 32.0};
inline constexpr PeakProbe kFma256Probe{&Fma256Loop, 12 * 16.0};
inline constexpr PeakProbe kTileProbe{&TileProductLoop, 2.0 * 16 * 16 * 32};
inline constexpr PeakProbe kTileFeedProbe{&TileFeedLoop, 2.0 * 16 * 16 * 32};

inline const PeakProbe& FmaProbeOf(Isa isa) {
  return isa == Isa::kAvx2 || isa == Isa::kRef ? kFma256Probe : kFma512Probe;
}
// The set's widest product of bf16: the limit of its linear layers.
inline const PeakProbe& ProbeOf(Isa isa) {
  return isa == Isa::kAmx ? kTileProbe : isa == Isa::kAvx512bf16 ? kDotProbe : FmaProbeOf(isa);
}

// The product of int8 layers, where that is one instruction; or null.
inline const PeakProbe* Int8ProbeOf(Isa isa) {
  const bool has = isa == Isa::kAmx || isa == Isa::kAvx512bf16 ||
                   (isa == Isa::kAvx512f && __builtin_cpu_supports("avx512vnni"));
  return has ? &kInt8Probe : nullptr;
}

// Ticks of the time-stamp counter a floating-point operation, in a burst of some microseconds.
// Others may have the core in between: of several bursts the fastest counts.
inline double TicksPerFlop(const PeakProbe& probe) {
  constexpr int64_t kRounds = 200;
  float data[32];
  std::fill(std::begin(data), std::end(data), 0.001f);
  const uint64_t begin = __rdtsc();
  probe.loop(kRounds, data);
  return static_cast<double>(__rdtsc() - begin) / (kRounds * probe.flops_per_round);
}

// Reads everything once, 4 KiB ahead: the fastest of the distances and widths tried.
__attribute__((target("avx512f"), noinline)) inline void ReadAll512(const std::byte* data,
                                                                    int64_t bytes) {
  __m512i sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(data + i + 4096 + j * 64), _MM_HINT_T0);
      sum[j] = _mm512_add_epi64(sum[j], _mm512_load_si512(data + i + j * 64));
    }
  }
  asm volatile("" ::"v"(sum[0]), "v"(sum[1]), "v"(sum[2]), "v"(sum[3]));
}
__attribute__((target("avx2"), noinline)) inline void ReadAll256(const std::byte* data,
                                                                 int64_t bytes) {
  __m256i sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      const auto* line = reinterpret_cast<const __m256i*>(data + i + j * 64);
      _mm_prefetch(reinterpret_cast<const char*>(line) + 4096, _MM_HINT_T0);
      sum[j] = _mm256_add_epi64(_mm256_add_epi64(sum[j], _mm256_load_si256(line)),
                                _mm256_load_si256(line + 1));
    }
  }
  asm volatile("" ::"x"(sum[0]), "x"(sum[1]), "x"(sum[2]), "x"(sum[3]));
}

inline void ReadAll(const std::byte* data, int64_t bytes) {
  (__builtin_cpu_supports("avx512f") ? &ReadAll512 : &ReadAll256)(data, bytes);
}

}  // namespace forebay::kernels
