// The table of models: figures that follow from a configuration.
#include "cost/operation.h"
#include "model/builtin_configs.h"
#include "model/derived.h"
#include "repro/claim.h"

namespace forebay::repro {
namespace {

using cost::BytesPerElement;
using cost::NumberFormat;
using model::ModelConfig;

constexpr double kBillion = 1e9, kMillion = 1e6;

double Params(const ModelConfig& config) {
  return static_cast<double>(model::Derive(config).params) / kBillion;
}
double ActiveParams(const ModelConfig& config) {
  return static_cast<double>(model::Derive(config).active_params) / kBillion;
}
double FfnPercent(const ModelConfig& config) { return 100 * model::Derive(config).ffn_share(); }
double WeightGb(const ModelConfig& config) {
  const auto params = static_cast<double>(model::Derive(config).params);
  return params * BytesPerElement(NumberFormat::kBF16) / kBillion;
}
double KvBytes(const ModelConfig& config) {
  return static_cast<double>(model::Derive(config).kv_values) *
         BytesPerElement(NumberFormat::kBF16);
}
double KvBytesFp8(const ModelConfig& config) {
  return static_cast<double>(model::Derive(config).kv_values) * BytesPerElement(NumberFormat::kFP8);
}
double GflopPerToken(const ModelConfig& config) {
  return model::Derive(config).flops_per_token() / kBillion;
}
double ExpertParams(const ModelConfig& config) {
  return static_cast<double>(model::ExpertParams(config)) / kMillion;
}
double ExpertMb(const ModelConfig& config) {
  const auto params = static_cast<double>(model::ExpertParams(config));
  return params * BytesPerElement(NumberFormat::kNVFP4) / kMillion;
}

struct ModelFigure {
  std::string_view model;
  double (*figure)(const ModelConfig&);
};

FindingOr FigureOf(const ModelFigure& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const ModelConfig config, model::LoadBuiltinConfig(key.model));
  return Finding{.calibrated = key.figure(config)};
}

struct ClaimedFigure {
  std::string_view label, printed;
  double (*figure)(const ModelConfig&);
  Contradiction contradiction = {};
};

Claim ModelRow(std::string_view id, std::string_view model, std::string_view what,
               const std::vector<ClaimedFigure>& figures) {
  std::vector<Keyed<ModelFigure>> values;
  for (const ClaimedFigure& each : figures) {
    values.push_back(
        {std::string(each.label), each.printed, {model, each.figure}, each.contradiction});
  }
  return Row<ModelFigure>({id, "derived from config.json", what, "", Kind::kExact}, &FigureOf,
                          std::move(values));
}

constexpr Contradiction kR1Share{
    "97 is the routed experts' share (97.45); with dense layers, shared experts and routers, as in "
    "the other rows, it is 98.0",
    "98.0"};

}  // namespace

// clang-format off
std::vector<Claim> ModelClaims() {
  return {
      ModelRow("model.Qwen3-32B", "Qwen3-32B", "Qwen3-32B by its configuration",
               {{"params, B", "32.762", &Params},
                {"FFN, %", "76.8", &FfnPercent},
                {"bf16, GB", "65.52", &WeightGb},
                {"KV bytes/token", "262144", &KvBytes},
                {"GFLOP/token", "63.97", &GflopPerToken}}),
      ModelRow("model.Qwen2.5-72B", "Qwen2.5-72B", "Qwen2.5-72B by its configuration",
               {{"params, B", "72.706", &Params},
                {"FFN, %", "80.0", &FfnPercent},
                {"bf16, GB", "145.41", &WeightGb},
                {"KV bytes/token", "327680", &KvBytes},
                {"GFLOP/token", "142.92", &GflopPerToken}}),
      ModelRow("model.Llama-3.1-70B", "Llama-3.1-70B", "Llama-3.1-70B by its configuration",
               {{"params, B", "70.554", &Params},
                {"FFN, %", "79.9", &FfnPercent},
                {"bf16, GB", "141.11", &WeightGb},
                {"KV bytes/token", "327680", &KvBytes},
                {"GFLOP/token", "139.00", &GflopPerToken}}),
      ModelRow("model.Llama-3-8B", "Llama-3-8B", "Llama-3-8B by its configuration",
               {{"params, B", "8.030", &Params},
                {"FFN, %", "70.2", &FfnPercent},
                {"bf16, GB", "16.06", &WeightGb},
                {"KV bytes/token", "131072", &KvBytes},
                {"GFLOP/token", "15.01", &GflopPerToken}}),
      ModelRow("model.Qwen3-30B-A3B", "Qwen3-30B-A3B", "Qwen3-30B-A3B by its configuration",
               {{"params, B", "30.53", &Params},
                {"active params, B", "3.35", &ActiveParams},
                {"FFN, %", "95", &FfnPercent},
                {"bf16, GB", "61.06", &WeightGb},
                {"KV bytes/token", "98304", &KvBytes},
                {"GFLOP/token", "6.08", &GflopPerToken}}),
      ModelRow("model.Llama-4-Scout", "Llama-4-Scout", "Llama-4-Scout (text) by its configuration",
               {{"params, B", "107.8", &Params},
                {"active params, B", "17.17", &ActiveParams},
                {"FFN, %", "95", &FfnPercent},
                {"bf16, GB", "215.5", &WeightGb},
                {"KV bytes/token", "196608", &KvBytes},
                {"GFLOP/token", "32.28", &GflopPerToken}}),
      ModelRow("model.DeepSeek-R1", "DeepSeek-R1", "DeepSeek-R1 by its configuration",
               {{"params, B", "671.03", &Params},
                {"active params, B", "37.55", &ActiveParams},
                {"FFN, %", "97", &FfnPercent, kR1Share},
                {"bf16, GB", "1342", &WeightGb},
                {"KV bytes/token", "70272", &KvBytes},
                {"KV bytes/token, fp8", "35136", &KvBytesFp8},
                {"GFLOP/token", "73.2", &GflopPerToken},
                {"an expert, M params", "44.04", &ExpertParams},
                {"an expert, MB in NVFP4", "24.77", &ExpertMb}}),
  };
}
// clang-format on

}  // namespace forebay::repro
