#include "repro/claim.h"

namespace forebay::repro {
namespace {

constexpr std::string_view kModels = "derived from config.json";
constexpr std::string_view kR1Share =
    "97 is the routed experts' share (97.45); with dense layers, shared experts and routers, as in the other rows, it is 98.0";

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
    {"SI4.DP8", "SiDP, Figure 1(b)", "Qwen3-32B on 8 x H20, dp=8: decode throughput by batch, K tok/s",
     "the batch is of all devices; requests of 512 + 512 tokens (the paper gives no lengths); only steps that decode the whole batch", Kind::kBand, 0.2,
     {{"B = 64", "3.0"}, {"B = 256", "9.1"}, {"B = 512", "10.6"}, {"B = 768", "11.5"}, {"B = 1024", "11.5"}, {"B = 1280", "11.9"},
      {"B = 1536", "12.2"}}},
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
