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

constexpr std::string_view kGemma2Architectures[] = {"Gemma2ForCausalLM"};
constexpr std::string_view kGemma3Architectures[] = {"Gemma3ForCausalLM",
                                                     "Gemma3ForConditionalGeneration"};

void ReadGemma(JsonFields* in, ModelConfig* config) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  config->norm_after = true;
  config->norm_plus_one = true;
  config->tie_word_embeddings = in->Bool("tie_word_embeddings", true);
  // The factor is rounded to the type of published weights.
  config->embedding_factor = tensor::ToFloat(
      tensor::ToBF16(static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)))));
  const double scalar = in->Float("query_pre_attn_scalar", kLeast, kMost, 256);
  config->score_factor = static_cast<float>(1 / std::sqrt(scalar));
  if (in->Has("attn_logit_softcapping"))
    config->score_cap = static_cast<float>(in->Float("attn_logit_softcapping", kLeast, kMost));
  if (in->Has("final_logit_softcapping"))
    config->logits_cap = static_cast<float>(in->Float("final_logit_softcapping", kLeast, kMost));
}

}  // namespace

const Family kGemma2{"gemma2",
                     kGemma2Architectures,
                     &LlamaLayerNames,
                     {.window = WindowRule::kTypedLayers,
                      .window_pattern = 2,
                      .activation = Activation::kGelu,
                      .read_more = &ReadGemma}};
const Family kGemma3{"gemma3",
                     kGemma3Architectures,
                     &LlamaLayerNames,
                     {.qk_norm = true,
                      .window = WindowRule::kTypedLayers,
                      .window_pattern = 6,
                      .default_head_dim = 256,
                      .text_part = true,
                      .activation = Activation::kGelu,
                      .read_more = &ReadGemma}};

}  // namespace forebay::model
