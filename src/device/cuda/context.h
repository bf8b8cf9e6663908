// The primary context of a GPU, held: what was made in it must be gone before it is released for
// the last time.
#pragma once

#include <memory>

#include "device/cuda/driver.h"

namespace forebay::device {

class CudaContext {
 public:
  // `context`: retained once, which is given back here.
  CudaContext(const Driver& driver, cu::Device device, cu::Context context)
      : driver_(driver), device_(device), context_(context) {}
  ~CudaContext() { driver_.DevicePrimaryCtxRelease(device_); }
  CudaContext(const CudaContext&) = delete;

  const Driver& driver() const { return driver_; }
  cu::Device device() const { return device_; }
  cu::Context get() const { return context_; }
  // It is the thread's from here on: a task that calls the device may run on any.
  void Enter() const { driver_.CtxSetCurrent(context_); }

 private:
  const Driver& driver_;
  const cu::Device device_;
  const cu::Context context_;
};

using SharedContext = std::shared_ptr<const CudaContext>;

}  // namespace forebay::device
