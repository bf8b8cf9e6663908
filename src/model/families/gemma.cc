// Gemma 2 and 3 (text): norms before and after blocks with weights stored less 1, GELU, embeddings
// times sqrt(hidden). Gemma 2 caps scores and logits, Gemma 3 has norms of q and k and another rope
// in layers with a window.
#include <cmath>

#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"
#include "tensor/bf16.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGemma2Architectures[] = {"Gemma2ForCausalLM", "gemma2"};
constexpr std::string_view kGemma3Architectures[] = {
    "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "Gemma3TextModel", "gemma3"};

void ReadGemma(JsonFields* in, ModelConfig* config) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  ReadAnyGemma(in, config);
  config->norm_plus_one = true;
  const double scalar = in->Float("query_pre_attn_scalar", kLeast, kMost, 256);
  config->score_factor = static_cast<float>(1 / std::sqrt(scalar));
  if (in->Has("attn_logit_softcapping"))
    config->score_cap = static_cast<float>(in->Float("attn_logit_softcapping", kLeast, kMost));
}

// EmbeddingGemma sees both ways, with half of a window on either side.
void ReadGemma3(JsonFields* in, ModelConfig* config) {
  ReadGemma(in, config);
  config->both_ways = in->Bool("use_bidirectional_attention", false);
  if (!config->both_ways) return;
  for (int32_t& window : config->sliding_window) {
    if (window > 0) window = window / 2 + 1;
  }
}

// Scores are scaled by the head's dimension, in the 27B models by hidden / heads.
GgufImplied ImpliedOf(const GgufSizes& sizes, int64_t layers_of_27b) {
  const int64_t scalar =
      sizes.layers == layers_of_27b ? sizes.hidden / sizes.heads : sizes.head_dim;
  return {.members = {{"hidden_activation", "\"gelu_pytorch_tanh\""},
                      {"query_pre_attn_scalar", std::to_string(scalar)}}};
}
GgufImplied Gemma2Implied(const GgufSizes& sizes) { return ImpliedOf(sizes, 46); }
GgufImplied Gemma3Implied(const GgufSizes& sizes) {
  GgufImplied implied = ImpliedOf(sizes, 62);
  if (!sizes.windowed_theta) implied.members.emplace_back("rope_local_base_freq", "10000");
  return implied;
}

}  // namespace

void ReadAnyGemma(JsonFields* in, ModelConfig* config) {
  config->norm_after = true;
  config->tie_word_embeddings = in->Bool("tie_word_embeddings", true);
  // The factor is rounded to the type of published weights.
  config->embedding_factor = tensor::ToFloat(
      tensor::ToBF16(static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)))));
  if (in->Has("final_logit_softcapping"))
    config->logits_cap = static_cast<float>(in->Float("final_logit_softcapping", 1e-6, 1e6));
}

const Family kGemma2{"gemma2",
                     "Gemma 2",
                     kGemma2Architectures,
                     &LlamaLayerNames,
                     {.window = WindowRule::kTypedLayers,
                      .window_pattern = 2,
                      .activation = Activation::kGelu,
                      .read_more = &ReadGemma,
                      .gguf_implies = &Gemma2Implied}};
const Family kGemma3{"gemma3",
                     "Gemma 3 (text), EmbeddingGemma",
                     kGemma3Architectures,
                     &LlamaLayerNames,
                     {.qk_norm = true,
                      .window = WindowRule::kTypedLayers,
                      .window_pattern = 6,
                      .default_head_dim = 256,
                      .text_part = true,
                      .activation = Activation::kGelu,
                      .read_more = &ReadGemma3,
                      .gguf_implies = &Gemma3Implied}};

}  // namespace forebay::model
