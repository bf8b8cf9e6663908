// SiDP: decoding in a steady state, with as many choices as the KV cache holds or as a figure names.
#include <algorithm>

#include "base/check.h"
#include "engine/layout_plan.h"
#include "engine/open_model.h"
#include "engine/step_price.h"
#include "repro/grid.h"
#include "repro/rows.h"

namespace forebay::repro {
namespace {

constexpr int kTps[] = {4, 2, 1};
constexpr int64_t kJobContext = 4096;  // whole jobs are run of the longest requests, which gain most

// The paper's: all layers, whole, shifted.
Setting Pooled(Setting setting) {
  setting.weights = "by_layer";
  setting.pool = kAllLayers;
  return setting;
}

// Of the layouts of the setting's devices the one with most tokens a second; batch 0: none holds a choice.
base::Result<std::pair<Setting, Decoding>> Best(const Setting& setting, Lab& lab) {
  std::pair<Setting, Decoding> best{setting, {}};
  for (const int tp : kTps) {
    Setting each = setting;
    each.tp = tp;
    FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(each));
    if (decoding.tokens_per_s > best.second.tokens_per_s) best = {each, decoding};
  }
  return best;
}

void AddTerms(const Setting& setting, const Decoding& decoding, const std::array<std::string_view, 7>& names, std::vector<Term>* account) {
  const double values[] = {static_cast<double>(setting.tp), static_cast<double>(decoding.kv_tokens), decoding.batch, decoding.step_ms,
                           decoding.fetch_ms, decoding.exposed_ms, decoding.tokens_per_s / 1e3};
  for (size_t i = 0; i < names.size(); ++i) account->push_back({names[i], values[i]});
}

// What the figures of throughput say (K tok/s): device, model, length, DP+TP, SiDP.
struct Throughputs {
  std::string_view device, model;
  double dp[3], sidp[3];  // 1K, 2K, 4K
};
constexpr Throughputs kFigures[] = {
    {"h20", "Qwen3-32B", {11.2, 7.8, 5.1}, {11.1, 8.9, 6.6}},      {"h20", "Llama-3.1-70B", {5.0, 4.0, 2.8}, {5.4, 4.3, 3.5}},
    {"h20", "Qwen2.5-72B", {4.9, 3.9, 2.7}, {5.2, 4.3, 3.6}},      {"h200", "Qwen3-32B", {21.8, 15.4, 9.1}, {22.0, 16.8, 11.8}},
    {"h200", "Llama-3.1-70B", {15.2, 10.1, 5.3}, {15.6, 10.6, 7.3}}, {"h200", "Qwen2.5-72B", {13.5, 9.7, 4.7}, {14.4, 10.0, 7.0}},
    {"b200", "Qwen3-32B", {21.1, 16.6, 9.2}, {22.8, 18.1, 13.5}},  {"b200", "Llama-3.1-70B", {17.4, 14.5, 8.5}, {17.9, 14.9, 12.3}},
    {"b200", "Qwen2.5-72B", {17.6, 14.6, 8.3}, {17.2, 14.3, 12.0}},
};
constexpr Throughputs kFigure12[] = {
    {"h200", "Llama-3.1-70B", {13.0, 8.4, 5.3}, {15.6, 10.6, 7.3}}, {"h200", "Qwen2.5-72B", {11.6, 8.1, 4.6}, {14.3, 10.0, 7.0}}};

// Jobs of twice as many requests as SiDP decodes at once: what a steady state lacks, which is prompts, preemptions and the tail.
base::Status AddJobs(const Setting& dp, Setting sidp, const Decoding& steady, Lab& lab, std::vector<Term>* account) {
  const int64_t requests = 2 * sidp.dp() * static_cast<int64_t>(steady.batch);
  sidp.mode = "auto";
  FB_ASSIGN_OR_RETURN(const JobOutcome alone, lab.RunJob({dp, requests}));
  FB_ASSIGN_OR_RETURN(const JobOutcome pooled, lab.RunJob({sidp, requests}));
  const auto add = [&](const JobOutcome& job, const std::array<std::string_view, 5>& names) {
    const auto tokens = static_cast<double>(requests * dp.context);
    const double values[] = {job.batch, job.step_ms, job.preemptions, 100 * job.recomputed_tokens / tokens, job.tokens_per_s / 1e3};
    for (size_t i = 0; i < names.size(); ++i) account->push_back({names[i], values[i]});
  };
  add(alone, {"a job of DP: batch", "step ms", "preemptions", "recomputed %", "output K tok/s"});
  add(pooled, {"a job of SiDP: batch", "step ms", "preemptions", "recomputed %", "output K tok/s"});
  account->push_back({"SiDP's job over DP's", pooled.tokens_per_s / alone.tokens_per_s});
  return base::Status::Ok();
}

// SiDP over DP, each with its best layout.
base::Result<double> Gain(const Setting& setting, Lab& lab, std::vector<Term>* account) {
  FB_ASSIGN_OR_RETURN(const auto dp, Best(setting, lab));
  FB_ASSIGN_OR_RETURN(const auto sidp, Best(Pooled(setting), lab));
  if (dp.second.batch == 0) return base::Status(base::kInvalidArgument, fmt::format("{} fits on no {} x {}", setting.model, setting.devices, setting.device));
  if (account != nullptr) {
    AddTerms(dp.first, dp.second, {"DP: tp", "KV tokens", "batch", "step ms", "fetch ms", "exposed ms", "K tok/s"}, account);
    AddTerms(sidp.first, sidp.second, {"SiDP: tp", "KV tokens", "batch", "step ms", "fetch ms", "exposed ms", "K tok/s"}, account);
    const size_t length = setting.context == 1024 ? 0 : setting.context == 2048 ? 1 : 2;
    for (const Throughputs& figure : setting.utilization < 0.9 ? std::span<const Throughputs>(kFigure12) : std::span<const Throughputs>(kFigures)) {
      if (figure.device != setting.device || figure.model != setting.model) continue;
      account->push_back({"claimed: DP K tok/s", figure.dp[length]});
      account->push_back({"step ms at our batch", dp.second.batch * dp.first.dp() / figure.dp[length]});
      account->push_back({"SiDP K tok/s", figure.sidp[length]});
      account->push_back({"step ms at our batch", sidp.second.batch * sidp.first.dp() / figure.sidp[length]});
    }
    if (setting.context == kJobContext && setting.utilization == 0.9 && !setting.uncalibrated) {
      FB_RETURN_IF_ERROR(AddJobs(dp.first, sidp.first, sidp.second, lab, account));
    }
  }
  return sidp.second.tokens_per_s / dp.second.tokens_per_s;
}

// The device that a claim's id ends in: "SI5.H200".
Setting BaseOf(const Claim& claim) {
  const size_t dot = claim.id.find('.');
  Setting base = dot == claim.id.npos ? Setting{} : ReadLabel(claim.id.substr(dot + 1));
  if (claim.id == "SI12") base.device = "h200", base.utilization = 0.6;
  return base;
}

base::Result<double> ValueOf(const ClaimedValue& value, Setting base, Lab& lab, std::vector<Term>* account) {
  const Setting setting = ReadLabel(value.label, base);
  FB_ASSIGN_OR_RETURN(const double gain, Gain(setting, lab, account));
  if (!HasWord(value.label, "over")) return gain;
  Setting shortest = setting;
  shortest.context = 1024;
  FB_ASSIGN_OR_RETURN(const double least, Gain(shortest, lab, nullptr));
  return gain / least;
}

// Runs `measure` with prices calibrated and, unless it is to be quick, not; the account is of the first.
template <typename Measure>
base::Result<Finding> Both(const Lab& lab, const Setting& setting, Measure measure) {
  Finding finding;
  FB_ASSIGN_OR_RETURN(finding.calibrated, measure(setting, &finding.account));
  if (lab.quick()) return finding;
  Setting uncalibrated = setting;
  uncalibrated.uncalibrated = true;
  std::vector<Term> none;
  FB_ASSIGN_OR_RETURN(finding.uncalibrated, measure(uncalibrated, &none));
  return finding;
}

constexpr std::array<std::string_view, 7> kTerms = {"tp", "KV tokens", "batch", "step ms", "fetch ms", "exposed ms", "K tok/s"};

}  // namespace

Findings Throughput(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const auto measure = [&](const Setting& base, std::vector<Term>* account) { return ValueOf(value, base, lab, account); };
    FB_ASSIGN_OR_RETURN(Finding finding, Both(lab, BaseOf(claim), measure));
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings LessMemory(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const auto measure = [&](Setting setting, std::vector<Term>* account) -> base::Result<double> {
      FB_ASSIGN_OR_RETURN(const Decoding most, lab.Decode(setting));
      AddTerms(setting, most, kTerms, account);
      setting.utilization = 0.3;
      FB_ASSIGN_OR_RETURN(const Decoding least, lab.Decode(setting));
      AddTerms(setting, least, {"at .3: tp", "KV tokens", "batch", "step ms", "fetch ms", "exposed ms", "K tok/s"}, account);
      return least.tokens_per_s / most.tokens_per_s;
    };
    FB_ASSIGN_OR_RETURN(Finding finding, Both(lab, ReadLabel(value.label), measure));
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings BatchScalingTp(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const auto measure = [&](const Setting& setting, std::vector<Term>* account) -> base::Result<double> {
      FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(setting));
      AddTerms(setting, decoding, kTerms, account);
      account->push_back({"claimed step ms", static_cast<double>(setting.batch) / PrintedNumber(value.printed)});
      return decoding.tokens_per_s / 1e3;
    };
    FB_ASSIGN_OR_RETURN(Finding finding, Both(lab, {.tp = 8, .context = 768, .batch = NumberAfter(value.label, "B = ")}, measure));
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings PrefetchOfALayer(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  const bool prefetch_alone = claim.id == "SI0.prefetch";
  for (const ClaimedValue& value : claim.values) {
    const auto measure = [&](Setting setting, std::vector<Term>* account) -> base::Result<double> {
      const engine::EngineOptions options = OptionsOf(setting);
      FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
      // Two ranks with a choice each: nothing hides the copies, nobody is in their way, and a step is as long as they are.
      const Setting two = Pooled({.devices = 2, .uncalibrated = setting.uncalibrated, .batch = 1});
      FB_ASSIGN_OR_RETURN(const Decoding bare, lab.Decode(two));
      const auto layers = static_cast<double>(files.config.num_layers);
      const double prefetch_ms = bare.step_ms / (layers / 2);
      account->push_back({"prefetch of a layer ms", prefetch_ms});
      if (prefetch_alone) return prefetch_ms;
      const int64_t rows = NumberAfter(value.label, "B = ");
      FB_ASSIGN_OR_RETURN(const engine::LayoutPlan plan, engine::PlanLayout(options, files.config));
      const engine::StepPricer pricer(files.config, plan.dtype, 1, plan.ranks[0].memory.capacity, plan.machine.profile,
                                      setting.uncalibrated ? cost::Calibration::kUncalibrated : cost::Calibration::kCalibrated);
      const double ffn_ms = 1e3 * pricer.Decode(rows, setting.context).ffn.seconds / layers;
      account->push_back({"FFN of a layer ms", ffn_ms});
      return ffn_ms / prefetch_ms;
    };
    FB_ASSIGN_OR_RETURN(Finding finding, Both(lab, {}, measure));
    findings.push_back(std::move(finding));
  }
  return findings;
}

namespace {

// Figure 9.
struct StepFigure {
  std::string_view device;
  int64_t batch;
  double step_ms, fetch_ms;
};
constexpr StepFigure kFigure9[] = {
    {"h20", 64, 64, 80},   {"h20", 128, 120, 80},  {"h20", 256, 256, 80},  {"h20", 512, 480, 80},  {"h200", 64, 38, 80},  {"h200", 128, 48, 80},
    {"h200", 256, 85, 80}, {"h200", 512, 160, 80}, {"b200", 64, 31, 48},   {"b200", 128, 32, 48},  {"b200", 256, 45, 48}, {"b200", 512, 70, 48}};

// In which an undisturbed link brings all FFNs once.
base::Result<double> FetchMs(const Setting& setting) {
  Setting pooled = Pooled(setting);
  pooled.devices = 8;
  const engine::EngineOptions options = OptionsOf(pooled);
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  FB_ASSIGN_OR_RETURN(const engine::LayoutPlan plan, engine::PlanLayout(options, files.config));
  const model::PoolPlan& pool = plan.ranks[0].request.pool[0];
  const auto all = static_cast<double>(pool.book->StepBytes(0) + pool.book->held_bytes(0));
  return 1e3 * all / cost::PullRate(plan.machine.profile);
}

}  // namespace

Findings StepAgainstFetch(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const auto measure = [&](const Setting& setting, std::vector<Term>* account) -> base::Result<double> {
      FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(setting));
      FB_ASSIGN_OR_RETURN(const double fetch_ms, FetchMs(setting));
      AddTerms(setting, decoding, kTerms, account);
      account->push_back({"all FFNs once ms", fetch_ms});
      for (const StepFigure& figure : kFigure9) {
        if (figure.device != setting.device || figure.batch != setting.batch) continue;
        account->push_back({"claimed: step ms", figure.step_ms});
        account->push_back({"all FFNs once ms", figure.fetch_ms});
      }
      return decoding.step_ms / fetch_ms;
    };
    const Setting setting = ReadLabel(value.label, {.model = "Llama-3.1-70B", .devices = 2, .tp = 2, .context = 768, .batch = NumberAfter(value.label, "B = ")});
    FB_ASSIGN_OR_RETURN(Finding finding, Both(lab, setting, measure));
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings FetchOfAllLayers(const Claim& claim, Lab&) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    FB_ASSIGN_OR_RETURN(const double fetch_ms, FetchMs(ReadLabel(value.label, {.model = "Llama-3.1-70B", .tp = 2})));
    findings.push_back({.calibrated = fetch_ms, .account = {{"fetch ms", fetch_ms}}});
  }
  return findings;
}

Findings PeakShifting(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  const auto gain = [&](const Setting& setting, std::vector<Term>* account) -> base::Result<double> {
    Setting off = Pooled(setting);
    FB_ASSIGN_OR_RETURN(const Decoding shifted, lab.Decode(off));
    AddTerms(off, shifted, kTerms, account);
    off.as_used = true;
    FB_ASSIGN_OR_RETURN(const Decoding as_used, lab.Decode(off));
    AddTerms(off, as_used, {"as used: tp", "KV tokens", "batch", "step ms", "fetch ms", "exposed ms", "K tok/s"}, account);
    const double shifted_claim = setting.dp() == 8 ? 11.6 : 9.65, as_used_claim = setting.dp() == 8 ? 3.35 : 3.9;  // figure 10
    account->push_back({"claimed: K tok/s", shifted_claim});
    account->push_back({"step ms at our batch", shifted.batch * setting.dp() / shifted_claim});
    account->push_back({"as used K tok/s", as_used_claim});
    account->push_back({"step ms at our batch", as_used.batch * setting.dp() / as_used_claim});
    return shifted.tokens_per_s / as_used.tokens_per_s;
  };
  for (const ClaimedValue& value : claim.values) {
    const auto measure = [&](const Setting& setting, std::vector<Term>* account) -> base::Result<double> {
      FB_ASSIGN_OR_RETURN(const double ratio, gain(setting, account));
      if (!HasWord(value.label, "over")) return ratio;
      FB_ASSIGN_OR_RETURN(const double at_four, gain(ReadLabel("TP2DP4", setting), account));
      return ratio / at_four;
    };
    FB_ASSIGN_OR_RETURN(Finding finding, Both(lab, ReadLabel(value.label), measure));
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings ModesByBatch(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const auto measure = [&](const Setting& setting, std::vector<Term>* account) -> base::Result<double> {
      FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(setting));
      AddTerms(setting, decoding, kTerms, account);
      return decoding.step_ms;
    };
    Setting setting{.model = "Llama-3.1-70B", .devices = 4, .tp = 2, .batch = NumberAfter(value.label, "B = ")};
    if (!HasWord(value.label, "vLLM")) setting.weights = "by_layer";
    if (HasWord(value.label, "CaS")) setting.mode = "ship";
    FB_ASSIGN_OR_RETURN(Finding finding, Both(lab, setting, measure));
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace forebay::repro
