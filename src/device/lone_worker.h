// Runs an operation on one thread, where a device without data needs what it writes. Not for files
// with instruction sets of their own: it emits virtual functions.
#pragma once

#include "device/operation.h"

namespace forebay::device {

class LoneWorker final : public WorkerContext {
 public:
  LoneWorker() { ticket = &tickets_; }
  void Barrier() const override {}

 private:
  std::atomic<int64_t> tickets_{0};
};

}  // namespace forebay::device
