// gpt-oss 20B and 120B: experts with biases and a clamped SwiGLU, a softmax over the chosen ones,
// attention with sinks and windows on every other layer.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGptOssArchitectures[] = {"GptOssForCausalLM", "gpt-oss"};

void ReadGptOss(JsonFields* in, ModelConfig* config) {
  const double limit = in->Float("swiglu_limit", 0, 1e6, 7.0);
  if (limit != 7) in->Unsupported("swiglu_limit", fmt::format("{}", limit), "7");
  config->sinks = true;
  MoeConfig moe;
  moe.num_experts = in->Int("num_local_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = config->intermediate_size;
  moe.scores = kernels::RouterScores::kSoftmaxOfChosen;
  moe.has_experts.assign(static_cast<size_t>(config->num_layers), 1);
  config->moe = std::move(moe);
}

// Files do not say that YaRN's range keeps its fractions.
GgufImplied GptOssImplied(const GgufSizes&) {
  return {.members = {}, .scaling = {{"truncate", "false"}}};
}

LayerNames GptOssLayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  const std::string mlp = LayerPrefix(layer) + "mlp.";
  names.sinks = LayerPrefix(layer) + "self_attn.sinks";
  names.experts = {.router = mlp + "router.weight",
                   .prefix = mlp + "experts.",
                   .router_bias = mlp + "router.bias",
                   .gate_bias = "gate_proj.bias",
                   .up_bias = "up_proj.bias",
                   .down_bias = "down_proj.bias"};
  return names;
}

}  // namespace

const Family kGptOss{"gpt_oss",
                     "gpt-oss",
                     kGptOssArchitectures,
                     &GptOssLayerNames,
                     {.window = WindowRule::kTypedLayers,
                      .default_window = 128,
                      .window_pattern = 2,
                      .activation = Activation::kClampedSilu,
                      .read_more = &ReadGptOss,
                      .gguf_implies = &GptOssImplied}};

}  // namespace forebay::model
