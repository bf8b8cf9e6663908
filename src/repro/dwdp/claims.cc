// DWDP: distributed weights for mixtures of experts.
#include <cmath>

#include "cost/profile.h"
#include "repro/claim.h"
#include "repro/dwdp/roofline.h"

namespace forebay::repro {
namespace {

double Binomial(int n, int k) {
  double value = 1;
  for (int i = 1; i <= k; ++i) value = value * (n - k + i) / i;
  return value;
}

// `pulls` of a group of `ranks` meet at one source.
struct Meeting {
  int ranks, pulls;
};

// Section 4.3.1, equation 2: of the n - 2 other ranks each takes a tagged rank's source with
// probability 1 / (n - 1).
FindingOr PullContention(const Meeting& key, double, Lab&) {
  const double meets = 1.0 / (key.ranks - 1);
  const double probability = Binomial(key.ranks - 2, key.pulls - 1) *
                             std::pow(meets, key.pulls - 1) *
                             std::pow(1 - meets, key.ranks - 1 - key.pulls);
  return Finding{.calibrated = 100 * probability};
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
  return Finding{.calibrated = HidingTokens(setting) / 1000};
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

// A context step's copies: of all layers with experts, ms.
FindingOr CopyOfAStep(const int& ranks, double, Lab&) {
  constexpr int kLayers = 58;
  const cost::DeviceProfile device = *cost::LoadProfile("gb200-nvl72");
  const double ms = 1e3 * kLayers * MissingExpertBytes(ranks) / device.link_bytes_per_s;
  return Finding{.calibrated = ms / device.link_efficiency, .uncalibrated = ms};
}

// A layer's prefetch over a link of so many GB/s a direction, us.
FindingOr PrefetchOfALayer(const double& link_gb_per_s, double, Lab&) {
  return Finding{.calibrated = MissingExpertBytes(4) / (1e3 * link_gb_per_s)};
}

// Copies one way and the other, of the memory's bandwidth, %.
FindingOr CopiesOfMemory(const int&, double, Lab&) {
  const cost::DeviceProfile device = *cost::LoadProfile("gb200-nvl72");
  return Finding{.calibrated = 100 * 2 * device.link_bytes_per_s / device.memory_bytes_per_s};
}

// Compute-bound kernels take as much longer as the clock is slower.
FindingOr TimeAtFrequency(const double& frequency, double, Lab&) {
  return Finding{.calibrated = 1 / frequency};
}

constexpr const char* kMilliseconds = "4.756 GB over this link take ms";

}  // namespace

// clang-format off
std::vector<Claim> DwdpClaims() {
  return {
      Row<Meeting>(
          {"DW3", "DWDP, Table 2", "Probability that C pulls meet at one source, %", "", Kind::kExact},
          &PullContention,
          Meetings({
              {3, {"50.00", "50.00"}},
              {4, {"44.44", "44.44", "11.11"}},
              {6, {"40.96", "40.96", "15.36", "2.56", "0.16"}},
              {8, {"39.66", "39.66", "16.52", "3.67", "0.46", "0.03", "0.00085"}},
              {12, {"38.55", "38.55", "17.35", "4.63", "0.81", "0.097", "0.0081", "0.00046", "0.000017", "3.86e-7", "3.86e-9"}},
              {16, {"38.06", "38.06", "17.67", "5.05", "0.99", "0.14", "0.015", "0.0012", "0.000077", "3.69e-6", "1.32e-7", "3.42e-9", "6.11e-11", "6.71e-13", "3.43e-15"}}
          })),
      Row<int>(
          {"DW1.copy", "DWDP, Table 1", "Copies between ranks in a context step, ms",
           "printed as us; ms, of all 58 layers with experts, by their bytes", Kind::kBand, 0.2},
          &CopyOfAStep, {{"DWDP4", "429", 4}}),
      Row<ContextSetting>(
          {"DW2.hidden", "DWDP, Figure 3", "Tokens of one prompt from which a layer hides its prefetch, K",
           "projections in fp8, scores and values in bf16, links at their datasheet's rate", Kind::kBand, 0.2},
          &HidingFrom, {{"DWDP4", "16", {}}}),
      Row<Speedups>(
          {"DW2.speedup", "DWDP, Figure 3", "DEP4 over DWDP4 by length of one prompt", "as DW2.hidden", Kind::kOrder},
          &Speedup, {{"at 4K", "< 1", {4096}}, {"at 16K", "> 1", {16384}}, {"16K over 128K", "> 1", {16384, 131072}}}),
      Row<int>(
          {"DW11.memory", "DWDP, A.1", "Copies both ways, of the memory's bandwidth, %", "", Kind::kExact},
          &CopiesOfMemory, {{"GB200", "22.5", 0}}),
      Row<double>(
          {"DW11.frequency", "DWDP, Table 7", "Kernel time by clock frequency", "time as 1 / frequency", Kind::kBand, 0.05},
          &TimeAtFrequency, {{"long copies", "1.049", 0.963}, {"short copies", "1.226", 0.798}}),
      Row<double>(
          {"DWB", "a reader's notes on DWDP", "A layer's prefetch by link, us", "four ranks", Kind::kExact},
          &PrefetchOfALayer,
          {{"900 GB/s", "7", 900, {kMilliseconds, "5285"}},
           {"450 GB/s", "21", 450, {kMilliseconds, "10570"}},
           {"50 GB/s", "250", 50, {kMilliseconds, "95127"}}}),
  };
}
// clang-format on

}  // namespace forebay::repro
