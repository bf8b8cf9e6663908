// A kind of device as plans see it: what such devices give to ranks, how they hold a model, and
// what they cannot do. engine/backend/backend.h makes its parts. A platform is a file in
// layout/platforms/ and a row in devices.cc (docs/recipes/device.md).
#pragma once

#include <memory>
#include <string_view>

#include "layout/layout_draft.h"
#include "layout/machine.h"
#include "layout/options.h"
#include "model/routing.h"

namespace forebay::layout {

class Platform {
 public:
  virtual ~Platform() = default;
  // The kernels by --isa and --numerics: the CPU's, as kernels::ChooseKernels, or the device's own.
  virtual base::Result<const kernels::KernelSet*> Kernels(std::string_view isa,
                                                          std::string_view numerics) const;
  // Those of --isa auto and --numerics auto. Errors: those of asking the device.
  virtual base::Result<const kernels::KernelSet*> DefaultKernels(
      const EngineOptions& options) const;
  // Fills in what such devices give: profile, budgets, workers, defaults of a step's limits. `plan`
  // has spec and scratch_bytes. Errors: kInvalidArgument and those of LoadProfile; kOffloadingSize
  // and kKvFileSize where memory below the device is taken from the same.
  virtual base::Status Plan(const EngineOptions& options, const kernels::KernelSet& kernels,
                            MachinePlan* plan) const = 0;
  // The model as its weights and its KV cache lie in memory. Errors: kQuantization, kKvCacheDtype.
  virtual base::Result<model::ModelConfig> AsStored(const MachineOptions& options,
                                                    model::ModelConfig model) const = 0;
  // Which experts rows go to where no data say so; null: data do, or there are no experts.
  virtual base::Result<std::shared_ptr<const model::Routing>> RoutingOf(
      const EngineOptions& options, const model::ModelConfig& config) const = 0;
  // What options ask and such devices cannot do. Each refusal names the flag, what was found and
  // what was expected.
  virtual base::Status Check(const EngineOptions& options, const LayoutDraft& draft) const = 0;
};

}  // namespace forebay::layout
