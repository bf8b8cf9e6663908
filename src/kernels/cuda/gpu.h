// What kernels may use of a GPU: this vocabulary, and hopper.h on compute capability 9.0. nvcc sees
// inline PTX; a C++ compiler sees an emulated grid of fibers (emulation/), so that every kernel
// runs and is tested where there is no GPU.
//
// A kernel is a .cu file of device code alone. It takes one flat struct by value:
//
//   #include "kernels/cuda/gpu.h"
//   namespace forebay::kernels::cuda {
//   FB_KERNEL(scale_rows, ScaleRowsParams, 128) {  // 128 threads a block; 128, 2: and registers
//                                                  // for two blocks a multiprocessor
//     FB_SHARED(float, row);                       // the block's dynamic shared memory
//     for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) row[j] = args.x[j];
//     gpu::Sync();
//   }
//   }  // namespace forebay::kernels::cuda
//
// Rules:
//  1. Arithmetic is that of class `pair`: fp32, one rounding an operation, denormals flushed. nvcc
//     runs with -ftz=true -fmad=false; a fused multiply-add is written Fma, a quotient Div, a root
//     Sqrt. In double all operators round once; denormals stay.
//  2. What is .aligned on a GPU (Sync, Shuffle, Ballot, LoadMatrix, Mma) is called by all 32 lanes
//     of a warp at once. The emulation names lanes that stand elsewhere.
//  3. Shared memory is dynamic, begins at a multiple of 1,024, and holds NaN at first.
//  4. Blocks of a grid never wait for each other. Blocks of a cluster may (hopper.h).
//  5. Shared memory is addressed by pointers in C++ and by Smem(pointer) in what names it in PTX.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define FB_DEVICE __device__ __forceinline__
#define FB_KERNEL(name, Params, ...)                        \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__) \
      name(const __grid_constant__ Params args)
#define FB_SHARED(T, name)                                            \
  extern __shared__ __align__(1024) unsigned char fb_shared_memory[]; \
  T* const name = reinterpret_cast<T*>(fb_shared_memory)
#else
#include <cmath>
#include <cstddef>
#include <cstring>

#include "kernels/cuda/emulation/thread.h"
#define FB_DEVICE inline
// The kernel, its entry for a launch (emulation/grid.h's ThreadFunction), and what a launch copies.
#define FB_FIRST(first, ...) first
#define FB_KERNEL(name, Params, ...)                                            \
  static_assert((FB_FIRST(__VA_ARGS__, )) % 32 == 0 && sizeof(Params) <= 4096); \
  static void name##_thread(const Params& args);                                \
  extern "C" void fb_emulated_##name(const void* params) {                      \
    ::forebay::gpu::emulation::CheckThreads(FB_FIRST(__VA_ARGS__, ));           \
    name##_thread(*static_cast<const Params*>(params));                         \
  }                                                                             \
  extern "C" size_t fb_params_##name() { return sizeof(Params); }               \
  static void name##_thread([[maybe_unused]] const Params& args)
#define FB_SHARED(T, name) T* const name = static_cast<T*>(::forebay::gpu::emulation::SharedBase())
#endif

namespace forebay::gpu {

inline constexpr int kWarpLanes = 32;

#ifdef __CUDACC__

FB_DEVICE int Tid() { return threadIdx.x; }
FB_DEVICE int Threads() { return blockDim.x; }
FB_DEVICE int BlockX() { return blockIdx.x; }
FB_DEVICE int BlockY() { return blockIdx.y; }
FB_DEVICE int BlockZ() { return blockIdx.z; }
FB_DEVICE int GridX() { return gridDim.x; }
FB_DEVICE int GridY() { return gridDim.y; }

FB_DEVICE void Sync() { __syncthreads(); }
FB_DEVICE void SyncWarp() { __syncwarp(); }
// `count` threads, whole warps, meet at barrier `id` (1 to 15; 0 is Sync's).
FB_DEVICE void NamedSync(int id, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}
// Counts as arrived there and goes on.
FB_DEVICE void NamedArrive(int id, int count) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// A lane's value, of 4 or 8 bytes.
template <typename T>
FB_DEVICE T Shuffle(T value, int lane) {
  return __shfl_sync(0xFFFFFFFFu, value, lane);
}
template <typename T>
FB_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}
FB_DEVICE uint32_t Ballot(bool value) { return __ballot_sync(0xFFFFFFFFu, value); }
// How many bits are set.
FB_DEVICE int PopCount(uint32_t bits) { return __popc(bits); }

// `value` is added to *at by one of many threads; returns what was there.
FB_DEVICE int AtomicAdd(int* at, int value) { return atomicAdd(at, value); }
// The same of 64 bits, of a counter that only kernels write.
FB_DEVICE void AtomicAdd(int64_t* at, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}
// What this thread wrote is seen by others before what it writes from here on.
FB_DEVICE void FenceGrid() { __threadfence(); }

FB_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// The same, limited to [0, 1]; NaN gives 0.
FB_DEVICE float FmaSaturated(float a, float b, float c) {
  float r;
  asm("fma.rn.ftz.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
}
// A NaN does not count.
FB_DEVICE float Max(float a, float b) { return fmaxf(a, b); }
FB_DEVICE float Ceil(float x) { return ceilf(x); }
FB_DEVICE float Nearest(float x) { return rintf(x); }  // whole, of two the even one
FB_DEVICE float Div(float a, float b) { return __fdiv_rn(a, b); }
FB_DEVICE float Sqrt(float x) { return __fsqrt_rn(x); }
FB_DEVICE uint32_t Bits(float x) { return __float_as_uint(x); }
FB_DEVICE float FromBits(uint32_t bits) { return __uint_as_float(bits); }
// A denormal becomes a zero of its sign.
FB_DEVICE float Flush(float x) {
  float r;
  asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(-0.0f));
  return r;
}
// Two bf16, nearest even, `low` in the lower half; denormals are kept.
FB_DEVICE uint32_t PairOf(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Programmatic launch: the next kernel of the stream may start; what the kernel before wrote is
// there. Portable code has neither, and no launch of it overlaps (LaunchShape::overlaps).
FB_DEVICE void LaunchNext() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
FB_DEVICE void AwaitPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What another block wrote in this launch: past the cache that is this block's alone.
FB_DEVICE float LoadFresh(const float* at) { return __ldcg(at); }

// The address of shared memory as PTX takes it.
FB_DEVICE uint32_t Smem(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// 16 bytes of device memory into shared memory, zeros where not `valid`; belongs to the thread's
// next CommitCopies.
FB_DEVICE void CopyAsync16(void* shared, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(Smem(shared)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
FB_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups of the thread but the last N have landed.
template <int N>
FB_DEVICE void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Four matrices of 8 x 8 elements of 16 bits: lane 8 i + r gives the address of row r of matrix i.
FB_DEVICE void LoadMatrix4(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
FB_DEVICE void LoadMatrix4Transposed(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

// c += A B: A [16, 16] bf16 by rows, B [16, 8] bf16 by columns, c [16, 8] fp32; one step of class
// mma_k16f25.
FB_DEVICE void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same where rows 8 to 15 of A are zero: a and c are the upper rows' registers.
FB_DEVICE void MmaUpper(float (&c)[2], const uint32_t (&a)[2], uint32_t b0, uint32_t b1) {
  asm volatile(
      "{.reg .f32 x, y; mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,x,y},{%2,%6,%3,%6},{%4,%5},{%0,%1,%7,%7};}"
      : "+f"(c[0]), "+f"(c[1])
      : "r"(a[0]), "r"(a[1]), "r"(b0), "r"(b1), "r"(0), "f"(0.0f));
}

#else

inline int Tid() { return emulation::here->thread; }
inline int Threads() { return emulation::here->threads; }
inline int BlockX() { return emulation::here->block[0]; }
inline int BlockY() { return emulation::here->block[1]; }
inline int BlockZ() { return emulation::here->block[2]; }
inline int GridX() { return emulation::here->grid[0]; }
inline int GridY() { return emulation::here->grid[1]; }

inline void Sync(emulation::Where where = emulation::Where::current()) {
  emulation::Barrier(0, Threads(), true, where);
}
inline void SyncWarp(emulation::Where where = emulation::Where::current()) {
  emulation::WarpMeeting("SyncWarp", nullptr, 0, where);
}
inline void NamedSync(int id, int count, emulation::Where where = emulation::Where::current()) {
  emulation::Barrier(id, count, true, where);
}
inline void NamedArrive(int id, int count, emulation::Where where = emulation::Where::current()) {
  emulation::Barrier(id, count, false, where);
}

template <typename T>
T Shuffle(T value, int lane, emulation::Where where = emulation::Where::current()) {
  return static_cast<const T*>(
      emulation::WarpMeeting("Shuffle", &value, sizeof value, where))[lane % kWarpLanes];
}
template <typename T>
T ShuffleXor(T value, int mask, emulation::Where where = emulation::Where::current()) {
  return Shuffle(value, Tid() % kWarpLanes ^ mask, where);
}
inline uint32_t Ballot(bool value, emulation::Where where = emulation::Where::current()) {
  const auto* all =
      static_cast<const bool*>(emulation::WarpMeeting("Ballot", &value, sizeof value, where));
  uint32_t bits = 0;
  for (int lane = 0; lane < kWarpLanes; ++lane) bits |= uint32_t{all[lane]} << lane;
  return bits;
}
inline int PopCount(uint32_t bits) { return __builtin_popcount(bits); }

inline int AtomicAdd(int* at, int value) {
  const int before = *at;
  *at += value;
  return before;
}
inline void AtomicAdd(int64_t* at, int64_t value) { *at += value; }
inline void FenceGrid() {}

inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float FmaSaturated(float a, float b, float c) {
  const float r = std::fma(a, b, c);
  return r > 0 ? (r < 1 ? r : 1.0f) : 0.0f;
}
inline float Max(float a, float b) { return std::fmax(a, b); }
inline float Ceil(float x) { return std::ceil(x); }
inline float Nearest(float x) { return std::nearbyint(x); }
inline float Div(float a, float b) { return a / b; }
inline float Sqrt(float x) { return std::sqrt(x); }
inline uint32_t Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float FromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline float Flush(float x) {
  return (Bits(x) & 0x7F800000u) == 0 ? FromBits(Bits(x) & 0x80000000u) : x;
}
inline uint32_t PairOf(float low, float high) {
  const auto rounded = [](float x) {
    return x == x ? (Bits(x) + 0x7FFFu + (Bits(x) >> 16 & 1u)) >> 16 : 0x7FFFu;
  };
  return rounded(low) | rounded(high) << 16;
}

inline void LaunchNext() {}
inline void AwaitPrevious() { emulation::AwaitPrevious(); }

inline float LoadFresh(const float* at) { return *at; }

inline uint32_t Smem(const void* shared) { return emulation::SharedAddress(shared); }

inline void CopyAsync16(void* shared, const void* from, bool valid,
                        emulation::Where where = emulation::Where::current()) {
  emulation::CopyAsync16(shared, from, valid, where);
}
inline void CommitCopies() { emulation::CommitCopies(); }
template <int N>
void WaitCopies() {
  emulation::WaitCopies(N);
}

inline void LoadMatrix4(uint32_t (&r)[4], uint32_t shared,
                        emulation::Where where = emulation::Where::current()) {
  emulation::LoadMatrix4(r, shared, false, where);
}
inline void LoadMatrix4Transposed(uint32_t (&r)[4], uint32_t shared,
                                  emulation::Where where = emulation::Where::current()) {
  emulation::LoadMatrix4(r, shared, true, where);
}
inline void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                emulation::Where where = emulation::Where::current()) {
  emulation::Mma(c, a, b0, b1, where);
}
inline void MmaUpper(float (&c)[2], const uint32_t (&a)[2], uint32_t b0, uint32_t b1,
                     emulation::Where where = emulation::Where::current()) {
  float all[4] = {c[0], c[1]};
  const uint32_t rows[4] = {a[0], 0, a[1], 0};
  emulation::Mma(all, rows, b0, b1, where);
  c[0] = all[0], c[1] = all[1];
}

#endif

// What begins a kernel whose launch overlaps with the one before it, and which brings nothing of
// its own meanwhile. By all threads, in front of all memory.
FB_DEVICE void TakeTurn() {
  AwaitPrevious();
  LaunchNext();
}

FB_DEVICE int Lane() { return Tid() % kWarpLanes; }
FB_DEVICE int Warp() { return Tid() / kWarpLanes; }
FB_DEVICE int Warps() { return Threads() / kWarpLanes; }

}  // namespace forebay::gpu
