// The device `cuda`: one GPU through the driver's table, whichever driver that is.
//
// Memory: a data region is one cuMemAlloc, which the host does not touch. Control memory and host
// arenas are pinned, and have one address for both sides. Streams are the driver's; events order
// them, counters are pinned words that streams write and wait for. An operation's function is
// called once, with a LaunchContext, by the task that enqueues it; a copy (device/copy.h) goes to
// the copy engines instead.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/driver.h"
#include "device/device.h"

namespace forebay::device {

struct CudaDeviceOptions {
  int rank = 0;
  int ordinal = 0;            // of the GPUs that are visible
  uint64_t memory_bytes = 0;  // the arena's budget, on the GPU
  bool profile = false;       // times each operation, which costs two events
};

// The driver must outlive the device. Destroying it waits for what was enqueued. Errors:
// kCudaUnavailable (no such GPU, one below compute capability 8.0), kCudaFailed.
base::Result<std::unique_ptr<Device>> CreateCudaDevice(runtime::Runtime& runtime,
                                                       const Driver& driver,
                                                       const CudaDeviceOptions& options);
// For streams of cuda devices of this process. `name` appears in faults.
base::Result<std::unique_ptr<Counter>> CreateCudaCounter(const Driver& driver, std::string name);

}  // namespace forebay::device
