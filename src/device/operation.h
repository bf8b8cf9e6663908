// One unit of work on a stream: what it costs, what it touches, and the code that does it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "cost/operation.h"

namespace forebay::device {

class LaunchContext;

// A range of device memory (own or a peer's) that an operation reads or writes. Addresses are
// unique across the ranks of a group on every device (`sim` reserves address space without memory),
// so a pointer names (rank, region, offset).
struct Access {
  const void* data;
  uint64_t bytes;
  bool write;
};

// What a kernel's code gets: it is called once by each worker of the rank, all at the same time.
class WorkerContext {
 public:
  virtual ~WorkerContext() = default;
  int worker = 0;  // 0 .. num_workers - 1
  int num_workers = 1;
  // Scratch of this worker, 64-byte aligned; contents undefined at entry. Worker w's lies at
  // scratch + (w - worker) * scratch_bytes: an operation may write into others' and read it after a
  // Barrier.
  std::byte* scratch = nullptr;
  uint64_t scratch_bytes = 0;
  // One counter a worker team, zero at entry: dynamic partition takes tickets from it.
  std::atomic<int64_t>* ticket = nullptr;
  // All workers wait for each other. REQUIRES: every worker calls it equally often.
  virtual void Barrier() const = 0;
};

// The half-open part of [0, total) that falls to this worker, cut at multiples of `grain`.
struct Range {
  int64_t begin, end;
};
inline Range StaticPart(const WorkerContext& context, int64_t total, int64_t grain = 1) {
  const int64_t grains = (total + grain - 1) / grain;
  const int64_t begin = grains * context.worker / context.num_workers * grain;
  const int64_t end = grains * (context.worker + 1) / context.num_workers * grain;
  return {begin < total ? begin : total, end < total ? end : total};
}

// Rows of bytes that are copied from one place to another.
struct CopiedRows {
  void* destination;
  const void* source;
  uint64_t row_bytes;
  int64_t rows = 1;
  uint64_t destination_stride = 0, source_stride = 0;  // from row to row
};

// Flat and copied into the stream's ring: enqueueing allocates nothing.
struct Operation {
  using RunFn = void (*)(const void* args, const WorkerContext& context);
  using AccessesFn = void (*)(const void* args, std::vector<Access>* accesses);
  using CompleteFn = void (*)(const void* args, cost::OpDesc* desc);
  using CopiesFn = void (*)(const void* args, std::vector<CopiedRows>* copies);
  using LaunchFn = void (*)(const void* args, const LaunchContext& context);
  static constexpr int kMaxAccesses = 12;
  static constexpr int kMaxArgBytes = 384;

  cost::OpDesc desc;
  RunFn run = nullptr;
  // writes control memory: its code runs on `sim` too, where others' does not
  bool control = false;
  // Its code is a plain function, not a kernel set's. Where the host does not reach data memory
  // (Device::host_reaches_data) a device calls `launch`, or makes the copies that `copies` lists.
  // Without either the host runs the code in its place in the stream; that needs `on_host`.
  bool plain = false;
  // The code touches memory that the host reaches alone, on every device.
  bool on_host = false;
  alignas(16) std::array<std::byte, kMaxArgBytes> args;
  int num_accesses = 0;
  std::array<Access, kMaxAccesses> accesses;
  // Appends what is touched beyond `accesses`: ranges that a table names, as many as it has. Null:
  // nothing. Only a checker calls it, when the operation begins.
  AccessesFn further_accesses = nullptr;
  // Fills in what `desc` lacks where data decide it, rows, flops, bytes, from control memory that
  // operations before it have written. Called when the operation begins, by who prices or counts
  // it. Null: `desc` is whole when it is enqueued.
  CompleteFn complete = nullptr;
  // Appends what the code copies, where it does nothing else. Null: it does.
  CopiesFn copies = nullptr;
  // Launches kernels that do what the code does (device/cuda/launch_context.h). Null: there are
  // none.
  LaunchFn launch = nullptr;
  cost::OpDesc CompleteDesc() const {
    cost::OpDesc whole = desc;
    if (complete != nullptr) complete(args.data(), &whole);
    return whole;
  }

  Operation& Reads(const void* data, uint64_t bytes) { return Touches({data, bytes, false}); }
  Operation& Writes(const void* data, uint64_t bytes) { return Touches({data, bytes, true}); }

 private:
  Operation& Touches(Access access) {
    FB_CHECK(num_accesses < kMaxAccesses, "{} touches more than {} ranges", desc.label,
             kMaxAccesses);
    accesses[num_accesses++] = access;
    return *this;
  }
};

// MakeOperation<&Function>(desc, args): a plain function, void(const Args&, const WorkerContext&).
template <auto kFunction, typename Args>
Operation MakeOperation(const cost::OpDesc& desc, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= Operation::kMaxArgBytes);
  Operation operation;
  operation.desc = desc;
  new (operation.args.data()) Args(args);
  operation.run = [](const void* raw, const WorkerContext& context) {
    kFunction(*static_cast<const Args*>(raw), context);
  };
  operation.plain = true;
  return operation;
}
// MakeOperation(desc, args, kernel): a function of a kernel set.
template <typename Args>
Operation MakeOperation(const cost::OpDesc& desc, const Args& args,
                        void (*kernel)(const Args&, const WorkerContext&)) {
  struct Bound {
    Args args;
    void (*kernel)(const Args&, const WorkerContext&);
  };
  static_assert(std::is_trivially_copyable_v<Args> && sizeof(Bound) <= Operation::kMaxArgBytes);
  Operation operation;
  operation.desc = desc;
  new (operation.args.data()) Bound{args, kernel};
  operation.run = [](const void* raw, const WorkerContext& context) {
    const Bound& bound = *static_cast<const Bound*>(raw);
    bound.kernel(bound.args, context);
  };
  return operation;
}

}  // namespace forebay::device
