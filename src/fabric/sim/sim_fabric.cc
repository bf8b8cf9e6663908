#include "fabric/sim/sim_fabric.h"

#include <utility>

#include "device/sim/sim_device.h"
#include "fabric/local/local_fabric.h"

namespace forebay::fabric {
namespace {

class SimFabric final : public Fabric {
 public:
  explicit SimFabric(std::unique_ptr<Fabric> local) : local_(std::move(local)) {}

  int rank() const override { return local_->rank(); }
  int num_ranks() const override { return local_->num_ranks(); }
  base::Status Publish(const device::Region& region) override { return local_->Publish(region); }
  base::Result<const device::Region*> FindRegion(int rank, std::string_view name) const override {
    return local_->FindRegion(rank, name);
  }
  void Post(device::Stream& stream, int peer, int channel, uint64_t value) override {
    local_->Post(stream, peer, channel, value);
  }
  void Await(device::Stream& stream, int peer, int channel, uint64_t value) override {
    local_->Await(stream, peer, channel, value);
  }
  void Abort(const base::Status& why) override { local_->Abort(why); }
  base::Status status() const override { return local_->status(); }
  uint64_t bytes_pulled() const override { return local_->bytes_pulled(); }

  base::Result<PreparedPull> Prepare(const CopyPlan& plan) const override {
    return local_->Prepare(plan);
  }
  void Pull(device::Stream& stream, const PreparedPull& pull, const int32_t* wanted,
            std::span<device::DeviceEvent* const> part_events) override {
    device::SetRequestsInFlight(stream, pull.requests_in_flight);
    local_->Pull(stream, pull, wanted, part_events);
  }

 private:
  const std::unique_ptr<Fabric> local_;
};

std::vector<std::unique_ptr<Fabric>> OverLinks(std::vector<std::unique_ptr<Fabric>> fabrics) {
  for (std::unique_ptr<Fabric>& fabric : fabrics)
    fabric = std::make_unique<SimFabric>(std::move(fabric));
  return fabrics;
}

}  // namespace

std::vector<std::unique_ptr<Fabric>> CreateSimFabric(device::EventEngine& engine, int num_ranks) {
  const auto new_counter = [&](const std::string&) { return device::CreateSimCounter(engine); };
  return OverLinks(CreateInProcessFabric(num_ranks, new_counter));
}

std::vector<std::unique_ptr<Fabric>> CreateSimPullFabric(int num_ranks) {
  return OverLinks(CreatePullFabric(num_ranks));
}

}  // namespace forebay::fabric
