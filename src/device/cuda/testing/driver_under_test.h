// The driver that a suite runs on: the emulated one, with the seeds that a test asks for, or a
// machine's own, once (bench/gpu/).
#pragma once

#include <functional>

#include "device/cuda/driver.h"
#include "runtime/runtime.h"

namespace forebay::device::testing {

// Set by a program's main before its tests.
void SetRealDriver(const Driver* driver);
const Driver* RealDriver();  // null: the emulated one

// Calls `body` with a driver and a runtime. Emulated: on the virtual runtime, once a seed, and
// nothing may be left in the driver behind.
void OnDriver(int num_seeds,
              const std::function<void(const Driver& driver, runtime::Runtime& runtime)>& body);

}  // namespace forebay::device::testing
