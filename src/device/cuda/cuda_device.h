// The device `cuda`: one GPU through the driver's table, whichever driver that is.
//
// Memory: a data region is one cuMemAlloc, which the host does not touch: Write and Read go through
// a pinned buffer. Host arenas are pinned, and have one address for both sides. Control memory is
// pinned too, and mirrored on the GPU, where kernels find it. Streams are the driver's; events
// order them, counters are pinned words that streams write and wait for. An operation's function is
// called once, with a LaunchContext, by the task that enqueues it. A plain function's copies go to
// the copy engines instead, and one that touches the host's memory is called by the driver.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "device/cuda/driver.h"
#include "device/cuda/launch_context.h"
#include "device/device.h"

namespace forebay::device {

struct CudaDeviceOptions {
  int rank = 0;
  int ordinal = 0;            // of the GPUs that are visible
  uint64_t memory_bytes = 0;  // the arena's budget, on the GPU
  // WorkerContext::scratch of the compute stream: a region of the arena.
  uint64_t scratch_bytes = 0;
  bool profile = false;  // times each operation, which costs two events
  // The host waits for each operation that waits for no other rank: a fault names the operation.
  bool debug_sync = false;
  // Launches that come again go to the driver together (launches.h), but where each is timed or
  // waited for, and where the rank meets others.
  bool graphs = true;
  std::span<const CudaKernel> kernels;  // loaded at the start; must outlive the device
};

// The driver must outlive the device. Destroying it waits for what was enqueued; its events and
// host arenas may outlive it. Errors:
// kCudaUnavailable (no such GPU, one below compute capability 8.0), kCudaFailed.
base::Result<std::unique_ptr<Device>> CreateCudaDevice(runtime::Runtime& runtime,
                                                       const Driver& driver,
                                                       const CudaDeviceOptions& options);
// Free memory of a GPU, with the context that a process needs there, and all of it. Errors: as
// CreateCudaDevice.
struct CudaMemory {
  uint64_t free = 0, total = 0;
  std::string gpu;       // its name
  int architecture = 0;  // compute capability, tenfold
};
base::Result<CudaMemory> MemoryOfGpu(const Driver& driver, int ordinal);
// Lets kernels of each of two GPUs reach the memory of the other, and copies between them go past
// the host. REQUIRES: each has a device. Errors: kCudaUnavailable, naming both: they cannot.
base::Status ConnectGpus(const Driver& driver, int first, int second);
// Whether streams of the GPU can post and await counters. Errors: kCudaUnavailable, naming it: they
// cannot; as CreateCudaDevice.
base::Status CheckCounters(const Driver& driver, int ordinal);
// For streams of cuda devices of this process, on any GPU: a word in the host's memory, pinned by
// this one's context. `name` appears in faults. Errors: as CreateCudaDevice.
base::Result<std::unique_ptr<Counter>> CreateCudaCounter(const Driver& driver, int ordinal,
                                                         std::string name);

}  // namespace forebay::device
