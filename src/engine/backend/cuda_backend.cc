#include <utility>

#include "device/cuda/cuda_device.h"
#include "engine/backend/backend.h"
#include "fabric/local/local_fabric.h"
#include "kernels/cuda/launch/trial.h"
#include "kernels/cuda/registry.h"

namespace forebay::engine {
namespace {

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
      const device::CudaDeviceOptions device{
          .rank = rank,
          .ordinal = machine_.spec.ordinals[static_cast<size_t>(group.first_device + rank)],
          .memory_bytes = machine_.budget_bytes,
          .scratch_bytes = machine_.device_bytes,
          .profile = options_.profile,
          .debug_sync = options_.machine.debug_sync,
          .graphs = options_.machine.cuda_graphs,
          .kernels = kernels::cuda::Kernels()};
      FB_ASSIGN_OR_RETURN(devices.emplace_back(),
                          device::CreateCudaDevice(runtime_, driver_, device));
      if (kernels_.packed == kernels::PackedForm::kCuda)
        FB_RETURN_IF_ERROR(kernels::cuda::TryTensorCores(*devices.back()));
    }
    FB_RETURN_IF_ERROR(device::ConnectGpus(driver_, machine_.spec.ordinals));
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
