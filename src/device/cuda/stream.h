#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/arena.h"
#include "device/cuda/counter.h"
#include "device/cuda/launches.h"
#include "device/device.h"

namespace forebay::device {

class CudaStream;

// A point of one stream: the driver's event, and whose it is.
class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(SharedContext context, cu::Event event) : event(event), context_(std::move(context)) {}
  ~CudaEvent() override {
    context_->Enter();
    context_->driver().EventDestroy(event);
  }

  const cu::Event event;
  CudaStream* stream = nullptr;  // that recorded it last

 private:
  const SharedContext context_;
};

struct CudaStreamOptions {
  std::string name;       // "rank 0 compute"
  SharedContext context;  // becomes the thread's in each call
  // Of LaunchContext.
  int architecture = 0, multiprocessors = 0;
  std::span<const CudaKernel> kernels;
  std::byte* scratch = nullptr;
  uint64_t scratch_bytes = 0;
  bool profile = false;
  bool debug_sync = false;  // CudaDeviceOptions
  // The device's: whether it makes graphs. No more once one of its streams meets other ranks.
  bool* graphs = nullptr;
};

// The control task's, as all of a device.
class CudaStream final : public Stream {
 public:
  // `arena`: whose control memory kernels get.
  CudaStream(const Driver& driver, CudaModules& modules, const CudaArena& arena, cu::Stream stream,
             CudaStreamOptions options);
  ~CudaStream() override;

  void Enqueue(const Operation& operation) override;
  void Record(DeviceEvent& event) override;
  void Wait(const DeviceEvent& event) override;
  void Post(Counter& counter, uint64_t value) override;
  void Await(Counter& counter, uint64_t value) override;
  void SendControl(const void* data, uint64_t bytes) override;
  void FetchControl(void* data, uint64_t bytes) override;
  void SetLayer(int64_t layer) override { layer_ = layer; }

  // Whether all that was enqueued has run, or can run no more. Lets waits for aborted counters
  // pass.
  bool Idle();
  // Whether this event of the stream's is reached, or never will be.
  bool Reached(cu::Event event);
  // The fault since the last call, once idle; a stream that has passed an aborted counter, or has
  // waited for an event of a stream with a fault, keeps its own.
  base::Status TakeFault();
  // The one that TakeFault would return now.
  base::Status fault() const;
  // With the times of operations that have run. Any task, with the context current.
  std::vector<OpProfile> profile();
  LaunchCounts launches() const { return launches_.counts(); }  // any task

 private:
  friend class CudaStreamContext;
  static constexpr size_t kKeptLabels = 8;

  // A pair of events around an operation, of which the time is asked once it has run.
  struct Timed {
    OpProfile call;
    cu::Event begin, end;
  };

  // Code that the driver calls on a thread of its own, when the stream gets there.
  struct HostCall {
    Operation::RunFn run;
    alignas(16) std::array<std::byte, Operation::kMaxArgBytes> args;
    std::atomic<bool> done{false};
  };

  void Enter() const { options_.context->Enter(); }
  // In front of what is no launch.
  void Flush() { Latch(launches_.Flush()); }
  void Run(const Operation& operation);
  void Copy(const CopiedRows& rows, const char* label);
  bool OnHost(const void* data) const;
  void RunOnHost(Operation::RunFn run, const void* args, size_t bytes);
  // Waits for the operation and latches its fault with its name.
  void Settle(const char* label);
  void Latch(base::Status status);
  // Why what it ran is worth nothing: an aborted counter, a stream before it with a fault.
  base::Status Death() const;
  // Adds the times of operations that have run. REQUIRES: mutex_ is held.
  void TakeTimes();

  const Driver& driver_;
  const CudaArena& arena_;
  const cu::Stream stream_;
  const CudaStreamOptions options_;
  CudaLaunches launches_;
  std::array<const char*, kKeptLabels> labels_{};  // of the last operations, a ring
  size_t enqueued_ = 0;
  std::set<CudaCounter*> awaited_;      // since the stream was last idle
  std::set<const CudaStream*> before_;  // whose events it has waited for
  int64_t layer_ = -1;
  std::vector<CopiedRows> copies_;                    // of the operation at hand
  std::deque<std::unique_ptr<HostCall>> host_calls_;  // ended ones go with the next
  mutable std::mutex mutex_;  // faults and the profile, which any task may ask for
  std::deque<Timed> timed_;
  base::Status fault_;
  bool dead_ = false;
  std::vector<OpProfile> profile_;
};

}  // namespace forebay::device
