// Qwen3.5 and 3.6, dense and with experts, and Qwen3-Next: gated delta-net layers, and every few
// layers attention whose output meets a gate. Published folders hold a vision part too, of which
// nothing is read.
#include "kernels/delta_net.h"
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kQwen35Architectures[] = {"Qwen3_5ForCausalLM",
                                                     "Qwen3_5ForConditionalGeneration", "qwen35"};
constexpr std::string_view kQwen35MoeArchitectures[] = {
    "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration", "qwen35moe"};
constexpr std::string_view kQwen3NextArchitectures[] = {"Qwen3NextForCausalLM", "qwen3next"};

// Which layers keep a state: those that layer_types names, or all but every
// full_attention_interval-th.
void ReadLayers(JsonFields* in, ModelConfig* config) {
  StateConfig& net = *config->states;
  const int64_t interval = in->Int("full_attention_interval", 1, kMostLayers, 4);
  const std::vector<std::string> types = in->Strings("layer_types");
  if (!types.empty() && !HasEntryALayer(in, "layer_types", types.size(), config->num_layers))
    return;
  for (int64_t layer = 0; layer < config->num_layers; ++layer) {
    if (types.empty()) {
      net.has_state.push_back((layer + 1) % interval != 0);
      continue;
    }
    const std::string& type = types[static_cast<size_t>(layer)];
    if (type != "linear_attention" && type != "full_attention")
      return in->Unsupported("layer_types", type, "linear_attention, full_attention");
    net.has_state.push_back(type == "linear_attention");
  }
  if (std::ranges::count(net.has_state, 0) == 0)
    in->Invalid("layer_types has no full_attention; expected it in one layer at least");
}

void ReadDeltaNet(JsonFields* in, ModelConfig* config) {
  StateConfig& net = config->states.emplace();
  net.key_heads = in->Int("linear_num_key_heads", 1, kMostHeads);
  net.value_heads = in->Int("linear_num_value_heads", 1, kMostHeads);
  net.key_dim = in->Int("linear_key_head_dim", 1, kernels::kMaxStateKeyDim);
  net.value_dim = in->Int("linear_value_head_dim", 1, kMostHeadDim);
  if (net.value_heads % net.key_heads != 0) {
    in->Invalid(fmt::format("linear_num_value_heads {} is no multiple of linear_num_key_heads {}",
                            net.value_heads, net.key_heads));
  }
  const int64_t taps = in->Int("linear_conv_kernel_dim", 1, kMostHeadDim, kernels::kConvTaps);
  if (taps != kernels::kConvTaps)
    in->Unsupported("linear_conv_kernel_dim", fmt::format("{}", taps), "4");
  const std::string type = in->String("mamba_ssm_dtype", "float32");
  if (type != "float32") in->Unsupported("mamba_ssm_dtype", type, "float32");
  config->norm_plus_one = true;
  config->attention_gate = in->Bool("attn_output_gate", true);
  ReadLayers(in, config);
}

void ReadQwen35Experts(JsonFields* in, ModelConfig* config) {
  ReadDeltaNet(in, config);
  MoeConfig moe;
  moe.num_experts = in->Int("num_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
  moe.intermediate_size = in->Int("moe_intermediate_size", 1, kMostWidth);
  moe.renormalize = in->Bool("norm_topk_prob", true);
  const int64_t shared = in->Int("shared_expert_intermediate_size", 0, kMostWidth, 0);
  if (shared % moe.intermediate_size != 0) {
    in->Unsupported("shared_expert_intermediate_size", fmt::format("{}", shared),
                    fmt::format("a multiple of moe_intermediate_size {}", moe.intermediate_size));
  }
  moe.num_shared_experts = shared / moe.intermediate_size;
  moe.shared_gate = shared > 0;
  const int64_t step = in->Int("decoder_sparse_step", 1, kMostLayers, 1);
  for (int64_t layer = 0; layer < config->num_layers; ++layer)
    moe.has_experts.push_back((layer + 1) % step == 0);
  for (const int32_t layer : in->LayerIndices("mlp_only_layers")) {
    if (layer < config->num_layers) moe.has_experts[layer] = 0;
  }
  config->moe = std::move(moe);
}

LayerNames Qwen35LayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = ExpertLayerNames(config, layer);
  const std::string mlp = LayerPrefix(layer) + "mlp.", shared = mlp + "shared_expert.",
                    state = LayerPrefix(layer) + "linear_attn.";
  names.experts.shared_gate = shared + "gate_proj.weight";
  names.experts.shared_up = shared + "up_proj.weight";
  names.experts.shared_down = shared + "down_proj.weight";
  names.experts.shared_sigmoid = mlp + "shared_expert_gate.weight";
  names.state = {.qkv = state + "in_proj_qkv.weight",
                 .z = state + "in_proj_z.weight",
                 .b = state + "in_proj_b.weight",
                 .a = state + "in_proj_a.weight",
                 .conv = state + "conv1d.weight",
                 .a_log = state + "A_log",
                 .dt_bias = state + "dt_bias",
                 .norm = state + "norm.weight",
                 .out = state + "out_proj.weight"};
  return names;
}

// The inputs' projections lie in two tensors, by key head; GGUF files have the first one apart.
LayerNames Qwen3NextLayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = Qwen35LayerNames(config, layer);
  const std::string state = LayerPrefix(layer) + "linear_attn.";
  if (config.architecture != kQwen3NextArchitectures[1])
    names.state.qkv = names.state.z = state + "in_proj_qkvz.weight";
  names.state.b = names.state.a = state + "in_proj_ba.weight";
  return names;
}

GgufImplied DeltaNetImplied(const GgufSizes& sizes) {
  GgufImplied implied;
  CopyKeys(sizes.in,
           {{"ssm.conv_kernel", "linear_conv_kernel_dim"},
            {"ssm.state_size", "linear_key_head_dim"},
            {"ssm.group_count", "linear_num_key_heads"},
            {"full_attention_interval", "full_attention_interval"},
            {"expert_count", "num_experts"},
            {"expert_feed_forward_length", "moe_intermediate_size"},
            {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}},
           &implied);
  ImplyStateHeads(sizes.in, "linear_num_value_heads", "linear_value_head_dim", &implied);
  return implied;
}

constexpr ConfigRules RulesWith(void (*read_more)(JsonFields*, ModelConfig*)) {
  return {.qk_norm = true,
          .default_head_dim = 256,
          .text_part = true,
          .partial_rope = true,
          .read_more = read_more,
          .gguf_implies = &DeltaNetImplied};
}

}  // namespace

const Family kQwen35{"qwen3_5", "Qwen3.5, 3.6 (text)", kQwen35Architectures, &Qwen35LayerNames,
                     RulesWith(&ReadDeltaNet)};
const Family kQwen35Moe{"qwen3_5_moe", "Qwen3.5, 3.6 MoE (text)", kQwen35MoeArchitectures,
                        &Qwen35LayerNames, RulesWith(&ReadQwen35Experts)};
const Family kQwen3Next{"qwen3_next", "Qwen3-Next", kQwen3NextArchitectures, &Qwen3NextLayerNames,
                        RulesWith(&ReadQwen35Experts)};

}  // namespace forebay::model
