#include "base/units.h"
#include "kv/tier/kept_file.h"
#include "layout/plan_checks.h"
#include "layout/platform.h"

namespace forebay::layout {
namespace {

constexpr uint64_t kLargeGpu = 70 * base::kGiB;
// Links of simulated devices are shared evenly however copies are cut, and each slice is an event.
constexpr uint64_t kSlice = 64 * base::kMiB;

void PlanGpu(const MachineOptions& options, MachinePlan* plan) {
  const cost::DeviceProfile& profile = plan->profile;
  const auto memory = static_cast<uint64_t>(profile.memory_bytes);
  const uint64_t given = GivenBytes(options);
  plan->budget_bytes =
      given ? given : static_cast<uint64_t>(profile.memory_bytes * options.memory_utilization);
  plan->device_bytes = base::RoundUp(static_cast<uint64_t>(profile.runtime_bytes), 4 * base::kKiB);
  plan->max_num_seqs = memory >= kLargeGpu ? 1024 : 256;
  plan->max_num_batched_tokens = memory >= kLargeGpu ? 16384 : 8192;
}

base::Status Invalid(std::string message) { return {base::kInvalidArgument, std::move(message)}; }

class Simulated final : public Platform {
 public:
  base::Status Plan(const EngineOptions& options, const kernels::KernelSet&,
                    MachinePlan* plan) const override {
    const MachineOptions& machine = options.machine;
    const DevicesSpec& spec = machine.devices;
    if (!machine.device_profile.empty()) {
      return Invalid(
          fmt::format("--device-profile {}: simulated devices name their own; expected --devices "
                      "sim:{}x{}",
                      machine.device_profile, spec.count, machine.device_profile));
    }
    FB_ASSIGN_OR_RETURN(plan->profile, cost::LoadProfile(spec.name));
    plan->prices_modes = true;
    plan->slice_bytes = kSlice;
    if (plan->profile.kind == cost::DeviceKind::kCpu) {
      const auto memory =
          static_cast<uint64_t>(plan->profile.memory_bytes * machine.memory_utilization);
      return PlanCores(options, static_cast<int>(plan->profile.cores), memory, plan);
    }
    PlanGpu(machine, plan);
    return {};
  }

  base::Result<model::ModelConfig> AsStored(const MachineOptions& options,
                                            model::ModelConfig model) const override {
    if (options.quantization.format) model.stored = {*options.quantization.format, {}};
    if (options.quantization.expanded) model.stored.reset();
    model.forms.reset();
    model.int8 = model::Int8::kNone;
    if (model.mla && options.kv_cache_format == cost::NumberFormat::kInt8) {
      return base::Status(kKvCacheDtype,
                          fmt::format("--kv-cache-dtype int8: {} caches latents, which have no "
                                      "heads with scales; expected auto or fp8",
                                      model.architecture));
    }
    model.stored_kv = options.kv_cache_format;
    return model;
  }

  base::Result<std::shared_ptr<const model::Routing>> RoutingOf(
      const EngineOptions& options, const model::ModelConfig& config) const override {
    const std::shared_ptr<const model::Routing>& given = options.machine.routing;
    if (given && !config.moe)
      return Invalid(fmt::format("--routing: {} has no experts", config.architecture));
    if (given || !config.moe) return given;
    return model::ParseRouting("balanced", options.seed);
  }

  base::Status Check(const EngineOptions& options, const LayoutDraft& draft) const override {
    if (!options.machine.record_routing.empty()) {
      return Invalid(
          "--record-routing: simulated devices have no data that would choose experts; expected "
          "--devices cpu");
    }
    if (draft.config.both_ways) {
      return Invalid(fmt::format(
          "--devices {}: {} reads both ways, and its steps have no prices yet; expected "
          "--devices cpu",
          draft.machine.spec.text, draft.config.architecture));
    }
    if (options.digest) {
      return Invalid(
          fmt::format("--digest: the devices {} have no data to digest", draft.machine.spec.text));
    }
    if (options.trial.link_gbps > 0) return LinkTrialRefused(options);
    if (options.trial.slows_kv_up()) return KvTrialRefused();
    if (options.tier.in_file() && options.tier.keep_file) {
      return {kv::kKvFileInvalid,
              fmt::format("--kv-file {}: --kv-file-keep: simulated devices have no data to keep; "
                          "expected it left out",
                          options.tier.file)};
    }
    return {};
  }
};

}  // namespace

const Platform& SimulatedPlatform() {
  static const Simulated platform;
  return platform;
}

}  // namespace forebay::layout
