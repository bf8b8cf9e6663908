// SiDP: decoding in a steady state, with as many choices as the KV cache holds or as a figure
// names.
#include "choose/decide.h"
#include "engine/open_model.h"
#include "model/derived.h"
#include "price/step_price.h"
#include "repro/sidp/rows.h"

namespace forebay::repro {
namespace {

constexpr int kTps[] = {4, 2, 1};
// The worst kernel beside copies that was measured; profiles have the usual case
// (docs/profiles.md).
constexpr const char* kWorstInterference = ":frequency_loss=0.226";
// Whole jobs are run of the longest requests, which gain most.
constexpr int64_t kJobContext = 4096;
// A link whose usual .8 is what the paper's own fetches come to: 687 GB/s on H20 and H200 (Figure
// 11), 1,175 on B200 (Figure 9).
constexpr const char *kClaimedLink = ":link_bytes_per_s=8.59e11",
                     *kClaimedLinkB200 = ":link_bytes_per_s=1.469e12";

// The paper's: all layers, whole, shifted.
GroupSetting Pooled(GroupSetting setting) {
  setting.weights = kByLayer;
  setting.pool = kAllLayers;
  return setting;
}

// A layout and what it does.
struct Run {
  GroupSetting setting;
  Decoding decoding;

  double choices() const { return decoding.batch * setting.dp(); }
};

// The layout of the setting's devices with most tokens a second; batch 0: none holds a
// choice.
base::Result<Run> Best(const GroupSetting& setting, Lab& lab) {
  Run best{setting, {}};
  for (const int tp : kTps) {
    GroupSetting each = setting;
    each.tp = tp;
    FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(each));
    if (decoding.tokens_per_s > best.decoding.tokens_per_s) best = {each, decoding};
  }
  return best;
}

Account TermsOf(const Run& run) {
  return {{"tp", static_cast<double>(run.setting.tp)},
          {"KV tokens", static_cast<double>(run.decoding.kv_tokens)},
          {"batch", run.decoding.batch},
          {"step ms", run.decoding.step_ms},
          {"fetch ms", run.decoding.fetch_ms},
          {"exposed ms", run.decoding.exposed_ms},
          {"K tok/s", run.decoding.tokens_per_s / 1e3}};
}

Account TermsOf(const JobFigures& job, double tokens) {
  return {{"batch", job.batch},
          {"step ms", job.step_ms},
          {"preemptions", job.preemptions},
          {"recomputed %", 100 * job.recomputed_tokens / tokens},
          {"output K tok/s", job.tokens_per_s / 1e3}};
}

// Jobs of twice as many requests as SiDP decodes at once: what a steady state lacks, which is
// prompts, preemptions and the tail.
base::Status AddJobs(const Run& dp, const Run& sidp, Lab& lab, Account* account) {
  const int64_t requests = 2 * sidp.setting.dp() * static_cast<int64_t>(sidp.decoding.batch);
  GroupSetting switching = sidp.setting;
  switching.mode = kAuto;
  FB_ASSIGN_OR_RETURN(const JobFigures alone, lab.RunJob({dp.setting, requests}));
  FB_ASSIGN_OR_RETURN(const JobFigures pooled, lab.RunJob({switching, requests}));
  const auto tokens = static_cast<double>(requests * dp.setting.context);
  Append("a job of DP: ", TermsOf(alone, tokens), account);
  Append("a job of SiDP: ", TermsOf(pooled, tokens), account);
  account->push_back({"SiDP's job over DP's", pooled.tokens_per_s / alone.tokens_per_s});
  return base::Status::Ok();
}

// SiDP and DP, each with its best layout.
struct BestPair {
  Run dp, sidp;
  double gain() const { return sidp.decoding.tokens_per_s / dp.decoding.tokens_per_s; }
};

base::Result<BestPair> BestOfBoth(const GroupSetting& setting, Lab& lab) {
  BestPair pair;
  FB_ASSIGN_OR_RETURN(pair.dp, Best(setting, lab));
  FB_ASSIGN_OR_RETURN(pair.sidp, Best(Pooled(setting), lab));
  if (pair.dp.decoding.batch == 0) {
    return base::Status(base::kInvalidArgument, fmt::format("{} fits on no {} x {}", setting.model,
                                                            setting.devices, setting.device));
  }
  return pair;
}

// As many choices as half of the KV tokens hold, which is what Figure 5 has (SI1.tokens), and
// SiDP also over the link that the paper's fetches imply.
base::Status AddPaperKv(const Gain& key, Lab& lab, Account* account) {
  const auto best_of = [&](const GroupSetting& any) -> base::Result<Run> {
    Run best{any, {}};
    for (const int tp : kTps) {
      GroupSetting each = any;
      each.tp = tp;
      FB_ASSIGN_OR_RETURN(const Decoding whole, lab.Decode(each));
      each.batch = static_cast<int64_t>(whole.batch / 2);
      if (each.batch == 0) continue;
      FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(each));
      if (decoding.tokens_per_s > best.decoding.tokens_per_s) best = {each, decoding};
    }
    return best;
  };
  const auto add = [&](const char* of, const GroupSetting& setting,
                       double claimed) -> base::Status {
    FB_ASSIGN_OR_RETURN(const Run run, best_of(setting));
    Append(of, TermsOf(run), account);
    account->push_back({"of the claim", run.decoding.tokens_per_s / 1e3 / claimed});
    return {};
  };
  FB_RETURN_IF_ERROR(add("at half of the KV tokens: DP: ", key.setting, key.claimed_dp));
  GroupSetting pooled = Pooled(key.setting);
  FB_RETURN_IF_ERROR(add("SiDP: ", pooled, key.claimed_sidp));
  pooled.device += pooled.device == "b200" ? kClaimedLinkB200 : kClaimedLink;
  return add("over the claimed link: SiDP: ", pooled, key.claimed_sidp);
}

// What of the devices' bf16 peak a step of so many choices in all takes, %.
base::Result<double> PartOfPeak(const GroupSetting& setting, double choices, double step_ms) {
  const layout::EngineOptions options = OptionsOf(setting);
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  FB_ASSIGN_OR_RETURN(const cost::DeviceProfile profile, cost::LoadProfile(setting.device));
  const double flops = 2 * choices * static_cast<double>(model::Derive(files.config).params);
  return 100 * flops / (1e-3 * step_ms * setting.devices * profile.bf16_flops);
}

// What both steps have of the peak, and how much longer the claimed one is.
base::Status AddPeaks(const Run& run, double claimed_step_ms, Account* account) {
  const double choices = run.choices();
  FB_ASSIGN_OR_RETURN(const double ours, PartOfPeak(run.setting, choices, run.decoding.step_ms));
  FB_ASSIGN_OR_RETURN(const double claimed, PartOfPeak(run.setting, choices, claimed_step_ms));
  Append("",
         {{"claimed step ms", claimed_step_ms},
          {"% of the bf16 peak", ours},
          {"as claimed", claimed},
          {"us a row that the claim is longer",
           1e3 * (claimed_step_ms - run.decoding.step_ms) / run.decoding.batch}},
         account);
  return {};
}

// Runs `measure` with prices calibrated and, unless it is to be quick, not; the account is of the
// first.
template <typename Measure>
FindingOr Both(Lab& lab, const GroupSetting& asked, Measure measure) {
  const GroupSetting setting = lab.Substituted(asked);
  Finding finding;
  FB_ASSIGN_OR_RETURN(finding.calibrated, measure(setting, &finding.account));
  if (lab.quick()) return finding;
  GroupSetting uncalibrated = setting;
  uncalibrated.uncalibrated = true;
  Account none;
  FB_ASSIGN_OR_RETURN(finding.uncalibrated, measure(uncalibrated, &none));
  return finding;
}

base::Result<Run> RunOf(const GroupSetting& setting, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(setting));
  return Run{setting, decoding};
}

// Two ranks with a choice each: nothing hides the copies, nobody is in their way, and a step is as
// long as they are.
base::Result<double> PrefetchMs(bool uncalibrated, Lab& lab) {
  const GroupSetting two =
      lab.Substituted(Pooled({.devices = 2, .uncalibrated = uncalibrated, .batch = 1}));
  FB_ASSIGN_OR_RETURN(const Decoding bare, lab.Decode(two));
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files,
                      engine::OpenModel(OptionsOf(two).model, true, 0));
  return bare.step_ms / (static_cast<double>(files.config.num_layers) / 2);
}

// In which an undisturbed link brings all FFNs once.
base::Result<double> FetchMs(const GroupSetting& setting) {
  GroupSetting pooled = Pooled(setting);
  pooled.devices = 8;
  const layout::EngineOptions options = OptionsOf(pooled);
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  FB_ASSIGN_OR_RETURN(const choose::Decision plan, choose::Decide(options, files.config));
  const share::PoolPlan& pool = plan.ranks[0].request.pool[0];
  const auto all = static_cast<double>(pool.book->StepBytes(0) + pool.book->held_bytes(0));
  return 1e3 * all / cost::PullRate(plan.machine.profile);
}

// What a step takes where all readers of a layer are at its owner at once, one after another.
base::Status AddIncast(const Run& run, Account* account) {
  FB_ASSIGN_OR_RETURN(const double fetch_ms, FetchMs(run.setting));
  const double incast_ms = (run.setting.dp() - 1) * fetch_ms;
  account->push_back({"all readers at one owner: step ms", incast_ms});
  account->push_back({"K tok/s", run.choices() / incast_ms});
  return {};
}

// Beside the row's: ranks in lockstep, and a copy stream an owner.
base::Status AddOtherPulls(GroupSetting setting, Lab& lab, Account* account) {
  const auto add = [&](const char* of, const GroupSetting& each) -> base::Status {
    FB_ASSIGN_OR_RETURN(const Run run, RunOf(each, lab));
    account->push_back({of, run.decoding.tokens_per_s / 1e3});
    return {};
  };
  for (const bool lockstep : {true, false}) {
    GroupSetting each = setting;
    each.one_stream = lockstep;
    if (lockstep) each.mode = kGather, each.look_ahead = 1;
    each.as_used = false;
    FB_RETURN_IF_ERROR(add(lockstep ? "in lockstep: K tok/s" : "a stream an owner: K tok/s", each));
    each.as_used = true;
    FB_RETURN_IF_ERROR(add("as used", each));
  }
  return {};
}

// The gain of peak shifting.
base::Result<double> ShiftingGain(const Shifting& key, bool uncalibrated, Lab& lab,
                                  Account* account) {
  GroupSetting setting = Pooled(key.setting);
  setting.uncalibrated = uncalibrated;
  setting.one_stream = true;
  FB_ASSIGN_OR_RETURN(const Run shifted, RunOf(setting, lab));
  setting.as_used = true;
  FB_ASSIGN_OR_RETURN(const Run as_used, RunOf(setting, lab));
  Append("", TermsOf(shifted), account);
  Append("as used: ", TermsOf(as_used), account);
  account->push_back({"claimed: K tok/s", key.claimed_shifted});
  account->push_back({"step ms at our batch", shifted.choices() / key.claimed_shifted});
  account->push_back({"as used K tok/s", key.claimed_as_used});
  account->push_back({"step ms at our batch", as_used.choices() / key.claimed_as_used});
  FB_RETURN_IF_ERROR(AddIncast(as_used, account));
  if (!uncalibrated && !lab.quick()) FB_RETURN_IF_ERROR(AddOtherPulls(setting, lab, account));
  return shifted.decoding.tokens_per_s / as_used.decoding.tokens_per_s;
}

}  // namespace

FindingOr Throughput(const Gain& key, double, Lab& lab) {
  FindingOr finding = Both(
      lab, key.setting, [&](const GroupSetting& setting, Account* account) -> base::Result<double> {
        FB_ASSIGN_OR_RETURN(const BestPair pair, BestOfBoth(setting, lab));
        Append("DP: ", TermsOf(pair.dp), account);
        Append("SiDP: ", TermsOf(pair.sidp), account);
        account->push_back({"claimed: DP K tok/s", key.claimed_dp});
        account->push_back({"step ms at our batch", pair.dp.choices() / key.claimed_dp});
        account->push_back({"SiDP K tok/s", key.claimed_sidp});
        account->push_back({"step ms at our batch", pair.sidp.choices() / key.claimed_sidp});
        if (setting.context == kJobContext && setting.utilization == 0.9 && !setting.uncalibrated &&
            !lab.quick()) {
          FB_RETURN_IF_ERROR(AddJobs(pair.dp, pair.sidp, lab, account));
        }
        if (!setting.uncalibrated && !lab.quick()) {
          GroupSetting worst = setting;
          worst.device += kWorstInterference;
          FB_ASSIGN_OR_RETURN(const Run slowed, Best(Pooled(worst), lab));
          account->push_back({"at frequency_loss .226",
                              slowed.decoding.tokens_per_s / pair.dp.decoding.tokens_per_s});
        }
        if (!key.over_shortest) return pair.gain();
        GroupSetting shortest = setting;
        shortest.context = 1024;
        FB_ASSIGN_OR_RETURN(const BestPair least, BestOfBoth(shortest, lab));
        return pair.gain() / least.gain();
      });
  if (!finding.ok() || key.over_shortest) return finding;
  finding->more = [key, &lab](Account* account) { return AddPaperKv(key, lab, account); };
  return finding;
}

FindingOr LessMemory(const GroupSetting& key, double, Lab& lab) {
  return Both(lab, key, [&](GroupSetting setting, Account* account) -> base::Result<double> {
    FB_ASSIGN_OR_RETURN(const Run most, RunOf(setting, lab));
    setting.utilization = 0.3;
    FB_ASSIGN_OR_RETURN(const Run least, RunOf(setting, lab));
    Append("", TermsOf(most), account);
    Append("at .3: ", TermsOf(least), account);
    return least.decoding.tokens_per_s / most.decoding.tokens_per_s;
  });
}

FindingOr BatchScalingTp(const GroupSetting& key, double claimed, Lab& lab) {
  return Both(lab, key, [&](const GroupSetting& setting, Account* account) -> base::Result<double> {
    FB_ASSIGN_OR_RETURN(const Run run, RunOf(setting, lab));
    Append("", TermsOf(run), account);
    FB_RETURN_IF_ERROR(AddPeaks(run, static_cast<double>(setting.batch) / claimed, account));
    return run.decoding.tokens_per_s / 1e3;
  });
}

FindingOr PrefetchOfALayer(const GroupSetting& key, double, Lab& lab) {
  return Both(lab, key, [&](const GroupSetting& setting, Account* account) -> base::Result<double> {
    FB_ASSIGN_OR_RETURN(const double prefetch_ms, PrefetchMs(setting.uncalibrated, lab));
    account->push_back({"prefetch of a layer ms", prefetch_ms});
    return prefetch_ms;
  });
}

FindingOr FfnOverPrefetch(const int64_t& rows, double, Lab& lab) {
  return Both(lab, {}, [&](const GroupSetting& setting, Account* account) -> base::Result<double> {
    FB_ASSIGN_OR_RETURN(const double prefetch_ms, PrefetchMs(setting.uncalibrated, lab));
    const layout::EngineOptions options = OptionsOf(setting);
    FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
    FB_ASSIGN_OR_RETURN(const choose::Decision plan, choose::Decide(options, files.config));
    const price::StepPricer pricer(
        files.config, plan.dtype, {}, plan.ranks[0].memory.capacity, plan.machine.profile,
        {setting.uncalibrated ? cost::Calibration::kUncalibrated : cost::Calibration::kCalibrated});
    const auto layers = static_cast<double>(files.config.num_layers);
    const double ffn_ms = 1e3 * pricer.Decode(rows, setting.context).ffn.seconds / layers;
    account->push_back({"prefetch of a layer ms", prefetch_ms});
    account->push_back({"FFN of a layer ms", ffn_ms});
    return ffn_ms / prefetch_ms;
  });
}

FindingOr StepAgainstFetch(const ShownStep& key, double, Lab& lab) {
  return Both(lab, key.setting,
              [&](const GroupSetting& setting, Account* account) -> base::Result<double> {
                FB_ASSIGN_OR_RETURN(const Run run, RunOf(setting, lab));
                FB_ASSIGN_OR_RETURN(const double fetch_ms, FetchMs(setting));
                Append("", TermsOf(run), account);
                account->push_back({"all FFNs once ms", fetch_ms});
                account->push_back({"claimed: step ms", key.step_ms});
                account->push_back({"all FFNs once ms", key.fetch_ms});
                return run.decoding.step_ms / fetch_ms;
              });
}

FindingOr FetchOfAllLayers(const GroupSetting& key, double, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const double fetch_ms, FetchMs(lab.Substituted(key)));
  return Finding{.calibrated = fetch_ms, .account = {{"fetch ms", fetch_ms}}};
}

FindingOr PeakShifting(const Shiftings& key, double, Lab& lab) {
  return Both(lab, key[0].setting,
              [&](const GroupSetting& setting, Account* account) -> base::Result<double> {
                FB_ASSIGN_OR_RETURN(const double gain,
                                    ShiftingGain(key[0], setting.uncalibrated, lab, account));
                if (key.size() == 1) return gain;
                FB_ASSIGN_OR_RETURN(const double other,
                                    ShiftingGain(key[1], setting.uncalibrated, lab, account));
                return gain / other;
              });
}

FindingOr StepMs(const GroupSetting& key, double claimed, Lab& lab) {
  return Both(lab, key, [&](const GroupSetting& setting, Account* account) -> base::Result<double> {
    FB_ASSIGN_OR_RETURN(const Run run, RunOf(setting, lab));
    Append("", TermsOf(run), account);
    FB_RETURN_IF_ERROR(AddPeaks(run, claimed, account));
    return run.decoding.step_ms;
  });
}

}  // namespace forebay::repro
