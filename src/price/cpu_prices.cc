#include "price/cpu_prices.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace forebay::price {
namespace {

bool DecidesByPrice(const layout::Layout& layout, const layout::ModeOptions& modes) {
  if (layout.dp < 2 || !layout.pools()) return false;
  const bool chooses_layers = layout.pools_layers() && !layout.pool_layers,
             chooses_experts = layout.pools_experts() && !layout.expert_size;
  if (chooses_layers || chooses_experts) return true;
  return layout.pool_layers != 0 && !modes.mode && modes.threshold <= 0;
}

// In which modes ranks take steps that cut rows, and how many layers they pool along sp.
bool ShiftsByPrice(const layout::Layout& layout, const layout::EngineOptions& options) {
  if (layout.sp < 2) return false;
  if (layout.pools_along_sp() && !layout.pool_layers) return true;
  const layout::ShiftOptions& shift = options.shift;
  return !shift.mode && shift.threshold <= 0 && options.trial.shift_every == 0;
}

bool ShiftsByPrice(const layout::EngineOptions& options) {
  if (options.roles) {
    return ShiftsByPrice(options.roles->context, options) ||
           ShiftsByPrice(options.roles->generation, options);
  }
  return options.layout && ShiftsByPrice(*options.layout, options);
}

// What becomes of KV that there is room for below the device: of preempted choices, and of prefixes
// that come up again or are computed.
bool ParksByPrice(const layout::EngineOptions& options) {
  const layout::TierOptions& tier = options.tier;
  if (!tier.in_memory() && !tier.in_file()) return false;
  return tier.preempt == layout::Preempting::kAuto ||
         (tier.preempt == layout::Preempting::kRecompute && options.prefix_caching);
}

}  // namespace

bool DecidesByPrices(const layout::EngineOptions& options) {
  if (options.roles) {
    return DecidesByPrice(options.roles->context, options.ship) ||
           DecidesByPrice(options.roles->generation, options.ship);
  }
  return options.layout_by_job || (options.layout && DecidesByPrice(*options.layout, options.ship));
}

bool StreamsByPrices(const layout::EngineOptions& options) {
  const layout::TierOptions& tier = options.tier;
  const layout::Offloading offload = tier.offload;
  if (!tier.in_memory() && (!tier.in_file() || tier.keep_file)) return false;
  if (offload == layout::Offloading::kOff || offload == layout::Offloading::kAlways) return false;
  if (offload != layout::Offloading::kAuto) return true;
  // Where nothing can be streamed, `auto` is `off`.
  const layout::Layout layout = options.layout.value_or(layout::Layout{});
  return !options.roles && !layout.pools_experts() && layout.pp == 1 &&
         options.limits.steps_in_flight <= 1;
}

bool WantsPrices(const layout::EngineOptions& options) {
  const layout::MachineOptions& machine = options.machine;
  if (machine.devices.platform != &layout::CpuPlatform() || !machine.device_profile.empty())
    return false;
  const bool several = machine.devices.count > 1;
  if (several && options.layout_by_job && options.job == nullptr) return false;
  return (several && (DecidesByPrices(options) || ShiftsByPrice(options))) ||
         ParksByPrice(options) || StreamsByPrices(options) ||
         options.policy->make()->orders_services();
}

std::string FittingProfile(std::string_view cpu, std::string_view isa, int workers) {
  // As the profiles were measured: servers of two generations of AMD's, one of Intel's.
  struct Measured {
    const char *profile, *isa;
    int family, first_model, last_model, workers;
  };
  constexpr Measured kMeasured[] = {
      {"zen4", "avx512bf16", 25, 16, 31, 2},    // Genoa
      {"zen4", "avx512bf16", 25, 160, 175, 2},  // Bergamo
      {"zen5", "avx512bf16", 26, 0, 31, 2},     // Turin
      {"emerald-rapids-amx", "amx", 6, 207, 207, 2},
  };
  const size_t at = cpu.rfind("(family ");
  int family = 0, model = 0;
  if (at == std::string_view::npos || std::sscanf(std::string(cpu.substr(at)).c_str(),
                                                  "(family %d, model %d)", &family, &model) != 2)
    return "";
  const auto* const found = std::ranges::find_if(kMeasured, [&](const Measured& row) {
    return family == row.family && model >= row.first_model && model <= row.last_model &&
           isa == row.isa && workers == row.workers;
  });
  return found == std::end(kMeasured) ? "" : found->profile;
}

}  // namespace forebay::price
