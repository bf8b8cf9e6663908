#include <algorithm>
#include <string_view>

#include "base/units.h"
#include "device/cuda/cuda_device.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/registry.h"
#include "layout/memory_plan.h"
#include "layout/platform.h"

namespace forebay::layout {
namespace {

constexpr uint64_t kLargeMemory = 70 * base::kGiB;
// A copy engine takes pieces of 32 MiB at its full rate.
constexpr uint64_t kCopySlice = 32 * base::kMiB;
// Scratch of kernels: peaks and sums of logits; on tensor cores what is left of long contexts'
// parts until they merge.
constexpr uint64_t kLeastScratch = base::kMiB, kMostScratch = 64 * base::kMiB, kScratchPart = 16;

base::Status Refusal(std::string message) { return {base::kInvalidArgument, std::move(message)}; }

base::Result<const device::Driver*> DriverOf(const EngineOptions& options) {
  if (options.trial.driver != nullptr) return options.trial.driver;
  return device::OpenDriver();
}

base::Status CheckImages(const EngineOptions& options) {
  if (kernels::cuda::HasImages() || options.trial.driver != nullptr) return {};
  return {device::kCudaUnavailable,
          "--devices cuda: this build has no kernels for GPUs; `tools/setup.sh cuda` fetches a "
          "compiler for them, then build again"};
}

// The built-in profile nearest to this GPU: rates of memory first.
const char* NearestProfile(std::string_view gpu) {
  for (const auto& [part, profile] : {std::pair("B200", "b200"), std::pair("H200", "h200"),
                                      std::pair("A100", "a100-80g"), std::pair("H20", "h20")}) {
    if (gpu.find(part) != std::string_view::npos) return profile;
  }
  return "h100";
}

// GPUs of this machine, through the driver.
class Cuda final : public Platform {
 public:
  base::Result<const kernels::KernelSet*> Kernels(std::string_view isa,
                                                  std::string_view numerics) const override {
    const kernels::KernelSet* const sets[] = {&kernels::cuda::PairKernels(),
                                              &kernels::cuda::MmaKernels()};
    const kernels::KernelSet* named = nullptr;
    for (const kernels::KernelSet* set : sets) {
      if (isa != "auto" && isa != set->name) continue;
      if (numerics == "auto" || numerics == set->numerics_class) return set;
      named = set;
    }
    if (named == nullptr) {
      return base::Status(kernels::kIsaUnavailable,
                          fmt::format("instruction set '{}' is a CPU's; device cuda has {}, {}",
                                      isa, sets[0]->name, sets[1]->name));
    }
    return base::Status(
        kernels::kNumericsUnavailable,
        fmt::format("numerics class '{}' is not one of instruction set '{}' of device cuda; it has "
                    "{}",
                    numerics, isa,
                    isa == "auto"
                        ? fmt::format("{}, {}", sets[0]->numerics_class, sets[1]->numerics_class)
                        : named->numerics_class));
  }

  // Tensor cores where each GPU is a Hopper. The start tries them (kernels/cuda/launch/trial.h).
  base::Result<const kernels::KernelSet*> DefaultKernels(
      const EngineOptions& options) const override {
    FB_RETURN_IF_ERROR(CheckImages(options));
    FB_ASSIGN_OR_RETURN(const device::Driver* driver, DriverOf(options));
    for (const int ordinal : options.machine.devices.ordinals) {
      FB_ASSIGN_OR_RETURN(const device::CudaMemory gpu, device::MemoryOfGpu(*driver, ordinal));
      if (gpu.architecture != 90) return &kernels::cuda::PairKernels();
    }
    return &kernels::cuda::MmaKernels();
  }

  base::Status Plan(const EngineOptions& options, const kernels::KernelSet& set,
                    MachinePlan* plan) const override {
    FB_RETURN_IF_ERROR(CheckImages(options));
    FB_ASSIGN_OR_RETURN(const device::Driver* driver, DriverOf(options));
    const MachineOptions& machine = options.machine;
    const std::vector<int>& ordinals = plan->spec.ordinals;
    const uint64_t given = GivenBytes(machine);
    uint64_t least_free = UINT64_MAX, least_total = UINT64_MAX;
    std::string name;
    for (const int ordinal : ordinals) {
      FB_ASSIGN_OR_RETURN(const device::CudaMemory memory, device::MemoryOfGpu(*driver, ordinal));
      const auto sharers = static_cast<uint64_t>(std::ranges::count(ordinals, ordinal));
      if (given > memory.free / sharers) {
        return {device::kCudaUnavailable,
                fmt::format("--memory: a rank on cuda:{} is given {}, but of the GPU's {} only {} "
                            "are free for {} of them",
                            ordinal, base::FormatBytes(given), base::FormatBytes(memory.total),
                            base::FormatBytes(memory.free), sharers)};
      }
      least_free = std::min(least_free, memory.free / sharers);
      least_total = std::min(least_total, memory.total / sharers);
      name = memory.gpu;
    }
    const std::string& profile = machine.device_profile;
    auto loaded = cost::LoadProfile(profile.empty() ? NearestProfile(name) : profile);
    if (!loaded.ok()) return loaded.status().WithContext("--device-profile");
    plan->profile = *std::move(loaded);
    if (plan->profile.kind == cost::DeviceKind::kCpu) {
      return Refusal(fmt::format("--device-profile {}: {} is a CPU; expected a GPU's profile",
                                 profile, plan->profile.name));
    }
    plan->prices_modes = true;
    plan->slice_bytes = kCopySlice;
    plan->topology = runtime::ReadTopology();
    // They read and pack weights; the device has none.
    plan->workers = std::max(
        1, (machine.threads ? machine.threads : plan->topology.usable_cores) / plan->spec.count);
    plan->budget_bytes =
        given ? given
              : static_cast<uint64_t>(static_cast<double>(least_free) * machine.memory_utilization);
    plan->device_bytes = kLeastScratch;
    if (set.packed == kernels::PackedForm::kCuda) {
      plan->device_bytes =
          std::max(kLeastScratch, std::min(plan->budget_bytes / kScratchPart, kMostScratch) /
                                      base::kMiB * base::kMiB);
    }
    if (given == 0) plan->stable_bytes = least_total / 2;
    plan->max_num_seqs = least_total >= kLargeMemory ? 1024 : 256;
    plan->max_num_batched_tokens = least_total >= kLargeMemory ? 16384 : 8192;
    return {};
  }

  base::Result<model::ModelConfig> AsStored(const MachineOptions& options,
                                            model::ModelConfig model) const override {
    FB_ASSIGN_OR_RETURN(model::ModelConfig stored,
                        CpuPlatform().AsStored(options, std::move(model)));
    if (stored.int8 != model::Int8::kNone) {
      return base::Status(kQuantization,
                          "int8 layers have no kernels for GPUs; expected --quantization expanded, "
                          "or --devices cpu");
    }
    if (stored.int4) {
      return base::Status(
          kQuantization,
          "--quantization int4: kernels of GPUs read expanded tiles alone; expected "
          "auto or expanded, or --devices cpu");
    }
    stored.forms.reset();  // Kernels read expanded tiles alone.
    return stored;
  }

  base::Result<std::shared_ptr<const model::Routing>> RoutingOf(
      const EngineOptions& options, const model::ModelConfig& config) const override {
    return CpuPlatform().RoutingOf(options, config);
  }

  base::Status Check(const EngineOptions& options, const LayoutDraft& draft) const override {
    return CpuPlatform().Check(options, draft);
  }
};

}  // namespace

const Platform& CudaPlatform() {
  static const Cuda platform;
  return platform;
}

}  // namespace forebay::layout
