// DWDP: context groups that serve a queue.
#include "repro/dwdp/rows.h"
#include "repro/dwdp/serving.h"

namespace forebay::repro {
namespace {

constexpr double kLoads[] = {0.5, 0.7, 0.9};  // of what DEP4 takes

// As many requests as the four ranks of DEP4 run at once wait, and as many run.
Serving ClosedQueue(const QueueSetting& key, const Lab& lab) {
  Serving serving{.ranks = key.ranks,
                  .prompt = key.prompt,
                  .ratio = key.ratio,
                  .deviation = key.deviation,
                  .rows = key.rows};
  const int64_t at_once = int64_t{4} * (key.rows / key.prompt);
  serving.requests = (lab.quick() ? 12 : 24) * at_once;
  serving.concurrency = 2 * at_once;
  return serving;
}

struct QueuePair {
  Served dep, dwdp;

  double first_token() const {
    return dep.latencies.first_token.p50 / dwdp.latencies.first_token.p50;
  }
  double tokens() const { return dwdp.context_tokens_per_s / dep.context_tokens_per_s; }
};
base::Result<QueuePair> RunPair(Serving dwdp, Lab& lab) {
  QueuePair pair;
  FB_ASSIGN_OR_RETURN(pair.dwdp, RunServing(dwdp, lab));
  dwdp.ships = true;
  dwdp.ranks = 4;
  FB_ASSIGN_OR_RETURN(pair.dep, RunServing(dwdp, lab));
  return pair;
}

// What copies cost DWDP's kernels, the gain with an fp8 cache and under less skewed routing, and
// the median by an offered load that the queue does not bound.
base::Status AddLoads(Serving serving, const QueuePair& own, double (QueuePair::*gain)() const,
                      Lab& lab, Account* account) {
  serving.alone = true;
  FB_ASSIGN_OR_RETURN(const Served alone, RunServing(serving, lab));
  account->push_back({"interference", own.dwdp.times.compute() - alone.times.compute()});
  serving.by_category = serving.alone = false;
  Serving fp8 = serving;
  fp8.fp8_kv = true;
  FB_ASSIGN_OR_RETURN(const QueuePair with_fp8, RunPair(fp8, lab));
  account->push_back({"with an fp8 cache", (with_fp8.*gain)()});
  for (const char* routing : kLessSkewed) {
    Serving other = serving;
    other.routing = routing;
    FB_ASSIGN_OR_RETURN(const QueuePair pair, RunPair(other, lab));
    account->push_back({fmt::format("at {}", routing), (pair.*gain)()});
  }
  serving.concurrency = 0;
  for (const double load : kLoads) {
    const double tokens = serving.prompt * (1 + (serving.deviation > 0 ? 1 : serving.ratio)) / 2;
    serving.rate = load * 4 * own.dep.context_tokens_per_s / tokens;
    FB_ASSIGN_OR_RETURN(const QueuePair pair, RunPair(serving, lab));
    account->push_back(
        {fmt::format("TTFT gain at {:.1f} of DEP4's rate", load), pair.first_token()});
    account->push_back({"DEP s", pair.dep.latencies.first_token.p50});
    account->push_back({"DWDP s", pair.dwdp.latencies.first_token.p50});
  }
  return {};
}

FindingOr GainInQueue(const QueueSetting& key, double claimed, double (QueuePair::*gain)() const,
                      Lab& lab) {
  Serving serving = ClosedQueue(key, lab);
  serving.by_category = true;
  FB_ASSIGN_OR_RETURN(const QueuePair pair, RunPair(serving, lab));
  Finding finding{.calibrated = (pair.*gain)(), .shortened = lab.quick()};
  Append("DEP: ", TermsOf(pair.dep.times), &finding.account);
  Append("DWDP: ", TermsOf(pair.dwdp.times), &finding.account);
  Append("",
         {{"TTFT of DEP, s", pair.dep.latencies.first_token.p50},
          {"of DWDP", pair.dwdp.latencies.first_token.p50},
          {"tokens/s and GPU of DEP", pair.dep.context_tokens_per_s},
          {"of DWDP", pair.dwdp.context_tokens_per_s},
          {"exchange and waits that a rate so much higher implies",
           ImpliedMeetings(pair.dep.times, pair.dwdp.times, claimed)}},
         &finding.account);
  if (lab.quick()) return finding;
  finding.more = [=, &lab](Account* account) {
    return AddLoads(serving, pair, gain, lab, account);
  };
  serving.uncalibrated = true;
  serving.by_category = false;
  FB_ASSIGN_OR_RETURN(const QueuePair uncalibrated, RunPair(serving, lab));
  finding.uncalibrated = (uncalibrated.*gain)();
  return finding;
}

}  // namespace

FindingOr FirstTokenInQueue(const QueueSetting& key, double claimed, Lab& lab) {
  return GainInQueue(key, claimed, &QueuePair::first_token, lab);
}

FindingOr TokensInQueue(const QueueSetting& key, double claimed, Lab& lab) {
  return GainInQueue(key, claimed, &QueuePair::tokens, lab);
}

FindingOr RiseInQueue(const QueueSetting& key, double, Lab& lab) {
  QueueSetting alike = key;
  alike.deviation = 0;
  FB_ASSIGN_OR_RETURN(const Finding more, TokensInQueue(key, 0, lab));
  FB_ASSIGN_OR_RETURN(const Finding less, TokensInQueue(alike, 0, lab));
  Finding finding{.calibrated = more.calibrated / less.calibrated, .shortened = lab.quick()};
  if (more.uncalibrated) finding.uncalibrated = *more.uncalibrated / *less.uncalibrated;
  Append("",
         {{"gain of lengths that deviate", more.calibrated}, {"of equal ones", less.calibrated}},
         &finding.account);
  return finding;
}

}  // namespace forebay::repro
