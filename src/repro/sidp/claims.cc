// SiDP: distributed weights with data parallelism; the paper's figures, and grids of our own.
#include "repro/sidp/rows.h"

namespace forebay::repro {
namespace {

// What a link gives is its rate at the usual efficiency of .8. Corrected, a fetch of B takes B over
// that; a step over a fetch is the claimed step over it; CaS takes as long as WaS then does where
// the line through its own steps at 32 and 128 rows says.
constexpr Contradiction kPrefetch{"786 MB in 1.04 ms are 756 GB/s, on a link of 450 GB/s", "2.18"};
constexpr std::string_view kFetch4Why = "56.4 GB in 80 ms are 705 GB/s, on a link of 450 GB/s";
constexpr Contradiction kFetch4{kFetch4Why, "157"}, kStepOverFetch4{kFetch4Why, "0.766"};
constexpr Contradiction kFetch5{"56.4 GB in 48 ms are 1175 GB/s, on a link of 900 GB/s", "78.3"};
constexpr Contradiction kWas{"28.2 GB in 41 ms are 687 GB/s, on a link of 450 GB/s", "78.3"};
constexpr Contradiction kThreshold{
    "it is where CaS takes the 41 ms of WaS, which a link of 450 GB/s does not give", "68"};
constexpr Contradiction kTokens4{"99 GB on each of 8 devices (Figure 2(a)) are twice as many",
                                 "3.02"},
    kTokens2{"91 GB on each of 8 devices (Figure 2(a)) are twice as many", "2.78"},
    kTokens1{"61.5 GB on each of 8 devices (Figure 2(a)) are twice as many", "1.88"};
constexpr std::string_view kPoolAssumed =
    "all choices as long as the mean; slots of a matrix, of which two layers' bytes are pulled "
    "ahead, also into the next step";
constexpr std::string_view kGainAssumed =
    "TP4DP2, TP2DP4 and TP1DP8; all choices as long as the mean; SiDP as the paper has it: all "
    "FFNs, by layer, peak shifting; and a copy stream an owner";
constexpr const char *kQwen3 = "Qwen3-32B", *kQwen2 = "Qwen2.5-72B";

// Figures 6 to 8 and 12, K tok/s of DP+TP and of SiDP at 1K, 2K and 4K.
struct Throughputs {
  const char* model;
  double dp[3], sidp[3];
};
constexpr int kLengths = 3;

Gain GainAt(const Throughputs& figure, int length, GroupSetting setting) {
  setting.model = figure.model;
  setting.context = int64_t{1024} << length;
  return {setting, false, figure.dp[length], figure.sidp[length]};
}

// Models x lengths: the longest first, and how the gain grows with the length.
std::vector<Keyed<Gain>> GainsByLength(const char* device,
                                       const std::vector<Throughputs>& figures) {
  std::vector<Keyed<Gain>> values;
  for (const Throughputs& figure : figures) {
    const Gain longest = GainAt(figure, 2, {.device = device});
    Gain growth = longest;
    growth.over_shortest = true;
    values.push_back({fmt::format("{} 4K", figure.model), "> 1", longest});
    values.push_back(
        {fmt::format("{} 2K", figure.model), "> 1", GainAt(figure, 1, {.device = device})});
    values.push_back({fmt::format("{} 4K over 1K", figure.model), "> 1", growth});
  }
  return values;
}

std::vector<Keyed<Gain>> GainsWithLess(const GroupSetting& setting,
                                       const std::vector<Throughputs>& figures) {
  std::vector<Keyed<Gain>> values;
  for (const Throughputs& figure : figures) {
    for (int length = 0; length < kLengths; ++length)
      values.push_back({fmt::format("{} {}K", figure.model, 1 << length), "> 1",
                        GainAt(figure, length, setting)});
  }
  return values;
}

// Models x layouts x mean lengths.
std::vector<Keyed<GroupSetting>> Grid(const char* device) {
  std::vector<Keyed<GroupSetting>> values;
  for (const char* model : {kQwen3, kLlama, kQwen2}) {
    for (const int tp : {4, 2, 1}) {
      for (const int k : {1, 2, 4}) {
        values.push_back({fmt::format("{} TP{}DP{} {}K", model, tp, 8 / tp, k),
                          "> 0.99",
                          {.device = device, .model = model, .tp = tp, .context = 1024 * k}});
      }
    }
  }
  return values;
}

Cells CellsOf(const char* device) {
  Cells cells;
  for (const Keyed<GroupSetting>& value : Grid(device)) cells.push_back(value.key);
  return cells;
}

// Figure 1(b): one replica on all devices.
GroupSetting Tp8(int64_t batch) { return {.tp = 8, .context = 768, .batch = batch}; }
// Figures 11 and 14: WaS, CaS and vLLM on four devices.
GroupSetting Four(const weights::ChosenPlacement& weights, const schedule::WantedMode& mode,
                  int64_t batch = 0) {
  return {.model = kLlama, .devices = 4, .tp = 2, .weights = weights, .mode = mode, .batch = batch};
}
GroupSetting Was(int64_t batch) { return Four(kByLayer, kPull, batch); }
GroupSetting Cas(int64_t batch) { return Four(kByLayer, kShip, batch); }
GroupSetting Vllm(int64_t batch) { return Four(kReplicated, kPull, batch); }
GroupSetting TailOf(bool fuse, bool skip_idle, const StepMode& mode = kShip) {
  GroupSetting setting = Cas(0);
  setting.fuse = fuse, setting.skip_idle = skip_idle, setting.mode = mode;
  return setting;
}
JobSetting WholeJobOf(const char* device, const char* model, int64_t requests) {
  return {{.device = device, .model = model, .context = 4096}, requests, 2048};
}
// Figure 9: a replica alone.
GroupSetting Two(const char* device, int64_t batch) {
  return {.device = device, .model = kLlama, .devices = 2, .tp = 2, .context = 768, .batch = batch};
}

}  // namespace

// clang-format off
std::vector<Claim> SidpClaims() {
  const Shifting tp2{{.tp = 2}, 9.65, 3.9}, tp1{{}, 11.6, 3.35};
  return {
      Row<int64_t>(
          {"SI0", "SiDP, Figure 1(a)",
           "Qwen3-32B on 8 x H20, dp=8: FFN of a layer by rows of a device, over the prefetch of a layer",
           "the figure names no batches; the prefetch is one that nobody else disturbs", Kind::kOrder},
          &FfnOverPrefetch, {{"B = 8", "< 1", 8}, {"B = 64", "< 1", 64}, {"B = 512", "> 1", 512}}),
      Row<GroupSetting>(
          {"SI0.prefetch", "SiDP, Figure 1(a)", "Qwen3-32B on 8 x H20, dp=8: prefetch of a layer, ms", "",
           Kind::kBand, 0.2},
          &PrefetchOfALayer, {{"a layer", "1.04", {}, kPrefetch}}),
      Row<GroupSetting>(
          {"SI1.ratio", "SiDP, Figure 5", "KV tokens of SiDP over those of DP, 8 x H20 (144 GB)",
           "all FFNs pooled by layer, peak shifting and its d-1 slots", Kind::kPoints, 0.12},
          &KvCapacity,
          {{"Qwen3-32B TP4DP2", "1.05", {.model = kQwen3, .tp = 4}},
           {"Qwen3-32B TP2DP4", "1.19", {.model = kQwen3, .tp = 2}},
           {"Qwen3-32B TP1DP8", "1.70", {.model = kQwen3, .tp = 1}},
           {"Llama-3.1-70B TP4DP2", "1.14", {.model = kLlama, .tp = 4}},
           {"Llama-3.1-70B TP2DP4", "1.72", {.model = kLlama, .tp = 2}},
           {"Qwen2.5-72B TP4DP2", "1.16", {.model = kQwen2, .tp = 4}},
           {"Qwen2.5-72B TP2DP4", "1.79", {.model = kQwen2, .tp = 2}}}),
      Row<GroupSetting>(
          {"SI1.fits", "SiDP, Figure 5", "KV tokens where DP does not fit, 8 x H20", "", Kind::kOrder},
          &KvTokens,
          {{"Llama-3.1-70B TP1DP8, DP", "< 1", {.model = kLlama}},
           {"Llama-3.1-70B TP1DP8, SiDP", "> 1", {.model = kLlama, .weights = kByLayer}},
           {"Qwen2.5-72B TP1DP8, DP", "< 1", {.model = kQwen2}},
           {"Qwen2.5-72B TP1DP8, SiDP", "> 1", {.model = kQwen2, .weights = kByLayer}}}),
      Row<GroupSetting>(
          {"SI1.tokens", "SiDP, Figure 5", "Qwen3-32B on 8 x H20: KV tokens of DP, millions", "a token takes 262,144 bytes in bf16", Kind::kBand, 0.2},
          &KvMillions,
          {{"TP4DP2", "1.74", {.tp = 4}, kTokens4}, {"TP2DP4", "1.49", {.tp = 2}, kTokens2}, {"TP1DP8", "1.00", {}, kTokens1}}),
      Row<GroupSetting>(
          {"SI2", "SiDP, Figure 2(a)", "Qwen3-32B on 8 x H20: KV memory of a device, % of that under TP8",
           "114, 99, 91 and 61.5 GB as read off the figure; from TP8 to TP4 a device's weights grow by 8.2 GB, the figure's KV "
           "falls by 15", Kind::kPoints, 5},
          &KvByLayout,
          {{"TP4DP2", "86.8", {.tp = 4}}, {"TP2DP4", "79.8", {.tp = 2}}, {"TP1DP8", "53.9", {.tp = 1}}}),
      Row<GroupSetting>(
          {"SI3", "SiDP, Figure 2(b)", "8 x H20, 4K: decode throughput at .3 of the memory over that at .9",
           "the layout, which the paper does not give; Qwen3-32B", Kind::kOrder},
          &LessMemory,
          {{"Qwen3-32B TP2DP4 4K", "< 0.6", {.tp = 2, .context = 4096}},
           {"Qwen3-32B TP4DP2 4K", "< 0.6", {.tp = 4, .context = 4096}}}),
      Row<int>(
          {"SI4.DP8", "SiDP, Figure 1(b)", "Qwen3-32B on 8 x H20, dp=8: decode throughput by batch, K tok/s",
           "the batch is of all devices; requests of 512 + 512 tokens (the paper gives no lengths); only steps that "
           "decode the whole batch",
           Kind::kBand, 0.2},
          &BatchScaling,
          {{"B = 64", "3.0", 64}, {"B = 256", "9.1", 256}, {"B = 512", "10.6", 512}, {"B = 768", "11.5", 768},
           {"B = 1024", "11.5", 1024}, {"B = 1280", "11.9", 1280}, {"B = 1536", "12.2", 1536}}),
      Row<GroupSetting>(
          {"SI4.TP8", "SiDP, Figure 1(b)", "Qwen3-32B on 8 x H20, tp=8: decode throughput by batch, K tok/s",
           "contexts of 768 tokens", Kind::kBand, 0.2},
          &BatchScalingTp,
          {{"B = 64", "3.9", Tp8(64)}, {"B = 256", "7.7", Tp8(256)}, {"B = 512", "8.3", Tp8(512)},
           {"B = 768", "8.65", Tp8(768)}, {"B = 1024", "8.8", Tp8(1024)}, {"B = 1280", "8.8", Tp8(1280)},
           {"B = 1536", "8.9", Tp8(1536)}}),
      Row<Gain>(
          {"SI5.H20", "SiDP, Figures 6 to 8",
           "8 x H20: SiDP's decode throughput over that of DP+TP, each with its best layout", kGainAssumed,
           Kind::kOrder},
          &Throughput,
          GainsByLength("h20", {{kQwen3, {11.2, 7.8, 5.1}, {11.1, 8.9, 6.6}},
                                {kLlama, {5.0, 4.0, 2.8}, {5.4, 4.3, 3.5}},
                                {kQwen2, {4.9, 3.9, 2.7}, {5.2, 4.3, 3.6}}})),
      Row<Gain>(
          {"SI5.H200", "SiDP, Figures 6 to 8",
           "8 x H200: SiDP's decode throughput over that of DP+TP, each with its best layout", kGainAssumed,
           Kind::kOrder},
          &Throughput,
          GainsByLength("h200", {{kQwen3, {21.8, 15.4, 9.1}, {22.0, 16.8, 11.8}},
                                 {kLlama, {15.2, 10.1, 5.3}, {15.6, 10.6, 7.3}},
                                 {kQwen2, {13.5, 9.7, 4.7}, {14.4, 10.0, 7.0}}})),
      Row<Gain>(
          {"SI5.B200", "SiDP, Figures 6 to 8",
           "8 x B200: SiDP's decode throughput over that of DP+TP, each with its best layout", kGainAssumed,
           Kind::kOrder},
          &Throughput,
          GainsByLength("b200", {{kQwen3, {21.1, 16.6, 9.2}, {22.8, 18.1, 13.5}},
                                 {kLlama, {17.4, 14.5, 8.5}, {17.9, 14.9, 12.3}},
                                 {kQwen2, {17.6, 14.6, 8.3}, {17.2, 14.3, 12.0}}})),
      Row<JobSetting>(
          {"SI5.jobs", kBeyondThePaper,
           "Whole jobs on 8 devices: output tokens a second of SiDP (striped, all FFNs, pulling and shipping) over the best "
           "of TP4DP2, TP2DP4 and TP1DP8",
           "prompts of 2048 tokens, outputs lognormal with a mean of 2048; by number of requests", Kind::kOrder, 0, {}, true},
          &WholeJob,
          {{"B200 Llama-3.1-70B, 100", "> 1", WholeJobOf("b200", kLlama, 100)},
           {"B200 Llama-3.1-70B, 400", "> 1", WholeJobOf("b200", kLlama, 400)},
           {"B200 Llama-3.1-70B, 1200", "> 1", WholeJobOf("b200", kLlama, 1200)},
           {"H200 Llama-3.1-70B, 400", "> 1", WholeJobOf("h200", kLlama, 400)},
           {"H20 Qwen3-32B, 400", "> 1", WholeJobOf("h20", kQwen3, 400)}}),
      Row<Batching>(
          {"SI5.batching", kBeyondThePaper,
           "Such jobs of 1,200 requests by the two batching strategies of section 5.1: output tokens a second with an adaptive batch over those with a fixed large one",
           "fixed: continuous, as many choices as the cache holds, the latest preempted; adaptive: as many as it holds at the mean length of finished ones; "
           "DP+TP is the best of TP4DP2, TP2DP4 and TP1DP8", Kind::kOrder, 0, {}, true},
          &BatchingStrategy,
          {{"H20 Qwen3-32B, 1200: SiDP", "< 1.02", {WholeJobOf("h20", kQwen3, 1200), true}},
           {"H20 Qwen3-32B, 1200: DP+TP", "< 1.02", {WholeJobOf("h20", kQwen3, 1200)}},
           {"B200 Llama-3.1-70B, 1200: SiDP", "< 1.02", {WholeJobOf("b200", kLlama, 1200), true}},
           {"B200 Llama-3.1-70B, 1200: DP+TP", "< 1.02", {WholeJobOf("b200", kLlama, 1200)}}}),
      Row<ShownStep>(
          {"SI6.step", "SiDP, Figure 9", "Llama-3.1-70B, tp=2: a decode step over fetching all FFNs once",
           "contexts of 768 tokens", Kind::kOrder},
          &StepAgainstFetch,
          {{"H20 B = 64", "< 1", {Two("h20", 64), 64, 80}},
           {"H20 B = 128", "> 1", {Two("h20", 128), 120, 80}, kStepOverFetch4},
           {"H20 B = 256", "> 1", {Two("h20", 256), 256, 80}},
           {"H200 B = 128", "< 1", {Two("h200", 128), 48, 80}},
           {"H200 B = 256", "> 1", {Two("h200", 256), 85, 80}},
           {"B200 B = 256", "< 1", {Two("b200", 256), 45, 48}},
           {"B200 B = 512", "> 1", {Two("b200", 512), 70, 48}}}),
      Row<GroupSetting>(
          {"SI6.fetch", "SiDP, Figure 9", "Llama-3.1-70B, tp=2: fetching all FFNs once, ms", "", Kind::kBand, 0.2},
          &FetchOfAllLayers, {{"H20", "80", Two("h20", 0), kFetch4}, {"B200", "48", Two("b200", 0), kFetch5}}),
      Row<Shiftings>(
          {"SI7", "SiDP, Figure 10",
           "Qwen3-32B on 8 x H20, 1K: decode throughput with peak shifting over that without",
           "TP4DP2, TP2DP4, TP1DP8: the figure's throughputs need eight devices; one copy stream a rank, as the paper has it",
           Kind::kOrder},
          &PeakShifting,
          {{"TP2DP4 1K", "> 1.5", {tp2}}, {"TP1DP8 1K", "> 1.5", {tp1}}, {"TP1DP8 1K over TP2DP4", "> 1", {tp1, tp2}}}),
      Row<GroupSetting>(
          {"SI8", "SiDP, Figure 11", "Llama-3.1-70B on 4 x H20, tp=2, dp=2: a decode step, ms",
           "the batch is of a replica; contexts of 1024 tokens", Kind::kBand, 0.2},
          &StepMs,
          {{"WaS, B = 1", "41", Was(1), kWas}, {"WaS, B = 2", "41", Was(2), kWas}, {"WaS, B = 8", "41", Was(8), kWas},
           {"WaS, B = 32", "41", Was(32), kWas}, {"WaS, B = 128", "121", Was(128)},
           {"CaS, B = 1", "27", Cas(1)}, {"CaS, B = 2", "29", Cas(2)}, {"CaS, B = 8", "29.5", Cas(8)},
           {"CaS, B = 32", "41", Cas(32)}, {"CaS, B = 128", "139", Cas(128)},
           {"vLLM, B = 1", "24", Vllm(1)}, {"vLLM, B = 2", "25.5", Vllm(2)}, {"vLLM, B = 8", "28.5", Vllm(8)},
           {"vLLM, B = 32", "41", Vllm(32)}, {"vLLM, B = 128", "121", Vllm(128)}}),
      Row<JobsCompared>(
          {"SI9", "SiDP, Figure 13", "8 x H20, 4K: output tokens a second of a job, dp=8",
           "800 requests, prompts of 3584 tokens, outputs lognormal with a mean of 512, but where a value says another "
           "number of requests or other lengths; vLLM on TP1DP8 (Qwen3-32B) or TP2DP4",
           Kind::kOrder},
          &ModeSwitch,
          {{"Qwen3-32B WaS+CaS over WaS", "> 1", {kQwen3, true, 6580, 5390}},
           {"Qwen3-32B WaS over vLLM", "> 1", {kQwen3, false, 5390, 5040}},
           {"Llama-3.1-70B WaS+CaS over WaS", "> 1", {kLlama, true, 3490, 2970}},
           {"Llama-3.1-70B WaS over vLLM", "> 1", {kLlama, false, 2970, 2760}},
           {"Qwen2.5-72B WaS+CaS over WaS", "> 1", {kQwen2, true, 3530, 2930}},
           {"Qwen2.5-72B WaS over vLLM", "> 1", {kQwen2, false, 2930, 2690}},
           {"Qwen3-32B WaS+CaS over WaS, 3200", "> 1", {kQwen3, true, 6580, 5390, 3200}},
           {"Qwen3-32B WaS over vLLM, 3200", "> 1", {kQwen3, false, 5390, 5040, 3200}},
           {"Qwen3-32B WaS over vLLM, 512+3584", "> 1", {kQwen3, false, 5390, 5040, 800, 3584}}}),
      Row<GroupSetting>(
          {"SI10.steps", "SiDP, Figure 14", "Llama-3.1-70B on 4 x H20, tp=2, dp=2: the tail, s",
           "one choice of one replica; 417 steps, which make vLLM's 10 s of its 24 ms; context 1024", Kind::kBand,
           0.15},
          &TailSeconds,
          {{"FSDP", "33", TailOf(true, true, kGather)}, {"async P2P", "25", TailOf(false, false)},
           {"+ fused GEMM", "19", TailOf(true, false)}, {"+ skipping", "12", TailOf(true, true)},
           {"vLLM", "10", Vllm(0)}}),
      Row<GroupSetting>(
          {"SI10.striped", kBeyondThePaper, "The tail of SI10.steps shipped to stripes, over that of a local full replica", "",
           Kind::kOrder},
          &TailOverLocal, {{"striped", "< 0.8", Four(kStriped, kShip)}}),
      Row<JobSetting>(
          {"SI11.share", "SiDP, Figure 15", "Llama-3.1-70B on 8 x H20, a 4K job: steps that pull, %", "the job of SI9",
           Kind::kOrder},
          &ShareOfPulling,
          {{"steps", "> 90", {{.model = kLlama, .context = 4096}, 800}},
           {"steps, 3200 requests", "> 90", {{.model = kLlama, .context = 4096}, 3200}}}),
      Row<GroupSetting>(
          {"SI11.threshold", "SiDP, Figure 15", "B_th, rows of a replica",
           "Llama-3.1-70B on H20, tp=2, dp=2, as in Figure 11", Kind::kBand, 0.2},
          &Threshold, {{"B_th", "32", Four(kByLayer, kAuto), kThreshold}}),
      Row<Gain>(
          {"SI12", "SiDP, Figure 12", "8 x H200 at .6 of their memory: SiDP's decode throughput over that of DP+TP",
           "as SI5", Kind::kOrder},
          &Throughput,
          GainsWithLess({.device = "h200", .utilization = 0.6},
                        {{kLlama, {13.0, 8.4, 5.3}, {15.6, 10.6, 7.3}}, {kQwen2, {11.6, 8.1, 4.6}, {14.3, 10.0, 7.0}}})),
      Row<GroupSetting>(
          {"POOL.H20", kBeyondThePaper, "8 x H20, striped, pool=auto: decode throughput over the better of no and full pooling",
           kPoolAssumed, Kind::kOrder, 0, {}, true},
          &PoolChoice, Grid("h20")),
      Row<GroupSetting>(
          {"POOL.H200", kBeyondThePaper, "8 x H200, striped, pool=auto: decode throughput over the better of no and full pooling",
           kPoolAssumed, Kind::kOrder, 0, {}, true},
          &PoolChoice, Grid("h200")),
      Row<GroupSetting>(
          {"POOL.B200", kBeyondThePaper, "8 x B200, striped, pool=auto: decode throughput over the better of no and full pooling",
           kPoolAssumed, Kind::kOrder, 0, {}, true},
          &PoolChoice, Grid("b200")),
      Row<std::vector<Cells>>(
          {"POOL.gains", kBeyondThePaper, "Cells of these grids in which both fit and pool=auto is 5 % above both", kPoolAssumed,
           Kind::kOrder, 0, {}, true},
          &PoolGains, {{"cells", "> 3", {CellsOf("h20"), CellsOf("h200"), CellsOf("b200")}}}),
  };
}
// clang-format on

}  // namespace forebay::repro
