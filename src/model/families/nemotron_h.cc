// Nemotron-H and Nemotron 3 Nano: layers of one block each, which are Mamba-2, attention without
// rope, or a feed-forward block of squared ReLU without a gate, dense or of experts.
#include <limits>

#include "model/families/deepseek_v3.h"
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/json_fields.h"

namespace forebay::model {

StateConfig& ReadMamba2(const Mamba2Keys& keys, JsonFields* in, ModelConfig* config) {
  StateConfig& net = config->states.emplace();
  net.kind = StateKind::kMamba2;
  net.value_heads = in->Int(keys.heads, 1, kMostHeads);
  net.value_dim = in->Int(keys.head_dim, 1, kMostHeadDim);
  net.key_heads = in->Int(keys.groups, 1, kMostHeads, 1);
  net.key_dim = in->Int(keys.state, 1, kernels::kMaxStateKeyDim);
  net.taps = in->Int(keys.taps, 2, kernels::kConvTaps);
  net.conv_bias = in->Bool(keys.conv_bias, true);
  net.numbers = 1;
  if (net.value_heads % net.key_heads != 0) {
    in->Invalid(fmt::format("{} {} is no multiple of {} {}", keys.heads, net.value_heads,
                            keys.groups, net.key_heads));
  }
  constexpr double kNoBound = std::numeric_limits<double>::infinity();
  if (const std::vector<double> steps = in->Floats("time_step_limit", 0, kNoBound);
      !steps.empty()) {
    net.least_step = static_cast<float>(steps.front());
    if (steps.size() != 2 || steps.back() != kNoBound)
      in->Unsupported("time_step_limit", "bounded from above", "[0.0, Infinity]");
  }
  for (const char* bias : {"mamba_proj_bias", "use_bias"}) {
    if (in->Bool(bias, false)) in->Unsupported(bias, "true", "false");
  }
  return net;
}

namespace {

constexpr std::string_view kNemotronHArchitectures[] = {"NemotronHForCausalLM", "nemotron_h",
                                                        "nemotron_h_moe"};
constexpr Mamba2Keys kNemotronHMamba2{.heads = "mamba_num_heads",
                                      .head_dim = "mamba_head_dim",
                                      .state = "ssm_state_size",
                                      .groups = "n_groups",
                                      .taps = "conv_kernel",
                                      .conv_bias = "use_conv_bias"};

// A letter a layer: M Mamba-2, * attention, - a dense block, E experts.
std::string ReadPattern(JsonFields* in, const ModelConfig& config) {
  constexpr std::pair<std::string_view, char> kNames[] = {
      {"mamba", 'M'},     {"linear_attention", 'M'},
      {"attention", '*'}, {"full_attention", '*'},
      {"mlp", '-'},       {"moe", 'E'}};
  const std::string key = in->Has("layers_block_type") ? "layers_block_type" : "layer_types";
  std::string pattern = in->String("hybrid_override_pattern", "");
  if (pattern.empty()) {
    for (const std::string& type : in->Strings(key)) {
      const auto* const known =
          std::ranges::find(kNames, type, [](auto& name) { return name.first; });
      if (known == std::end(kNames)) {
        in->Unsupported(key, type, "mamba, attention, mlp, moe");
        return {};
      }
      pattern += known->second;
    }
  }
  const std::string from = in->Has("hybrid_override_pattern") ? "hybrid_override_pattern" : key;
  if (const size_t at = pattern.find_first_not_of("M*-E"); at != std::string::npos)
    in->Unsupported(from, pattern.substr(at, 1), "M, *, -, E");
  if (!HasEntryALayer(in, from, pattern.size(), config.num_layers)) return {};
  if (pattern.find('*') == std::string::npos)
    in->Invalid(fmt::format("{} has no attention; expected it in one layer at least", from));
  return pattern;
}

void ReadNemotronH(JsonFields* in, ModelConfig* config) {
  config->rms_norm_eps =
      static_cast<float>(in->Float("layer_norm_epsilon", 0, 1, in->Float("norm_eps", 0, 1, 1e-5)));
  for (const auto& [key, expected] :
       {std::pair{"mlp_hidden_act", "relu2"}, {"mamba_hidden_act", "silu"}}) {
    const std::string found = in->String(key, expected);
    if (found != expected) in->Unsupported(key, found, expected);
  }
  if (in->Bool("residual_in_fp32", false)) in->Unsupported("residual_in_fp32", "true", "false");
  if (in->Has("moe_latent_size")) in->Unsupported("moe_latent_size", "given", "none");
  if (!in->Has("head_dim"))
    config->head_dim = in->Int("attention_head_dim", 1, kMostHeadDim, config->head_dim);
  config->gated = false;
  config->activation = Activation::kReluSquared;
  config->without_rope.assign(static_cast<size_t>(config->num_layers), 1);
  const std::string pattern = ReadPattern(in, *config);
  StateConfig& net = ReadMamba2(kNemotronHMamba2, in, config);
  if (!in->status().ok()) return;
  net.normed_heads = net.value_heads / net.key_heads;
  const auto least_step = static_cast<float>(in->Float("time_step_min", 0, 1, 0.001));
  net.least_step = std::max(net.least_step, least_step);
  if (pattern.find('E') != std::string::npos) {
    ReadDeepseekExperts(in, true, config);
    if (!in->status().ok()) return;
    if (config->moe->num_shared_experts > 0) {
      config->moe->shared_intermediate_size =
          in->Int("moe_shared_expert_intermediate_size", 1, kMostWidth);
    }
    config->moe->has_experts.assign(pattern.size(), 0);
  }
  for (size_t layer = 0; layer < pattern.size(); ++layer) {
    const char block = pattern[layer];
    const bool mixes = block == 'M' || block == '*';
    net.has_state.push_back(block == 'M');
    config->without_attention.push_back(!mixes);
    config->without_ffn.push_back(mixes);
    if (block == 'E') config->moe->has_experts[layer] = 1;
  }
}

LayerNames NemotronHLayerNames(const ModelConfig& config, int64_t layer) {
  const std::string prefix = LayerPrefix(layer), mixer = prefix + "mixer.",
                    shared = mixer + "shared_experts.";
  LayerNames names;
  names.attention_norm = names.ffn_norm = prefix + "norm.weight";
  names.q = mixer + "q_proj.weight";
  names.k = mixer + "k_proj.weight";
  names.v = mixer + "v_proj.weight";
  names.o = mixer + "o_proj.weight";
  names.up = mixer + "up_proj.weight";
  names.down = mixer + "down_proj.weight";
  if (config.attention_bias) {
    names.q_bias = BiasOf(names.q);
    names.k_bias = BiasOf(names.k);
    names.v_bias = BiasOf(names.v);
    names.o_bias = BiasOf(names.o);
  }
  if (config.mlp_bias) {
    names.up_bias = BiasOf(names.up);
    names.down_bias = BiasOf(names.down);
  }
  names.experts = {.router = mixer + "gate.weight",
                   .selection_bias = mixer + "gate.e_score_correction_bias",
                   .prefix = mixer + "experts.",
                   .shared_up = shared + "up_proj.weight",
                   .shared_down = shared + "down_proj.weight"};
  names.state = Mamba2Names(mixer);
  return names;
}

std::string NemotronHNameHere(const ModelConfig&, std::string_view stored) {
  constexpr Beginning kBeginnings[] = {{"backbone.embeddings.", "model.embed_tokens."},
                                       {"backbone.norm_f.", "model.norm."},
                                       {"model.embeddings.", "model.embed_tokens."},
                                       {"model.norm_f.", "model.norm."},
                                       {"backbone.", "model."}};
  return WithBeginning(stored, kBeginnings);
}

// A layer has attention, a feed-forward block or, with neither, a state. A file with experts has no
// dense blocks.
GgufImplied NemotronHImplied(const GgufSizes& sizes) {
  GgufFields* const in = sizes.in;
  GgufImplied implied;
  const bool routed = in->Int("expert_count", 0, kMostExperts, 0) > 0;
  if (routed) {
    implied = DeepseekExpertsImplied(sizes);
    CopyKeys(in,
             {{"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
              {"moe_latent_size", "moe_latent_size"}},
             &implied);
  }
  ImplyMamba2(kNemotronHMamba2, in, &implied);
  const std::vector<int64_t> heads = CopyByLayer(sizes,
                                                 {"attention.head_count_kv", "num_key_value_heads"},
                                                 &implied),
                             widths = CopyByLayer(
                                 sizes, {"feed_forward_length", "intermediate_size"}, &implied);
  std::string pattern;
  for (size_t layer = 0; layer < heads.size(); ++layer) {
    if (heads[layer] != 0 && widths[layer] != 0)
      in->Unsupported("feed_forward_length", fmt::format("{} in layer {}", widths[layer], layer),
                      "0 in a layer with attention");
    pattern += heads[layer] != 0 ? '*' : widths[layer] == 0 ? 'M' : routed ? 'E' : '-';
  }
  implied.members.emplace_back("hybrid_override_pattern", fmt::format("\"{}\"", pattern));
  CopyKeys(in,
           {{in->Has("attention.layer_norm_rms_epsilon") ? "attention.layer_norm_rms_epsilon"
                                                         : "attention.layer_norm_epsilon",
             "layer_norm_epsilon"}},
           &implied);
  implied.members.emplace_back("mlp_bias", in->AnyLayerHas("ffn_up.bias") ? "true" : "false");
  implied.members.emplace_back("partial_rotary_factor", "1");  // there is no rope
  return implied;
}

}  // namespace

void ImplyMamba2(const Mamba2Keys& keys, GgufFields* in, GgufImplied* implied) {
  CopyKeys(in,
           {{"ssm.state_size", keys.state},
            {"ssm.group_count", keys.groups},
            {"ssm.conv_kernel", keys.taps}},
           implied);
  ImplyStateHeads(in, keys.heads, keys.head_dim, implied);
  implied->members.emplace_back(keys.conv_bias,
                                in->AnyLayerHas("ssm_conv1d.bias") ? "true" : "false");
}

StateNames Mamba2Names(const std::string& prefix) {
  StateNames names;
  names.qkv = prefix + "in_proj.weight";
  names.conv = prefix + "conv1d.weight";
  names.conv_bias = prefix + "conv1d.bias";
  names.a_log = prefix + "A_log";
  names.dt_bias = prefix + "dt_bias";
  names.d = prefix + "D";
  names.norm = prefix + "norm.weight";
  names.out = prefix + "out_proj.weight";
  return names;
}

const Family kNemotronH{
    "nemotron_h",
    "Nemotron-H, Nemotron 3 Nano",
    kNemotronHArchitectures,
    &NemotronHLayerNames,
    {.default_head_dim = 128, .read_more = &ReadNemotronH, .gguf_implies = &NemotronHImplied},
    &NemotronHNameHere};

}  // namespace forebay::model
