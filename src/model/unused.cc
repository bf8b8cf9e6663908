#include "model/unused.h"

#include <algorithm>

#include "base/log.h"
#include "model/family.h"

namespace forebay::model {
namespace {

using base::Result;
using base::Status;

// What training, other programs and other families keep in the file; nothing of it changes the
// logits of a family that does not ask for it.
constexpr std::string_view kMeansNothing[] = {"_attn_implementation",
                                              "_name_or_path",
                                              "attention_chunk_size",
                                              "attention_dropout",
                                              "attention_probs_dropout_prob",
                                              "attn_implementation",
                                              "auto_map",
                                              "aux_loss_alpha",
                                              "block_mlp_init_scale",
                                              "block_out_init_scale",
                                              "block_use_xavier_init",
                                              "bos_token_id",
                                              "chunk_size",
                                              "classifier_activation",
                                              "classifier_bias",
                                              "classifier_dropout",
                                              "classifier_pooling",
                                              "cls_token_id",
                                              "conv_use_xavier_init",
                                              "decoder_bias",
                                              "embd_pdrop",
                                              "embedding_dropout",
                                              "eos_token_id",
                                              "ep_size",
                                              "expand",
                                              "experts_per_token",
                                              "for_llm_compressor",
                                              "gradient_checkpointing",
                                              "hidden_dropout",
                                              "hidden_dropout_prob",
                                              "id2label",
                                              "initial_context_length",
                                              "initializer_range",
                                              "label2id",
                                              "layer_types",
                                              "mamba_chunk_size",
                                              "mamba_expand",
                                              "max_window_layers",
                                              "mlp_bias",
                                              "mlp_dropout",
                                              "model_type",
                                              "num_logits_to_keep",
                                              "num_nextn_predict_layers",
                                              "original_max_position_embeddings",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "output_router_logits",
                                              "pad_token_id",
                                              "pretraining_tp",
                                              "problem_type",
                                              "quantization_config",
                                              "rescale_prenorm_residual",
                                              "resid_pdrop",
                                              "residual_dropout",
                                              "return_dict",
                                              "rope_parameters",
                                              "router_aux_loss_coef",
                                              "router_jitter_noise",
                                              "router_z_loss_coef",
                                              "sep_token_id",
                                              "seq_aux",
                                              "sliding_window",
                                              "sliding_window_pattern",
                                              "time_step_floor",
                                              "time_step_max",
                                              "torch_dtype",
                                              "transformers_version",
                                              "unk_token_id",
                                              "unsloth_fixed",
                                              "unsloth_version",
                                              "use_cache",
                                              "use_mamba_kernels",
                                              "use_sliding_window"};

// Keys that other families' programs multiply, cap or shift by; each does nothing where it is
// null, false or `neutral`.
struct ChangesLogits {
  std::string_view key;
  double neutral;
};
constexpr ChangesLogits kChangesLogits[] = {
    {"alibi", 0},
    {"attention_multiplier", 0},
    {"attn_logit_softcapping", 0},
    {"clip_qkv", 0},
    {"embedding_multiplier", 1},
    {"final_logit_softcapping", 0},
    {"logit_scale", 1},
    {"logits_scaling", 1},
    {"parallel_attn", 0},
    {"qk_layernorm", 0},
    {"query_pre_attn_scalar", 0},
    {"residual_multiplier", 1},
    {"scale_depth", 0},
    {"scale_emb", 1},
    {"use_parallel_residual", 0},
};

bool DoesNothing(simdjson::dom::element value, double neutral) {
  bool on;
  double number;
  if (value.is_null()) return true;
  if (!value.get_bool().get(on)) return !on;
  return !value.get_double().get(number) && number == neutral;
}

// Whether a tensor is of a layer that the configuration does not count, such as those that predict
// further tokens.
bool IsOfALaterLayer(std::string_view name, int64_t num_layers) {
  // GGUF's names stay where they stand for none of Hugging Face's.
  for (const std::string_view layers : {"model.layers.", "blk."}) {
    if (!name.starts_with(layers)) continue;
    const std::string index(name.substr(layers.size()));
    return std::strtoll(index.c_str(), nullptr, 10) >= num_layers;
  }
  return false;
}

// What is known to be in files and to be needed by nobody: an output matrix that equals the
// embedding (head_tie.h looks at that), tables that are computed, scales of activations and of the
// KV cache.
bool IsNeverNeeded(const ModelConfig& config, std::string_view name) {
  constexpr std::string_view kEnds[] = {"rotary_emb.inv_freq", "rope_freqs.weight", ".input_scale",
                                        ".k_scale", ".v_scale"};
  return (config.tie_word_embeddings && name == "lm_head.weight") ||
         (config.rope.short_positions > 0 && name.starts_with("rope_factors_")) ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

Result<bool> IsZero(const weights::TensorReader& reader, std::string_view name) {
  FB_ASSIGN_OR_RETURN(const tensor::Shape shape, reader.ShapeOf(name));
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  FB_RETURN_IF_ERROR(reader.ReadRows(name, 0, 1, values.data()));
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

Status Unexpected(const ModelConfig& config, const weights::TensorReader& reader,
                  std::string_view name) {
  return Status(kTensorUnexpected,
                fmt::format("{}: tensor {} has no place in {} as it is configured; without it the "
                            "model would be another one",
                            reader.FileOf(name), base::ShownName(name), config.architecture));
}

// Experts of which the router's outputs say nothing are another model's.
Status CheckExperts(const ModelConfig& config, const weights::TensorReader& reader) {
  if (!config.moe) return Status::Ok();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.moe->has_experts[layer] == 0) continue;
    const ExpertNames names = FindFamily(config.family)->layer_names(config, layer).experts;
    for (const std::string& matrix : {names.gate, names.up, names.down}) {
      const auto name_of = [&](int64_t expert) {
        return fmt::format("{}{}.{}", names.prefix, expert, matrix);
      };
      int64_t experts = config.moe->num_experts;
      while (reader.Has(name_of(experts))) ++experts;
      if (experts == config.moe->num_experts) continue;
      return Status(
          kTensorUnexpected,
          fmt::format("{}: layer {} has {} experts ({}); expected {}, as the configuration says",
                      reader.FileOf(name_of(experts - 1)), layer, experts, name_of(experts - 1),
                      config.moe->num_experts));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<std::string>> UnusedKeys(const JsonFields& fields) {
  std::vector<std::string> unused;
  for (const auto& [key, value] : fields.object()) {
    if (fields.AskedFor(key) || std::ranges::count(kMeansNothing, key) > 0) continue;
    const auto* const found = std::ranges::find(kChangesLogits, key, &ChangesLogits::key);
    if (found == std::end(kChangesLogits)) {
      if (!value.is_null()) unused.emplace_back(key);
    } else if (!DoesNothing(value, found->neutral)) {
      return Status(kConfigUnsupported,
                    fmt::format("{}: {} is {}, which is not supported; supported: null",
                                fields.where(), key, base::ShownName(simdjson::minify(value))));
    }
  }
  return unused;
}

Result<std::vector<std::string>> UnusedTensors(const ModelConfig& config,
                                               std::span<const std::string_view> names,
                                               std::span<const std::string_view> used,
                                               const weights::TensorReader& reader) {
  FB_RETURN_IF_ERROR(CheckExperts(config, reader));
  std::vector<std::string_view> rest;
  std::ranges::set_difference(names, used, std::back_inserter(rest));
  std::vector<std::string> unused;
  for (const std::string_view name : rest) {
    // Beside the text part of a model of several kinds lie the others.
    const bool text = name.starts_with("model.layers.") || name.starts_with("model.norm.") ||
                      name.starts_with("model.embed_tokens.") || name.starts_with("lm_head.") ||
                      name.starts_with("blk.");
    if (IsOfALaterLayer(name, config.num_layers) || IsNeverNeeded(config, name)) continue;
    const bool turns_otherwise = name.starts_with("rope_factors_");
    if (turns_otherwise || (text && name.ends_with("norm.weight")))
      return Unexpected(config, reader, name);
    if (text && name.ends_with(".bias")) {
      FB_ASSIGN_OR_RETURN(const bool zero, IsZero(reader, name));
      if (zero) continue;
      return Unexpected(config, reader, name);
    }
    unused.emplace_back(name);
  }
  return unused;
}

}  // namespace forebay::model
