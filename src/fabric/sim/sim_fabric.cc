#include "fabric/sim/sim_fabric.h"

#include <utility>

#include "device/sim/sim_device.h"

namespace forebay::fabric {
namespace {

class SimFabric final : public Fabric {
 public:
  explicit SimFabric(std::unique_ptr<Fabric> local) : local_(std::move(local)) {}

  int rank() const override { return local_->rank(); }
  int num_ranks() const override { return local_->num_ranks(); }
  base::Status Publish(const device::Region& region) override { return local_->Publish(region); }
  uint64_t bytes_pulled() const override { return local_->bytes_pulled(); }

  base::Status Pull(device::Stream& stream, const CopyPlan& plan, std::span<const uint8_t> mask,
                    std::span<device::DeviceEvent* const> part_events) override {
    device::SetRequestsInFlight(stream, plan.requests_in_flight);
    return local_->Pull(stream, plan, mask, part_events);
  }

 private:
  const std::unique_ptr<Fabric> local_;
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> CreateSimFabric(int num_ranks) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (auto& local : CreateLocalFabric(num_ranks)) fabrics.push_back(std::make_unique<SimFabric>(std::move(local)));
  return fabrics;
}

}  // namespace forebay::fabric
