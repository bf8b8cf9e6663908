// What compute capability 9.0 adds to gpu.h: mbarriers, bulk copies, clusters, wgmma. sm_90a alone.
//
// The shapes of asynchronous work:
//  - Packed operand: chunks of 64 rows (of activations, or columns of weights) x 64 of K, 8 KiB:
//  the
//    image of shared memory in the 128-byte swizzle. Byte (r, k) of a chunk lies at
//    r / 8 * 1024 + r % 8 * 128 + ((2 k) ^ (r % 8 * 16)). One bulk copy brings a chunk.
//  - A Bar counts arrivals and bytes; a phase ends when both are there. Wait(parity) holds until
//  the
//    phase of that parity has ended: 0 for the first.
//  - Wgmma<N> is issued by a warpgroup: four warps from a warp that is a multiple of 4. Its
//  operands
//    (shared memory, registers of A) belong to it until WgmmaWait says so, and so do its sums.
#pragma once

#include "kernels/cuda/gpu.h"

namespace forebay::gpu {

using Bar = uint64_t;  // in shared memory, 8-byte aligned

#ifdef __CUDACC__

FB_DEVICE void BarInit(Bar* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(Smem(bar)), "r"(count) : "memory");
}
// Barriers that were initialised are seen by other threads and the asynchronous proxy (then Sync).
FB_DEVICE void BarFence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Arrives, and the phase awaits so many bytes more.
FB_DEVICE void BarExpect(Bar* bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(Smem(bar)), "r"(bytes)
               : "memory");
}
FB_DEVICE void BarArrive(Bar* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(Smem(bar)) : "memory");
}
// Arrives at the barrier of the same address in block `rank` of the cluster.
FB_DEVICE void BarArriveAt(Bar* bar, int rank) {
  asm volatile(
      "{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; "
      "mbarrier.arrive.shared::cluster.b64 _, [r];}" ::"r"(Smem(bar)),
      "r"(rank)
      : "memory");
}
// Arrives when the thread's CopyAsync16 of before have landed, which it waits for nowhere. What
// wgmma reads of them needs a ProxyFence behind the BarWait.
FB_DEVICE void CopiesArrive(Bar* bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(Smem(bar)) : "memory");
}
FB_DEVICE void BarWait(Bar* bar, int parity) {
  asm volatile(
      "{.reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra L; "
      "D:}" ::"r"(Smem(bar)),
      "r"(parity)
      : "memory");
}

// Device memory to shared memory; both 16-byte aligned, `bytes` a multiple of 16.
FB_DEVICE void BulkCopy(void* shared, const void* from, int bytes, Bar* bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(Smem(shared)),
      "l"(from), "r"(bytes), "r"(Smem(bar))
      : "memory");
}
// The same to each block of the cluster whose bit is set in `blocks`.
FB_DEVICE void BulkMulticast(void* shared, const void* from, int bytes, Bar* bar, int blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(Smem(shared)),
      "l"(from), "r"(bytes), "r"(Smem(bar)), "h"(static_cast<uint16_t>(blocks))
      : "memory");
}
// Shared memory to device memory. What ordinary stores wrote there needs ProxyFence first.
FB_DEVICE void BulkStore(void* to, const void* shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(Smem(shared)), "r"(bytes)
               : "memory");
}
FB_DEVICE void BulkCommit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// All groups of the thread's stores but the last N have read their source.
template <int N>
FB_DEVICE void BulkWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
// Ordinary writes to shared memory come before what the asynchronous proxy reads.
FB_DEVICE void ProxyFence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

FB_DEVICE int ClusterRank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
FB_DEVICE void ClusterSync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

FB_DEVICE void StoreMatrix4(uint32_t shared, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0],{%1,%2,%3,%4};" ::"r"(shared),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
FB_DEVICE void StoreMatrix4Transposed(uint32_t shared, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0],{%1,%2,%3,%4};" ::"r"(shared),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
FB_DEVICE void StoreMatrix2Transposed(uint32_t shared, const uint32_t (&r)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0],{%1,%2};" ::"r"(shared),
               "r"(r[0]), "r"(r[1])
               : "memory");
}

// Registers a thread of the warpgroup keeps from here on: a multiple of 8. The sum over the block's
// threads is at most what its launch took, or RegistersUp waits for ever.
template <int kRegisters>
FB_DEVICE void RegistersDown() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
FB_DEVICE void RegistersUp() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

FB_DEVICE void WgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FB_DEVICE void WgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All committed groups but the last N are done.
template <int N>
FB_DEVICE void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Keeps registers that a wgmma reads from being given away before its wait: call it after the wait.
FB_DEVICE void KeepRegisters(const uint32_t (&a)[4]) {
  asm volatile("" ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]));
}
// The same value; what follows from it is worked out here and not sooner, out of a loop.
FB_DEVICE int Here(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
// Work on these registers that is written above is done above, and below what is written below.
template <int N>
FB_DEVICE void PinRegisters(float (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int N>
FB_DEVICE void PinRegisters(uint32_t (&registers)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    asm volatile(""
                 : "+r"(registers[i][0]), "+r"(registers[i][1]), "+r"(registers[i][2]),
                   "+r"(registers[i][3])::"memory");
  }
}

#else

inline void BarInit(Bar* bar, int count) { emulation::BarInit(bar, count); }
inline void BarFence() {}
inline void BarExpect(Bar* bar, int bytes, emulation::Where where = emulation::Where::current()) {
  emulation::BarExpect(bar, bytes, where);
}
inline void BarArrive(Bar* bar, emulation::Where where = emulation::Where::current()) {
  emulation::BarArrive(bar, emulation::here->cluster_rank, where);
}
inline void BarArriveAt(Bar* bar, int rank, emulation::Where where = emulation::Where::current()) {
  emulation::BarArrive(bar, rank, where);
}
inline void CopiesArrive(Bar* bar) { emulation::CopiesArrive(bar); }
inline void BarWait(Bar* bar, int parity, emulation::Where where = emulation::Where::current()) {
  emulation::BarWait(bar, parity, where);
}

inline void BulkCopy(void* shared, const void* from, int bytes, Bar* bar,
                     emulation::Where where = emulation::Where::current()) {
  emulation::BulkCopy(shared, from, bytes, bar, 1u << emulation::here->cluster_rank, where);
}
inline void BulkMulticast(void* shared, const void* from, int bytes, Bar* bar, int blocks,
                          emulation::Where where = emulation::Where::current()) {
  emulation::BulkCopy(shared, from, bytes, bar, static_cast<uint32_t>(blocks), where);
}
inline void BulkStore(void* to, const void* shared, int bytes,
                      emulation::Where where = emulation::Where::current()) {
  emulation::BulkStore(to, shared, bytes, where);
}
inline void BulkCommit() { emulation::BulkCommit(); }
template <int N>
void BulkWaitRead() {
  emulation::BulkWaitRead(N);
}
inline void ProxyFence() {}

inline int ClusterRank() { return emulation::here->cluster_rank; }
inline void ClusterSync(emulation::Where where = emulation::Where::current()) {
  emulation::ClusterSync(where);
}
inline void StoreMatrix4(uint32_t shared, const uint32_t (&r)[4],
                         emulation::Where where = emulation::Where::current()) {
  emulation::StoreMatrix(shared, r, 4, false, where);
}
inline void StoreMatrix4Transposed(uint32_t shared, const uint32_t (&r)[4],
                                   emulation::Where where = emulation::Where::current()) {
  emulation::StoreMatrix(shared, r, 4, true, where);
}
inline void StoreMatrix2Transposed(uint32_t shared, const uint32_t (&r)[2],
                                   emulation::Where where = emulation::Where::current()) {
  emulation::StoreMatrix(shared, r, 2, true, where);
}

template <int kRegisters>
void RegistersDown() {}
template <int kRegisters>
void RegistersUp() {}

inline void WgmmaFence() {}
inline void WgmmaCommit(emulation::Where where = emulation::Where::current()) {
  emulation::WgmmaCommit(where);
}
template <int N>
void WgmmaWait(emulation::Where where = emulation::Where::current()) {
  emulation::WgmmaWait(N, where);
}
inline void KeepRegisters(const uint32_t (&)[4]) {}
inline int Here(int value) { return value; }
template <typename T>
void PinRegisters(T&) {}

#endif

// Descriptor of an operand in the 128-byte swizzle whose rows, 128 bytes each, lie along K, groups
// of 8 rows 1,024 bytes apart. A step of 16 along K moves `shared` on by 32 bytes.
FB_DEVICE uint64_t OperandAlongK(uint32_t shared) {
  return ((shared & 0x3FFFFu) >> 4) | (uint64_t{1} << 16) | (uint64_t{1024 >> 4} << 32) |
         (uint64_t{1} << 62);
}
// The same for B with rows along N: 64 columns a row, one row an element of K; groups of 64 columns
// lie `group_bytes` apart. A step of 16 along K moves `shared` on by 2,048 bytes.
FB_DEVICE uint64_t OperandAlongN(uint32_t shared, int group_bytes) {
  return ((shared & 0x3FFFFu) >> 4) | (static_cast<uint64_t>(group_bytes >> 4) << 16) |
         (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 62);
}

}  // namespace forebay::gpu
