// The driver's table on the host's memory, for tests: streams run in an interleaving drawn from a
// seed, a command at a time, inside the driver's own calls. It checks what a GPU would not forgive:
//
//  - the host touches memory of the GPU: that faults;
//  - a kernel is given memory of the host that was not mapped for the GPU: an error of the launch,
//    where the compiler clears padding;
//  - a call that waits for streams where a GPU's driver may: loading code, allocating and freeing,
//    copies from host to host, making graphs, launches into a full queue. What it waits for must be
//    enqueued, or come from another thread; else it ends with a launch timeout that says so;
//  - streams that share a connection, which runs in the order in which things were enqueued;
//  - a copy, a wait or a written value outside of what was allocated, or of memory that was freed
//    before the command ran: the stream's error, as an illegal address is;
//  - a launch with more blocks along y or z, or more shared memory, than a GPU has or the function
//    was given;
//  - anything but launches while a stream is captured;
//  - a call without a context of the thread, or with one that was released;
//  - a kernel whose stream is of another context, or that is given memory of a GPU that its own was
//    not connected with; one that finds such memory through a table faults;
//  - an event that is recorded in a stream of another context than it was made in;
//  - streams, events, memory and graphs that are left behind, at the end or when the last holder
//    releases their context: `Leaks`.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "device/cuda/driver.h"

namespace forebay::device::testing {

// Runs a kernel of that name; `params` are those of the launch. An error is the stream's.
using EmulatedKernelFn = std::function<base::Status(
    std::string_view kernel, const cu::LaunchConfig& config, const void* params, uint64_t seed)>;
struct EmulatedDriverOptions {
  uint64_t seed = 0;
  uint64_t memory_bytes = 64 << 20;  // of a GPU
  int gpus = 1;
  bool peers = true;          // whether GPUs reach each other's memory, once connected
  bool stream_values = true;  // whether streams write and wait for values
  EmulatedKernelFn kernel;    // null: there are none
  // Bytes of a kernel's parameters, which the driver copies when it is launched.
  std::function<size_t(std::string_view kernel)> params_bytes;
  int connections = 32;          // that streams are dealt to; CUDA_DEVICE_MAX_CONNECTIONS
  size_t queue_commands = 1024;  // of a stream; the next launch waits
  // How long a call waits while no stream can run and no thread enqueues.
  std::chrono::milliseconds longest_call{10'000};
};

// One at a time.
class EmulatedDriver {
 public:
  explicit EmulatedDriver(EmulatedDriverOptions options = {});
  ~EmulatedDriver();
  EmulatedDriver(const EmulatedDriver&) = delete;

  const Driver& driver() const;
  int num_streams() const;    // that are there now
  int num_graphs() const;     // that were made
  std::string Leaks() const;  // "": nothing is left

 private:
  struct State;
  std::unique_ptr<State> state_;
  friend struct EmulatedCalls;
};

}  // namespace forebay::device::testing
