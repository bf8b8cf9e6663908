#include "layout/layout_draft.h"

#include "layout/plan_checks.h"
#include "layout/platform.h"

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

base::Status CheckRouting(const EngineOptions& options, const LayoutDraft& draft) {
  const std::shared_ptr<const model::Routing>& given = options.machine.routing;
  if (!options.machine.record_routing.empty())
    FB_RETURN_IF_ERROR(CheckRecording(options, draft.config, draft));
  if (given && draft.config.moe) FB_RETURN_IF_ERROR(given->Check(draft.config));
  if (!given || !given->names_rows() || draft.layout.sp == 1) return {};
  return {base::kInvalidArgument,
          fmt::format("--routing: a recorded file beside sp={}, where each rank has rows of its "
                      "own, is not there yet; expected balanced, power:A or sp=1",
                      draft.layout.sp)};
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
  const Platform& platform = *options.machine.devices.platform;
  draft.dtype = options.machine.dtype;
  draft.kernels = options.machine.kernels;
  if (draft.kernels == nullptr) {
    FB_ASSIGN_OR_RETURN(draft.kernels, platform.DefaultKernels(options));
  }
  FB_ASSIGN_OR_RETURN(draft.config, platform.AsStored(options.machine, model));
  draft.config.packed = draft.kernels->packed;
  FB_ASSIGN_OR_RETURN(draft.machine, PlanMachine(options, draft.config, *draft.kernels));
  FB_ASSIGN_OR_RETURN(
      draft.layout,
      LayoutOf(options, draft.config, num_devices > 0 ? num_devices : draft.machine.spec.count));
  if (draft.config.both_ways && draft.layout.pools()) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--layout: pool is not for {}, whose blocks are no decoder's; "
                                    "expected dp, tp, sp or pp",
                                    draft.config.architecture));
  }
  FB_RETURN_IF_ERROR(CheckRouting(options, draft));
  FB_ASSIGN_OR_RETURN(draft.routing, platform.RoutingOf(options, draft.config));
  FB_RETURN_IF_ERROR(platform.Check(options, draft));
  FB_RETURN_IF_ERROR(CheckLinks(options, draft));
  FB_RETURN_IF_ERROR(CheckRequests(options, draft));
  draft.steps_in_flight =
      options.limits.steps_in_flight ? options.limits.steps_in_flight : draft.layout.pp;
  // The default is that of a step: choices are shared out among those in flight.
  if (options.limits.max_num_seqs == 0) draft.machine.max_num_seqs *= draft.steps_in_flight;
  FB_ASSIGN_OR_RETURN(draft.shift, AskedShift(options, draft.layout));
  for (int rank = 0; rank < draft.layout.ranks_per_replica(); ++rank) {
    draft.decoders.push_back(model::DecoderPlanOf(options.decoders.get(), draft.config, draft.dtype,
                                                  CutOf(options, draft.layout, rank),
                                                  draft.layout.degrees()));
  }
  return draft;
}

}  // namespace forebay::layout
