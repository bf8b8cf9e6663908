#include "repro/claim.h"

namespace forebay::repro {
namespace {

constexpr std::string_view kModels = "derived from config.json";
constexpr std::string_view kR1Share =
    "97 is the routed experts' share (97.45); with dense layers, shared experts and routers, as in the other rows, it is 98.0";

constexpr std::string_view kPrefetch =
    "786 MB in 1.04 ms are 756 GB/s, on a link of 450 GB/s";
constexpr std::string_view kKvFall =
    "from TP8 to TP4 a device's weights grow by 8.2 GB; the figure's KV falls by 15";
constexpr std::string_view kFetch4 = "56.4 GB in 80 ms are 705 GB/s, on a link of 450 GB/s";
constexpr std::string_view kFetch5 = "56.4 GB in 48 ms are 1175 GB/s, on a link of 900 GB/s";
constexpr std::string_view kWas = "28.2 GB in 41 ms are 687 GB/s, on a link of 450 GB/s";
constexpr std::string_view kThreshold = "it is where CaS takes the 41 ms of WaS, which a link of 450 GB/s does not give";
constexpr std::string_view kOurs = "beyond the paper";
constexpr std::string_view kPoolAssumed = "all choices as long as the mean; slots of a matrix, of which two layers' bytes are pulled ahead, also into the next step";

// Models x layouts x mean lengths.
const std::vector<ClaimedValue> kGrid =
    {{"Qwen3-32B TP4DP2 1K", "> 0.99"}, {"Qwen3-32B TP4DP2 2K", "> 0.99"}, {"Qwen3-32B TP4DP2 4K", "> 0.99"},
     {"Qwen3-32B TP2DP4 1K", "> 0.99"}, {"Qwen3-32B TP2DP4 2K", "> 0.99"}, {"Qwen3-32B TP2DP4 4K", "> 0.99"},
     {"Qwen3-32B TP1DP8 1K", "> 0.99"}, {"Qwen3-32B TP1DP8 2K", "> 0.99"}, {"Qwen3-32B TP1DP8 4K", "> 0.99"},
     {"Llama-3.1-70B TP4DP2 1K", "> 0.99"}, {"Llama-3.1-70B TP4DP2 2K", "> 0.99"}, {"Llama-3.1-70B TP4DP2 4K", "> 0.99"},
     {"Llama-3.1-70B TP2DP4 1K", "> 0.99"}, {"Llama-3.1-70B TP2DP4 2K", "> 0.99"}, {"Llama-3.1-70B TP2DP4 4K", "> 0.99"},
     {"Llama-3.1-70B TP1DP8 1K", "> 0.99"}, {"Llama-3.1-70B TP1DP8 2K", "> 0.99"}, {"Llama-3.1-70B TP1DP8 4K", "> 0.99"},
     {"Qwen2.5-72B TP4DP2 1K", "> 0.99"}, {"Qwen2.5-72B TP4DP2 2K", "> 0.99"}, {"Qwen2.5-72B TP4DP2 4K", "> 0.99"},
     {"Qwen2.5-72B TP2DP4 1K", "> 0.99"}, {"Qwen2.5-72B TP2DP4 2K", "> 0.99"}, {"Qwen2.5-72B TP2DP4 4K", "> 0.99"},
     {"Qwen2.5-72B TP1DP8 1K", "> 0.99"}, {"Qwen2.5-72B TP1DP8 2K", "> 0.99"}, {"Qwen2.5-72B TP1DP8 4K", "> 0.99"}};

const std::vector<Claim> kClaims = {
    {"model.Qwen3-32B", kModels, "Qwen3-32B by its configuration", "", Kind::kExact, 0,
     {{"params, B", "32.762"}, {"FFN, %", "76.8"}, {"bf16, GB", "65.52"}, {"KV bytes/token", "262144"}, {"GFLOP/token", "63.97"}}},
    {"model.Qwen2.5-72B", kModels, "Qwen2.5-72B by its configuration", "", Kind::kExact, 0,
     {{"params, B", "72.706"}, {"FFN, %", "80.0"}, {"bf16, GB", "145.41"}, {"KV bytes/token", "327680"}, {"GFLOP/token", "142.92"}}},
    {"model.Llama-3.1-70B", kModels, "Llama-3.1-70B by its configuration", "", Kind::kExact, 0,
     {{"params, B", "70.554"}, {"FFN, %", "79.9"}, {"bf16, GB", "141.11"}, {"KV bytes/token", "327680"}, {"GFLOP/token", "139.00"}}},
    {"model.Llama-3-8B", kModels, "Llama-3-8B by its configuration", "", Kind::kExact, 0,
     {{"params, B", "8.030"}, {"FFN, %", "70.2"}, {"bf16, GB", "16.06"}, {"KV bytes/token", "131072"}, {"GFLOP/token", "15.01"}}},
    {"model.Qwen3-30B-A3B", kModels, "Qwen3-30B-A3B by its configuration", "", Kind::kExact, 0,
     {{"params, B", "30.53"}, {"active params, B", "3.35"}, {"FFN, %", "95"}, {"bf16, GB", "61.06"}, {"KV bytes/token", "98304"},
      {"GFLOP/token", "6.08"}}},
    {"model.Llama-4-Scout", kModels, "Llama-4-Scout (text) by its configuration", "", Kind::kExact, 0,
     {{"params, B", "107.8"}, {"active params, B", "17.17"}, {"FFN, %", "95"}, {"bf16, GB", "215.5"}, {"KV bytes/token", "196608"},
      {"GFLOP/token", "32.28"}}},
    {"model.DeepSeek-R1", kModels, "DeepSeek-R1 by its configuration", "", Kind::kExact, 0,
     {{"params, B", "671.03"}, {"active params, B", "37.55"}, {"FFN, %", "97", kR1Share}, {"bf16, GB", "1342"},
      {"KV bytes/token", "70272"}, {"KV bytes/token, fp8", "35136"}, {"GFLOP/token", "73.2"}, {"an expert, M params", "44.04"},
      {"an expert, MB in NVFP4", "24.77"}}},
    {"SI0", "SiDP, Figure 1(a)", "Qwen3-32B on 8 x H20, dp=8: FFN of a layer by rows of a device, over the prefetch of a layer",
     "the figure names no batches; the prefetch is one that nobody else disturbs", Kind::kOrder, 0,
     {{"B = 8", "< 1"}, {"B = 64", "< 1"}, {"B = 512", "> 1"}}},
    {"SI0.prefetch", "SiDP, Figure 1(a)", "Qwen3-32B on 8 x H20, dp=8: prefetch of a layer, ms",
     "", Kind::kBand, 0.2,
     {{"a layer", "1.04", kPrefetch}}},
    {"SI1.ratio", "SiDP, Figure 5", "KV tokens of SiDP over those of DP, 8 x H20 (144 GB)",
     "all FFNs pooled by layer, peak shifting and its d-1 slots", Kind::kPoints, 0.12,
     {{"Qwen3-32B TP4DP2", "1.05"}, {"Qwen3-32B TP2DP4", "1.19"}, {"Qwen3-32B TP1DP8", "1.70"},
      {"Llama-3.1-70B TP4DP2", "1.14"}, {"Llama-3.1-70B TP2DP4", "1.72"}, {"Qwen2.5-72B TP4DP2", "1.16"},
      {"Qwen2.5-72B TP2DP4", "1.79"}}},
    {"SI1.fits", "SiDP, Figure 5", "KV tokens where DP does not fit, 8 x H20",
     "", Kind::kOrder, 0,
     {{"Llama-3.1-70B TP1DP8, DP", "< 1"}, {"Llama-3.1-70B TP1DP8, SiDP", "> 1"}, {"Qwen2.5-72B TP1DP8, DP", "< 1"},
      {"Qwen2.5-72B TP1DP8, SiDP", "> 1"}}},
    {"SI2", "SiDP, Figure 2(a)", "Qwen3-32B on 8 x H20: KV memory of a device, % of that under TP8",
     "114, 99, 91 and 61.5 GB as read off the figure", Kind::kPoints, 5,
     {{"TP4DP2", "86.8", kKvFall}, {"TP2DP4", "79.8"}, {"TP1DP8", "53.9"}}},
    {"SI3", "SiDP, Figure 2(b)", "8 x H20, 4K: decode throughput at .3 of the memory over that at .9",
     "the layout, which the paper does not give; Qwen3-32B", Kind::kOrder, 0,
     {{"Qwen3-32B TP2DP4 4K", "< 0.6"}, {"Qwen3-32B TP4DP2 4K", "< 0.6"}}},
    {"SI4.DP8", "SiDP, Figure 1(b)", "Qwen3-32B on 8 x H20, dp=8: decode throughput by batch, K tok/s",
     "the batch is of all devices; requests of 512 + 512 tokens (the paper gives no lengths); only steps that decode the whole batch", Kind::kBand, 0.2,
     {{"B = 64", "3.0"}, {"B = 256", "9.1"}, {"B = 512", "10.6"}, {"B = 768", "11.5"}, {"B = 1024", "11.5"}, {"B = 1280", "11.9"},
      {"B = 1536", "12.2"}}},
    {"SI4.TP8", "SiDP, Figure 1(b)", "Qwen3-32B on 8 x H20, tp=8: decode throughput by batch, K tok/s",
     "contexts of 768 tokens", Kind::kBand, 0.2,
     {{"B = 64", "3.9"}, {"B = 256", "7.7"}, {"B = 512", "8.3"}, {"B = 768", "8.65"}, {"B = 1024", "8.8"}, {"B = 1280", "8.8"},
      {"B = 1536", "8.9"}}},
    {"SI5.H20", "SiDP, Figures 6 to 8", "8 x H20: SiDP's decode throughput over that of DP+TP, each with its best layout",
     "TP4DP2, TP2DP4 and TP1DP8; all choices as long as the mean; SiDP as the paper has it: all FFNs, by layer, peak shifting; and a copy stream an owner", Kind::kOrder, 0,
     {{"Qwen3-32B 4K", "> 1"}, {"Qwen3-32B 2K", "> 1"}, {"Qwen3-32B 4K over 1K", "> 1"}, {"Llama-3.1-70B 4K", "> 1"},
      {"Llama-3.1-70B 2K", "> 1"}, {"Llama-3.1-70B 4K over 1K", "> 1"}, {"Qwen2.5-72B 4K", "> 1"}, {"Qwen2.5-72B 2K", "> 1"},
      {"Qwen2.5-72B 4K over 1K", "> 1"}}},
    {"SI5.H200", "SiDP, Figures 6 to 8", "8 x H200: SiDP's decode throughput over that of DP+TP, each with its best layout",
     "TP4DP2, TP2DP4 and TP1DP8; all choices as long as the mean; SiDP as the paper has it: all FFNs, by layer, peak shifting; and a copy stream an owner", Kind::kOrder, 0,
     {{"Qwen3-32B 4K", "> 1"}, {"Qwen3-32B 2K", "> 1"}, {"Qwen3-32B 4K over 1K", "> 1"}, {"Llama-3.1-70B 4K", "> 1"},
      {"Llama-3.1-70B 2K", "> 1"}, {"Llama-3.1-70B 4K over 1K", "> 1"}, {"Qwen2.5-72B 4K", "> 1"}, {"Qwen2.5-72B 2K", "> 1"},
      {"Qwen2.5-72B 4K over 1K", "> 1"}}},
    {"SI5.B200", "SiDP, Figures 6 to 8", "8 x B200: SiDP's decode throughput over that of DP+TP, each with its best layout",
     "TP4DP2, TP2DP4 and TP1DP8; all choices as long as the mean; SiDP as the paper has it: all FFNs, by layer, peak shifting; and a copy stream an owner", Kind::kOrder, 0,
     {{"Qwen3-32B 4K", "> 1"}, {"Qwen3-32B 2K", "> 1"}, {"Qwen3-32B 4K over 1K", "> 1"}, {"Llama-3.1-70B 4K", "> 1"},
      {"Llama-3.1-70B 2K", "> 1"}, {"Llama-3.1-70B 4K over 1K", "> 1"}, {"Qwen2.5-72B 4K", "> 1"}, {"Qwen2.5-72B 2K", "> 1"},
      {"Qwen2.5-72B 4K over 1K", "> 1"}}},
    {"SI6.step", "SiDP, Figure 9", "Llama-3.1-70B, tp=2: a decode step over fetching all FFNs once",
     "contexts of 768 tokens", Kind::kOrder, 0,
     {{"H20 B = 64", "< 1"}, {"H20 B = 128", "> 1", kFetch4}, {"H20 B = 256", "> 1"}, {"H200 B = 128", "< 1"}, {"H200 B = 256", "> 1"},
      {"B200 B = 256", "< 1"}, {"B200 B = 512", "> 1"}}},
    {"SI6.fetch", "SiDP, Figure 9", "Llama-3.1-70B, tp=2: fetching all FFNs once, ms",
     "", Kind::kBand, 0.2,
     {{"H20", "80", kFetch4}, {"B200", "48", kFetch5}}},
    {"SI7", "SiDP, Figure 10", "Qwen3-32B on 8 x H20, 1K: decode throughput with peak shifting over that without",
     "TP4DP2, TP2DP4, TP1DP8: the figure's throughputs need eight devices; both with a copy stream an owner", Kind::kOrder, 0,
     {{"TP2DP4 1K", "> 1.5"}, {"TP1DP8 1K", "> 1.5"}, {"TP1DP8 1K over TP2DP4", "> 1"}}},
    {"SI8", "SiDP, Figure 11", "Llama-3.1-70B on 4 x H20, tp=2, dp=2: a decode step, ms",
     "the batch is of a replica; contexts of 1024 tokens", Kind::kBand, 0.2,
     {{"WaS, B = 1", "41", kWas}, {"WaS, B = 2", "41", kWas}, {"WaS, B = 8", "41", kWas}, {"WaS, B = 32", "41", kWas},
      {"WaS, B = 128", "121"}, {"CaS, B = 1", "27"}, {"CaS, B = 2", "29"}, {"CaS, B = 8", "29.5"}, {"CaS, B = 32", "41"},
      {"CaS, B = 128", "139"}, {"vLLM, B = 1", "24"}, {"vLLM, B = 2", "25.5"}, {"vLLM, B = 8", "28.5"}, {"vLLM, B = 32", "41"},
      {"vLLM, B = 128", "121"}}},
    {"SI9", "SiDP, Figure 13", "8 x H20, 4K: output tokens a second of a job, dp=8",
     "800 requests, prompts of 3584 tokens, outputs lognormal with a mean of 512; vLLM on TP1DP8 (Qwen3-32B) or TP2DP4", Kind::kOrder, 0,
     {{"Qwen3-32B WaS+CaS over WaS", "> 1"}, {"Qwen3-32B WaS over vLLM", "> 1"}, {"Llama-3.1-70B WaS+CaS over WaS", "> 1"},
      {"Llama-3.1-70B WaS over vLLM", "> 1"}, {"Qwen2.5-72B WaS+CaS over WaS", "> 1"}, {"Qwen2.5-72B WaS over vLLM", "> 1"}}},
    {"SI10.steps", "SiDP, Figure 14", "Llama-3.1-70B on 4 x H20, tp=2, dp=2: the tail, s",
     "one choice of one replica; 417 steps, which make vLLM's 10 s of its 24 ms; context 1024", Kind::kBand, 0.15,
     {{"FSDP", "33"}, {"async P2P", "25"}, {"+ fused GEMM", "19"}, {"+ skipping", "12"}, {"vLLM", "10"}}},
    {"SI10.striped", "SiDP, Figure 14", "The same tail shipped to stripes, over that of a local full replica",
     "", Kind::kOrder, 0,
     {{"striped", "< 0.8"}}},
    {"SI11.share", "SiDP, Figure 15", "Llama-3.1-70B on 8 x H20, a 4K job: steps that pull, %",
     "the job of SI9", Kind::kOrder, 0,
     {{"steps", "> 90"}}},
    {"SI11.threshold", "SiDP, Figure 15", "B_th, rows of a replica",
     "Llama-3.1-70B on H20, tp=2, dp=2, as in Figure 11", Kind::kBand, 0.2,
     {{"B_th", "32", kThreshold}}},
    {"SI12", "SiDP, Figure 12", "8 x H200 at .6 of their memory: SiDP's decode throughput over that of DP+TP",
     "as SI5", Kind::kOrder, 0,
     {{"Llama-3.1-70B 1K", "> 1"}, {"Llama-3.1-70B 2K", "> 1"}, {"Llama-3.1-70B 4K", "> 1"}, {"Qwen2.5-72B 1K", "> 1"},
      {"Qwen2.5-72B 2K", "> 1"}, {"Qwen2.5-72B 4K", "> 1"}}},
    {"POOL.H20", kOurs, "8 x H20, striped, pool=auto: decode throughput over the better of no and full pooling",
     kPoolAssumed, Kind::kOrder, 0, kGrid, true},
    {"POOL.H200", kOurs, "8 x H200, striped, pool=auto: decode throughput over the better of no and full pooling",
     kPoolAssumed, Kind::kOrder, 0, kGrid, true},
    {"POOL.B200", kOurs, "8 x B200, striped, pool=auto: decode throughput over the better of no and full pooling",
     kPoolAssumed, Kind::kOrder, 0, kGrid, true},
    {"POOL.gains", kOurs, "Cells of these grids in which both fit and pool=auto is 5 % above both",
     kPoolAssumed, Kind::kOrder, 0, {{"cells", "> 3"}}, true},
    {"DW3", "DWDP, Table 2", "Probability that C pulls meet at one source, %", "", Kind::kExact, 0,
     {{"N=3 C=1", "50.00"}, {"N=3 C=2", "50.00"},
      {"N=4 C=1", "44.44"}, {"N=4 C=2", "44.44"}, {"N=4 C=3", "11.11"},
      {"N=6 C=1", "40.96"}, {"N=6 C=2", "40.96"}, {"N=6 C=3", "15.36"}, {"N=6 C=4", "2.56"}, {"N=6 C=5", "0.16"},
      {"N=8 C=1", "39.66"}, {"N=8 C=2", "39.66"}, {"N=8 C=3", "16.52"}, {"N=8 C=4", "3.67"}, {"N=8 C=5", "0.46"},
      {"N=8 C=6", "0.03"}, {"N=8 C=7", "0.00085"},
      {"N=12 C=1", "38.55"}, {"N=12 C=2", "38.55"}, {"N=12 C=3", "17.35"}, {"N=12 C=4", "4.63"}, {"N=12 C=5", "0.81"},
      {"N=12 C=6", "0.097"}, {"N=12 C=7", "0.0081"}, {"N=12 C=8", "0.00046"}, {"N=12 C=9", "0.000017"},
      {"N=12 C=10", "3.86e-7"}, {"N=12 C=11", "3.86e-9"},
      {"N=16 C=1", "38.06"}, {"N=16 C=2", "38.06"}, {"N=16 C=3", "17.67"}, {"N=16 C=4", "5.05"}, {"N=16 C=5", "0.99"},
      {"N=16 C=6", "0.14"}, {"N=16 C=7", "0.015"}, {"N=16 C=8", "0.0012"}, {"N=16 C=9", "0.000077"}, {"N=16 C=10", "3.69e-6"},
      {"N=16 C=11", "1.32e-7"}, {"N=16 C=12", "3.42e-9"}, {"N=16 C=13", "6.11e-11"}, {"N=16 C=14", "6.71e-13"},
      {"N=16 C=15", "3.43e-15"}}},
    {"VA7", "Vasuki, Figure 1 and section 4.3", "Llama-3-8B on an A10, arXiv: what memory and chunk size do",
     "every 20th request of the trace, context 4096, at most 256 at once; 1000 GB of the same device; restarts are preemptions",
     Kind::kOrder, 0,
     {{"time, 24 GB over 1000 GB", "> 1"}, {"restarts, 2048 over 512", "> 1"}, {"restarts, 4096 over 512", "> 1"},
      {"time, 2048 over 512", "> 1"}, {"time, 4096 over 512", "> 1"}}},
};

}  // namespace

std::span<const Claim> Claims() { return kClaims; }

}  // namespace forebay::repro
