#include <algorithm>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "engine/backend/backend.h"
#include "fabric/local/local_fabric.h"
#include "kernels/cuda/launch/trial.h"
#include "kernels/cuda/registry.h"

namespace forebay::engine {
namespace {

// Whether ranks of the group wait for each other.
bool Meet(const layout::Layout& layout) { return layout.ranks_per_replica() > 1 || layout.pools(); }

// Whether kernels of two ranks of the group read each other's memory.
bool Exchange(const layout::Layout& layout, int rank, int other) {
  const layout::RankPlace one = layout::PlaceOf(layout, rank), two = layout::PlaceOf(layout, other);
  return one.replica == two.replica || (layout.pools() && one.stage == two.stage);
}

// Ranks of one process on GPUs. Several may have one GPU.
class CudaBackend final : public Backend {
 public:
  CudaBackend(runtime::Runtime& runtime, const layout::LayoutDraft& plan,
              const layout::EngineOptions& options, const device::Driver& driver)
      : runtime_(runtime),
        driver_(driver),
        machine_(plan.machine),
        kernels_(*plan.kernels),
        options_(options) {}

  base::Result<Devices> MakeDevices(const layout::JobGroup& group) override {
    Devices devices;
    for (int rank = 0; rank < group.layout.ranks_per_group(); ++rank) {
      const int ordinal = OrdinalOf(group.first_device + rank);
      if (Meet(group.layout)) FB_RETURN_IF_ERROR(device::CheckCounters(driver_, ordinal));
      const device::CudaDeviceOptions device{.rank = rank,
                                             .ordinal = ordinal,
                                             .memory_bytes = machine_.budget_bytes,
                                             .scratch_bytes = machine_.device_bytes,
                                             .profile = options_.profile,
                                             .debug_sync = options_.machine.debug_sync,
                                             .graphs = MakesGraphs(ordinal),
                                             .kernels = kernels::cuda::Kernels()};
      FB_ASSIGN_OR_RETURN(devices.emplace_back(),
                          device::CreateCudaDevice(runtime_, driver_, device));
      if (kernels_.packed == kernels::PackedForm::kCuda)
        FB_RETURN_IF_ERROR(kernels::cuda::TryTensorCores(*devices.back()));
    }
    for (int rank = 0; rank < group.layout.ranks_per_group(); ++rank)
      FB_RETURN_IF_ERROR(Connect(group, rank));
    return devices;
  }

  // A driver's queue takes some thousand launches.
  bool enqueue_waits() const override { return true; }
  std::unique_ptr<device::Counter> NewCounter(std::string name) override {
    auto counter =
        device::CreateCudaCounter(driver_, machine_.spec.ordinals.front(), std::move(name));
    FB_CHECK(counter.ok(), "{}", counter.status().ToString());
    return *std::move(counter);
  }
  Fabrics NewFabric(int num_ranks) override {
    return fabric::CreateInProcessFabric(
        num_ranks, [this](std::string name) { return NewCounter(std::move(name)); });
  }
  Fabrics NewPullFabric(int num_ranks) override { return fabric::CreatePullFabric(num_ranks); }
  std::string isa() const override { return fmt::format("cuda-{}", kernels_.name); }
  std::string NumericsClass(const layout::LayoutDraft& plan) const override {
    return ComputedClass(plan);
  }

 private:
  int OrdinalOf(int device) const { return machine_.spec.ordinals[static_cast<size_t>(device)]; }

  // The driver may wait for all streams of a GPU when it makes a graph, and so for ranks that meet.
  // Only groups with roles differ in whether theirs do.
  bool MakesGraphs(int ordinal) const {
    const bool shared = std::ranges::count(machine_.spec.ordinals, ordinal) > 1;
    return options_.machine.cuda_graphs && !(options_.roles && shared);
  }

  // With the GPUs of the devices before this one, of its group and of earlier groups.
  base::Status Connect(const layout::JobGroup& group, int rank) const {
    const int gpu = OrdinalOf(group.first_device + rank);
    const int first = group.role == GroupRole::kAll ? group.first_device : 0;
    for (int device = first; device < group.first_device + rank; ++device) {
      if (OrdinalOf(device) == gpu) continue;
      const base::Status connected = device::ConnectGpus(driver_, OrdinalOf(device), gpu);
      const int other = device - group.first_device;
      // KV goes over by copies, which the driver makes through the host where there is no way past.
      if (other >= 0 && Exchange(group.layout, rank, other)) FB_RETURN_IF_ERROR(connected);
    }
    return base::Status::Ok();
  }

  runtime::Runtime& runtime_;
  const device::Driver& driver_;
  const layout::MachinePlan machine_;
  const kernels::KernelSet& kernels_;
  const layout::EngineOptions options_;
};

}  // namespace

std::unique_ptr<Backend> CreateCudaBackend(runtime::Runtime& runtime,
                                           const layout::LayoutDraft& plan,
                                           const layout::EngineOptions& options) {
  // The plan has asked it.
  const device::Driver* const driver =
      options.trial.driver != nullptr ? options.trial.driver : device::OpenDriver().value();
  return std::make_unique<CudaBackend>(runtime, plan, options, *driver);
}

}  // namespace forebay::engine
