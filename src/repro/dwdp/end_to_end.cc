// DWDP: context groups before one generation group, that is the same for both.
#include <algorithm>
#include <array>
#include <cmath>

#include "repro/dwdp/rows.h"
#include "repro/dwdp/serving.h"

namespace forebay::repro {
namespace {

constexpr int kGeneration = 8;
constexpr int32_t kFewest = 1;  // choices of a generation rank, with which a user gets most
constexpr int32_t kPrompt = 8192, kOutput = 1024;
constexpr double kRatio = 0.8, kMeanPrompt = kPrompt * (1 + kRatio) / 2;
// Requests come by so much faster than generation ends them, until as many are there as may be.
constexpr double kHaste = 1.1;
// When a run is broken off, in times that an answer takes.
constexpr double kAnswers = 1.8;
constexpr double kQuickSeconds = 2.2;  // the same of a quick run

// A step of generation by the choices of a rank, where all of them decode: all are alike, so that
// each rank gets about as many.
base::Result<double> StepSeconds(int32_t batch, Lab& lab) {
  Serving serving{.ships = true,
                  .ranks = kGeneration,
                  .prompt = static_cast<int32_t>(kMeanPrompt) + kOutput / 2,
                  .output = batch / 3 + 24,
                  .batch = batch,
                  .requests = int64_t{kGeneration} * batch,
                  .fp8_kv = true};
  FB_ASSIGN_OR_RETURN(const Served served, RunServing(serving, lab));
  if (served.decoding_seconds > 0) return served.decoding_seconds;
  return base::Status(base::kInvalidArgument,
                      fmt::format("{} ranks never decoded {} choices each", kGeneration, batch));
}

// The batch of a generation rank in which a user gets so many tokens a second: between and beyond
// steps of known batches by straight lines, and at least that of the fastest.
base::Result<double> BatchOf(double tokens_per_s, Lab& lab) {
  constexpr std::array<int32_t, 4> kBatches = {kFewest, 8, 48, 128};
  std::array<double, kBatches.size()> seconds{};
  for (size_t i = 0; i < kBatches.size(); ++i) {
    FB_ASSIGN_OR_RETURN(seconds[i], StepSeconds(kBatches[i], lab));
  }
  const double wanted = 1 / tokens_per_s;
  size_t from = 0;
  while (from + 2 < kBatches.size() && wanted >= seconds[from + 1]) ++from;
  const double slope = (seconds[from + 1] - seconds[from]) / (kBatches[from + 1] - kBatches[from]);
  return std::max<double>(kFewest, kBatches[from] + (wanted - seconds[from]) / slope);
}

// Context ranks as groups of 3 to 8, or as one where that cannot be.
void SetGroups(int ranks, Serving* serving) {
  serving->groups = 1;
  serving->ranks = ranks;
  if (ranks <= 8) return;
  for (int each = 8; each >= 3; --each) {
    if (ranks % each != 0) continue;
    serving->groups = ranks / each;
    serving->ranks = each;
    return;
  }
}

double AnswerSeconds(const UserRange& range) { return kOutput * 2 / (range.low + range.high); }

struct EndToEnd {
  Served dep, dwdp;
  int dep_ranks = 0, dwdp_ranks = 0;  // of context
  double batch = 0;                   // of a generation rank, as planned
  double requests_per_s = 0;
  double context_seconds = 1;  // of a step of DEP4

  double of_gpu(const Served& served, int context) const {
    return served.output_tokens_per_s / (context + kGeneration);
  }
};

// What the generation group takes at so many tokens a second and user decides how many context
// ranks there are: as few as keep up with it, of DEP in fours.
base::Result<EndToEnd> PlanRange(const UserRange& range, Lab& lab) {
  // A quick run only shows that it runs.
  if (lab.quick()) return EndToEnd{.dep_ranks = 4, .dwdp_ranks = 3, .batch = 4};
  EndToEnd both;
  FB_ASSIGN_OR_RETURN(both.batch, BatchOf((range.low + range.high) / 2, lab));
  Serving queue{.prompt = kPrompt,
                .ratio = kRatio,
                .requests = int64_t{24} * 16,
                .concurrency = 32,
                .fp8_kv = true};
  FB_ASSIGN_OR_RETURN(const Served dwdp, RunServing(queue, lab));
  queue.ships = true;
  FB_ASSIGN_OR_RETURN(const Served dep, RunServing(queue, lab));
  const double tokens = kGeneration * both.batch / AnswerSeconds(range) * kMeanPrompt;
  both.dep_ranks = 4 * static_cast<int>(std::ceil(tokens / dep.context_tokens_per_s / 4));
  both.dwdp_ranks = std::max(3, static_cast<int>(std::ceil(tokens / dwdp.context_tokens_per_s)));
  both.context_seconds = 1e-3 * dep.times.step;
  return both;
}

base::Result<EndToEnd> RunRange(const UserRange& range, Lab& lab) {
  FB_ASSIGN_OR_RETURN(EndToEnd both, PlanRange(range, lab));
  const double answer = lab.quick() ? kQuickSeconds : AnswerSeconds(range);
  both.requests_per_s = kGeneration * both.batch / answer;
  Serving serving{.ships = true,
                  .groups = both.dep_ranks / 4,
                  .generation = kGeneration,
                  .prompt = kPrompt,
                  .ratio = kRatio,
                  .output = kOutput,
                  .batch = static_cast<int32_t>(std::ceil(1.5 * both.batch)),
                  .seconds = lab.quick() ? kQuickSeconds : kAnswers * answer,
                  .fp8_kv = true,
                  .by_category = true,
                  .alone = true};
  // Those that generate, and those whose prompts wait for a step or are in one.
  serving.concurrency =
      std::llround(kGeneration * both.batch + both.requests_per_s * 2 * both.context_seconds);
  serving.rate = kHaste * both.requests_per_s;
  serving.requests = serving.concurrency + std::llround(serving.rate * serving.seconds);
  FB_ASSIGN_OR_RETURN(both.dep, RunServing(serving, lab));
  serving.ships = false;
  SetGroups(both.dwdp_ranks, &serving);
  FB_ASSIGN_OR_RETURN(both.dwdp, RunServing(serving, lab));
  return both;
}

Account TermsOf(const EndToEnd& both) {
  Account account = {{"requests/s that generation takes", both.requests_per_s}};
  // `rest`: what of a step is neither a kernel's own time nor a fetch. Waits are not told apart:
  // ranks without rows wait too, and have no step.
  const auto add = [&](const char* name, const Served& served, int ranks, const char* rest) {
    Append(name,
           {{"context ranks", static_cast<double>(ranks)},
            {"tokens/s and user", served.tokens_per_s_user},
            {"output tokens/s and GPU", both.of_gpu(served, ranks)},
            {"choices of a generation rank", served.batch},
            {"context tokens/s and rank", served.context_tokens_per_s},
            {"context step ms", served.times.step},
            {"its rows", served.times.rows},
            {"attention", served.times.attention},
            {"grouped GEMM", served.times.grouped},
            {"dense GEMM", served.times.dense},
            {"others", served.times.others},
            {rest, served.times.exchange + served.times.waits},
            {"fetch", served.times.fetch},
            {"exposed fetch", served.times.exposed}},
           &account);
    if (served.latencies.first_token.p50 > 0)
      account.push_back({"median TTFT s", served.latencies.first_token.p50});
  };
  add("DEP: ", both.dep, both.dep_ranks, "exchange and waits");
  add("DWDP: ", both.dwdp, both.dwdp_ranks, "interference");
  return account;
}

// Empty: a user gets as many tokens a second as that; else how many at most.
base::Result<std::string> WhyNotReached(const UserRange& range, Lab& lab) {
  if (lab.quick()) return std::string();
  FB_ASSIGN_OR_RETURN(const double seconds, StepSeconds(kFewest, lab));
  if (1 / seconds >= range.low) return std::string();
  return fmt::format("{:.0f} tokens a second and user at most, with {} choice a generation rank",
                     1 / seconds, kFewest);
}

FindingOr Compare(const UserRange& range, double (*ratio)(const EndToEnd& both), Lab& lab) {
  FB_ASSIGN_OR_RETURN(std::string why_not, WhyNotReached(range, lab));
  if (!why_not.empty()) return Finding{.not_reached = std::move(why_not)};
  FB_ASSIGN_OR_RETURN(const EndToEnd both, RunRange(range, lab));
  return Finding{.calibrated = ratio(both), .account = TermsOf(both), .shortened = lab.quick()};
}

double OutputGain(const EndToEnd& both) {
  return both.of_gpu(both.dwdp, both.dwdp_ranks) / both.of_gpu(both.dep, both.dep_ranks);
}

}  // namespace

FindingOr OutputOfGpu(const UserRange& range, double, Lab& lab) {
  return Compare(range, &OutputGain, lab);
}

FindingOr TokensOfUser(const UserRange& range, double, Lab& lab) {
  return Compare(
      range,
      [](const EndToEnd& both) { return both.dwdp.tokens_per_s_user / both.dep.tokens_per_s_user; },
      lab);
}

FindingOr FirstTokenEndToEnd(const UserRange& range, double, Lab& lab) {
  const auto ratio = [](const EndToEnd& both) {
    return both.dwdp.latencies.first_token.p50 / both.dep.latencies.first_token.p50;
  };
  FB_ASSIGN_OR_RETURN(Finding finding, Compare(range, ratio, lab));
  if (!(std::isfinite(finding.calibrated) && finding.calibrated > 0) && finding.not_reached.empty())
    finding.not_reached = "no answer comes to its end in the time that is run";
  return finding;
}

}  // namespace forebay::repro
