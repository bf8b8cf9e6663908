// ModernBERT: an encoder with rope, gated feed-forward blocks of GELU, LayerNorm without biases,
// and on most layers a window that reaches as far behind a row as before it.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kModernBertArchitectures[] = {"ModernBertModel",
                                                         "ModernBertForSequenceClassification"};

LayerNames ModernBertLayerNames(const ModelConfig& /*config*/, int64_t layer) {
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  LayerNames names;
  // The first layer's is that of the embedding.
  if (layer > 0) names.attention_norm = prefix + "attn_norm.weight";
  names.q = names.k = names.v = prefix + "attn.Wqkv.weight";
  names.o = prefix + "attn.Wo.weight";
  names.ffn_norm = prefix + "mlp_norm.weight";
  names.gate = names.up = prefix + "mlp.Wi.weight";
  names.down = prefix + "mlp.Wo.weight";
  return names;
}

std::string ModernBertNameHere(const ModelConfig& /*config*/, std::string_view stored) {
  constexpr std::string_view kBody = "model.";  // beside a head
  if (stored.starts_with(kBody)) stored.remove_prefix(kBody.size());
  constexpr Beginning kBeginnings[] = {{"embeddings.tok_embeddings.", "model.embed_tokens."},
                                       {"embeddings.norm.", "model.embed_norm."},
                                       {"final_norm.", "model.norm."}};
  return WithBeginning(stored, kBeginnings);
}

// A dense layer with GELU and a norm, then one that gives labels.
void ReadModernBertHead(JsonFields* in, ModelConfig* config) {
  Classifier& head = *config->classifier;
  const std::string rows = in->String("classifier_pooling", "cls");
  if (rows == "mean") {
    head.rows = Pooling::Rows::kMean;
  } else if (rows != "cls") {
    in->Unsupported("classifier_pooling", rows, "cls, mean");
  }
  const std::string activation = in->String("classifier_activation", "gelu");
  if (activation != "gelu") in->Unsupported("classifier_activation", activation, "gelu");
  const int64_t width = config->hidden_size;
  head.layers = {{.name = "head.dense",
                  .in = width,
                  .out = width,
                  .bias = in->Bool("classifier_bias", false),
                  .activation = DenseLayer::Activation::kErfGelu,
                  .norm = "head.norm.weight",
                  .norm_eps = static_cast<float>(config->rms_norm_eps)},
                 {.name = "classifier", .in = width, .out = std::ssize(head.labels.names)}};
}

void ReadModernBert(JsonFields* in, ModelConfig* config) {
  for (const char* key : {"norm_bias", "attention_bias", "mlp_bias"}) {
    if (in->Bool(key, false)) in->Unsupported(key, "true", "false");
  }
  config->rms_norm_eps = static_cast<float>(in->Float("norm_eps", 0, 1, 1e-5));
  config->centered_norms = true;
  config->both_ways = true;
  config->embedding_norm = true;
  config->tie_word_embeddings = true;  // no head is computed
  if (config->classifier) ReadModernBertHead(in, config);
  const int64_t full_every = in->Int("global_attn_every_n_layers", 1, kMostLayers, 3);
  const int64_t local = in->Int("local_attention", 2, kMostPositions, 128);
  for (int64_t layer = 0; layer < config->num_layers; ++layer) {
    // Half of them on either side of the row's own position.
    config->sliding_window[static_cast<size_t>(layer)] =
        layer % full_every == 0 ? 0 : static_cast<int32_t>(local / 2 + 1);
  }
}

}  // namespace

const Family kModernBert{"modernbert",
                         "ModernBERT",
                         kModernBertArchitectures,
                         &ModernBertLayerNames,
                         {.window = WindowRule::kTypedLayers,
                          .window_pattern = 1,
                          .activation = Activation::kErfGelu,
                          .read_more = &ReadModernBert},
                         &ModernBertNameHere};

}  // namespace forebay::model
