#include "layout/layout_draft.h"

#include "layout/plan_checks.h"

namespace forebay::layout {
namespace {

// Every device a replica, where nothing else is asked for.
base::Result<Layout> LayoutOf(const EngineOptions& options, const model::ModelConfig& config,
                              int num_devices) {
  const Layout layout = options.layout.value_or(Layout{.dp = num_devices});
  FB_RETURN_IF_ERROR(CheckRouted(options, layout));
  if (!options.layout) return layout;
  FB_RETURN_IF_ERROR(ValidateLayout(*options.layout, config, num_devices));
  if (options.layout->sp > 1 && options.ship.mode && options.ship.mode->meets()) {
    return base::Status(share::kCannotShip,
                        fmt::format("--mode {} with sp={}: ranks that cut rows pull what they "
                                    "share; expected pull, or sp=1",
                                    schedule::Name(*options.ship.mode), options.layout->sp));
  }
  return layout;
}

// Where rows go on devices without data; null: data say so, or the model has no experts.
base::Result<std::shared_ptr<const model::Routing>> PlanRouting(const EngineOptions& options,
                                                                const model::ModelConfig& config,
                                                                const LayoutDraft& plan) {
  const std::shared_ptr<const model::Routing>& given = options.machine.routing;
  if (!options.machine.record_routing.empty())
    FB_RETURN_IF_ERROR(CheckRecording(options, config, plan));
  if (!plan.machine.has_data && config.moe && !given)
    return model::ParseRouting("balanced", options.seed);
  if (given && config.moe) FB_RETURN_IF_ERROR(given->Check(config));
  if (given && given->names_rows() && plan.layout.sp > 1) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--routing: a recorded file beside sp={}, where each rank has "
                                    "rows of its own, is not there yet; expected balanced, power:A "
                                    "or sp=1",
                                    plan.layout.sp));
  }
  if (!given || (!plan.machine.has_data && config.moe)) return given;
  return base::Status(base::kInvalidArgument,
                      plan.machine.has_data
                          ? "--routing: on real devices data say which experts rows go to; "
                            "expected --devices sim:..."
                          : fmt::format("--routing: {} has no experts", config.architecture));
}

// The model as its weights and its KV cache lie in memory: devices that compute have both in the
// compute type.
base::Result<model::ModelConfig> AsStored(const MachineOptions& options, bool has_data,
                                          model::ModelConfig model) {
  const std::optional<cost::NumberFormat> quantization = options.quantization;
  if (!has_data) {
    if (quantization) model.stored = {*quantization, {}};
    model.stored_kv = options.kv_cache_format;
    return model;
  }
  if (options.kv_cache_format) {
    return base::Status(
        kKvCacheDtype,
        fmt::format(
            "--kv-cache-dtype {}: no kernel reads it, real devices keep the KV cache in the "
            "compute type; expected auto, or --devices sim:...",
            cost::Name(*options.kv_cache_format)));
  }
  if (quantization) {
    return base::Status(
        kQuantization,
        fmt::format("--quantization {}: real devices compute with what the files hold, in bfloat16 "
                    "or float32; expected --devices sim:...",
                    cost::Name(*quantization)));
  }
  if (model.stored && model.stored->format == cost::NumberFormat::kNVFP4) {
    return base::Status(kQuantization,
                        "the model's weights are NVFP4, which real devices do not read; expected "
                        "fp8 with blocks of 128 x 128, bfloat16, float16 or float32");
  }
  model.stored.reset();
  return model;
}

}  // namespace

model::ReplicaCut CutOf(const EngineOptions& options, const Layout& layout, int rank) {
  model::ReplicaCut cut = CutOf(layout, rank);
  cut.two_step_kv = options.shift.two_step_kv;
  return cut;
}

base::Result<LayoutDraft> DraftLayout(const EngineOptions& options, const model::ModelConfig& model,
                                      int num_devices) {
  LayoutDraft draft;
  FB_RETURN_IF_ERROR(CheckOptions(options, model));
  draft.dtype = options.machine.dtype;
  draft.kernels = options.machine.kernels;
  if (draft.kernels == nullptr) {
    FB_ASSIGN_OR_RETURN(draft.kernels, kernels::ChooseKernels("auto"));
  }
  FB_ASSIGN_OR_RETURN(draft.machine, PlanMachine(options, model, *draft.kernels));
  FB_ASSIGN_OR_RETURN(draft.config, AsStored(options.machine, draft.machine.has_data, model));
  FB_ASSIGN_OR_RETURN(
      draft.layout,
      LayoutOf(options, draft.config, num_devices > 0 ? num_devices : draft.machine.spec.count));
  FB_ASSIGN_OR_RETURN(draft.routing, PlanRouting(options, draft.config, draft));
  FB_RETURN_IF_ERROR(CheckLinks(options, draft));
  FB_RETURN_IF_ERROR(CheckDigest(options, draft));
  FB_RETURN_IF_ERROR(CheckRequests(options, draft));
  draft.steps_in_flight =
      options.limits.steps_in_flight ? options.limits.steps_in_flight : draft.layout.pp;
  // The default is that of a step: choices are shared out among those in flight.
  if (options.limits.max_num_seqs == 0) draft.machine.max_num_seqs *= draft.steps_in_flight;
  FB_ASSIGN_OR_RETURN(draft.shift, AskedShift(options, draft.layout));
  for (int rank = 0; rank < draft.layout.ranks_per_replica(); ++rank) {
    draft.decoders.push_back(std::make_shared<model::DecoderPlan>(
        model::PlanDecoder(draft.config, draft.dtype, CutOf(options, draft.layout, rank))));
  }
  return draft;
}

}  // namespace forebay::layout
