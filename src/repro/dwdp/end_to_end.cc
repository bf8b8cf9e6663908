// DWDP: context groups before one generation group, that is the same for both.
#include <algorithm>
#include <array>
#include <cmath>

#include "repro/dwdp/rows.h"
#include "repro/dwdp/serving.h"
#include "repro/dwdp/table.h"

namespace forebay::repro {
namespace {

constexpr int32_t kFewest = 1;  // answers of a generation rank, with which a user gets most
constexpr int32_t kPrompt = 8192, kOutput = 1024;
constexpr double kRatio = 0.8, kMeanPrompt = kPrompt * (1 + kRatio) / 2;
// Requests come by so much faster than generation ends them, until as many are there as may be.
constexpr double kHaste = 1.1;
// When a run is broken off, in times that an answer takes.
constexpr double kAnswers = 1.8;
constexpr double kQuickSeconds = 2.2;  // the same of a quick run

// The ranks of the generation group, how they are cut, and how many tokens a step gives to an
// answer.
struct Generating {
  int ranks = 8, tp = 1, drafts = 0;
  double tokens_a_step = 1;
};
// Of one draft a step 85 to 90 % are kept (DeepSeek-V3, arXiv 2412.19437, section 5.4.3).
constexpr double kKeptShare = 0.85;
// The plainest first.
constexpr Generating kGenerating[] = {
    {8}, {8, 4}, {8, 1, 1, 1 + kKeptShare}, {8, 4, 1, 1 + kKeptShare}};

// A step of generation by the answers of a rank, where all of them decode: all are alike, so that
// each rank gets about as many.
base::Result<double> StepSeconds(const Generating& by, int32_t batch, Lab& lab) {
  Serving serving{.ships = true,
                  .ranks = by.ranks,
                  .tp = by.tp,
                  .drafts = by.drafts,
                  .prompt = static_cast<int32_t>(kMeanPrompt) + kOutput / 2,
                  // So long that the first still run when the last prompt is read.
                  .output = batch * by.tp / 3 + 24,
                  .batch = batch,
                  .requests = int64_t{by.ranks} * batch,
                  .fp8_kv = true};
  FB_ASSIGN_OR_RETURN(const Served served, RunServing(serving, lab));
  if (served.decoding_seconds > 0) return served.decoding_seconds;
  return base::Status(base::kInvalidArgument,
                      fmt::format("{} ranks never decoded {} answers each", by.ranks, batch));
}

// The batch of a generation rank in which a user gets so many tokens a second: between and beyond
// steps of known batches by straight lines. 0: a user never gets as many.
base::Result<double> BatchOf(const Generating& by, double tokens_per_s, Lab& lab) {
  constexpr std::array<int32_t, 4> kBatches = {kFewest, 8, 48, 128};
  std::array<double, kBatches.size()> seconds{};
  // Each rank that tp cuts has all latents, and so room for fewer answers.
  const size_t count = by.tp == 1 ? kBatches.size() : kBatches.size() - 1;
  const double wanted = by.tokens_a_step / tokens_per_s;
  size_t to = 0;  // The next batch takes longer than that.
  for (; to < count; ++to) {
    FB_ASSIGN_OR_RETURN(seconds[to], StepSeconds(by, kBatches[to], lab));
    if (wanted < seconds.front()) return 0.0;
    if (wanted < seconds[to]) break;
  }
  const size_t from = std::min(to, count - 1) - 1;
  const double slope = (seconds[from + 1] - seconds[from]) / (kBatches[from + 1] - kBatches[from]);
  const double batch = kBatches[from] + (wanted - seconds[from]) / slope;
  return by.tp == 1 ? batch : std::min<double>(batch, kBatches[count - 1]);
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
  Generating by;                      // the plainest that is so fast
  double batch = 0;                   // of a generation rank, as planned; 0: none is so fast
  double requests_per_s = 0;
  double context_seconds = 1;  // of a step of DEP4

  double of_gpu(const Served& served, int context) const {
    return served.output_tokens_per_s / (context + by.ranks);
  }
};

// What the generation group takes at so many tokens a second and user decides how many context
// ranks there are: as few as keep up with it, of DEP in fours.
base::Result<EndToEnd> PlanRange(const UserRange& range, Lab& lab) {
  // A quick run only shows that it runs.
  if (lab.quick()) return EndToEnd{.dep_ranks = 4, .dwdp_ranks = 3, .batch = 4};
  EndToEnd both;
  for (const Generating& by : kGenerating) {
    FB_ASSIGN_OR_RETURN(const double batch, BatchOf(by, (range.low + range.high) / 2, lab));
    both.by = by;
    both.batch = batch;
    if (batch > 0) break;
  }
  if (both.batch == 0) return both;
  Serving queue{.prompt = kPrompt,
                .ratio = kRatio,
                .requests = int64_t{24} * 16,
                .concurrency = 32,
                .fp8_kv = true};
  FB_ASSIGN_OR_RETURN(const Served dwdp, RunServing(queue, lab));
  queue.ships = true;
  FB_ASSIGN_OR_RETURN(const Served dep, RunServing(queue, lab));
  const double tokens = both.by.ranks * both.batch / AnswerSeconds(range) * kMeanPrompt;
  both.dep_ranks = 4 * static_cast<int>(std::ceil(tokens / dep.context_tokens_per_s / 4));
  both.dwdp_ranks = std::max(3, static_cast<int>(std::ceil(tokens / dwdp.context_tokens_per_s)));
  both.context_seconds = 1e-3 * dep.times.step;
  return both;
}

base::Result<EndToEnd> RunRange(const UserRange& range, Lab& lab) {
  FB_ASSIGN_OR_RETURN(EndToEnd both, PlanRange(range, lab));
  if (both.batch == 0) return both;
  const double answer = lab.quick() ? kQuickSeconds : AnswerSeconds(range);
  both.requests_per_s = both.by.ranks * both.batch / answer;
  Serving serving{.ships = true,
                  .groups = both.dep_ranks / 4,
                  .generation = both.by.ranks,
                  .tp = both.by.tp,
                  .drafts = both.by.drafts,
                  .tokens_a_step = both.by.tokens_a_step,
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
      std::llround(both.by.ranks * both.batch + both.requests_per_s * 2 * both.context_seconds);
  serving.rate = kHaste * both.requests_per_s;
  serving.requests = serving.concurrency + std::llround(serving.rate * serving.seconds);
  FB_ASSIGN_OR_RETURN(both.dep, RunServing(serving, lab));
  serving.ships = false;
  SetGroups(both.dwdp_ranks, &serving);
  FB_ASSIGN_OR_RETURN(both.dwdp, RunServing(serving, lab));
  return both;
}

Account TermsOf(const EndToEnd& both) {
  Account account = {{"requests/s that generation takes", both.requests_per_s},
                     {"its ranks", static_cast<double>(both.by.ranks)},
                     {"tp", static_cast<double>(both.by.tp)},
                     {"drafts a step", static_cast<double>(both.by.drafts)},
                     {"tokens a step and answer", both.by.tokens_a_step}};
  // `rest`: what of a step is neither a kernel's own time nor a fetch. Waits are not told apart:
  // ranks without rows wait too, and have no step.
  const auto add = [&](const char* name, const Served& served, int ranks, const char* rest) {
    Append(name,
           {{"context ranks", static_cast<double>(ranks)},
            {"tokens/s and user", served.tokens_per_s_user},
            {"output tokens/s and GPU", both.of_gpu(served, ranks)},
            {"answers of a generation rank", served.batch},
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

// How many tokens a second a user gets at most.
base::Result<std::string> WhyNotReached(Lab& lab) {
  double most = 0;
  for (const Generating& by : kGenerating) {
    FB_ASSIGN_OR_RETURN(const double seconds, StepSeconds(by, kFewest, lab));
    most = std::max(most, by.tokens_a_step / seconds);
  }
  return fmt::format("{:.0f} tokens a second and user at most, with {} answer a generation rank",
                     most, kFewest);
}

FindingOr Compare(const UserRange& range, double (*ratio)(const EndToEnd& both), Lab& lab) {
  FB_ASSIGN_OR_RETURN(const EndToEnd both, RunRange(range, lab));
  if (both.batch == 0) {
    FB_ASSIGN_OR_RETURN(std::string why_not, WhyNotReached(lab));
    return Finding{.not_reached = std::move(why_not)};
  }
  return Finding{.calibrated = ratio(both), .account = TermsOf(both), .shortened = lab.quick()};
}

double OutputGain(const EndToEnd& both) {
  return both.of_gpu(both.dwdp, both.dwdp_ranks) / both.of_gpu(both.dep, both.dep_ranks);
}

}  // namespace

FindingOr GenerationByRanks(const int& ranks, double, Lab& lab) {
  constexpr int32_t kAnswers = 8;
  Finding finding{.shortened = lab.quick()};
  double seconds[2];
  for (const int each : {0, 1}) {
    const int group = each == 0 ? ranks : kGenerating[0].ranks;
    FB_ASSIGN_OR_RETURN(seconds[each], StepSeconds({.ranks = group}, kAnswers, lab));
    finding.account.push_back({fmt::format("{} ranks: step ms", group), 1e3 * seconds[each]});
  }
  finding.calibrated = seconds[1] / seconds[0];
  return finding;
}

base::Status PrintFrontier(Lab& lab, const PrintLine& print) {
  std::vector<double> rates = {25, 35, 45, 65, 85, 175};
  if (lab.quick()) rates = {25};
  print(
      "| tokens/s and user | ranks | tp | drafts | answers a rank | DEP context ranks | tokens/s "
      "and user | "
      "output tokens/s and GPU | DWDP context ranks | tokens/s and user | output tokens/s and GPU "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|");
  for (const double rate : rates) {
    FB_ASSIGN_OR_RETURN(const EndToEnd both, RunRange({rate - 5, rate + 5}, lab));
    if (both.batch == 0) {
      FB_ASSIGN_OR_RETURN(const std::string why, WhyNotReached(lab));
      print(fmt::format("| {:.0f} | | | | | | | | | | {} |", rate, why));
      continue;
    }
    std::string line = fmt::format("| {:.0f} | {} | {} | {} | {:.1f} |", rate, both.by.ranks,
                                   both.by.tp, both.by.drafts, both.batch);
    for (const auto& [served, ranks] :
         {std::pair(&both.dep, both.dep_ranks), {&both.dwdp, both.dwdp_ranks}}) {
      line += fmt::format(" {} | {:.1f} | {:.0f} |", ranks, served->tokens_per_s_user,
                          both.of_gpu(*served, ranks));
    }
    print(line);
  }
  print("");
  return {};
}

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
