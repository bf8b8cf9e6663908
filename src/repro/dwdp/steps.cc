// DWDP: context steps, simulated.
#include <algorithm>
#include <utility>

#include "repro/dwdp/roofline.h"
#include "repro/dwdp/rows.h"

namespace forebay::repro {
namespace {

constexpr StepMode kShips{.ffn = FfnMode::kShip};
constexpr uint64_t kSmallSlice = 1 << 20;
constexpr int64_t kFewRows = 4096;  // of a step whose compute does not hide its pulls

// The paper's baseline: the exchange is one of sums.
base::Result<ContextTimes> RunDep(ContextSteps setting, Lab& lab) {
  setting.mode = kShips;
  FB_ASSIGN_OR_RETURN(const ContextTimes times, RunContext(setting, lab));
  return WithSums(setting, times);
}

// Table 1's: peer after peer, experts merged.
ContextSteps Naive(ContextSteps setting) {
  setting.peers = fabric::PeerOrder::kSerial;
  setting.merges = true;
  return setting;
}

// With calibrated and uncalibrated prices.
template <typename Measure>
FindingOr Both(Lab& lab, ContextSteps setting, Measure measure) {
  Finding finding;
  FB_ASSIGN_OR_RETURN(finding.calibrated, measure(setting, &finding.account));
  if (lab.quick()) return finding;
  Account unused;
  setting.uncalibrated = true;
  FB_ASSIGN_OR_RETURN(finding.uncalibrated, measure(setting, &unused));
  return finding;
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

// The same gain under less skewed routing.
base::Status AddRoutings(ContextSteps dep, ContextSteps dwdp, Lab& lab, Account* account) {
  if (lab.quick() || dep.uncalibrated) return {};
  for (const char* routing : {"power:1.01", "balanced"}) {
    dep.routing = dwdp.routing = routing;
    FB_ASSIGN_OR_RETURN(const Pair pair, RunPair(dep, dwdp, lab));
    account->push_back({fmt::format("gain at {}", routing), pair.gain()});
  }
  return {};
}

}  // namespace

FindingOr PartOfStep(const StepPart& key, double, Lab& lab) {
  return Both(lab, {}, [&](ContextSteps setting, Account* account) -> base::Result<double> {
    if (!key.ships) setting = Naive(setting);
    FB_ASSIGN_OR_RETURN(const ContextTimes times,
                        key.ships ? RunDep(setting, lab) : RunContext(setting, lab));
    Append("", TermsOf(times), account);
    if (!key.ships) return times.*key.part;
    setting.mode = kShips;
    FB_ASSIGN_OR_RETURN(const ContextTimes exact, RunContext(setting, lab));
    account->push_back({"exact exchange", exact.exchange});
    return times.*key.part;
  });
}

FindingOr GainOfStep(const GainOf& key, double, Lab& lab) {
  return Both(lab, {}, [&](const ContextSteps& setting, Account* account) -> base::Result<double> {
    const ContextSteps dwdp = Naive(setting);
    FB_ASSIGN_OR_RETURN(const Pair pair, RunPair(setting, dwdp, lab));
    AddPair(pair, account);
    FB_RETURN_IF_ERROR(AddRoutings(setting, dwdp, lab, account));
    if (key == GainOf::kMeetings) return 100 * (pair.dep.waits + pair.dep.exchange) / pair.dep.step;
    return 100 * (1 - 1 / pair.gain());
  });
}

FindingOr WaitingByLengths(const double& rank_cv, double, Lab& lab) {
  return Both(lab, {.prompt = 7100, .rows = 21300, .rank_cv = rank_cv},
              [&](ContextSteps setting, Account* account) -> base::Result<double> {
                FB_ASSIGN_OR_RETURN(const ContextTimes times, RunDep(setting, lab));
                Append("", TermsOf(times), account);
                for (const double other : {0.0, 0.1, 0.3, 0.4}) {
                  if (lab.quick() || setting.uncalibrated) break;
                  setting.rank_cv = other;
                  FB_ASSIGN_OR_RETURN(const ContextTimes each, RunDep(setting, lab));
                  account->push_back({fmt::format("waits % at CV {:.0f} %", 100 * other),
                                      100 * each.waits / each.step});
                }
                return 100 * times.waits / times.step;
              });
}

FindingOr GainByRanks(const int& ranks, double, Lab& lab) {
  return Both(lab, {.prompt = 16384},
              [&](const ContextSteps& setting, Account* account) -> base::Result<double> {
                ContextSteps dwdp = setting;
                dwdp.ranks = ranks;
                FB_ASSIGN_OR_RETURN(const Pair pair, RunPair(setting, dwdp, lab));
                AddPair(pair, account);
                for (const int others : {5, 7}) {
                  if (lab.quick() || setting.uncalibrated) break;
                  dwdp.ranks = others;
                  FB_ASSIGN_OR_RETURN(const ContextTimes times, RunContext(dwdp, lab));
                  account->push_back({fmt::format("gain of {} ranks", others),
                                      times.tokens_per_s() / pair.dep.tokens_per_s()});
                }
                return pair.gain();
              });
}

FindingOr MergeTakes(const int& ranks, double, Lab& lab) {
  return Both(lab, {.ranks = ranks},
              [&](ContextSteps setting, Account* account) -> base::Result<double> {
                FB_ASSIGN_OR_RETURN(const ContextTimes without, RunContext(setting, lab));
                setting.merges = true;
                FB_ASSIGN_OR_RETURN(const ContextTimes with, RunContext(setting, lab));
                Append("merged: ", TermsOf(with), account);
                Append("not: ", TermsOf(without), account);
                // Experts may be pulled to where they are wanted: the held ones alone are copied.
                account->push_back({"merge of the held alone", with.merge / ranks});
                return 100 * (with.step - without.step) / with.step;
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
      [&](ContextSteps setting, Account* account) -> base::Result<double> {
        FB_ASSIGN_OR_RETURN(const ContextTimes dep, RunDep(setting, lab));
        FB_ASSIGN_OR_RETURN(const ContextTimes rotated, RunContext(setting, lab));
        FB_ASSIGN_OR_RETURN(const auto slices, RunSlices(setting, lab));
        const auto& [serial, sliced] = slices;
        const auto over_dep = [&](const ContextTimes& times) {
          return times.tokens_per_s() / dep.tokens_per_s();
        };
        *account = {{"serial over DEP", over_dep(serial)},
                    {"sliced over DEP", over_dep(sliced)},
                    {"rotated over DEP", over_dep(rotated)},
                    {"compute over fetch", serial.compute() / serial.fetch}};
        Append("serial: ", TermsOf(serial), account);
        Append("sliced: ", TermsOf(sliced), account);
        if (!lab.quick() && !setting.uncalibrated) {
          setting.prompt = setting.rows = kFewRows;
          FB_ASSIGN_OR_RETURN(const auto few, RunSlices(setting, lab));
          account->push_back({"sliced over serial at 4,096 rows a step",
                              few.second.tokens_per_s() / few.first.tokens_per_s()});
          account->push_back({"compute over fetch there", few.first.compute() / few.first.fetch});
        }
        return sliced.tokens_per_s() / serial.tokens_per_s();
      });
}

}  // namespace forebay::repro
