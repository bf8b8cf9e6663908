// Where tests of kernels run them: on the emulation, or in a program of its own on a GPU
// (bench/gpu/), which reaches all memory that the tests allocate.
#pragma once

#include <functional>

#include "base/status.h"
#include "device/cuda/launch_context.h"

namespace forebay::kernels::cuda::testing {

class Launcher {
 public:
  virtual ~Launcher() = default;
  // How often a test shall run each kernel: under as many schedules.
  virtual int launches() const = 0;
  // Whether large shapes are tested too.
  virtual bool fast() const = 0;
  // Calls `enqueue` and waits for what it has launched. `launch`: a number of this run.
  virtual base::Status Run(int launch,
                           const std::function<void(const device::LaunchContext&)>& enqueue) = 0;
};

// Set by a program's main before its tests; the emulation else.
void SetLauncher(Launcher* launcher);
Launcher& TheLauncher();

}  // namespace forebay::kernels::cuda::testing
