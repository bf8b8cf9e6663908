// A stream for tests of operations: each runs when it is enqueued.
#pragma once

#include "cost/operation.h"
#include "device/device.h"
#include "kernels/testing/team.h"

namespace forebay::kernels::testing {

class ImmediateStream final : public device::Stream {
 public:
  explicit ImmediateStream(int workers, uint64_t scratch_bytes = 4 << 20)
      : team_(workers, scratch_bytes) {}
  void Enqueue(const device::Operation& operation) override {
    last = operation.desc;
    team_.Run([&](const device::WorkerContext& context) {
      operation.run(operation.args.data(), context);
    });
  }
  void Record(device::DeviceEvent&) override {}
  void Wait(const device::DeviceEvent&) override {}
  void Post(device::Counter&, uint64_t) override {}
  void Await(device::Counter&, uint64_t) override {}

  cost::OpDesc last;

 private:
  Team team_;
};

}  // namespace forebay::kernels::testing
