// DWDP: context steps, simulated.
#include <functional>
#include <utility>

#include "repro/dwdp/roofline.h"
#include "repro/dwdp/rows.h"

namespace forebay::repro {
namespace {

constexpr uint64_t kSmallSlice = 1 << 20;
constexpr int64_t kFewRows = 4096;  // of a step whose compute does not hide its pulls

// The paper's baseline: the exchange is one of sums.
base::Result<ContextTimes> RunDep(ContextSteps setting, Lab& lab) {
  lab.Substitute(&setting.model, &setting.device);
  setting.mode = kShip;
  FB_ASSIGN_OR_RETURN(const ContextTimes times, RunContext(setting, lab));
  return WithSums(setting, times);
}

// Table 1's: peer after peer, experts merged.
ContextSteps Naive(ContextSteps setting) {
  setting.peers = fabric::PeerOrder::kSerial;
  setting.merges = true;
  return setting;
}

struct Pair {
  ContextTimes dep, dwdp;

  double gain() const { return dwdp.tokens_per_s() / dep.tokens_per_s(); }
};
base::Result<Pair> RunPair(const ContextSteps& dep, const ContextSteps& dwdp, Lab& lab) {
  Pair pair;
  FB_ASSIGN_OR_RETURN(pair.dep, RunDep(dep, lab));
  FB_ASSIGN_OR_RETURN(pair.dwdp, RunContext(dwdp, lab));
  return pair;
}

void AddPair(const Pair& pair, Account* account) {
  Append("DEP: ", TermsOf(pair.dep), account);
  Append("DWDP: ", TermsOf(pair.dwdp), account);
}

// Our figure for a setting, and what it is made of.
using Measurement = std::function<base::Result<double>(ContextSteps, Account*)>;
// What else an account says, which takes runs of its own.
using More = std::function<base::Status(ContextSteps, Account*)>;

// With calibrated and uncalibrated prices, and the KV cache that the paper states; in the account
// also with a cache in bf16, with projections in NVFP4, and under less skewed routing.
FindingOr Both(Lab& lab, ContextSteps setting, const Measurement& measure, const More& more = {}) {
  setting.fp8_kv = true;
  Finding finding{.shortened = lab.quick()};  // fewer steps
  FB_ASSIGN_OR_RETURN(finding.calibrated, measure(setting, &finding.account));
  if (lab.quick()) return finding;
  Account unused;
  ContextSteps uncalibrated = setting;
  uncalibrated.uncalibrated = true;
  FB_ASSIGN_OR_RETURN(finding.uncalibrated, measure(uncalibrated, &unused));
  finding.more = [setting, measure, more](Account* account) -> base::Status {
    if (more) FB_RETURN_IF_ERROR(more(setting, account));
    Account of_another;
    const auto add = [&](const char* name, const ContextSteps& other) -> base::Status {
      FB_ASSIGN_OR_RETURN(const double figure, measure(other, &of_another));
      account->push_back({name, figure});
      return {};
    };
    ContextSteps other_formats = setting;
    other_formats.fp8_kv = false;
    FB_RETURN_IF_ERROR(add("with a bf16 cache", other_formats));
    other_formats.fp8_kv = other_formats.fp4_projections = true;
    FB_RETURN_IF_ERROR(add("with projections in NVFP4", other_formats));
    for (const char* routing : kLessSkewed) {
      ContextSteps other = setting;
      other.routing = routing;
      FB_ASSIGN_OR_RETURN(const double figure, measure(other, &of_another));
      account->push_back({fmt::format("at {}", routing), figure});
    }
    return {};
  };
  return finding;
}

// What copies beside them cost kernels, ms.
base::Status AddInterference(ContextSteps setting, Lab& lab, Account* account) {
  FB_ASSIGN_OR_RETURN(const ContextTimes times, RunContext(setting, lab));
  setting.alone = true;
  FB_ASSIGN_OR_RETURN(const ContextTimes alone, RunContext(setting, lab));
  account->push_back({"interference", times.compute() - alone.compute()});
  return {};
}

// What experts that are read and written so fast for a step's merging are moved with, GB/s.
double MergeRate(int ranks, double ms) {
  const double bytes = MissingExpertBytes(ranks) * ranks / (ranks - 1);
  return 1e-6 * 2 * static_cast<double>(LayersWithExperts()) * bytes / ms;
}

}  // namespace

FindingOr PartOfStep(const StepPart& key, double claimed, Lab& lab) {
  const auto times_of = [&lab, key](const ContextSteps& setting) {
    return key.ships ? RunDep(setting, lab) : RunContext(Naive(setting), lab);
  };
  return Both(
      lab, {},
      [=](const ContextSteps& setting, Account* account) -> base::Result<double> {
        FB_ASSIGN_OR_RETURN(const ContextTimes times, times_of(setting));
        Append("", TermsOf(times), account);
        return times.*key.part;
      },
      [=, &lab](ContextSteps setting, Account* account) -> base::Status {
        FB_ASSIGN_OR_RETURN(const ContextTimes times, times_of(setting));
        account->push_back({"of the claim", times.*key.part / claimed});
        if (key.part == &ContextTimes::merge)
          account->push_back({"GB/s of the claim's copies", MergeRate(setting.ranks, claimed)});
        if (!key.ships) return AddInterference(Naive(setting), lab, account);
        if (key.part == &ContextTimes::exchange) {
          const double bytes = static_cast<double>(LayersWithExperts()) *
                               ExchangeBytes(times.rows, setting.ranks, cost::NumberFormat::kNVFP4);
          account->push_back({"GB/s of the claim", 1e-6 * bytes / claimed});
        }
        setting.mode = kShip;
        FB_ASSIGN_OR_RETURN(const ContextTimes exact, RunContext(setting, lab));
        account->push_back({"exact exchange", exact.exchange});
        return {};
      });
}

FindingOr GainOfStep(const GainOf& key, double claimed, Lab& lab) {
  return Both(
      lab, {},
      [=, &lab](const ContextSteps& setting, Account* account) -> base::Result<double> {
        FB_ASSIGN_OR_RETURN(const Pair pair, RunPair(setting, Naive(setting), lab));
        AddPair(pair, account);
        const double part = claimed / 100;
        account->push_back({"exchange and waits that the claim implies",
                            key == GainOf::kMeetings
                                ? part / (1 - part) * pair.dep.compute()
                                : ImpliedMeetings(pair.dep, pair.dwdp, 1 / (1 - part))});
        if (key == GainOf::kMeetings)
          return 100 * (pair.dep.waits + pair.dep.exchange) / pair.dep.step;
        return 100 * (1 - 1 / pair.gain());
      },
      [&lab](const ContextSteps& setting, Account* account) {
        return AddInterference(Naive(setting), lab, account);
      });
}

FindingOr WaitingByLengths(const double& rank_cv, double claimed, Lab& lab) {
  return Both(
      lab, {.prompt = 7100, .rows = 21300, .rank_cv = rank_cv},
      [=, &lab](const ContextSteps& setting, Account* account) -> base::Result<double> {
        FB_ASSIGN_OR_RETURN(const ContextTimes times, RunDep(setting, lab));
        Append("", TermsOf(times), account);
        account->push_back({"waits that the claim implies",
                            claimed / (100 - claimed) * (times.step - times.waits)});
        return 100 * times.waits / times.step;
      },
      [&lab](ContextSteps setting, Account* account) -> base::Status {
        for (const double other : {0.0, 0.1, 0.3, 0.4}) {
          setting.rank_cv = other;
          FB_ASSIGN_OR_RETURN(const ContextTimes each, RunDep(setting, lab));
          account->push_back(
              {fmt::format("waits % at CV {:.0f} %", 100 * other), 100 * each.waits / each.step});
        }
        return {};
      });
}

FindingOr GainByRanks(const int& ranks, double claimed, Lab& lab) {
  return Both(
      lab, {.prompt = 16384},
      [=, &lab](const ContextSteps& setting, Account* account) -> base::Result<double> {
        ContextSteps dwdp = setting;
        dwdp.ranks = ranks;
        FB_ASSIGN_OR_RETURN(const Pair pair, RunPair(setting, dwdp, lab));
        AddPair(pair, account);
        account->push_back({"exchange and waits that the claim implies",
                            ImpliedMeetings(pair.dep, pair.dwdp, claimed)});
        return pair.gain();
      },
      [=, &lab](ContextSteps setting, Account* account) -> base::Status {
        FB_ASSIGN_OR_RETURN(const ContextTimes dep, RunDep(setting, lab));
        for (const int others : {5, 7}) {
          setting.ranks = others;
          FB_ASSIGN_OR_RETURN(const ContextTimes times, RunContext(setting, lab));
          account->push_back(
              {fmt::format("gain of {} ranks", others), times.tokens_per_s() / dep.tokens_per_s()});
        }
        setting.ranks = ranks;
        return AddInterference(setting, lab, account);
      });
}

FindingOr MergeTakes(const int& ranks, double claimed, Lab& lab) {
  return Both(
      lab, {.ranks = ranks},
      [=, &lab](ContextSteps setting, Account* account) -> base::Result<double> {
        FB_ASSIGN_OR_RETURN(const ContextTimes without, RunContext(setting, lab));
        setting.merges = true;
        FB_ASSIGN_OR_RETURN(const ContextTimes with, RunContext(setting, lab));
        Append("merged: ", TermsOf(with), account);
        Append("not: ", TermsOf(without), account);
        // Experts may be pulled to where they are wanted: the held ones alone are copied.
        account->push_back({"merge of the held alone", with.merge / ranks});
        account->push_back({"GB/s of ours", MergeRate(ranks, with.merge)});
        account->push_back({"GB/s that the claim implies",
                            MergeRate(ranks, claimed / (100 - claimed) * without.step)});
        return 100 * (with.step - without.step) / with.step;
      },
      [&lab](ContextSteps setting, Account* account) {
        setting.merges = true;
        return AddInterference(setting, lab, account);
      });
}

namespace {

// Peer after peer, and small slices in turns.
base::Result<std::pair<ContextTimes, ContextTimes>> RunSlices(ContextSteps setting, Lab& lab) {
  setting.peers = fabric::PeerOrder::kSerial;
  FB_ASSIGN_OR_RETURN(const ContextTimes serial, RunContext(setting, lab));
  setting.peers = fabric::PeerOrder::kSliced;
  setting.slice_bytes = kSmallSlice;
  FB_ASSIGN_OR_RETURN(const ContextTimes sliced, RunContext(setting, lab));
  return std::pair(serial, sliced);
}

}  // namespace

FindingOr GainOfSlices(const SliceSetting& key, double, Lab& lab) {
  return Both(
      lab, {.ratio = key.ratio, .rows = key.rows},
      [&lab](const ContextSteps& setting, Account* account) -> base::Result<double> {
        FB_ASSIGN_OR_RETURN(const auto slices, RunSlices(setting, lab));
        const auto& [serial, sliced] = slices;
        account->push_back({"compute over fetch", serial.compute() / serial.fetch});
        Append("serial: ", TermsOf(serial), account);
        Append("sliced: ", TermsOf(sliced), account);
        return sliced.tokens_per_s() / serial.tokens_per_s();
      },
      [&lab](ContextSteps setting, Account* account) -> base::Status {
        FB_ASSIGN_OR_RETURN(const ContextTimes dep, RunDep(setting, lab));
        FB_ASSIGN_OR_RETURN(const ContextTimes rotated, RunContext(setting, lab));
        FB_ASSIGN_OR_RETURN(const auto slices, RunSlices(setting, lab));
        const auto add = [&](const char* name, const ContextTimes& times) {
          account->push_back({name, times.tokens_per_s() / dep.tokens_per_s()});
        };
        add("serial over DEP", slices.first);
        add("sliced over DEP", slices.second);
        add("rotated over DEP", rotated);
        FB_RETURN_IF_ERROR(AddInterference(setting, lab, account));
        setting.prompt = setting.rows = kFewRows;
        FB_ASSIGN_OR_RETURN(const auto few, RunSlices(setting, lab));
        account->push_back({"sliced over serial at 4,096 rows a step",
                            few.second.tokens_per_s() / few.first.tokens_per_s()});
        account->push_back({"compute over fetch there", few.first.compute() / few.first.fetch});
        return {};
      });
}

FindingOr GainOfSlicesInQueues(const SliceSetting& key, double, Lab& lab) {
  constexpr int64_t kSteps = 2;
  const ContextSteps setting{
      .ratio = key.ratio, .rows = key.rows, .source_queues = true, .fp8_kv = true, .steps = kSteps};
  FB_ASSIGN_OR_RETURN(const auto slices, RunSlices(setting, lab));
  const auto& [serial, sliced] = slices;
  Finding finding{.calibrated = sliced.tokens_per_s() / serial.tokens_per_s()};
  Append("serial: ", TermsOf(serial), &finding.account);
  Append("sliced: ", TermsOf(sliced), &finding.account);
  return finding;
}

}  // namespace forebay::repro
