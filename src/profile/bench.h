// A device under measurement: memory full of random numbers, and the time of operations on its
// streams.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "device/device.h"
#include "kernels/kernel_set.h"
#include "runtime/runtime.h"

namespace forebay::profile {

struct BenchOptions {
  int threads = 0;  // 0: all usable cores
  std::string isa = "auto";
  bool quick = false;       // shorter samples
  bool bf16_alone = false;  // no kernels of fp32 weights and KV
  // The size of Bench::data(), which is to be far larger than the caches where its times are to
  // hold.
  uint64_t data_bytes = 640 * base::kMiB;
};

class Bench {
 public:
  // Errors: a kernel set that the machine lacks, memory.
  static base::Result<std::unique_ptr<Bench>> Create(runtime::Runtime& runtime,
                                                     const BenchOptions& options);

  // Enqueues operation number i on a stream; what it points to must live until the next call of a
  // Bench function.
  using EnqueueFn = std::function<void(device::Stream& stream, int64_t i)>;

  // Seconds of one operation of a run of them, its launch included: the lower quartile of several
  // runs of some milliseconds. i counts up over all of them, so that each operation may find other
  // memory.
  double SecondsOf(const EnqueueFn& enqueue) { return SecondsOf(enqueue, quick_ ? 1.5e-3 : 3e-3); }
  // The same where each operation's input was just written by all workers in turn, as it is in a
  // step: the writing alone is measured too and taken off. REQUIRES: bytes <= input().bytes; the
  // operation reads input().
  double SecondsAfterInput(int64_t bytes, const EnqueueFn& enqueue);
  // Seconds in which each of `streams` copy streams makes one copy of `bytes`, while all of them
  // copy.
  double CopySeconds(int64_t bytes, int streams);

  runtime::Runtime& runtime() { return runtime_; }
  device::Device& device() { return *device_; }
  const kernels::KernelSet& kernels() const { return *kernels_; }
  bool quick() const { return quick_; }
  bool bf16_alone() const { return bf16_alone_; }
  // Random numbers in [-1, 1], far larger than the caches: read as bf16 or fp32.
  const device::Region& data() const { return *data_; }
  // The same numbers, for what an operation of a step gets from the one before.
  const device::Region& input() const { return *input_; }
  // For what operations write: activations, logits, sums. The packed rows of a linear go to
  // `workspace`.
  const device::Region& output() const { return *output_; }
  const device::Region& workspace() const { return *workspace_; }

 private:
  Bench(runtime::Runtime& runtime, const kernels::KernelSet& kernels, const BenchOptions& options)
      : runtime_(runtime),
        kernels_(&kernels),
        quick_(options.quick),
        bf16_alone_(options.bf16_alone) {}
  void Fill();
  double SecondsOf(const EnqueueFn& enqueue, double sample_seconds);
  // Seconds of `count` operations in a row, from the first's start, numbered from next_ on.
  double Run(const EnqueueFn& enqueue, int64_t count);

  runtime::Runtime& runtime_;
  const kernels::KernelSet* kernels_;
  const bool quick_, bf16_alone_;
  std::unique_ptr<runtime::Event> go_;
  std::unique_ptr<device::Device> device_;
  const device::Region* data_ = nullptr;
  const device::Region* input_ = nullptr;
  const device::Region* output_ = nullptr;
  const device::Region* workspace_ = nullptr;
  int64_t next_ = 0;
};

}  // namespace forebay::profile
