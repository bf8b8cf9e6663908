// DeepSeek V3, R1, V2, V2-Lite, and Kimi K2 and K2.5, which are V3's: latent attention, experts
// with shared ones, dense first layers. V2 scores experts by softmax, without a bias. Layers that
// predict further tokens (num_nextn_predict_layers) are neither counted nor loaded.
#include "model/families/deepseek_v3.h"

#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/gguf_as_json.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kDeepseekV3Architectures[] = {"DeepseekV3ForCausalLM",
                                                         "KimiK25ForConditionalGeneration",
                                                         "DeepseekV2ForCausalLM", "deepseek2"};

}  // namespace

void ReadLatentAttention(JsonFields* in, ModelConfig* config) {
  MlaConfig mla;
  mla.q_lora_rank = in->Int("q_lora_rank", 1, kMostLoraRank, 0);
  mla.kv_lora_rank = in->Int("kv_lora_rank", 1, kMostLoraRank);
  mla.qk_nope_head_dim = in->Int("qk_nope_head_dim", 1, kMostHeadDim);
  mla.qk_rope_head_dim = in->Int("qk_rope_head_dim", 1, kMostHeadDim);
  mla.v_head_dim = in->Int("v_head_dim", 1, kMostHeadDim);
  config->head_dim = mla.qk_rope_head_dim;
  config->mla = mla;
  config->rope_interleaved = in->Bool("rope_interleave", true);
}

namespace {

void ReadRouter(JsonFields* in, bool v3, MoeConfig* moe) {
  const std::string scores = in->String("scoring_func", v3 ? "sigmoid" : "softmax");
  const std::string method = in->String("topk_method", v3 ? "noaux_tc" : "greedy");
  if (scores == "sigmoid") {
    moe->scores = kernels::RouterScores::kSigmoid;
  } else if (scores != "softmax") {
    in->Unsupported("scoring_func", scores, "sigmoid, softmax");
  }
  if (method == "noaux_tc") {
    moe->selection_bias = true;
    moe->group_score = kernels::GroupScore::kTwoGreatest;
  } else if (method != "greedy" && method != "group_limited_greedy") {
    in->Unsupported("topk_method", method, "noaux_tc, group_limited_greedy, greedy");
  }
  const auto groups = in->Int("n_group", 1, kMostExperts, 1),
             chosen_groups = in->Int("topk_group", 1, kMostExperts, 1);
  if (method != "greedy") {
    moe->num_groups = groups;
    moe->chosen_groups = chosen_groups;
  }
  moe->renormalize = in->Bool("norm_topk_prob", v3);
  moe->epsilon = 1e-20f;
  moe->scale = static_cast<float>(in->Float("routed_scaling_factor", 1e-6, 1e6, 1.0));
  // Published code and transformers disagree on what it means there.
  if (!v3 && moe->renormalize) in->Unsupported("norm_topk_prob", "true", "false");
}

}  // namespace

void ReadDeepseekExperts(JsonFields* in, bool v3, ModelConfig* config) {
  MoeConfig moe;
  moe.num_experts = in->Int("n_routed_experts", 1, kMostExperts);
  moe.experts_per_token = in->Int("num_experts_per_tok", 1, kMostExperts);
  moe.num_shared_experts = in->Int("n_shared_experts", 0, kMostExperts, 0);
  moe.intermediate_size = in->Int("moe_intermediate_size", 1, kMostWidth);
  ReadRouter(in, v3, &moe);
  const int64_t first = in->Int("first_k_dense_replace", 0, kMostLayers, 0);
  const int64_t step = in->Int("moe_layer_freq", 1, kMostLayers, 1);
  for (int64_t layer = 0; layer < config->num_layers; ++layer) {
    moe.has_experts.push_back(layer >= first && layer % step == 0);
  }
  // GLM's newer files say it by a list.
  if (const std::vector<std::string> types = in->Strings("mlp_layer_types"); !types.empty()) {
    if (!HasEntryALayer(in, "mlp_layer_types", types.size(), config->num_layers)) return;
    for (size_t layer = 0; layer < types.size(); ++layer) {
      moe.has_experts[layer] = types[layer] == "sparse";
      if (types[layer] != "sparse" && types[layer] != "dense")
        in->Unsupported("mlp_layer_types", types[layer], "dense, sparse");
    }
  }
  config->moe = std::move(moe);
}

GgufImplied DeepseekExpertsImplied(const GgufSizes& sizes) {
  GgufFields* const in = sizes.in;
  GgufImplied implied;
  CopyKeys(in,
           {{"expert_count", "n_routed_experts"},
            {"expert_shared_count", "n_shared_experts"},
            {"expert_feed_forward_length", "moe_intermediate_size"},
            {"expert_group_count", "n_group"},
            {"expert_group_used_count", "topk_group"},
            {"expert_weights_scale", "routed_scaling_factor"},
            {"leading_dense_block_count", "first_k_dense_replace"}},
           &implied);
  const bool biased = in->AnyLayerHas("exp_probs_b.bias"), grouped = in->Has("expert_group_count"),
             normed = in->Has("expert_weights_norm") && in->Json("expert_weights_norm") == "true";
  const int64_t gates = in->Int("expert_gating_func", 0, kMostGatingFunctions, 0);
  if (gates != 0 && gates != kSoftmaxGates && gates != kSigmoidGates) {
    in->Unsupported("expert_gating_func", fmt::format("{}", gates), "1 (softmax), 2 (sigmoid)");
  }
  const bool sigmoid = gates == 0 ? biased : gates == kSigmoidGates;
  implied.members.emplace_back("norm_topk_prob", normed ? "true" : "false");
  implied.members.emplace_back("scoring_func", sigmoid ? "\"sigmoid\"" : "\"softmax\"");
  implied.members.emplace_back("topk_method", biased    ? "\"noaux_tc\""
                                              : grouped ? "\"group_limited_greedy\""
                                                        : "\"greedy\"");
  return implied;
}

LayerNames DeepseekV3LayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = ExpertLayerNames(config, layer);
  const std::string prefix = LayerPrefix(layer);
  const std::string attention = prefix + "self_attn.", shared = prefix + "mlp.shared_experts.";
  names.latent = {.q_down = attention + "q_a_proj.weight",
                  .q_norm = attention + "q_a_layernorm.weight",
                  .q_up = attention + "q_b_proj.weight",
                  .kv_down = attention + "kv_a_proj_with_mqa.weight",
                  .kv_norm = attention + "kv_a_layernorm.weight",
                  .kv_up = attention + "kv_b_proj.weight"};
  names.experts.selection_bias = prefix + "mlp.gate.e_score_correction_bias";
  names.experts.shared_gate = shared + "gate_proj.weight";
  names.experts.shared_up = shared + "up_proj.weight";
  names.experts.shared_down = shared + "down_proj.weight";
  return names;
}

namespace {

void ReadDeepseekV3(JsonFields* in, ModelConfig* config) {
  ReadLatentAttention(in, config);
  ReadDeepseekExperts(in, config->architecture != "DeepseekV2ForCausalLM", config);
}

// Newer files count heads and their sizes as those of the absorbed form, and have the model's own
// beside them. V2's are V3's with other experts, which DeepseekExpertsImplied says.
GgufImplied DeepseekImplied(const GgufSizes& sizes) {
  GgufFields* const in = sizes.in;
  GgufImplied implied = DeepseekExpertsImplied(sizes);
  CopyKeys(in,
           {{"attention.q_lora_rank", "q_lora_rank"},
            {"attention.kv_lora_rank", "kv_lora_rank"},
            {"rope.dimension_count", "qk_rope_head_dim"}},
           &implied);
  const auto length = [&](const char* own, const char* absorbed) {
    return in->Has(own) ? in->Int(own, 1, kMostHeadDim) : in->Int(absorbed, 1, kMostHeadDim);
  };
  const int64_t key = length("attention.key_length_mla", "attention.key_length"),
                value = length("attention.value_length_mla", "attention.value_length"),
                turned = in->Int("rope.dimension_count", 1, kMostHeadDim);
  if (key <= turned) {
    in->Invalid(fmt::format("a head's key has {} elements; expected more than rope turns, {}", key,
                            turned));
  }
  for (const auto& [name, number] : {std::pair{"qk_nope_head_dim", key - turned},
                                     {"v_head_dim", value},
                                     {"head_dim", turned},
                                     {"num_key_value_heads", sizes.heads},
                                     {"partial_rotary_factor", int64_t{1}}})
    implied.members.emplace_back(name, fmt::format("{}", number));
  // A tenth of mscale_all_dim, which mscale equals in published models.
  if (constexpr char kMscale[] = "rope.scaling.yarn_log_multiplier"; in->Has(kMscale)) {
    const auto tenth = static_cast<float>(in->Float(kMscale, 0, 1e6));
    for (const char* name : {"mscale", "mscale_all_dim"})
      implied.scaling.emplace_back(name, fmt::format("{}", tenth * 10));
  }
  return implied;
}

}  // namespace

const Family kDeepseekV3{
    "deepseek_v3",
    "DeepSeek V3, R1, V2, V2-Lite, Kimi K2, K2.5",
    kDeepseekV3Architectures,
    &DeepseekV3LayerNames,
    {.text_part = true, .read_more = &ReadDeepseekV3, .gguf_implies = &DeepseekImplied}};

}  // namespace forebay::model
