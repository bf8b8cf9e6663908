// DWDP: distributed weights for mixtures of experts.
#include <cmath>

#include "cost/profile.h"
#include "repro/claim.h"
#include "repro/dwdp/roofline.h"
#include "repro/dwdp/rows.h"

namespace forebay::repro {
namespace {

double Binomial(int n, int k) {
  double value = 1;
  for (int i = 1; i <= k; ++i) value = value * (n - k + i) / i;
  return value;
}

// Table 2: ranks, and a probability for each number of pulls from one on.
struct Contention {
  int ranks;
  std::vector<std::string_view> percent;
};

std::vector<Keyed<Meeting>> Meetings(const std::vector<Contention>& table) {
  std::vector<Keyed<Meeting>> values;
  for (const Contention& row : table) {
    for (int pulls = 1; pulls <= static_cast<int>(row.percent.size()); ++pulls) {
      values.push_back(
          {fmt::format("N={} C={}", row.ranks, pulls), row.percent[pulls - 1], {row.ranks, pulls}});
    }
  }
  return values;
}

// Section 3, Figure 3: one prompt, DWDP4 against DEP4.
FindingOr HidingFrom(const ContextSetting& setting, double, Lab&) {
  const double part = cost::LoadProfile("gb200-nvl72")->link_efficiency;
  constexpr auto kFp8 = cost::NumberFormat::kFP8;
  return Finding{
      .calibrated = HidingTokens(setting) / 1000,
      .account = {{"attention in fp8", HidingTokens({.core = kFp8}) / 1000},
                  {"links at what copies reach", HidingTokens({.link_part = part}) / 1000},
                  {"both", HidingTokens({.link_part = part, .core = kFp8}) / 1000}}};
}

// DEP4 over DWDP4.
struct Speedups {
  double tokens, over = 0;  // over: that at so many; 0: as it is
};
FindingOr Speedup(const Speedups& key, double, Lab&) {
  const ContextLayer layer = RooflineOfContext(key.tokens, {});
  double speedup = layer.speedup();
  if (key.over > 0) speedup /= RooflineOfContext(key.over, {}).speedup();
  return Finding{.calibrated = speedup,
                 .account = {{"compute ms", 1e3 * layer.compute_seconds},
                             {"prefetch ms", 1e3 * layer.prefetch_seconds},
                             {"exchange ms", 1e3 * layer.exchange_seconds}}};
}

// The prompt that gains most, K tokens, and what it and the shortest and the longest gain.
FindingOr Peak(const ContextSetting& setting, double, Lab&) {
  const double best = BestTokens(setting);
  const auto gain = [&](double tokens) { return RooflineOfContext(tokens, setting).speedup(); };
  return Finding{.calibrated = best / 1024,
                 .account = {{"speedup there", gain(best)},
                             {"at 1K", gain(1024)},
                             {"at 8K", gain(8192)},
                             {"at 32K", gain(32768)},
                             {"at 128K", gain(131072)}}};
}

// A context step's copies: of all layers with experts, ms.
FindingOr CopyOfAStep(const int& ranks, double claimed, Lab&) {
  const auto layers = static_cast<double>(LayersWithExperts());
  const cost::DeviceProfile device = *cost::LoadProfile("gb200-nvl72");
  const double bytes = layers * MissingExpertBytes(ranks);
  const double ms = 1e3 * bytes / device.link_bytes_per_s;
  return Finding{.calibrated = ms / device.link_efficiency,
                 .uncalibrated = ms,
                 .account = {{"GB/s of the claim", 1e-6 * bytes / claimed}}};
}

// A layer's prefetch over a link of so many GB/s a direction, us.
FindingOr PrefetchOfALayer(const double& link_gb_per_s, double claimed, Lab&) {
  const double us = MissingExpertBytes(4) / (1e3 * link_gb_per_s);
  const auto hidden = [&](double tokens) {
    return 1e6 * RooflineOfContext(tokens, {}).compute_seconds / us;
  };
  return Finding{.calibrated = us,
                 .account = {{"MB that the claim moves", 1e-3 * claimed * link_gb_per_s},
                             {"compute / prefetch at 8K tokens", hidden(8192)},
                             {"at 32K", hidden(32768)}}};
}

// Copies one way and the other, of the memory's bandwidth, %; `efficient`: as fast as they get.
FindingOr CopiesOfMemory(const bool& efficient, double, Lab&) {
  const cost::DeviceProfile device = *cost::LoadProfile("gb200-nvl72");
  const double part = efficient ? device.link_efficiency : 1;
  return Finding{.calibrated =
                     100 * 2 * part * device.link_bytes_per_s / device.memory_bytes_per_s};
}

// Compute-bound kernels take as much longer as the clock is slower.
FindingOr TimeAtFrequency(const double& frequency, double, Lab&) {
  return Finding{.calibrated = 1 / frequency};
}

using Times = ContextTimes;

constexpr std::string_view kQueue =
    "prompts all alike but where they deviate (normal, within two deviations), answers of one "
    "token; a closed queue in which as many requests wait as four ranks run at once; power:1.2; "
    "rows go to experts in NVFP4 and come back as sums, over links as their profile has them; "
    "pulls rotated and not merged; the paper's own figures of one setting are 1.12 and 1.15 in "
    "TTFT (16K, Tables 3a and 3d), 1.10 and 1.132 in rate (8K, Tables 3a and 1)";
constexpr std::string_view kAsQueue = "as DW4.ttft";
constexpr std::string_view kEndToEnd =
    "generation is one group of 8 ranks (DEP) with KV in fp8, so that a rank holds 150 choices; "
    "where a user never gets as many tokens, as dp=2,tp=4, or either with one draft a step of "
    "which 85 % are kept (DeepSeek-V3, section 5.4.3); 6.4K to 8K tokens and 1,024; by the group's "
    "batch at so many tokens a second and user context "
    "has as few ranks as keep up with it, DEP's in fours, DWDP's in ones, so that the gain is "
    "fewer context GPUs; 60-70 is 1.10 in Table 5 and 1.12 in Table 6; else "
    "as DW4";

constexpr const char* kMilliseconds = "4.756 GB over this link take ms";

}  // namespace

// Section 4.3.1, equation 2: of the n - 2 other ranks each takes a tagged rank's source with
// probability 1 / (n - 1).
FindingOr PullContention(const Meeting& key, double, Lab&) {
  const double meets = 1.0 / (key.ranks - 1);
  const double probability = Binomial(key.ranks - 2, key.pulls - 1) *
                             std::pow(meets, key.pulls - 1) *
                             std::pow(1 - meets, key.ranks - 1 - key.pulls);
  return Finding{.calibrated = 100 * probability};
}

// clang-format off
std::vector<Claim> DwdpClaims() {
  return {
      Row<Meeting>(
          {"DW3", "DWDP, Table 2", "Probability that C pulls meet at one source, %",
           "as often under --pool-peers random, within 3 sigma; the first slices of rotated pulls never meet, those of serial and sliced ones all do", Kind::kExact},
          &PullContention,
          Meetings({
              {3, {"50.00", "50.00"}},
              {4, {"44.44", "44.44", "11.11"}},
              {6, {"40.96", "40.96", "15.36", "2.56", "0.16"}},
              {8, {"39.66", "39.66", "16.52", "3.67", "0.46", "0.03", "0.00085"}},
              {12, {"38.55", "38.55", "17.35", "4.63", "0.81", "0.097", "0.0081", "0.00046", "0.000017", "3.86e-7", "3.86e-9"}},
              {16, {"38.06", "38.06", "17.67", "5.05", "0.99", "0.14", "0.015", "0.0012", "0.000077", "3.69e-6", "1.32e-7", "3.42e-9", "6.11e-11", "6.71e-13", "3.43e-15"}}
          })),
      Row<double>(
          {"DW0", "DWDP, Figure 1", "Waiting in a context step of DEP4 by the deviation of the ranks' lengths, % of the step",
           "R1 in NVFP4 on GB200 NVL72, KV in fp8, power:1.2; three prompts a rank and step, all of its length, 7,100 tokens on average; "
           "rows go to experts in NVFP4 and come back as sums in bf16; the usual ratio of .8 is a CV of 6.4 % of a prompt, 3 % of a rank of four", Kind::kPoints, 3},
          &WaitingByLengths, {{"CV 20 %", "12", 0.2}}),
      Row<StepPart>(
          {"DW1.DEP4", "DWDP, Table 1", "A context step of DEP4 by category, ms",
           "printed as us; ms, of all layers; KV in fp8, as the paper states; prompts of .8 to 1 x 8,192, four a rank and step; power:1.2; exchange as measured (gb200_a2a.csv, the "
           "faster of two series of one name), waits those of the exact exchange that runs here", Kind::kBand, 0.05},
          &PartOfStep,
          {{"step", "1319.85", {true, &Times::step}}, {"attention", "269.67", {true, &Times::attention}},
           {"grouped GEMM", "342.40", {true, &Times::grouped}}, {"dense GEMM", "177.50", {true, &Times::dense}},
           {"others", "241.69", {true, &Times::others}}, {"communication", "126.74", {true, &Times::exchange}},
           {"synchronization", "161.85", {true, &Times::waits}}}),
      Row<StepPart>(
          {"DW1.DWDP4", "DWDP, Table 1", "A context step of DWDP4 by category, ms", "as DW1.DEP4; peer after peer, experts merged", Kind::kBand, 0.05},
          &PartOfStep,
          {{"step", "1165.58", {false, &Times::step}}, {"attention", "320.56", {false, &Times::attention}},
           {"grouped GEMM", "337.42", {false, &Times::grouped}}, {"dense GEMM", "189.28", {false, &Times::dense}},
           {"others", "284.32", {false, &Times::others}}, {"D2D copy", "34.00", {false, &Times::merge}}}),
      Row<GainOf>(
          {"DW1.gain", "DWDP, Table 1", "Of the step of DEP4, %",
           "as DW1.DEP4 and DW1.DWDP4; 11.69 % is 1.132 times the rate, where Table 3 has 1.10 for the same setting", Kind::kBand, 0.05},
          &GainOfStep, {{"DWDP4 is shorter", "11.69", GainOf::kStep}, {"synchronization, communication", "21.86", GainOf::kMeetings}}),
      Row<int>(
          {"DW1.copy", "DWDP, Table 1", "Copies between ranks in a context step, ms",
           "printed as us; ms, of all 58 layers with experts, by their bytes", Kind::kBand, 0.2, {}, true},
          &CopyOfAStep, {{"DWDP4", "429", 4}}),
      Row<QueueSetting>(
          {"DW4.ttft", "DWDP, Table 3a", "Median time to first token of DEP4 over DWDP4, by the prompts' length", kQueue, Kind::kBand, 0.08},
          &FirstTokenInQueue, {{"1K", "1.27", {1024}}, {"8K", "1.16", {8192}}, {"16K", "1.12", {16384}}, {"32K", "1.11", {32768}}}),
      Row<QueueSetting>(
          {"DW4.tokens", "DWDP, Table 3a", "Tokens a second and GPU, DWDP4 over DEP4, by the prompts' length", kAsQueue, Kind::kBand, 0.04},
          &TokensInQueue, {{"1K", "1.11", {1024}}, {"8K", "1.10", {8192}}, {"16K", "1.09", {16384}}, {"32K", "1.09", {32768}}}),
      Row<QueueSetting>(
          {"DW5.ttft", "DWDP, Table 3b", "Median time to first token of DEP4 over DWDP4, by the most tokens of a step", kAsQueue, Kind::kBand, 0.08},
          &FirstTokenInQueue, {{"16K", "1.07", {8192, 16384}}, {"32K", "1.16", {8192}}}),
      Row<QueueSetting>(
          {"DW5.tokens", "DWDP, Table 3b", "Tokens a second and GPU, DWDP4 over DEP4, by the most tokens of a step", kAsQueue, Kind::kBand, 0.04},
          &TokensInQueue, {{"16K", "1.01", {8192, 16384}}, {"32K", "1.10", {8192}}}),
      Row<QueueSetting>(
          {"DW6.ttft", "DWDP, Table 3c", "Median time to first token of DEP4 over DWDP4, prompts of 16K, by their deviation", kAsQueue, Kind::kBand, 0.08},
          &FirstTokenInQueue,
          {{"0", "1.12", {16384}}, {"1024", "1.11", {16384, 32768, 1024}}, {"2048", "1.13", {16384, 32768, 2048}}, {"4096", "1.18", {16384, 32768, 4096}}}),
      Row<QueueSetting>(
          {"DW6.tokens", "DWDP, Table 3c", "Tokens a second and GPU, DWDP4 over DEP4, prompts of 16K, by their deviation", kAsQueue, Kind::kBand, 0.04},
          &TokensInQueue,
          {{"0", "1.09", {16384}}, {"1024", "1.08", {16384, 32768, 1024}}, {"2048", "1.11", {16384, 32768, 2048}}, {"4096", "1.15", {16384, 32768, 4096}}}),
      Row<QueueSetting>(
          {"DW6.rises", "DWDP, Table 3c", "That of a deviation of 4096 over that of none", kAsQueue, Kind::kOrder},
          &RiseInQueue, {{"tokens a second and GPU", "> 1", {16384, 32768, 4096}}}),
      Row<QueueSetting>(
          {"DW7.ttft", "DWDP, Table 3d", "Median time to first token of DEP4 over DWDP, by its ranks", "as DW4.ttft; three ranks face the load of four", Kind::kOrder},
          &FirstTokenInQueue, {{"3", "< 1", {16384, 32768, 0, 1, 3}}, {"4", "> 1", {16384}}}),
      Row<UserRange>(
          {"DW10.output", "DWDP, Tables 5 and 6", "Output tokens a second and GPU of the whole, DWDP over DEP, by tokens a second and user", kEndToEnd, Kind::kOrder},
          &OutputOfGpu,
          {{"170-180", "< 1", {170, 180}}, {"80-90", "> 1", {80, 90}}, {"60-70", "> 1", {60, 70}}, {"40-50", "> 1", {40, 50}}, {"20-30", "> 1", {20, 30}}}),
      Row<UserRange>(
          {"DW10.user", "DWDP, Table 5", "Tokens a second and user, DWDP over DEP, of the same", kEndToEnd, Kind::kOrder},
          &TokensOfUser, {{"40-50", "> 1", {40, 50}}, {"20-30", "> 1", {20, 30}}}),
      Row<UserRange>(
          {"DW10.ttft", "DWDP, Table 6", "Median time to first token, DWDP over DEP, of the same", kEndToEnd, Kind::kOrder},
          &FirstTokenEndToEnd,
          {{"170-180", "> 1", {170, 180}}, {"80-90", "> 1", {80, 90}}, {"60-70", "> 1", {60, 70}}, {"40-50", "> 1", {40, 50}}, {"20-30", "> 1", {20, 30}}}),
      Row<int>(
          {"DW10.groups", kBeyondThePaper, "Tokens a second and rank of a generation group (DEP), eight answers a rank, over those of a group of eight", "as DW10.output", Kind::kOrder, 0, {}, true},
          &GenerationByRanks, {{"16 ranks", "> 1", 16}, {"32 ranks", "> 1", 32}}),
      Row<int>(
          {"DW7", "DWDP, Table 3d", "Tokens a second and GPU of context steps, DWDP over DEP4", "prompts of .8 to 1 x 16,384, two a rank and step; as DW1, "
           "rotated and not merged", Kind::kBand, 0.03},
          &GainByRanks, {{"3 ranks, 86 experts each", "1.093", 3}, {"4 ranks", "1.091", 4}}),
      Row<int>(
          {"DW8", "DWDP, Section 4.2 and Table 1", "What merging held and pulled experts takes of a context step, %", "all experts of a layer are copied; on a CPU: bench/experts.py",
           Kind::kPoints, 1},
          &MergeTakes, {{"DWDP4", "3", 4}}),
      Row<SliceSetting>(
          {"DW9", "DWDP, Table 4", "Tokens a second, slices of 1 MB in turns over peer after peer", "1.081/.995, 1.053/1.039, 1.109/1.098 and 1.139/1.140; 16 "
           "slices in flight, since a request takes 10 us; a stream an owner does not apply, since all owners' experts go through one list; sources "
           "share their links fairly", Kind::kOrder},
          &GainOfSlices,
          {{"ratio .5, 16K a step", "> 1", {0.5, 16384}}, {"ratio .8, 16K a step", "> 1", {0.8, 16384}},
           {"ratio .8, 32K a step", "> 1", {0.8, 32768}}, {"ratio .5, 32K a step", "< 1.005", {0.5, 32768}}}),
      Row<SliceSetting>(
          {"DW9.queues", "DWDP, Section 4.3", "The same where a source's copies are a queue (--sim-links queue)", "as DW9; two steps a rank; 4,096 rows a step are ours: compute does not hide their pulls",
           Kind::kOrder, 0, {}, true},
          &GainOfSlicesInQueues, {{"ratio .5, 16K a step", "> 1", {0.5, 16384}}, {"ratio 1, 4K a step", "> 1", {1, 4096}}}),
      Row<ContextSetting>(
          {"DW2.hidden", "DWDP, Figure 3", "Tokens of one prompt from which a layer hides its prefetch, K",
           "projections in fp8, scores and values in bf16, links at their datasheet's rate", Kind::kBand, 0.2, {}, true},
          &HidingFrom, {{"DWDP4", "16", {}}}),
      Row<ContextSetting>(
          {"DW2.peak", "DWDP, Figure 3", "Tokens of the one prompt that DWDP4 gains most with, K", "as DW2.hidden; 1K to 128K in steps of 64", Kind::kBand, 0.2, {}, true},
          &Peak, {{"DWDP4", "16", {}}}),
      Row<Speedups>(
          {"DW2.speedup", "DWDP, Figure 3", "DEP4 over DWDP4 by length of one prompt", "as DW2.hidden", Kind::kOrder, 0, {}, true},
          &Speedup, {{"at 4K", "< 1", {4096}}, {"at 16K", "> 1", {16384}}, {"16K over 128K", "> 1", {16384, 131072}}}),
      Row<bool>(
          {"DW11.memory", "DWDP, A.1", "Copies both ways, of the memory's bandwidth, %", "", Kind::kExact},
          &CopiesOfMemory, {{"GB200", "22.5", false}}),
      Row<bool>(
          {"DW11.slower", "DWDP, A.1", "What memory-bound kernels lost beside copies, %", "links at .8 of their rate", Kind::kBand, 0.05},
          &CopiesOfMemory, {{"GB200", "17.6", true}}),
      Row<double>(
          {"DW11.frequency", "DWDP, Table 7", "Kernel time by clock frequency",
           "time as 1 / frequency; the power of 114.4 % of the TDP is not modelled: no law of the average power gives both frequencies, "
           "since copies take 69 ms of the memory's time in a step of 1,166", Kind::kBand, 0.05},
          &TimeAtFrequency, {{"long copies", "1.049", 0.963}, {"short copies", "1.226", 0.798}}),
      Row<double>(
          {"DWB", "a reader's notes on DWDP", "A layer's prefetch by link, us", "four ranks; the notes mix both ways and one way of a link, and NVLink 3 (600 GB/s both ways) with an H100's NVLink 4; these are rates of one way", Kind::kExact, 0, {}, true},
          &PrefetchOfALayer,
          {{"900 GB/s", "7", 900, {kMilliseconds, "5285"}},
           {"450 GB/s", "21", 450, {kMilliseconds, "10570"}},
           {"50 GB/s", "250", 50, {kMilliseconds, "95127"}}}),
  };
}
// clang-format on

}  // namespace forebay::repro
