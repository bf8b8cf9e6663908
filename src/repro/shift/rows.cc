#include "repro/shift/rows.h"

#include <algorithm>

#include "choose/decide.h"
#include "model/builtin_configs.h"
#include "model/modes.h"
#include "model/shard.h"
#include "model/ulysses.h"

namespace forebay::repro {
namespace {

double ValueOf(const ShiftOutcome& outcome, Figure figure, int32_t output) {
  const job::Latencies& times = outcome.latencies;
  switch (figure) {
    case Figure::kTtft: return 1e3 * times.first_token.mean;
    case Figure::kTpot: return 1e3 * times.token.mean;
    case Figure::kMedianTtft: return 1e3 * times.first_token.p50;
    case Figure::kMedianTpot: return 1e3 * times.token.p50;
    case Figure::kCompletion: return 1e3 * times.completion.mean;
    case Figure::kPrinted: return 1e3 * (times.first_token.mean + output * times.token.mean);
    case Figure::kTokens: return outcome.tokens_per_s;
    case Figure::kPeak: return outcome.peak_tokens_per_s;
    case Figure::kCollectives: return outcome.costs.collectives();
    case Figure::kOverheadShare: return outcome.costs.host / outcome.costs.sum();
    case Figure::kAttentionShare: return outcome.costs.attention / outcome.costs.sum();
  }
  FB_CHECK(false, "no figure {}", static_cast<int>(figure));
}

// The steps of one request's decoding, between a run of it and one that ends with its first token.
ShiftOutcome DecodingOf(ShiftOutcome whole, const ShiftOutcome& prompts) {
  whole.seconds -= prompts.seconds;
  whole.steps -= prompts.steps;
  whole.step_seconds -= prompts.step_seconds;
  whole.costs -= prompts.costs;
  return whole;
}

// What a meeting of a layer would take if the claimed step differed from ours in nothing else.
void AddImplied(const ShiftOutcome& outcome, double claimed_step_ms, Account* account) {
  account->push_back({"claimed ms a step", claimed_step_ms});
  const double met = outcome.costs.sums_and_rows();
  if (met <= 0) return;
  const double meetings = 2 * outcome.layers;
  const double ours = 1e3 * met / outcome.steps,
               others = 1e3 * outcome.step_seconds / outcome.steps - ours;
  account->push_back({"exchange of a layer us", 1e3 * ours / meetings});
  account->push_back({"as the claim implies us", 1e3 * (claimed_step_ms - others) / meetings});
}

std::string_view NameOf(Figure figure) {
  switch (figure) {
    case Figure::kTtft: return "TTFT";
    case Figure::kTpot: return "TPOT";
    case Figure::kMedianTtft: return "median TTFT";
    case Figure::kMedianTpot: return "median TPOT";
    case Figure::kCompletion: return "completion";
    case Figure::kPrinted: return "completion as printed";
    case Figure::kTokens: return "tokens/s";
    case Figure::kPeak: return "peak";
    case Figure::kCollectives: return "collectives";
    case Figure::kOverheadShare: return "overhead";
    case Figure::kAttentionShare: return "attention";
  }
  FB_CHECK(false, "no figure {}", static_cast<int>(figure));
}

// Whether more of a figure is better.
bool IsRate(Figure figure) { return figure == Figure::kTokens || figure == Figure::kPeak; }

struct BestRun {
  double figure = 0;
  int32_t budget = 0;
  bool shortened = false;
};
base::Result<BestRun> BestOf(ShiftRun run, Figure figure, Lab& lab) {
  BestRun best;
  for (const int32_t budget : kBudgets) {
    run.budget = budget;
    FB_ASSIGN_OR_RETURN(const ShiftOutcome outcome, RunShift(run, lab));
    best.shortened |= outcome.shortened;
    const double found = ValueOf(outcome, figure, run.traffic.output);
    const bool better = IsRate(figure) ? found > best.figure : found < best.figure;
    if (best.budget > 0 && !better) continue;
    best.figure = found;
    best.budget = budget;
  }
  return best;
}

}  // namespace

ShiftRun AtOnce(std::string model, ShiftLayout layout, int32_t prompt) {
  // As many tokens in prompts, but for the shortest.
  const int64_t requests = std::min<int64_t>(2000, 8'000'000 / prompt);
  return {.model = std::move(model),
          .layout = layout,
          .traffic = {.prompt = prompt, .requests = requests}};
}

ShiftRun OneAtATime(std::string model, ShiftLayout layout, int32_t prompt) {
  return {.model = std::move(model),
          .layout = layout,
          .traffic = {.prompt = prompt, .requests = 4, .concurrency = 1}};
}

ShiftRun Arriving(std::string model, ShiftLayout layout, double rate, int64_t requests) {
  return {.model = std::move(model),
          .layout = layout,
          .traffic = {.prompt = 8192, .requests = requests, .rate = rate}};
}

ShiftRun InBursts(std::string model, ShiftLayout layout, int burst_rate) {
  constexpr int kRate = 2, kBursts = 4, kBurstSeconds = 10, kSteady = 400;
  return {
      .model = std::move(model),
      .layout = layout,
      .traffic = {.requests = kBursts * kBurstSeconds * burst_rate + kSteady,
                  .mixed = true,
                  .bursts = fmt::format("bursts:rate={},bursts={},burst_rate={},burst_seconds={}",
                                        kRate, kBursts, burst_rate, kBurstSeconds)}};
}

ShiftRun Decoding128(std::string model, ShiftLayout layout, int32_t running) {
  return {.model = std::move(model),
          .layout = layout,
          .traffic = {
              .prompt = 128, .output = 512, .requests = int64_t{3} * running, .running = running}};
}

ShiftRun OnH100(std::string model, ShiftLayout layout, int32_t prompt) {
  const int64_t requests = std::min<int64_t>(1920, 16'000'000 / prompt);
  return {.model = std::move(model),
          .layout = layout,
          .traffic = {.prompt = prompt, .requests = requests},
          .device = "h100"};
}

FindingOr TradeOffCell(const TradeOff& key, double claimed, Lab& lab) {
  const bool at_once = key.figure == Figure::kTokens;
  ShiftRun run = at_once ? AtOnce(key.model, key.layout) : OneAtATime(key.model, key.layout);
  run.bf16_wire = key.bf16_wire;
  FB_ASSIGN_OR_RETURN(ShiftOutcome outcome, RunShift(run, lab));
  Finding finding{.calibrated = ValueOf(outcome, key.figure, run.traffic.output),
                  .shortened = outcome.shortened};
  double claimed_step_ms = claimed;
  if (at_once) {
    const double tokens = finding.calibrated * outcome.seconds;
    finding.calibrated *= 1e-3;
    claimed_step_ms = tokens / claimed / outcome.steps;
  } else {
    ShiftRun prompts = run;
    prompts.traffic.output = 1;
    FB_ASSIGN_OR_RETURN(const ShiftOutcome first, RunShift(prompts, lab));
    outcome = key.figure == Figure::kTpot ? DecodingOf(outcome, first) : first;
  }
  finding.account = TermsOf(outcome);
  AddImplied(outcome, claimed_step_ms, &finding.account);
  if (at_once) {
    FB_ASSIGN_OR_RETURN(const BestRun best, BestOf(run, key.figure, lab));
    finding.account.push_back({"K tok/s at the best step budget", 1e-3 * best.figure});
    finding.account.push_back({"that budget", static_cast<double>(best.budget)});
  }
  run.uncalibrated = true;
  FB_ASSIGN_OR_RETURN(const ShiftOutcome plain, RunShift(run, lab));
  finding.uncalibrated = ValueOf(plain, key.figure, run.traffic.output) * (at_once ? 1e-3 : 1);
  return finding;
}

FindingOr Compare(const Compared& key, double, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const ShiftOutcome above, RunShift(key.above, lab));
  const double figure = ValueOf(above, key.figure, key.above.traffic.output);
  Finding finding{.shortened = above.shortened};
  Append(NameOf(key.above.layout) + ": ", TermsOf(above), &finding.account);
  finding.account.push_back({"its figure", figure});
  std::optional<double> least;
  for (const ShiftRun& run : key.below) {
    FB_ASSIGN_OR_RETURN(const ShiftOutcome below, RunShift(run, lab));
    const double other = ValueOf(below, key.figure, run.traffic.output);
    least = std::min(least.value_or(other), other);
    Append(NameOf(run.layout) + ": ", TermsOf(below), &finding.account);
    finding.account.push_back({"its figure", other});
  }
  finding.calibrated = figure / *least;
  return finding;
}

FindingOr CountThatHold(const Counted& key, double, Lab& lab) {
  Finding finding;
  for (const Compared& cell : key.cells) {
    FB_ASSIGN_OR_RETURN(const Finding one, Compare(cell, 0, lab));
    finding.shortened |= one.shortened;
    if (one.calibrated >= key.at_least) ++finding.calibrated;
    finding.account.push_back(
        {fmt::format("{}: {} over {}", NameOf(cell.figure), NameOf(cell.above.layout),
                     NameOf(cell.below.front().layout)),
         one.calibrated});
  }
  return finding;
}

FindingOr MostGained(const Extreme& key, double, Lab& lab) {
  Finding finding;
  for (const Compared& cell : key.cells) {
    FB_ASSIGN_OR_RETURN(const Finding one, Compare(cell, 0, lab));
    finding.shortened |= one.shortened;
    const double gain = key.times ? 1 / one.calibrated : one.calibrated;
    finding.calibrated = std::max(finding.calibrated, gain);
    finding.account.push_back(
        {fmt::format("{}, {} tokens", cell.above.model, cell.above.traffic.prompt), gain});
  }
  return finding;
}

FindingOr Crossings(const ByRate& key, double, Lab& lab) {
  Finding finding;
  double before = 0;
  for (const double rate : key.rates) {
    FB_ASSIGN_OR_RETURN(const ShiftOutcome dp, RunShift(Arriving(key.model, kDp8, rate), lab));
    FB_ASSIGN_OR_RETURN(const ShiftOutcome tp, RunShift(Arriving(key.model, kTp8, rate), lab));
    const double dp_ms = 1e3 * dp.latencies.completion.mean,
                 tp_ms = 1e3 * tp.latencies.completion.mean;
    if (before * (dp_ms - tp_ms) < 0) ++finding.calibrated;
    before = dp_ms - tp_ms;
    finding.shortened |= dp.shortened || tp.shortened;
    finding.account.push_back({fmt::format("{} requests/s: DP ms", rate), dp_ms});
    finding.account.push_back({"TP ms", tp_ms});
  }
  return finding;
}

FindingOr BestOverBest(const AtBest& key, double, Lab& lab) {
  const Compared& compared = key.compared;
  const Figure figure = compared.figure;
  Finding finding;
  const auto best_of = [&](const ShiftRun& each) -> base::Result<double> {
    FB_ASSIGN_OR_RETURN(const BestRun best, BestOf(each, figure, lab));
    finding.shortened |= best.shortened;
    finding.account.push_back({NameOf(each.layout) + ": its figure", best.figure});
    finding.account.push_back({"at a budget of", static_cast<double>(best.budget)});
    return best.figure;
  };
  FB_ASSIGN_OR_RETURN(const double above, best_of(compared.above));
  std::optional<double> below;
  for (const ShiftRun& other : compared.below) {
    FB_ASSIGN_OR_RETURN(const double found, best_of(other));
    below = IsRate(figure) ? std::max(below.value_or(found), found)
                           : std::min(below.value_or(found), found);
  }
  finding.calibrated = above / *below;
  return finding;
}

FindingOr CompletionUnderLoad(const UnderLoad& key, double, Lab& lab) {
  ShiftRun run{.layout = kDp8,
               .traffic = {.requests = RequestsOf(key.recorded), .recorded = key.recorded}};
  FB_ASSIGN_OR_RETURN(const ShiftOutcome at_once, RunShift(run, lab));
  const double sustained = at_once.requests / at_once.seconds;
  run.traffic.rate = key.load * sustained;
  Finding finding{.account = {{"requests/s", run.traffic.rate}}, .shortened = at_once.shortened};
  std::optional<double> shifts, others;
  ShiftLayout all_modes = kShift;
  all_modes.ends = false;
  for (const ShiftLayout& layout :
       {kDp8, kFourTp2, kTwoTp4, kTp8, kSp4Tp2, kSp8, kShift, all_modes}) {
    run.layout = layout;
    FB_ASSIGN_OR_RETURN(const ShiftOutcome outcome, RunShift(run, lab));
    const job::Latencies& times = outcome.latencies;
    const double completion = 1e3 * times.completion.mean;
    Append(NameOf(layout) + ": ",
           {{"completion ms", completion},
            {"median TTFT ms", 1e3 * times.first_token.p50},
            {"p99 TTFT ms", 1e3 * times.first_token.p99},
            {"median TPOT ms", 1e3 * times.token.p50},
            {"K tok/s", 1e-3 * outcome.tokens_per_s}},
           &finding.account);
    if (layout == kShift) shifts = completion;
    if (!layout.shift) others = std::min(others.value_or(completion), completion);
  }
  finding.calibrated = *shifts / *others;
  return finding;
}

FindingOr ByRunLength(const LongRuns& key, double, Lab& lab) {
  Finding finding;
  for (const int64_t requests : key.requests) {
    const auto run = [&](const ShiftLayout& layout) {
      return Arriving(key.model, layout, key.rate, requests);
    };
    Compared compared{Figure::kCompletion, run(kShift), {run(kDp8)}};
    FB_ASSIGN_OR_RETURN(const Finding over_dp, Compare(compared, 0, lab));
    compared.below = {run(kTp8)};
    FB_ASSIGN_OR_RETURN(const Finding over_tp, Compare(compared, 0, lab));
    finding.shortened |= over_dp.shortened;
    finding.calibrated = over_dp.calibrated;
    finding.account.push_back({fmt::format("{} requests: over DP", requests), over_dp.calibrated});
    finding.account.push_back({"over TP", over_tp.calibrated});
  }
  return finding;
}

FindingOr BytesCounted(const CountedBytes& key, double, Lab& lab) {
  ShiftRun run{.layout = key.layout,
               .traffic = {.prompt = 8064, .output = 1, .requests = 1, .concurrency = 1},
               .uncalibrated = key.by_datasheet};
  FB_ASSIGN_OR_RETURN(const ShiftOutcome outcome, RunShift(run, lab));
  const double bytes = key.sums ? outcome.bytes_all_reduce : outcome.bytes_all_to_all;
  return Finding{.calibrated = bytes / (run.traffic.prompt * outcome.layers)};
}

FindingOr SavedBetween(const int32_t& rows, double, Lab& lab) {
  Finding finding;
  double ends = 0, between = 0;
  const ShiftLayout sp2_tp4{.sp = 2, .tp = 4};
  for (const ShiftLayout& layout : {kSp8, kSp4Tp2, sp2_tp4, kTp8}) {
    const ShiftRun run{.layout = layout,
                       .traffic = {.prompt = rows, .output = 1, .requests = 1, .concurrency = 1}};
    FB_ASSIGN_OR_RETURN(const ShiftOutcome outcome, RunShift(run, lab));
    const ShiftCosts& costs = outcome.costs;
    const double ms = 1e3 * (costs.linear + costs.sums_and_rows() + costs.elementwise);
    double& least = layout.sp == 1 || layout.tp == 1 ? ends : between;
    if (least == 0 || ms < least) least = ms;
    Append(NameOf(layout) + ": ",
           {{"ms", ms},
            {"linears", 1e3 * costs.linear},
            {"all-to-alls", 1e3 * costs.all_to_all.seconds},
            {"all-reduces", 1e3 * costs.all_reduce.seconds},
            {"elementwise", 1e3 * costs.elementwise}},
           &finding.account);
  }
  finding.calibrated = 100 * (1 - between / ends);
  return finding;
}

namespace {

int KvCopiesOf(const model::ModelConfig& config, const model::Degrees& layout) {
  return std::max<int>(1, layout.ranks() / static_cast<int>(config.num_kv_heads));
}

model::Shard ShardOfBlock(const model::ModelConfig& config, const model::Degrees& layout,
                          int block) {
  return model::ShardOf(config, {.tp = layout.tp,
                                 .tp_rank = layout.TpIndex(block),
                                 .sp = layout.sp,
                                 .sp_rank = layout.SpIndex(block)});
}

}  // namespace

FindingOr CopiesOfKvHeads(const MoeLayout& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(key.model));
  return Finding{.calibrated = static_cast<double>(KvCopiesOf(config, key.layout))};
}

FindingOr KvHeadsOfRanks(const MoeLayout& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(key.model));
  double digits = 0;
  for (int rank = 0; rank < key.layout.ranks(); ++rank) {
    const model::Shard shard =
        ShardOfBlock(config, key.layout, model::BlockOfRank(key.layout, rank));
    FB_CHECK(shard.own_kv_heads.size() == 1, "{} KV heads", shard.own_kv_heads.size());
    digits = 10 * digits + static_cast<double>(shard.own_kv_heads.begin + 1);
  }
  return Finding{.calibrated = digits};
}

FindingOr AllToAllBytes(const MoeLayout& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(key.model));
  constexpr int64_t kRows = 840;
  uint64_t bytes = 0;
  for (int block = 0; block < key.layout.ranks(); ++block) {
    const model::Shard shard = ShardOfBlock(config, key.layout, block);
    const int index = key.layout.SpIndex(block);
    const model::UlyssesPlan plan(shard, shard, config.head_dim, tensor::DType::kBF16, kRows,
                                  index);
    for (int i = 0; i < key.layout.sp; ++i) {
      if (i == index) continue;
      const fabric::GatherBlock &forth = plan.forth()[static_cast<size_t>(i)],
                                &back = plan.back()[static_cast<size_t>(i)];
      bytes += static_cast<uint64_t>(forth.rows) * (forth.bytes + plan.kv_row_bytes()) +
               static_cast<uint64_t>(back.rows) * back.bytes;
    }
  }
  return Finding{.calibrated = static_cast<double>(bytes) / kRows};
}

namespace {

struct KvPlan {
  double tokens = 0;  // of a replica
  Account account;    // GB a device
};
base::Result<KvPlan> KvPlanOf(const MoeLayout& key, bool by_expert = false) {
  ShiftRun run{.model = key.model, .layout = {.sp = key.layout.sp, .tp = key.layout.tp}};
  run.layout.by_expert = by_expert;
  run.budget = 0;
  const layout::EngineOptions options = OptionsOf(run);
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(key.model));
  FB_ASSIGN_OR_RETURN(const choose::Decision plan, choose::Decide(options, config));
  const layout::MemoryPlan& memory = plan.ranks[0].memory;
  const uint64_t weights = memory.bytes(layout::RegionUse::kWeights),
                 kv = memory.bytes(layout::RegionUse::kKv);
  return KvPlan{static_cast<double>(memory.kv_tokens()),
                {{"KV tokens", static_cast<double>(memory.kv_tokens())},
                 {"KV GB a device", 1e-9 * static_cast<double>(kv)},
                 {"weights GB", 1e-9 * static_cast<double>(weights)},
                 {"workspace GB", 1e-9 * static_cast<double>(memory.fixed_bytes() - weights)}}};
}

}  // namespace

FindingOr MoeKvTokens(const MoeLayout& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(KvPlan plan, KvPlanOf(key));
  return Finding{.calibrated = 1e-6 * plan.tokens, .account = std::move(plan.account)};
}

FindingOr MoeKvTokensOverSp(const MoeLayout& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(KvPlan plan, KvPlanOf(key));
  FB_ASSIGN_OR_RETURN(KvPlan alone, KvPlanOf({key.model, {.sp = key.layout.ranks()}}));
  Finding finding{.calibrated = plan.tokens / alone.tokens, .account = std::move(plan.account)};
  Append("with sp alone: ", std::move(alone.account), &finding.account);
  return finding;
}

FindingOr KvOfSharedExperts(const MoeLayout& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(KvPlan shared, KvPlanOf(key, true));
  FB_ASSIGN_OR_RETURN(KvPlan copies, KvPlanOf(key));
  Finding finding{.calibrated = shared.tokens / copies.tokens,
                  .account = std::move(shared.account)};
  Append("with all experts on each rank: ", std::move(copies.account), &finding.account);
  return finding;
}

}  // namespace forebay::repro
