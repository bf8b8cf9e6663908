#include <utility>

#include "engine/backend/backend.h"

namespace forebay::engine {
namespace {

// Ranks of one process that share its cores.
class CpuBackend final : public Backend {
 public:
  CpuBackend(runtime::Runtime& runtime, const layout::LayoutDraft& plan,
             const layout::EngineOptions& options)
      : runtime_(runtime), machine_(plan.machine), kernels_(*plan.kernels), options_(options) {}

  base::Result<Devices> MakeDevices(const layout::JobGroup& group) override {
    const std::vector<int>& cores = machine_.topology.cores;
    const bool pinned = machine_.workers * machine_.spec.count <= static_cast<int>(cores.size());
    Devices devices;
    for (int rank = 0; rank < group.layout.ranks_per_group(); ++rank) {
      device::CpuDeviceOptions device{.rank = rank,
                                      .memory_bytes = machine_.budget_bytes,
                                      .num_workers = machine_.workers,
                                      .scratch_bytes = machine_.scratch_bytes,
                                      .checker = options_.trial.checker,
                                      .profile = options_.profile,
                                      .max_virtual_delay = options_.trial.max_virtual_delay,
                                      .seed = options_.trial.delay_seed};
      const auto first = cores.begin() + (group.first_device + rank) * machine_.workers;
      if (pinned) device.cores.assign(first, first + machine_.workers);
      FB_ASSIGN_OR_RETURN(devices.emplace_back(), device::CreateCpuDevice(runtime_, device));
    }
    return devices;
  }

  std::unique_ptr<device::Counter> NewCounter(std::string name) override {
    return device::CreateCpuCounter(runtime_, std::move(name));
  }
  Fabrics NewFabric(int num_ranks) override {
    return fabric::CreateLocalFabric(runtime_, num_ranks);
  }
  Fabrics NewPullFabric(int num_ranks) override { return fabric::CreatePullFabric(num_ranks); }
  std::string isa() const override { return kernels_.name; }

  std::string NumericsClass(const layout::LayoutDraft& plan) const override {
    return ComputedClass(plan);
  }

 private:
  runtime::Runtime& runtime_;
  const layout::MachinePlan machine_;
  const kernels::KernelSet& kernels_;
  const layout::EngineOptions options_;
};

}  // namespace

std::string ComputedClass(const layout::LayoutDraft& plan) {
  // The form of latent attention decides what is rounded. One for all rows is part of the name.
  const char* const form = plan.config.mla && plan.config.mla->absorbed ? "-absorbed" : "";
  const bool f32 = plan.dtype == tensor::DType::kF32;
  const std::string_view type = f32 ? "f32" : "bf16";
  return fmt::format("{}-{}-kv{}{}", f32 ? "pair" : plan.kernels->numerics_class,
                     plan.config.int8 != model::Int8::kNone ? "w8a8"
                     : plan.config.int4                     ? "int4"
                                                            : type,
                     plan.config.stored_kv ? cost::Name(*plan.config.stored_kv) : type, form);
}

std::unique_ptr<Backend> CreateCpuBackend(runtime::Runtime& runtime,
                                          const layout::LayoutDraft& plan,
                                          const layout::EngineOptions& options) {
  return std::make_unique<CpuBackend>(runtime, plan, options);
}

}  // namespace forebay::engine
