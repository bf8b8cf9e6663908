#include "choose/layout_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>

#include "choose/count_search.h"
#include "choose/job_price.h"
#include "choose/role_choice.h"
#include "kernels/kv_layout.h"
#include "layout/job_plan.h"
#include "runtime/parallel_for.h"

namespace forebay::choose {
namespace {

// Ways in which replicas share what most of the model's weights are, or the ranks along sp, which
// can share it in stripes and equal parts alone.
std::vector<layout::Layout> SharedOf(layout::Layout layout, bool experts) {
  if (experts) {
    layout.experts = {&weights::kByExpert};
    if (layout.sp == 1) layout.expert_size.reset();
    return {layout};
  }
  std::vector<layout::Layout> shared;
  for (const auto* placement : {&weights::kStriped, &weights::kByLayer}) {
    if (layout.sp > 1 && placement == &weights::kByLayer) continue;
    layout.weights = {placement};
    shared.push_back(layout);
  }
  return shared;
}

std::vector<layout::Layout> LayoutsOf(int devices, bool experts) {
  std::vector<layout::Layout> layouts;
  for (int tp = 1; tp <= devices; ++tp) {
    for (int pp = 1; tp * pp <= devices; ++pp) {
      layout::Layout layout{.dp = layout::ReplicasOn(devices, tp, pp), .tp = tp, .pp = pp};
      if (layout.dp == 0) continue;
      layouts.push_back(layout);
      if (layout.dp == 1) continue;
      for (const layout::Layout& shared : SharedOf(layout, experts)) layouts.push_back(shared);
    }
    // Ranks that cut a step's rows, and change to tensor parallelism in steps of few.
    for (int sp = 2; tp * sp <= devices; ++sp) {
      const layout::Layout layout{.dp = layout::ReplicasOn(devices, tp, sp), .tp = tp, .sp = sp};
      if (layout.dp == 0) continue;
      layouts.push_back(layout);
      for (const layout::Layout& shared : SharedOf(layout, experts)) layouts.push_back(shared);
    }
  }
  return layouts;
}

// By so much the forecasts of two layouts may be wrong against each other (up to 3 % in the cells
// of docs/parallelism.md).
constexpr double kLittleSlower = 1.02;
// The same of roles against a layout, whose forecast may be 3 % too long (for roles see
// docs/parallelism.md).
constexpr double kRolesSooner = 1.05;

// So many layouts are tried with further settings, of those that come near the best.
constexpr int kRefined = 3;
constexpr double kNear = 1.3;
// Further settings are worth it where the job takes less than this part of the time.
constexpr double kWorthwhile = 0.99;
// Fewer rows leave more memory for KV cache, and make more steps of prompts.
constexpr int32_t kFewestRows = 128;
// Halves in a row that gain nothing end it: the first may not make room for one more choice.
constexpr int kInVain = 2;
// Of the default: the rows with which a layout is tried that lacks memory.
constexpr int32_t kLackingRows = 4;

// Calls `body` with 0 to `count` - 1 on so many threads (0: one a core). Calls need nothing of each
// other, and of their errors the one of the least number is returned: no result depends on the
// threads.
base::Status ForEach(size_t count, int threads, const std::function<base::Status(size_t)>& body) {
  std::vector<base::Status> statuses(count);
  runtime::ParallelFor(threads, [&](runtime::Tickets& tickets) {
    for (auto i = static_cast<size_t>(tickets.Next()); i < count;
         i = static_cast<size_t>(tickets.Next()))
      statuses[i] = body(i);
  });
  for (const base::Status& status : statuses) FB_RETURN_IF_ERROR(status);
  return {};
}

// Those that were stopped come behind all others that can run, and those that cannot last.
JobCost CostOf(const LayoutTrial& trial) {
  if (!trial.plan) return {};
  const JobForecast& job = *trial.plan->forecast;
  return job.stopped ? JobCost{JobCost().left_out - 1, job.seconds} : CostOf(job);
}

// Whether a trial takes less than this part of the time.
bool IsBelow(const LayoutTrial& trial, double part, const JobCost& other) {
  return CostOf(trial) < JobCost{other.left_out, part * other.seconds};
}

// A trial of a layout with the options as they are.
struct Tried {
  layout::Layout layout;
  LayoutTrial trial;
  KnownForecasts known;
  bool skipped = false;  // since it cannot win

  // With no layer pooled it is the same as copies.
  bool is_of_copies() const {
    return trial.plan && trial.plan->layout.pools_layers() && trial.plan->layout.pool_layers == 0;
  }
};

// Of the last one that is tried with further settings: what takes longer is neither taken nor
// changed. Nothing beats that of fewer, or of those that leave choices out.
JobCost RivalOf(std::vector<JobCost> costs) {
  if (costs.size() < kRefined) return {};
  std::ranges::nth_element(costs, costs.begin() + kRefined - 1);
  return costs[kRefined - 1].left_out == 0 ? costs[kRefined - 1] : JobCost();
}

JobCost RivalOf(const std::vector<Tried>& tried) {
  std::vector<JobCost> costs;
  for (const Tried& each : tried) {
    if (each.trial.plan && !each.is_of_copies()) costs.push_back(CostOf(each.trial));
  }
  return RivalOf(std::move(costs));
}

JobCost RivalOf(const std::vector<LayoutTrial>& trials) {
  std::vector<JobCost> costs;
  for (const LayoutTrial& trial : trials) {
    if (trial.plan) costs.push_back(CostOf(trial));
  }
  return RivalOf(std::move(costs));
}

// Whether other numbers of layers or experts than the best of quarters may come near the rival.
bool MayComeNear(const JobForecast& best, const JobCost& rival) {
  return !best.stopped && (best.left_out > 0 || kQuartersShow * best.seconds <= rival.seconds);
}

// Whether the plan's replicas have room for the whole job at once, or for as many choices as run at
// once. A replica's share is at most a choice more than the mean.
bool HoldAllAtOnce(const layout::LayoutPlan& plan, const layout::EngineOptions& options) {
  std::vector<int64_t> blocks;
  for (const layout::ChoiceShape& choice : *options.job) {
    const int64_t tokens = choice.prompt + std::max(choice.output, choice.bound);
    // Admission keeps a block more for each choice.
    blocks.push_back((tokens + kernels::kBlockTokens - 1) / kernels::kBlockTokens + 1);
  }
  std::ranges::sort(blocks, std::greater());
  const int64_t replicas = plan.replicas(),
                times = static_cast<int64_t>(std::ceil(options.job_times));
  int64_t places = replicas * plan.machine.max_num_seqs, wanted = 0;
  for (const int64_t each : blocks) {
    const int64_t count = std::min(places, times);
    wanted += count * each;
    places -= count;
  }
  if (!blocks.empty()) wanted += replicas * blocks.front();
  return wanted <= replicas * plan.ranks.front().memory.num_blocks;
}

base::Status NoPrices() {
  return {base::kInvalidArgument,
          "layouts are compared on devices with prices; expected --devices sim:8xh200 or a "
          "--device-profile"};
}

// What a trial sets beside the layout.
struct Further {
  int32_t rows = 0;    // of a step; 0: as the options say
  bool small = false;  // slots for pulled weights: of matrices, for one layer ahead
  bool ships = false;  // all steps

  friend bool operator==(const Further&, const Further&) = default;
};

std::string FlagsOf(const Further& further) {
  std::string flags;
  const auto add = [&](std::string_view flag) {
    flags += flags.empty() ? "" : " ";
    flags += flag;
  };
  if (further.rows > 0) add(fmt::format("--max-num-batched-tokens {}", further.rows));
  if (further.small) add("--pool-look-ahead 1 --pool-parts matrix");
  if (further.ships) add("--mode ship");
  return flags;
}

// What the options leave open beside the layout, and trials of it, which any thread may make.
class Refiner {
 public:
  // `layouts`: how many Try gets first.
  Refiner(const layout::EngineOptions& options, const model::ModelConfig& config,
          const TellSearch& tell, size_t layouts)
      : options_(options), config_(config), tell_(tell) {
    progress_.layouts = static_cast<int64_t>(layouts);
    const layout::TierOptions& tier = options.tier;
    // Streaming chooses rows itself.
    rows_are_open_ = options.limits.max_num_batched_tokens == 0 &&
                     options.policy->make()->preset().max_num_batched_tokens == 0 &&
                     !tier.in_memory() && !tier.in_file();
    layout::EngineOptions copies = options;
    copies.layout.reset();
    if (const auto draft = layout::DraftLayout(copies, config, 0); draft.ok())
      rows_ = draft->machine.max_num_batched_tokens;
    const weights::SlotSettings& slots = options.pool.slots;
    slots_are_open_ = slots.budget_bytes == 0 && slots.look_ahead_layers == 0 &&
                      slots.look_ahead_bytes == 0 && !options.pool.by_matrix;
    mode_is_open_ = !options.ship.mode && options.ship.threshold <= 0 &&
                    options.ship.routed_threshold == 0 && options.trial.flip_every == 0;
  }

  base::Result<LayoutTrial> Try(const layout::Layout& layout, const Further& further,
                                Effort effort) {
    effort.prices = &prices_;
    auto trial = Foresee(layout, further, effort);
    const std::lock_guard lock(mutex_);
    if (trial.ok()) Note(*trial);
    CountOne();
    return trial;
  }
  // As many groups with roles as devices share out. One that comes to no less than `rival` is
  // followed no further.
  LayoutTrial TryRoles(const layout::RoleLayouts& roles, const JobCost& rival) {
    layout::EngineOptions options = options_;
    options.roles = roles;
    LayoutTrial trial = ForeseeRoles(options, config_, rival, &prices_);
    const std::lock_guard lock(mutex_);
    Note(trial);
    CountOne();
    return trial;
  }
  // One of the first layouts is not tried.
  void Skip() {
    const std::lock_guard lock(mutex_);
    CountOne();
  }
  void End() {
    progress_.done = true;
    if (tell_) tell_(progress_);
  }

  // The layout with the settings in which the job is done soonest, as far as one change after the
  // other finds them. Nothing: it is the trial itself.
  base::Result<std::optional<LayoutTrial>> Refine(const layout::Layout& layout,
                                                  const LayoutTrial& as_asked) {
    std::optional<LayoutTrial> best;
    Further chosen;
    if (!as_asked.plan) {
      chosen = {.rows = rows_are_open_ ? std::max(kFewestRows, rows_ / kLackingRows) : 0,
                .small = slots_are_open_};
      FB_ASSIGN_OR_RETURN(best, Try(layout, chosen, {}));
      if (!best->plan) return std::optional<LayoutTrial>();
    }
    const auto improves = [&](const Further& further) -> base::Result<bool> {
      const LayoutTrial& other = best ? *best : as_asked;
      const JobCost cost = CostOf(other), wanted{cost.left_out, kWorthwhile * cost.seconds};
      FB_ASSIGN_OR_RETURN(LayoutTrial trial,
                          Try(layout, further, {.rival = wanted, .other = &*other.plan}));
      if (CostOf(trial) >= wanted) return false;
      best = std::move(trial);
      chosen = further;
      return true;
    };
    if (slots_are_open_ && layout.pools() && !chosen.small) {
      Further small = chosen;
      small.small = true;
      FB_RETURN_IF_ERROR(improves(small).status());
    }
    if (mode_is_open_ && layout.pools_experts() && !layout.pools_along_sp()) {
      Further ships = chosen;
      ships.small = false;  // no step pulls
      ships.ships = true;
      FB_RETURN_IF_ERROR(improves(ships).status());
    }
    int in_vain = 0;
    for (int32_t rows = (chosen.rows > 0 ? chosen.rows : rows_) / 2;
         rows_are_open_ && rows >= kFewestRows; rows /= 2) {
      Further fewer = chosen;
      fewer.rows = rows;
      FB_ASSIGN_OR_RETURN(const bool better, improves(fewer));
      in_vain = better ? 0 : in_vain + 1;
      if (in_vain == kInVain && CostOf(best ? *best : as_asked).left_out == 0) break;
    }
    return best;
  }

 private:
  // Call with the lock, as CountOne.
  void Note(const LayoutTrial& trial) {
    if (!trial.plan || trial.plan->forecast->stopped) return;
    const double seconds = trial.plan->forecast->seconds;
    if (progress_.best_seconds == 0 || seconds < progress_.best_seconds)
      progress_.best_seconds = seconds;
  }
  void CountOne() {
    ++(progress_.tried < progress_.layouts ? progress_.tried : progress_.further);
    if (tell_) tell_(progress_);
  }

  base::Result<LayoutTrial> Foresee(const layout::Layout& layout, const Further& further,
                                    const Effort& effort) const {
    layout::EngineOptions options = options_;
    options.layout = layout;
    if (further.rows > 0) options.limits.max_num_batched_tokens = further.rows;
    if (further.small) {
      options.pool.slots.look_ahead_layers = 1;
      options.pool.by_matrix = true;
    }
    if (further.ships) options.ship.mode = StepMode{.ffn = FfnMode::kShip};
    auto plan = Decide(options, config_, 0, effort);
    LayoutTrial trial{.layout = layout::FormatLayout(layout),
                      .flags = FlagsOf(further),
                      .refused = plan.ok() ? plan->Fits() : plan.status()};
    if (!trial.refused.ok()) return trial;
    if (!plan->forecast) return NoPrices();
    // Of a forecast that was stopped nothing is chosen.
    if (!plan->forecast->stopped) trial.layout = layout::FormatLayout(plan->layout);
    plan->flags = trial.flags;
    trial.plan = *std::move(plan);
    return trial;
  }

  const layout::EngineOptions& options_;
  const model::ModelConfig& config_;
  const TellSearch& tell_;
  price::SharedPrices prices_;
  std::mutex mutex_;
  SearchProgress progress_;
  int32_t rows_ = 0;  // of a step, where nobody says
  bool rows_are_open_ = false, slots_are_open_ = false, mode_is_open_ = false;
};

// Why nothing is foreseen of roles that the options name.
base::Status CheckForeseen(const layout::EngineOptions& options, const layout::LayoutPlan& plan) {
  if (!plan.machine.prices_modes) return NoPrices();
  const char* const found = plan.layout.pools() ? "ranks that share weights"
                            : options.tier.in_memory() || options.tier.in_file()
                                ? "KV cache below the device"
                                : nullptr;
  if (found == nullptr) return {};
  return {layout::kRolesInvalid,
          fmt::format("--context and --generation with {}: no forecast knows them; expected "
                      "copies of the model on the devices alone, or --memory",
                      found)};
}

// Groups with roles that may come near the best three of `trials`, which are in their order.
std::vector<RoleSplit> SplitsOf(const layout::EngineOptions& options,
                                const std::vector<LayoutTrial>& trials) {
  const layout::TierOptions& tier = options.tier;
  // Forecasts know of nothing below the devices; who asks for a mode wants weights to be shared.
  if (!layout::RequireSimulated(options.machine.devices).ok() || tier.in_memory() ||
      tier.in_file() || options.ship.mode)
    return {};
  std::vector<CopiesForecast> copies;
  for (const LayoutTrial& trial : trials) {
    if (trial.plan && trial.flags.empty() && !trial.plan->forecast->generation_seconds.empty())
      copies.push_back({trial.plan->layout, &*trial.plan->forecast});
  }
  std::vector<RoleSplit> splits = SplitDevices(options.machine.devices.count, copies);
  std::erase_if(splits, [&, rival = RivalOf(trials)](const RoleSplit& split) {
    return JobCost{0, split.least_seconds} >= rival;
  });
  return splits;
}

}  // namespace

base::Result<std::vector<LayoutTrial>> RankLayouts(const layout::EngineOptions& asked,
                                                   const model::ModelConfig& config,
                                                   const TellSearch& tell, int threads) {
  layout::EngineOptions options = asked;
  options.decoders = std::make_shared<model::DecoderPlans>();
  const std::vector<layout::Layout> layouts =
      LayoutsOf(options.machine.devices.count, config.moe.has_value());
  Refiner refiner(options, config, tell, layouts.size());
  std::vector<Tried> tried;
  // Layouts with nothing to choose are one forecast each, and show what the others must beat; of
  // those the ones that may are worth more forecasts than a few.
  std::vector<size_t> fixed, open, whole;
  std::vector<size_t> copies_of;  // its cut's, which stand before it
  for (const layout::Layout& layout : layouts) {
    (!layout.pools()                             ? fixed
     : layout.weights.kind == &weights::kByLayer ? whole
                                                 : open)
        .push_back(tried.size());
    copies_of.push_back(fixed.back());
    tried.push_back({.layout = layout});
  }
  const auto foresee = [&](const std::vector<size_t>& which, bool quarters_do) {
    return ForEach(which.size(), threads, [&, rival = RivalOf(tried)](size_t i) -> base::Status {
      Tried& each = tried[which[i]];
      FB_ASSIGN_OR_RETURN(
          each.trial,
          refiner.Try(each.layout, {},
                      {.rival = rival, .quarters_do = quarters_do, .known = &each.known}));
      return {};
    });
  };
  const auto skip = [&](std::vector<size_t>* which, const auto& cannot_win) {
    std::erase_if(*which, [&](size_t i) {
      tried[i].skipped = cannot_win(i);
      if (tried[i].skipped) refiner.Skip();
      return tried[i].skipped;
    });
  };
  FB_RETURN_IF_ERROR(foresee(fixed, false));
  // What ranks along sp share makes room for more choices at once, and no step shorter: it cannot
  // win where copies hold all of the job's at once.
  skip(&open, [&](size_t i) {
    const LayoutTrial& copies = tried[copies_of[i]].trial;
    return tried[i].layout.pools_along_sp() && copies.plan &&
           copies.plan->forecast->left_out == 0 && HoldAllAtOnce(*copies.plan, options);
  });
  for (size_t i = 0; i < tried.size(); ++i) {
    // The same without a layer or an expert that is shared.
    if (!tried[i].layout.pools_along_sp()) tried[i].known = tried[copies_of[i]].known;
  }
  FB_RETURN_IF_ERROR(foresee(open, true));
  // Layers that lie whole on one owner take 1.03 to 1.17 times as long as stripes of them
  // (bench/results/pool_auto.md), whose layout stands before theirs.
  skip(&whole, [&, rival = RivalOf(tried)](size_t i) {
    const LayoutTrial& stripes = tried[i - 1].trial;
    return stripes.plan && !MayComeNear(*stripes.plan->forecast, rival);
  });
  FB_RETURN_IF_ERROR(foresee(whole, true));
  open.insert(open.end(), whole.begin(), whole.end());
  std::erase_if(open, [&, rival = RivalOf(tried)](size_t i) {
    const LayoutTrial& trial = tried[i].trial;
    // Along sp the number of shared layers follows from prices, so that one forecast is all.
    return tried[i].layout.pools_along_sp() || !trial.plan ||
           !MayComeNear(*trial.plan->forecast, rival);
  });
  FB_RETURN_IF_ERROR(foresee(open, false));
  std::erase_if(tried, [](const Tried& each) { return each.skipped || each.is_of_copies(); });
  std::ranges::stable_sort(tried, {}, [](const Tried& each) { return CostOf(each.trial); });
  const JobCost best = CostOf(tried.front().trial);
  std::vector<size_t> refined;
  int near = 0;
  for (size_t i = 0; i < tried.size(); ++i) {
    const LayoutTrial& trial = tried[i].trial;
    const bool is_near = trial.plan &&
                         CostOf(trial) <= JobCost{best.left_out, kNear * best.seconds} &&
                         ++near <= kRefined;
    const bool lacks = trial.refused.code() == layout::kMemoryTooSmall && tried[i].layout.pools();
    if (is_near || lacks) refined.push_back(i);
  }
  std::vector<std::optional<LayoutTrial>> further(tried.size());
  FB_RETURN_IF_ERROR(ForEach(refined.size(), threads, [&](size_t i) -> base::Status {
    const Tried& each = tried[refined[i]];
    FB_ASSIGN_OR_RETURN(further[refined[i]], refiner.Refine(each.layout, each.trial));
    return {};
  }));
  std::vector<LayoutTrial> trials;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (further[i]) trials.push_back(*std::move(further[i]));
    trials.push_back(std::move(tried[i].trial));
  }
  const auto sort = [&] {
    std::ranges::stable_sort(trials, {}, [](const LayoutTrial& trial) { return CostOf(trial); });
  };
  sort();
  const std::vector<RoleSplit> splits = SplitsOf(options, trials);
  std::vector<LayoutTrial> with_roles(splits.size());
  FB_RETURN_IF_ERROR(
      ForEach(splits.size(), threads, [&, rival = RivalOf(trials)](size_t i) -> base::Status {
        with_roles[i] = refiner.TryRoles(splits[i].roles, rival);
        return {};
      }));
  refiner.End();
  std::ranges::move(with_roles, std::back_inserter(trials));
  sort();
  return trials;
}

LayoutTrial ForeseeRoles(const layout::EngineOptions& options, const model::ModelConfig& config,
                         const JobCost& rival, price::SharedPrices* prices) {
  LayoutTrial trial{.flags = FormatRoles(*options.roles)};
  auto decided = DecideRoles(options, config);
  trial.refused = decided.status();
  if (!trial.refused.ok()) return trial;
  for (const RoleDecision& role : *decided) {
    if (trial.refused.ok()) trial.refused = CheckForeseen(options, role.plan);
    if (trial.refused.ok()) trial.refused = role.plan.Fits().WithContext(Name(role.role));
  }
  if (!trial.refused.ok()) return trial;
  Decision& context = trial.plan.emplace(std::move(decided->front().plan));
  context.generation = std::make_shared<Decision>(std::move(decided->back().plan));
  context.flags = trial.flags;
  context.forecast = ForecastOfRoles(options, config, context, *context.generation, rival, prices);
  return trial;
}

bool LeavesLayoutOpen(const layout::EngineOptions& options, const model::ModelConfig& config) {
  const layout::DevicesSpec& devices = options.machine.devices;
  return !options.layout && !options.roles && !options.layout_by_job &&
         (layout::RequireSimulated(devices).ok() || (devices.count > 1 && !config.moe));
}

base::Result<Decision> DecideLayout(const layout::EngineOptions& options,
                                    const model::ModelConfig& config, const TellSearch& tell) {
  const layout::DevicesSpec& devices = options.machine.devices;
  const bool one_real = devices.count == 1 && !layout::RequireSimulated(devices).ok();
  if (!options.layout_by_job || one_real) return Decide(options, config);
  if (options.job == nullptr) {
    return base::Status(base::kInvalidArgument,
                        "--layout auto: the job is not known before it runs; expected an input or "
                        "a trace whose requests are all there, without --mean-context, or a "
                        "layout, as dp=4,weights=striped");
  }
  FB_ASSIGN_OR_RETURN(std::vector<LayoutTrial> trials, RankLayouts(options, config, tell));
  const auto copies = std::ranges::find_if(trials, [&](const LayoutTrial& trial) {
    return trial.plan && trial.plan->layout.dp == devices.count && !trial.plan->layout.pools();
  });
  const auto layout = std::ranges::find_if_not(trials, &std::string::empty, &LayoutTrial::layout);
  auto best = trials.begin();
  if (best->layout.empty() && !IsBelow(*best, 1 / kRolesSooner, CostOf(*layout))) best = layout;
  if (copies != trials.end() && !IsBelow(*best, 1 / kLittleSlower, CostOf(*copies))) best = copies;
  if (best->plan) return *std::move(best->plan);
  return best->refused;
}

}  // namespace forebay::choose
