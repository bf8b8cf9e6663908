#include "repro/dwdp/roofline.h"

#include <algorithm>
#include <cmath>

#include "cost/model.h"
#include "cost/roofline.h"
#include "model/builtin_configs.h"
#include "model/derived.h"

namespace forebay::repro {
namespace {

using cost::NumberFormat;

const model::ModelConfig& R1() {
  static const model::ModelConfig config = *model::LoadBuiltinConfig("DeepSeek-R1-NVFP4");
  return config;
}

const cost::DeviceProfile& Gb200() {
  static const cost::DeviceProfile profile = *cost::LoadProfile("gb200-nvl72");
  return profile;
}

double ExpertBytes() {
  return static_cast<double>(model::ExpertParams(R1())) * BytesPerElement(NumberFormat::kNVFP4);
}

// Rows that all are multiplied with so many weights.
double Linear(double tokens, double weights, NumberFormat format) {
  const double bytes = weights * BytesPerElement(format);
  return cost::RooflineOf(2 * tokens * weights, bytes, format, Gb200()).seconds();
}

// All experts have rows.
double Experts(double tokens) {
  const model::MoeConfig& moe = *R1().moe;
  const auto expert = static_cast<double>(model::ExpertParams(R1()));
  const auto a_token = static_cast<double>(moe.experts_per_token + moe.num_shared_experts);
  const auto all = static_cast<double>(moe.num_experts + moe.num_shared_experts);
  return cost::RooflineOf(2 * tokens * a_token * expert, all * ExpertBytes(), NumberFormat::kNVFP4,
                          Gb200())
      .seconds();
}

double Attention(double tokens, NumberFormat core) {
  const model::ModelConfig& config = R1();
  const model::MlaConfig& mla = *config.mla;
  const auto hidden = static_cast<double>(config.hidden_size),
             heads = static_cast<double>(config.num_heads),
             q_rank = static_cast<double>(mla.q_lora_rank),
             kv_rank = static_cast<double>(mla.kv_lora_rank),
             qk = static_cast<double>(mla.qk_head_dim()), v = static_cast<double>(mla.v_head_dim);
  const double weights[] = {
      hidden * q_rank, q_rank * heads * qk, hidden * static_cast<double>(mla.latent_dim()),
      kv_rank * heads * static_cast<double>(mla.qk_nope_head_dim + mla.v_head_dim),
      heads * v * hidden};
  double seconds = 0;
  for (const double matrix : weights) seconds += Linear(tokens, matrix, NumberFormat::kFP8);
  const double seen = tokens * tokens / 2;  // a position sees those before it
  const double bytes = tokens * heads * (qk + v) * 2;
  return seconds + cost::RooflineOf(2 * seen * heads * (qk + v), bytes, core, Gb200()).seconds();
}

}  // namespace

int64_t LayersWithExperts() { return std::ranges::count(R1().moe->has_experts, 1); }

double ExchangeBytes(double tokens, int ranks, NumberFormat sent) {
  const model::MoeConfig& moe = *R1().moe;
  const double passes =
      std::pow(1 - 1.0 / ranks, static_cast<double>(moe.experts_per_token));  // not this rank
  const double row = static_cast<double>(R1().hidden_size) *
                     (BytesPerElement(sent) + BytesPerElement(NumberFormat::kBF16));
  return tokens * (ranks - 1) * (1 - passes) * row;
}

double MissingExpertBytes(int ranks) {
  const auto experts = static_cast<double>(R1().moe->num_experts);
  return experts * (1 - 1.0 / ranks) * ExpertBytes();
}

ContextLayer RooflineOfContext(double tokens, const ContextSetting& setting) {
  const double rate = Gb200().link_bytes_per_s * setting.link_part;
  return {.compute_seconds = Attention(tokens, setting.core) + Experts(tokens),
          .prefetch_seconds = MissingExpertBytes(setting.ranks) / rate,
          .exchange_seconds = ExchangeBytes(tokens, setting.ranks, NumberFormat::kNVFP4) / rate};
}

double HidingTokens(const ContextSetting& setting) {
  double less = 1, more = 1 << 20;
  while (more - less > 0.5) {
    const double middle = (less + more) / 2;
    const ContextLayer layer = RooflineOfContext(middle, setting);
    (layer.compute_seconds < layer.prefetch_seconds ? less : more) = middle;
  }
  return more;
}

double BestTokens(const ContextSetting& setting) {
  constexpr int kStep = 64, kLeast = 1 << 10, kMost = 1 << 17;
  double best = kLeast, gain = 0;
  for (int tokens = kLeast; tokens <= kMost; tokens += kStep) {
    const double speedup = RooflineOfContext(tokens, setting).speedup();
    if (speedup <= gain) continue;
    best = tokens;
    gain = speedup;
  }
  return best;
}

}  // namespace forebay::repro
