// Vasuki: one device with little memory. Closed forms of the plans that the paper has or that could
// be, and whole jobs.
#include <algorithm>
#include <cmath>
#include <span>

#include "forebay/counter_names.h"
#include "repro/claim.h"
#include "repro/lab.h"
#include "repro/vasuki/jobs.h"
#include "repro/vasuki/offload.h"

namespace forebay::repro {
namespace {

constexpr int kChunk = 512;  // where the source varies memory alone

struct Machine {
  int chunk = kChunk;
  double memory_gb = 0;  // 0: the device's own
  bool uncalibrated = false;
  const char* policy = "continuous";
};

base::Result<const trace::SimulationResult*> RunArxiv(const Machine& machine, Lab& lab) {
  std::string model = "Llama-3-8B", device = "a10";
  lab.Substitute(&model, &device);
  const std::string name =
      fmt::format("arXiv, chunks of {}, {} GB, uncalibrated {}, {}", machine.chunk,
                  machine.memory_gb, machine.uncalibrated, machine.policy);
  return lab.Simulate(name, [&] {
    trace::LengthTrace trace = ArxivTrace();
    if (lab.quick()) trace.rows.resize(trace.rows.size() / 8);
    trace::SimulationOptions simulation{.trace = &trace, .record_steps = true};
    layout::EngineOptions& options = simulation.engine;
    options.model = "builtin:" + model;
    options.machine.devices = *layout::ParseDevices("sim:" + device);
    options.limits.max_model_len = 4096;
    options.limits.max_num_batched_tokens = machine.chunk;
    options.machine.memory_bytes =
        static_cast<uint64_t>(machine.memory_gb * kGigabyte * options.machine.memory_utilization);
    options.machine.uncalibrated = machine.uncalibrated;
    options.policy = *schedule::FindPolicy(machine.policy);
    return trace::Simulate(simulation);
  });
}

double Restarts(const trace::SimulationResult& result) {
  return static_cast<double>(result.run.summary.stats.preemptions);
}
double Seconds(const trace::SimulationResult& result) { return result.run.summary.elapsed_seconds; }

enum class Of : uint8_t { kTime, kRestarts };  // what two runs are compared by

// The first run's count over the second's.
struct Comparison {
  Of of;
  Machine above, below;
};

double CountOf(Of of, const trace::SimulationResult& result) {
  return of == Of::kRestarts ? Restarts(result) : Seconds(result);
}

Account TermsOf(const trace::SimulationResult& run) {
  double running = 0;
  for (const StepRecord& step : run.steps) running += step.running;
  const auto steps = static_cast<double>(run.steps.size());
  return {{"KV tokens", static_cast<double>(run.run.summary.model.kv_capacity_tokens)},
          {"batch", running / steps},
          {"step ms", 1e3 * Seconds(run) / steps},
          {"seconds", Seconds(run)},
          {"restarts", Restarts(run)}};
}

base::Result<double> RatioOf(const Comparison& key, bool uncalibrated, Lab& lab, Account* account) {
  Machine above = key.above, below = key.below;
  above.uncalibrated = below.uncalibrated = uncalibrated;
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult* a, RunArxiv(above, lab));
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult* b, RunArxiv(below, lab));
  if (account != nullptr) {
    *account = TermsOf(*a);
    for (Term& term : TermsOf(*b)) account->push_back({term.name + " below", term.value});
  }
  return CountOf(key.of, *a) / CountOf(key.of, *b);
}

FindingOr MemoryAndChunks(const Comparison& key, double, Lab& lab) {
  Finding finding;
  finding.shortened = lab.quick();
  FB_ASSIGN_OR_RETURN(finding.calibrated, RatioOf(key, false, lab, &finding.account));
  if (lab.quick()) return finding;
  FB_ASSIGN_OR_RETURN(finding.uncalibrated, RatioOf(key, true, lab, nullptr));
  return finding;
}

Account TermsOf(const SteadyState& state) {
  return {{"batch", state.batch},
          {"step ms", state.step_ms},
          {"streamed GB a step", state.streamed_gb},
          {"request s", state.request_seconds}};
}

struct Offload {
  Task task;
  OffloadForm form;
  double room_gb = 7.1;  // 24 GiB, less 10 % and the weights
};

// Where plans are compared.
struct PlanCase {
  Task task;
  double room_gb = 7.1;
  const char* device = "a10";
  int64_t chunk = kChunk;

  base::Result<SteadyState> Run(OffloadForm form, bool uncalibrated) const {
    return Steady(
        form, LengthsOf(task),
        {.device = device, .room_gb = room_gb, .chunk = chunk, .uncalibrated = uncalibrated});
  }
};

// The time of a request with `auto`, over that without offload.
FindingOr AutoOverOff(const PlanCase& key, double, Lab&) {
  Finding finding;
  for (const bool uncalibrated : {true, false}) {
    FB_ASSIGN_OR_RETURN(const SteadyState off, key.Run(OffloadForm::kOff, uncalibrated));
    FB_ASSIGN_OR_RETURN(const SteadyState with, key.Run(OffloadForm::kPhysical, uncalibrated));
    const double ratio = with.request_seconds / off.request_seconds;
    if (uncalibrated) {
      finding.uncalibrated = ratio;
      continue;
    }
    finding.calibrated = ratio;
    Append("off: ", TermsOf(off), &finding.account);
    Append("auto: ", TermsOf(with), &finding.account);
  }
  return finding;
}

// The same over the best of the other plans, each of which is in the account.
FindingOr AutoOverBest(const PlanCase& key, double, Lab&) {
  const auto seconds = [&](OffloadForm form) -> base::Result<double> {
    FB_ASSIGN_OR_RETURN(const SteadyState state, key.Run(form, false));
    return state.request_seconds;
  };
  FB_ASSIGN_OR_RETURN(const SteadyState chosen, key.Run(OffloadForm::kPhysical, false));
  FB_ASSIGN_OR_RETURN(const double off, seconds(OffloadForm::kOff));
  FB_ASSIGN_OR_RETURN(const double alg1, seconds(OffloadForm::kAlg1));
  FB_ASSIGN_OR_RETURN(const double alg2, seconds(OffloadForm::kAlg2));
  FB_ASSIGN_OR_RETURN(const double uniform, seconds(OffloadForm::kUniform));
  FB_ASSIGN_OR_RETURN(const double always, seconds(OffloadForm::kAlways));
  Finding finding;
  finding.account = {{"off s", off},
                     {"alg1 s", alg1},
                     {"alg2 s", alg2},
                     {"max s", std::min(alg1, alg2)},
                     {"uniform s", uniform},
                     {"always s", always},
                     {"auto s", chosen.request_seconds},
                     {"auto streams GB a step", chosen.streamed_gb}};
  finding.calibrated = chosen.request_seconds / std::min({off, alg1, alg2, uniform, always});
  return finding;
}

// By how much a request takes less than without offload, in percent.
base::Result<double> SavedBy(const Offload& key, bool uncalibrated, Account* account) {
  const MeanLengths lengths = LengthsOf(key.task);
  const OffloadCase where{.room_gb = key.room_gb, .uncalibrated = uncalibrated};
  FB_ASSIGN_OR_RETURN(const SteadyState off, Steady(OffloadForm::kOff, lengths, where));
  FB_ASSIGN_OR_RETURN(const SteadyState with, Steady(key.form, lengths, where));
  if (account != nullptr) {
    Append("off: ", TermsOf(off), account);
    Append("with: ", TermsOf(with), account);
    if (key.form == OffloadForm::kPrintedOnLink)
      account->push_back({"clamps of the listing", static_cast<double>(with.clamps)});
  }
  return 100 * (1 - with.request_seconds / off.request_seconds);
}

FindingOr Saved(const Offload& key, double, Lab&) {
  Finding finding;
  FB_ASSIGN_OR_RETURN(finding.calibrated, SavedBy(key, false, &finding.account));
  FB_ASSIGN_OR_RETURN(finding.uncalibrated, SavedBy(key, true, nullptr));
  return finding;
}

FindingOr BatchGrowth(const Offload& key, double, Lab&) {
  const MeanLengths lengths = LengthsOf(key.task);
  FB_ASSIGN_OR_RETURN(const SteadyState off, Steady(OffloadForm::kOff, lengths, {}));
  FB_ASSIGN_OR_RETURN(const SteadyState with, Steady(key.form, lengths, {}));
  Finding finding{.calibrated = with.batch / off.batch};
  Append("off: ", TermsOf(off), &finding.account);
  Append("with: ", TermsOf(with), &finding.account);
  return finding;
}

// Layers that the paper sends below, of 32, and the memory that this is said to free.
constexpr double kLayersBelow = 30, kFreedGigabytes = 14;

// The share of a job's batches, %, that free as much as claimed (equation 1). Batches are of the
// size that the closed form prints; requests count with their full lengths.
FindingOr BatchesThatFree(const Task& task, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const SteadyState state, Steady(OffloadForm::kPrinted, LengthsOf(task), {}));
  const trace::LengthTrace trace = TraceOf(task);
  const auto size = static_cast<size_t>(std::lround(state.batch));
  double sum = 0, reached = 0, batches = 0;
  for (size_t first = 0; first + size <= trace.rows.size(); first += size) {
    double tokens = 0;
    for (const trace::TraceRow& row : std::span(trace.rows).subspan(first, size))
      tokens += row.prompt_tokens + row.output_tokens;
    const double gigabytes =
        tokens * kLayersBelow * kTokenBytes / static_cast<double>(kLayers) / kGigabyte;
    sum += gigabytes, reached += gigabytes >= kFreedGigabytes, ++batches;
  }
  return Finding{.calibrated = 100 * reached / batches,
                 .account = {{"batches", batches},
                             {"requests of a batch", static_cast<double>(size)},
                             {"mean GB freed", sum / batches}}};
}

// Dollars by GFLOP a watt, its table 1.
constexpr double kA10Cost = 12, kA40Cost = 52;

// Requests a second for what the device costs: an A10 with offload over an A40 without. Its
// simulator had the A40's kernels for both: profile a10-as-a40.
FindingOr WorthOverA40(const Offload& key, double, Lab&) {
  constexpr double kA40Room = 30.3;  // 48 GiB, less 10 % and the weights
  const MeanLengths lengths = LengthsOf(key.task);
  FB_ASSIGN_OR_RETURN(const SteadyState small,
                      Steady(key.form, lengths, {.device = "a10-as-a40", .room_gb = key.room_gb}));
  FB_ASSIGN_OR_RETURN(const SteadyState own, Steady(key.form, lengths, {.room_gb = key.room_gb}));
  FB_ASSIGN_OR_RETURN(const SteadyState large,
                      Steady(OffloadForm::kOff, lengths, {.device = "a40", .room_gb = kA40Room}));
  const auto worth = [&](const SteadyState& state) {
    return large.request_seconds / state.request_seconds * kA40Cost / kA10Cost;
  };
  Finding finding{.calibrated = worth(small)};
  Append("A10's memory: ", TermsOf(small), &finding.account);
  Append("A40: ", TermsOf(large), &finding.account);
  finding.account.push_back({"with the A10's own kernels", worth(own)});
  return finding;
}

// The most that it can be where the smaller device is no faster.
FindingOr MostWorth(const Offload& key, double claimed, Lab& lab) {
  FB_ASSIGN_OR_RETURN(Finding finding, WorthOverA40(key, claimed, lab));
  finding.account.push_back({"as computed", finding.calibrated});
  finding.calibrated = kA40Cost / kA10Cost;
  return finding;
}

// A whole job in one way, over the best of others.
struct Contest {
  VasukiJob job;
  VasukiRun run;
  std::vector<VasukiRun> others;
};

const VasukiRun kKept{}, kStreamed{.offload = layout::Offloading::kAuto},
    kPark{.preempt = layout::Preempting::kPark}, kRecompute{.tier = false},
    kAdaptive{.policy = "adaptive", .tier = false}, kMakespan{.policy = "makespan", .tier = false},
    kPacked{.policy = "packed", .tier = false}, kPrinted{.policy = "vasuki-printed", .tier = false};

base::Result<double> SecondsOf(const VasukiJob& job, const VasukiRun& run, Lab& lab,
                               Account* account) {
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult* result, RunVasuki(job, run, lab));
  const EngineStats& stats = result->run.summary.stats;
  const std::string name = fmt::format(
      "{} {}{}", job.device, run.policy,
      run.tier ? fmt::format(", {}", layout::Name(run.offload)) : std::string(", no tier"));
  account->push_back({name + " s", Seconds(*result)});
  account->push_back({"preemptions", static_cast<double>(stats.preemptions)});
  account->push_back({"recomputed rows", static_cast<double>(stats.recomputed_tokens)});
  if (const auto streamed = stats.counter(counter_names::kKvBlocksStreamed))
    account->push_back({"block-steps streamed", static_cast<double>(*streamed)});
  return Seconds(*result);
}

FindingOr OverTheBest(const Contest& key, double, Lab& lab) {
  Finding finding{.shortened = lab.quick()};
  FB_ASSIGN_OR_RETURN(const double seconds, SecondsOf(key.job, key.run, lab, &finding.account));
  double best = 1e30;
  for (const VasukiRun& other : key.others) {
    FB_ASSIGN_OR_RETURN(const double its, SecondsOf(key.job, other, lab, &finding.account));
    best = std::min(best, its);
  }
  finding.calibrated = seconds / best;
  return finding;
}

// What it takes less than the best of the others, in percent.
FindingOr SavedOverTheBest(const Contest& key, double claimed, Lab& lab) {
  FB_ASSIGN_OR_RETURN(Finding finding, OverTheBest(key, claimed, lab));
  finding.calibrated = 100 * (1 - finding.calibrated);
  return finding;
}

// Choices that a step decodes, over those of the other: as many tokens are drawn in fewer steps.
FindingOr BatchOfJobs(const Contest& key, double, Lab& lab) {
  Finding finding{.shortened = lab.quick()};
  const auto steps = [&](const VasukiRun& run) -> base::Result<double> {
    FB_ASSIGN_OR_RETURN(const trace::SimulationResult* result, RunVasuki(key.job, run, lab));
    const auto count = static_cast<double>(result->run.summary.stats.steps);
    finding.account.push_back({fmt::format("{} steps", run.policy), count});
    return count;
  };
  FB_ASSIGN_OR_RETURN(const double with, steps(key.run));
  FB_ASSIGN_OR_RETURN(const double without, steps(key.others.front()));
  finding.calibrated = without / with;
  return finding;
}

struct Worth {
  VasukiJob job;
  VasukiRun run;
};
// WorthOverA40 of whole jobs.
FindingOr JobsWorthOverA40(const Worth& key, double, Lab& lab) {
  Finding finding{.shortened = lab.quick()};
  FB_ASSIGN_OR_RETURN(const double small, SecondsOf(key.job, key.run, lab, &finding.account));
  VasukiJob large = key.job;
  large.device = "a40";
  large.room_gb = 0;
  FB_ASSIGN_OR_RETURN(const double its, SecondsOf(large, kRecompute, lab, &finding.account));
  finding.calibrated = its / small * kA40Cost / kA10Cost;
  return finding;
}

// Layers of 28 requests that fill the room.
enum class Hiding : uint8_t { kPrinted, kPhysical };
FindingOr HiddenLayers(const Hiding& key, double, Lab&) {
  constexpr int64_t kRequests = 28, kContext = 1934;
  FB_ASSIGN_OR_RETURN(const OffloadedLayers layers, LayersOf(kRequests, kContext, {}));
  Finding finding;
  finding.calibrated =
      static_cast<double>(key == Hiding::kPrinted ? layers.printed : layers.physical);
  finding.account = {{"step ms", layers.step_ms},
                     {"a layer's copy up ms", layers.layer_copy_ms},
                     {"the listing returns", static_cast<double>(layers.returned)},
                     {"clamps", static_cast<double>(layers.clamps)}};
  return finding;
}

// Three devices, two jobs, three rooms, and two other chunks.
std::vector<Keyed<Contest>> JobsOn(std::span<const char* const> devices, const VasukiRun& run,
                                   const std::vector<VasukiRun>& others) {
  std::vector<Keyed<Contest>> values;
  const auto add = [&](const VasukiJob& job, std::string_view more) {
    const char* const task = job.task == Task::kTranslation ? "translation" : "summarization";
    values.push_back({fmt::format("{}, {}, {} GB{}", job.device, task, job.room_gb, more),
                      "< 1.01",
                      {job, run, others}});
  };
  for (const char* device : devices) {
    for (const Task task : {Task::kTranslation, Task::kSummarization}) {
      for (const double room : {7.1, 4.7, 2.1}) add({task, room, device}, "");
    }
  }
  for (const Task task : {Task::kTranslation, Task::kSummarization}) {
    add({.task = task, .chunk = 256}, ", chunks of 256");
    add({.task = task, .chunk = 2048}, ", chunks of 2048");
  }
  return values;
}

constexpr const char* kCards[] = {"a10", "a40", "rtx4090"};
constexpr const char* kOthers[] = {"a40", "rtx4090", "gb200-nvl72"};

}  // namespace

// clang-format off
std::vector<Claim> VasukiClaims() {
  constexpr std::string_view kJobs =
      "whole simulated jobs: 200 requests of translation, 354 of summarization, chunks of 512, at most 256 at once, 8 GiB of the host's memory";
  constexpr std::string_view kForms =
      "closed form of a steady state of requests of the mean lengths, at 7.1 GB of KV; printed: growth is free of memory and copies "
      "of time; physical: what does not fit is streamed behind the compute";
  return {
      Row<Offload>(
          {"VA1", "Vasuki, section 6.2.2", "Llama-3-8B on an A10, summarization: time saved by offload as printed, %", kForms, Kind::kPoints, 5},
          &Saved, {{"printed", "9", {Task::kSummarization, OffloadForm::kPrinted}}}),
      Row<Offload>(
          {"VA2", "Vasuki, section 6.2.2", "The same, translation", kForms, Kind::kPoints, 8},
          &Saved, {{"printed", "36", {Task::kTranslation, OffloadForm::kPrinted}}}),
      Row<Offload>(
          {"VA2.physical", "Vasuki, section 6.2.2", "The same where copies take their time, %",
           "the same closed form; what does not fit is streamed behind the compute", Kind::kPoints, 8},
          &Saved,
          {{"7.1 GB", "36", {Task::kTranslation, OffloadForm::kPhysical}},
           {"4.7 GB", "36", {Task::kTranslation, OffloadForm::kPhysical, 4.7}},
           {"2.1 GB", "36", {Task::kTranslation, OffloadForm::kPhysical, 2.1}}}),
      Row<Offload>(
          {"VA2.link", "Vasuki, section 6.2.2", "Time saved as printed, if each step takes its copies over the link, %",
           "the layers that the second listing sends away go down and up in every step of the batch that is printed", Kind::kPoints, 8},
          &Saved,
          {{"translation, 7.1 GB", "36", {Task::kTranslation, OffloadForm::kPrintedOnLink}},
           {"translation, 4.7 GB", "36", {Task::kTranslation, OffloadForm::kPrintedOnLink, 4.7}},
           {"translation, 2.1 GB", "36", {Task::kTranslation, OffloadForm::kPrintedOnLink, 2.1}},
           {"summarization, 7.1 GB", "9", {Task::kSummarization, OffloadForm::kPrintedOnLink}},
           {"summarization, 4.7 GB", "9", {Task::kSummarization, OffloadForm::kPrintedOnLink, 4.7}},
           {"summarization, 2.1 GB", "9", {Task::kSummarization, OffloadForm::kPrintedOnLink, 2.1}}}),
      Row<Task>(
          {"VA3.bytes", "Vasuki, section 6.2.1", "Batches whose KV in 30 layers has at least 14 GB, %",
           "batches of as many requests as the closed form prints, at their full lengths", Kind::kPoints, 5, {}, true},
          &BatchesThatFree,
          {{"translation", "99", Task::kTranslation}, {"summarization", "99", Task::kSummarization}}),
      Row<Offload>(
          {"VA3", "Vasuki, section 6.2.1", "Translation: the batch with offload over that without", kForms, Kind::kBand, 0.25},
          &BatchGrowth, {{"printed", "2", {Task::kTranslation, OffloadForm::kPrinted}}}),
      Row<Offload>(
          {"VA4", "Vasuki, Figure 6", "Translation: requests a second for the money, an A10 with offload over an A40 without",
           "the A40's kernels on both, as its simulator had; an A40 has 30.3 GB of KV", Kind::kBand, 0.1},
          &WorthOverA40, {{"printed", "3.4", {Task::kTranslation, OffloadForm::kPrinted}}}),
      Row<Offload>(
          {"VA5", "Vasuki, section 6.2.3", "The same of summarization: \"an order of magnitude\"", "", Kind::kBand, 0.1},
          &MostWorth,
          {{"", "10", {Task::kSummarization, OffloadForm::kPrinted},
            {.why = "where the A10 is no faster than the A40, it cannot be more than the ratio of what they cost, 52 / 12", .corrected = "4.33"}}}),
      Row<Hiding>(
          {"VA6", "Vasuki, Figure 7", "Layers that are offloaded without a wait, of 32",
           "28 requests that fill 7.1 GB; physical: a layer's copy hides behind the others' compute in the same step", Kind::kPoints, 0.4},
          &HiddenLayers,
          {{"as listed", "30", Hiding::kPrinted},
           {"physical", "30", Hiding::kPhysical,
            {.why = "the listing gives each layer the time of the whole batch: its line 10 multiplies by layers what was measured over all of them. Of the first listing's own test, with a layer's time, 2 are left: 17 ms down and up for each that is sent, 1.5 ms of compute for each that stays", .corrected = "2"}}}),
      Row<PlanCase>(
          {"VA8", kBoundOfOurs, "A10, time of a request with --kv-offload auto over that without, by room for KV", "closed form as in VA1", Kind::kOrder, 0,
           {}, true},
          &AutoOverOff,
          {{"translation, 7.1 GB", "< 0.95", {Task::kTranslation}},
           {"translation, 4.7 GB", "< 0.92", {Task::kTranslation, 4.7}},
           {"translation, 2.1 GB", "< 0.80", {Task::kTranslation, 2.1}},
           {"summarization, 7.1 GB", "< 0.97", {Task::kSummarization}},
           {"summarization, 4.7 GB", "< 0.94", {Task::kSummarization, 4.7}},
           {"summarization, 2.1 GB", "< 0.82", {Task::kSummarization, 2.1}}}),
      Row<PlanCase>(
          {"VA9", kBoundOfOurs, "auto over the best of the other plans, by device, job and room for KV",
           "closed form as in VA1; alg1 and alg2 are the paper's with a layer's own time, max the better of them", Kind::kOrder, 0, {}, true},
          &AutoOverBest,
          {{"a10, translation, 7.1 GB", "< 1.01", {Task::kTranslation, 7.1, "a10"}},
           {"a10, translation, 4.7 GB", "< 1.01", {Task::kTranslation, 4.7, "a10"}},
           {"a10, translation, 2.1 GB", "< 1.01", {Task::kTranslation, 2.1, "a10"}},
           {"a10, summarization, 7.1 GB", "< 1.01", {Task::kSummarization, 7.1, "a10"}},
           {"a10, summarization, 4.7 GB", "< 1.01", {Task::kSummarization, 4.7, "a10"}},
           {"a10, summarization, 2.1 GB", "< 1.01", {Task::kSummarization, 2.1, "a10"}},
           {"a40, translation, 7.1 GB", "< 1.01", {Task::kTranslation, 7.1, "a40"}},
           {"a40, translation, 4.7 GB", "< 1.01", {Task::kTranslation, 4.7, "a40"}},
           {"a40, translation, 2.1 GB", "< 1.01", {Task::kTranslation, 2.1, "a40"}},
           {"a40, summarization, 7.1 GB", "< 1.01", {Task::kSummarization, 7.1, "a40"}},
           {"a40, summarization, 4.7 GB", "< 1.01", {Task::kSummarization, 4.7, "a40"}},
           {"a40, summarization, 2.1 GB", "< 1.01", {Task::kSummarization, 2.1, "a40"}},
           {"rtx4090, translation, 7.1 GB", "< 1.01", {Task::kTranslation, 7.1, "rtx4090"}},
           {"rtx4090, translation, 4.7 GB", "< 1.01", {Task::kTranslation, 4.7, "rtx4090"}},
           {"rtx4090, translation, 2.1 GB", "< 1.01", {Task::kTranslation, 2.1, "rtx4090"}},
           {"rtx4090, summarization, 7.1 GB", "< 1.01", {Task::kSummarization, 7.1, "rtx4090"}},
           {"rtx4090, summarization, 4.7 GB", "< 1.01", {Task::kSummarization, 4.7, "rtx4090"}},
           {"rtx4090, summarization, 2.1 GB", "< 1.01", {Task::kSummarization, 2.1, "rtx4090"}},
           {"a10, translation, 7.1 GB, chunks of 256", "< 1.01", {Task::kTranslation, 7.1, "a10", 256}},
           {"a10, summarization, 7.1 GB, chunks of 256", "< 1.01", {Task::kSummarization, 7.1, "a10", 256}},
           {"a10, translation, 7.1 GB, chunks of 2048", "< 1.01", {Task::kTranslation, 7.1, "a10", 2048}},
           {"a10, summarization, 7.1 GB, chunks of 2048", "< 1.01", {Task::kSummarization, 7.1, "a10", 2048}},
           {"gb200-nvl72, translation, 7.1 GB", "< 1.01", {Task::kTranslation, 7.1, "gb200-nvl72"}}}),
      Row<Contest>(
          {"VA8.jobs", kBoundOfOurs, "A10, whole jobs: time with --kv-offload auto over that with off, by room for KV", kJobs, Kind::kOrder, 0, {}, true},
          &OverTheBest,
          {{"translation, 7.1 GB", "< 0.95", {{.room_gb = 7.1}, kStreamed, {kKept}}},
           {"translation, 4.7 GB", "< 0.92", {{.room_gb = 4.7}, kStreamed, {kKept}}},
           {"translation, 2.1 GB", "< 0.80", {{.room_gb = 2.1}, kStreamed, {kKept}}},
           {"summarization, 7.1 GB", "< 0.97", {{Task::kSummarization, 7.1}, kStreamed, {kKept}}},
           {"summarization, 4.7 GB", "< 0.94", {{Task::kSummarization, 4.7}, kStreamed, {kKept}}},
           {"summarization, 2.1 GB", "< 0.82", {{Task::kSummarization, 2.1}, kStreamed, {kKept}}}}),
      Row<Contest>(
          {"VA9.jobs", kBoundOfOurs, "The same, on other devices and with other chunks", kJobs, Kind::kOrder, 0, {}, true},
          &OverTheBest, JobsOn(kOthers, kStreamed, {kKept})),
      Row<Contest>(
          {"VA10", kBoundOfOurs, "A10, translation: time where preempted choices are parked over that where they are computed again", kJobs, Kind::kOrder,
           0, {}, true},
          &OverTheBest, {{"7.1 GB", "< 0.99", {{}, kPark, {kRecompute}}}}),
      Row<Contest>(
          {"VA11", kBoundOfOurs, "A10: time with makespan over that with the better of continuous and adaptive", kJobs, Kind::kOrder, 0, {}, true},
          &OverTheBest,
          {{"translation", "< 1.01", {{}, kMakespan, {kRecompute, kAdaptive}}},
           {"summarization", "< 1.01", {{Task::kSummarization}, kMakespan, {kRecompute, kAdaptive}}},
           {"translation, short answers first", "< 1.10", {{.shortest_first = true}, kMakespan, {kRecompute, kAdaptive}}}}),
      Row<Contest>(
          {"VA11.jobs", kBoundOfOurs, "The same, by device, room for KV and chunk", kJobs, Kind::kOrder, 0, {}, true},
          &OverTheBest, JobsOn(kCards, kMakespan, {kRecompute, kAdaptive})),
      Row<Contest>(
          {"VA11.packed", kBoundOfOurs, "A10: time with packed, the packer's order in the engine's loop, over that with the better of continuous and adaptive", kJobs,
           Kind::kOrder, 0, {}, true},
          &OverTheBest,
          {{"translation", "< 1.01", {{}, kPacked, {kRecompute, kAdaptive}}},
           {"summarization", "< 1.01", {{Task::kSummarization}, kPacked, {kRecompute, kAdaptive}}},
           {"translation, 2.1 GB", "< 1.01", {{.room_gb = 2.1}, kPacked, {kRecompute, kAdaptive}}}}),
      Row<Contest>(
          {"VA12", kBoundOfOurs, "A10, translation, short answers first: time with --kv-offload auto over that with off", kJobs, Kind::kOrder, 0, {}, true},
          &OverTheBest, {{"7.1 GB", "< 1.10", {{.shortest_first = true}, kStreamed, {kKept}}}}),
      Row<Worth>(
          {"VA4.jobs", kRooflineOfOurs, "Translation: requests a second for the money, an A10 with --kv-offload auto over an A40 without", kJobs, Kind::kBand,
           0.25},
          &JobsWorthOverA40,
          {{"7.1 GB", "2.2", {{.room_gb = 7.1}, kStreamed}},
           {"4.7 GB", "1.7", {{.room_gb = 4.7}, kStreamed}},
           {"2.1 GB", "1.0", {{.room_gb = 2.1}, kStreamed}}}),
      Row<Contest>(
          {"VA1.jobs", "Vasuki, section 6.2.2", "Summarization, whole jobs: time saved with --scheduling-policy vasuki-printed, %", kJobs, Kind::kPoints, 5},
          &SavedOverTheBest, {{"printed", "9", {{Task::kSummarization}, kPrinted, {kRecompute}}}}),
      Row<Contest>(
          {"VA2.jobs", "Vasuki, section 6.2.2", "The same, translation", kJobs, Kind::kPoints, 8},
          &SavedOverTheBest, {{"printed", "36", {{}, kPrinted, {kRecompute}}}}),
      Row<Contest>(
          {"VA2.chats", kBoundOfOurs, "Time saved with vasuki-printed, %, of 1,135 chats of ShareGPT whose answers are longer than their prompts",
           "a roofline: 92 of them run at once in 7.1 GB without offload, at most 256 where memory is no limit", Kind::kOrder, 0, {}, true},
          &SavedOverTheBest, {{"printed", "< 11", {{Task::kChat}, kPrinted, {kRecompute}}}}),
      Row<Contest>(
          {"VA3.jobs", "Vasuki, section 6.2.1", "Translation, whole jobs: the batch with vasuki-printed over that without", kJobs, Kind::kBand, 0.25},
          &BatchOfJobs, {{"printed", "2", {{}, kPrinted, {kRecompute}}}}),
      Row<Worth>(
          {"VA4.printed", "Vasuki, Figure 6", "Translation, whole jobs: requests a second for the money, an A10 with vasuki-printed over an A40 without", kJobs,
           Kind::kBand, 0.1},
          &JobsWorthOverA40,
          {{"as an A40", "3.4", {{.device = "a10-as-a40"}, kPrinted}}, {"by the A10's datasheet", "2.9", {{}, kPrinted}}}),
      Row<Contest>(
          {"VA8.printed", kRooflineOfOurs, "A10, whole jobs: time saved with vasuki-printed, by room for KV, %", kJobs, Kind::kPoints, 5},
          &SavedOverTheBest,
          {{"translation, 7.1 GB", "31", {{.room_gb = 7.1}, kPrinted, {kRecompute}}},
           {"translation, 4.7 GB", "34", {{.room_gb = 4.7}, kPrinted, {kRecompute}}},
           {"translation, 2.1 GB", "40", {{.room_gb = 2.1}, kPrinted, {kRecompute}}},
           {"summarization, 7.1 GB", "13", {{Task::kSummarization, 7.1}, kPrinted, {kRecompute}}},
           {"summarization, 4.7 GB", "17", {{Task::kSummarization, 4.7}, kPrinted, {kRecompute}}},
           {"summarization, 2.1 GB", "23", {{Task::kSummarization, 2.1}, kPrinted, {kRecompute}}}}),
      Row<Comparison>(
          {"VA7", "Vasuki, Figure 1 and section 4.3", "Llama-3-8B on an A10, arXiv: what memory and chunk size do",
           "every 20th request of the trace, context 4096, at most 256 at once; 1000 GB of the same device; restarts are "
           "preemptions",
           Kind::kOrder},
          &MemoryAndChunks,
          {{"time, 24 GB over 1000 GB", "> 1", {Of::kTime, {}, {.memory_gb = 1000}}},
           {"restarts, 2048 over 512", "> 1", {Of::kRestarts, {.chunk = 2048}, {}}},
           {"restarts, 4096 over 512", "> 1", {Of::kRestarts, {.chunk = 4096}, {}}},
           {"time, 2048 over 512", "> 1", {Of::kTime, {.chunk = 2048}, {}}},
           {"time, 4096 over 512", "> 1", {Of::kTime, {.chunk = 4096}, {}}}}),
      Row<Comparison>(
          {"VA7.vllm", "Vasuki, Figure 1", "The same: time of vLLM over Sarathi's, both on 24 GB",
           "vLLM reads whole prompts, 4096 tokens a step; Sarathi in chunks of 512", Kind::kOrder},
          &MemoryAndChunks,
          {{"time", "> 1", {Of::kTime, {.chunk = 4096, .policy = "vllm"}, {.policy = "sarathi"}}}}),
  };
}
// clang-format on

}  // namespace forebay::repro
