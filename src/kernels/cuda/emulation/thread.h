// What a running thread of an emulated grid may call: the CPU's side of gpu.h and hopper.h.
//
// A thread is a fiber; it runs until it waits. Wrong orders are provoked: which warp runs on is
// drawn from the launch's seed, asynchronous copies land as late as their wait allows, their
// target is NaN until then, and tensor-core operands are read when they are waited for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::gpu::emulation {

// A place in the kernel, for the report of a wait that cannot end. (Clang 14 has no
// std::source_location.)
struct Where {
  const char* file = "";
  int line = 0;

  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// Where the running thread stands in its grid.
struct Indices {
  int thread = 0, threads = 0;
  int block[3] = {}, grid[3] = {};
  int cluster_rank = 0, cluster_blocks = 1;
};
extern constinit thread_local const Indices* here;

// A fault where the block has more threads than the kernel's launch bounds allow.
void CheckThreads(int most);

// The block's dynamic shared memory, and addresses in it as PTX counts them: from 0 on.
void* SharedBase();
uint32_t SharedAddress(const void* shared);

// Barrier `id` of the block: `count` threads arrive, and those that `wait` go on together.
void Barrier(int id, int count, bool wait, Where where);
// All lanes of a warp meet: each gives `bytes` at `mine` and sees those of all 32, in order, until
// the warp meets again. `what`: which operation; lanes that meet in different ones are a fault.
const void* WarpMeeting(const char* what, const void* mine, size_t bytes, Where where);

void CopyAsync16(void* shared, const void* from, bool valid, Where where);
void CommitCopies();
void WaitCopies(int groups);
void CopiesArrive(uint64_t* bar);

void LoadMatrix4(uint32_t (&r)[4], uint32_t shared, bool transposed, Where where);
void StoreMatrix(uint32_t shared, const uint32_t* r, int matrices, bool transposed, Where where);
void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Where where);

// mbarriers (hopper.h's Bar, 8 bytes of shared memory).
void BarInit(uint64_t* bar, int count);
void BarExpect(uint64_t* bar, int bytes, Where where);
void BarArrive(uint64_t* bar, int block_of_cluster, Where where);
void BarWait(uint64_t* bar, int parity, Where where);

// Bulk copies of the asynchronous proxy. `blocks`: a bit for each block of the cluster that the
// copy goes to, at the same address, and whose barrier of that address counts its bytes.
void BulkCopy(void* shared, const void* from, int bytes, uint64_t* bar, uint32_t blocks,
              Where where);
void BulkStore(void* to, const void* shared, int bytes, Where where);
void BulkCommit();
void BulkWaitRead(int groups);

void ClusterSync(Where where);
// Grid::previous, unless it was called.
void AwaitPrevious();

// One asynchronous step of 64 x n x 16, described as the hardware takes it: A from shared memory by
// descriptor, or from the four registers at `registers`, read when it is waited for.
struct WgmmaStep {
  float* c = nullptr;  // [n / 2] of this thread
  int n = 0;
  uint64_t a = 0, b = 0;                // descriptors
  const uint32_t* registers = nullptr;  // null: A is in shared memory
  bool accumulate = true;               // false: the chain begins here
  bool b_along_n = false;               // B's rows are along N (the transposed form)
};
void WgmmaIssue(const WgmmaStep& step, Where where);
void WgmmaCommit(Where where);
void WgmmaWait(int groups, Where where);

}  // namespace forebay::gpu::emulation
