// The table of models: figures that follow from a configuration.
#include "base/check.h"
#include "cost/operation.h"
#include "model/builtin_configs.h"
#include "model/derived.h"
#include "repro/rows.h"

namespace forebay::repro {
namespace {

constexpr double kBillion = 1e9, kMillion = 1e6;

double Figure(const model::ModelConfig& config, std::string_view label) {
  const model::DerivedFigures figures = model::Derive(config);
  const auto params = static_cast<double>(figures.params), kv_values = static_cast<double>(figures.kv_values);
  if (label == "params, B") return params / kBillion;
  if (label == "active params, B") return static_cast<double>(figures.active_params) / kBillion;
  if (label == "FFN, %") return 100 * figures.ffn_share();
  if (label == "bf16, GB") return params * cost::BytesPerElement(cost::NumberFormat::kBF16) / kBillion;
  if (label == "KV bytes/token") return kv_values * cost::BytesPerElement(cost::NumberFormat::kBF16);
  if (label == "KV bytes/token, fp8") return kv_values * cost::BytesPerElement(cost::NumberFormat::kFP8);
  if (label == "GFLOP/token") return figures.flops_per_token() / kBillion;
  const auto expert = static_cast<double>(model::ExpertParams(config));
  if (label == "an expert, M params") return expert / kMillion;
  FB_CHECK(label == "an expert, MB in NVFP4", "a claim asks for \"{}\"", label);
  return expert * cost::BytesPerElement(cost::NumberFormat::kNVFP4) / kMillion;
}

}  // namespace

base::Result<std::vector<Finding>> ModelFigures(const Claim& claim, Lab&) {
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(claim.id.substr(claim.id.find('.') + 1)));
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) findings.push_back({.calibrated = Figure(config, value.label)});
  return findings;
}

}  // namespace forebay::repro
