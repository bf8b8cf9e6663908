#include "fabric/fault_fabric.h"

#include <utility>

namespace forebay::fabric {
namespace {

class FaultFabric final : public Fabric {
 public:
  FaultFabric(std::unique_ptr<Fabric> fabric, std::unique_ptr<device::Counter> dead,
              const FaultPlan& plan)
      : fabric_(std::move(fabric)), dead_(std::move(dead)), plan_(plan) {}

  int rank() const override { return fabric_->rank(); }
  int num_ranks() const override { return fabric_->num_ranks(); }
  base::Status Publish(const device::Region& region) override { return fabric_->Publish(region); }
  base::Result<const device::Region*> FindRegion(int rank, std::string_view name) const override {
    return fabric_->FindRegion(rank, name);
  }
  base::Result<PreparedPull> Prepare(const CopyPlan& plan) const override {
    return fabric_->Prepare(plan);
  }
  void Pull(device::Stream& stream, const PreparedPull& pull, const int32_t* wanted,
            std::span<device::DeviceEvent* const> part_events) override {
    if (++pulls_ == plan_.at_pull) Break(stream, "pull", pulls_);
    fabric_->Pull(stream, pull, wanted, part_events);
  }
  void Post(device::Stream& stream, int peer, int channel, uint64_t value) override {
    if (++posts_ == plan_.at_post) Break(stream, "post", posts_);
    fabric_->Post(stream, peer, channel, value);
  }
  void Await(device::Stream& stream, int peer, int channel, uint64_t value) override {
    fabric_->Await(stream, peer, channel, value);
  }
  void Abort(const base::Status& why) override { fabric_->Abort(why); }
  base::Status status() const override { return fabric_->status(); }
  uint64_t bytes_pulled() const override { return fabric_->bytes_pulled(); }

 private:
  void Break(device::Stream& stream, const char* what, int64_t call) {
    dead_->Abort({kPlantedFault,
                  fmt::format("a fault was planted in {} {} of rank {}", what, call, plan_.rank)});
    stream.Await(*dead_, 1);
  }

  const std::unique_ptr<Fabric> fabric_;
  const std::unique_ptr<device::Counter> dead_;
  const FaultPlan plan_;
  int64_t pulls_ = 0, posts_ = 0;
};

}  // namespace

std::unique_ptr<Fabric> PlantFault(std::unique_ptr<Fabric> fabric,
                                   std::unique_ptr<device::Counter> dead, const FaultPlan& plan) {
  return std::make_unique<FaultFabric>(std::move(fabric), std::move(dead), plan);
}

}  // namespace forebay::fabric
