#include <algorithm>

#include "base/units.h"
#include "kernels/kernel_set.h"
#include "layout/memory_plan.h"
#include "layout/platform.h"
#include "share/ship_plan.h"

namespace forebay::layout {
namespace {

// Left to the machine when the budget is not given: a tenth, at least this.
constexpr uint64_t kLeastMargin = 512 * base::kMiB;

// The built-in profile nearest to this CPU: rates follow from its vector instructions first.
const char* NearestCpuProfile(const kernels::KernelSet& kernels) {
  constexpr std::string_view kZen5 = "(family 26,";
  if (std::string_view(kernels.name).starts_with("amx")) return "emerald-rapids-amx";
  return runtime::CpuName().find(kZen5) != std::string::npos ? "zen5" : "zen4";
}

uint64_t FreeMemory(const runtime::Topology& topology) {
  const uint64_t margin = std::max(kLeastMargin, topology.available_memory / 10);
  return topology.available_memory > margin ? topology.available_memory - margin : 0;
}

class Cpu final : public Platform {
 public:
  base::Status Plan(const EngineOptions& options, const kernels::KernelSet& kernels,
                    MachinePlan* plan) const override {
    const MachineOptions& machine = options.machine;
    const std::string& given = machine.device_profile;
    auto loaded = cost::LoadProfile(given.empty() ? NearestCpuProfile(kernels) : given);
    if (!loaded.ok()) return loaded.status().WithContext("--device-profile");
    plan->profile = *std::move(loaded);
    if (plan->profile.kind != cost::DeviceKind::kCpu) {
      return {base::kInvalidArgument,
              fmt::format("--device-profile {}: {} is a GPU; expected a profile of kind cpu, as "
                          "forebay profile writes it",
                          given, plan->profile.name)};
    }
    if (machine.memory_utilization != MachineOptions().memory_utilization) {
      return {base::kInvalidArgument,
              fmt::format(
                  "--gpu-memory-utilization {} is for GPUs, real or simulated; expected --memory "
                  "or --memory-per-rank",
                  machine.memory_utilization)};
    }
    plan->prices_modes = !given.empty();
    plan->slice_bytes = base::kMiB;
    plan->topology = runtime::ReadTopology();
    FB_RETURN_IF_ERROR(
        PlanCores(options, plan->topology.usable_cores, FreeMemory(plan->topology), plan));
    if (GivenBytes(machine) == 0) {
      plan->stable_bytes =
          plan->topology.total_memory / 2 / static_cast<uint64_t>(plan->spec.count);
    }
    return {};
  }

  base::Result<model::ModelConfig> AsStored(const MachineOptions& options,
                                            model::ModelConfig model) const override {
    if (options.kv_cache_format && model.mla) {
      return base::Status(
          kKvCacheDtype,
          fmt::format("--kv-cache-dtype {}: {} caches latents, which kernels read in the compute "
                      "type alone; expected auto, or on --devices sim:... fp8",
                      cost::Name(*options.kv_cache_format), model.architecture));
    }
    model.stored_kv = options.kv_cache_format;
    using cost::NumberFormat;
    const std::optional<NumberFormat> format = options.quantization.format;
    if (format && *format != NumberFormat::kInt8 && *format != NumberFormat::kInt4) {
      return base::Status(
          kQuantization,
          fmt::format("--quantization {}: real devices keep what the files hold; expected auto, "
                      "expanded, int8, int4, or --devices sim:...",
                      cost::Name(*format)));
    }
    if (format == NumberFormat::kInt4 && options.dtype == tensor::DType::kF32) {
      return base::Status(
          kQuantization,
          "--quantization int4 with --dtype float32: weights of 4 bits are rounded to 16 levels, "
          "and computed with in bfloat16 alone; expected --dtype bfloat16, or --quantization auto");
    }
    if (options.quantization.expanded) {
      model.forms.reset();
      model.int8 = model::Int8::kNone;
    }
    // Folders of int8 models say which matrices are not.
    if (format == NumberFormat::kInt8 && model.int8 == model::Int8::kNone)
      model.int8 = model::Int8::kAll;
    if (format == NumberFormat::kInt4) {
      model.int8 = model::Int8::kNone;
      model.int4 = true;
    }
    model.stored.reset();
    return model;
  }

  base::Result<std::shared_ptr<const model::Routing>> RoutingOf(
      const EngineOptions& options, const model::ModelConfig&) const override {
    if (options.machine.routing == nullptr) return options.machine.routing;
    return base::Status(base::kInvalidArgument,
                        "--routing: on real devices data say which experts rows go to; expected "
                        "--devices sim:...");
  }

  base::Status Check(const EngineOptions& options, const LayoutDraft& draft) const override {
    const std::string_view numerics = draft.kernels->numerics_class;
    if (draft.config.stored_kv && draft.dtype == tensor::DType::kBF16 &&
        numerics.ends_with("_p1024")) {
      return {kKvCacheDtype,
              fmt::format("--kv-cache-dtype {} with --numerics {}: attention of that class reads "
                          "values of the compute type alone; expected auto, or --numerics pair",
                          cost::Name(*draft.config.stored_kv), numerics)};
    }
    if (options.machine.source_queues) {
      return {
          base::kInvalidArgument,
          "--sim-links queue on real devices, whose links are what they are; expected --devices "
          "sim:..., or fair"};
    }
    if (options.machine.tp_wire_bf16) {
      return {base::kInvalidArgument,
              "--sim-tp-wire bf16 on real devices, whose ranks add exact sums of 4 bytes; expected "
              "--devices sim:..., or exact"};
    }
    if (options.pool.requests_in_flight != 0) {
      return {base::kInvalidArgument,
              fmt::format("--pool-requests {} on real devices, whose cores copy one slice after "
                          "another; expected --devices sim:... and a layout that pools",
                          options.pool.requests_in_flight)};
    }
    if (options.ship.rounds.reduced_wire) {
      return {share::kCannotShip,
              "--expert-wire reduced: sums of experts that other ranks form have other "
              "bytes than those of one rank; expected exact, or simulated devices"};
    }
    return {};
  }
};

}  // namespace

base::Result<const kernels::KernelSet*> Platform::Kernels(std::string_view isa,
                                                          std::string_view numerics) const {
  return kernels::ChooseKernels(isa, numerics);
}

base::Result<const kernels::KernelSet*> Platform::DefaultKernels(const EngineOptions&) const {
  return Kernels("auto", "auto");
}

const Platform& CpuPlatform() {
  static const Cpu platform;
  return platform;
}

}  // namespace forebay::layout
