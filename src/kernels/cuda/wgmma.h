// Wgmma<N>: c [64, N] fp32 (+)= A [64, 16] B [16, N] of bf16, one step of class mma_k16f25 an
// output. Of the sums, c[4 j + 2 h + e] is row warp % 4 * 16 + lane / 4 + 8 h, column
// 8 j + lane % 4 * 2 + e. `accumulate` false: the chain begins (c = A B). kAlongN: B's descriptor
// is OperandAlongN's.
#pragma once

#include "kernels/cuda/hopper.h"

namespace forebay::gpu {

template <int N>
struct Wgmma;

#ifdef __CUDACC__

// The operands of 8 sums from c[i] on, and the names of the first 32, 64, ... operands.
#define FB_SUMS8(i)                                                                           \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define FB_SUMS32_(i) FB_SUMS8(i), FB_SUMS8(i + 8), FB_SUMS8(i + 16), FB_SUMS8(i + 24)
#define FB_SUMS32 FB_SUMS32_(0)
#define FB_SUMS64 FB_SUMS32_(0), FB_SUMS32_(32)
#define FB_SUMS80 FB_SUMS64, FB_SUMS8(64), FB_SUMS8(72)
#define FB_SUMS96 FB_SUMS64, FB_SUMS32_(64)
#define FB_SUMS128 FB_SUMS96, FB_SUMS32_(96)
#define FB_NAMES32                                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, "                                                                                      \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FB_NAMES64                                                                               \
  FB_NAMES32                                                                                     \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FB_NAMES80 \
  FB_NAMES64       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define FB_NAMES96 \
  FB_NAMES80       \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FB_NAMES128                                                                            \
  FB_NAMES96                                                                                   \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "   \
  "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127"

// Operands behind the sums: A's descriptor (or its four registers), B's, accumulate, kAlongN.
#define FB_WGMMA_SHARED(N, count, a, b, on, along)                                            \
  template <bool kAlongN>                                                                     \
  FB_DEVICE static void Shared(float(&c)[N / 2], uint64_t a_operand, uint64_t b_operand,      \
                               bool accumulate) {                                             \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #on                                        \
                 ", 0; "                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" FB_NAMES##count \
                 "}, %" #a ", %" #b ", p, 1, 1, 0, %" #along ";}"                             \
                 : FB_SUMS##count                                                             \
                 : "l"(a_operand), "l"(b_operand), "r"(static_cast<int>(accumulate)),         \
                   "n"(kAlongN ? 1 : 0));                                                     \
  }
#define FB_WGMMA_REGISTERS(N, count, a0, a1, a2, a3, b, on, along)                              \
  template <bool kAlongN>                                                                       \
  FB_DEVICE static void Registers(float(&c)[N / 2], const uint32_t(&a)[4], uint64_t b_operand,  \
                                  bool accumulate) {                                            \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #on                                          \
                 ", 0; "                                                                        \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" FB_NAMES##count   \
                 "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1, %" #along ";}" \
                 : FB_SUMS##count                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_operand),                  \
                   "r"(static_cast<int>(accumulate)), "n"(kAlongN ? 1 : 0));                    \
  }

template <>
struct Wgmma<64> {
  FB_WGMMA_SHARED(64, 32, 32, 33, 34, 35)
  FB_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37, 38)
};
template <>
struct Wgmma<128> {
  FB_WGMMA_SHARED(128, 64, 64, 65, 66, 67)
  FB_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69, 70)
};
template <>
struct Wgmma<160> {
  FB_WGMMA_SHARED(160, 80, 80, 81, 82, 83)
};
template <>
struct Wgmma<192> {
  FB_WGMMA_SHARED(192, 96, 96, 97, 98, 99)
};
template <>
struct Wgmma<256> {
  FB_WGMMA_SHARED(256, 128, 128, 129, 130, 131)
};

#undef FB_SUMS8
#undef FB_SUMS32_
#undef FB_SUMS32
#undef FB_SUMS64
#undef FB_SUMS80
#undef FB_SUMS96
#undef FB_SUMS128
#undef FB_NAMES32
#undef FB_NAMES64
#undef FB_NAMES80
#undef FB_NAMES96
#undef FB_NAMES128
#undef FB_WGMMA_SHARED
#undef FB_WGMMA_REGISTERS

#else

template <int N>
struct Wgmma {
  template <bool kAlongN>
  static void Shared(float (&c)[N / 2], uint64_t a, uint64_t b, bool accumulate,
                     emulation::Where where = emulation::Where::current()) {
    emulation::WgmmaIssue(
        {.c = c, .n = N, .a = a, .b = b, .accumulate = accumulate, .b_along_n = kAlongN}, where);
  }
  template <bool kAlongN>
  static void Registers(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b, bool accumulate,
                        emulation::Where where = emulation::Where::current()) {
    emulation::WgmmaIssue(
        {.c = c, .n = N, .b = b, .registers = a, .accumulate = accumulate, .b_along_n = kAlongN},
        where);
  }
};

#endif

}  // namespace forebay::gpu
