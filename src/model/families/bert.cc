// BERT, RoBERTa and XLM-RoBERTa: encoders with learned positions, LayerNorm of each block's sum,
// and feed-forward blocks of GELU without a gate. RoBERTa counts positions from pad_token_id + 1.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kBertArchitectures[] = {"BertModel", "BertForSequenceClassification"};
constexpr std::string_view kRobertaArchitectures[] = {"RobertaModel", "XLMRobertaModel",
                                                      "RobertaForSequenceClassification",
                                                      "XLMRobertaForSequenceClassification"};

std::string EncoderPrefix(int64_t layer) { return "encoder.layer." + std::to_string(layer) + "."; }

LayerNames BertLayerNames(const ModelConfig& config, int64_t layer) {
  const std::string prefix = EncoderPrefix(layer), self = prefix + "attention.self.";
  LayerNames names;
  names.q = self + "query.weight";
  names.k = self + "key.weight";
  names.v = self + "value.weight";
  names.o = prefix + "attention.output.dense.weight";
  names.up = prefix + "intermediate.dense.weight";
  names.down = prefix + "output.dense.weight";
  names.q_bias = BiasOf(names.q);
  names.k_bias = BiasOf(names.k);
  names.v_bias = BiasOf(names.v);
  names.o_bias = BiasOf(names.o);
  names.up_bias = BiasOf(names.up);
  names.down_bias = BiasOf(names.down);
  names.attention_post_norm = prefix + "attention.output.LayerNorm.weight";
  if (layer + 1 < config.num_layers) names.ffn_post_norm = prefix + "output.LayerNorm.weight";
  return names;
}

std::string BertNameHere(const ModelConfig& config, std::string_view stored) {
  for (const std::string_view prefix : {"bert.", "roberta."}) {
    if (stored.starts_with(prefix)) stored.remove_prefix(prefix.size());
  }
  const std::string last_norm = EncoderPrefix(config.num_layers - 1) + "output.LayerNorm.";
  const Beginning beginnings[] = {{"embeddings.word_embeddings.", "model.embed_tokens."},
                                  {"embeddings.position_embeddings.", "model.embed_positions."},
                                  {"embeddings.token_type_embeddings.", "model.embed_types."},
                                  {"embeddings.LayerNorm.", "model.embed_norm."},
                                  {last_norm, "model.norm."}};
  return WithBeginning(stored, beginnings);
}

// Both heads are a dense layer with tanh on the first row, and one that gives labels.
void AddHead(std::string_view dense, std::string_view labels, ModelConfig* config) {
  if (!config->classifier) return;
  Classifier& head = *config->classifier;
  const int64_t width = config->hidden_size;
  head.layers = {{.name = std::string(dense),
                  .in = width,
                  .out = width,
                  .activation = DenseLayer::Activation::kTanh},
                 {.name = std::string(labels), .in = width, .out = std::ssize(head.labels.names)}};
}

void ReadEncoder(JsonFields* in, ModelConfig* config) {
  const std::string positions = in->String("position_embedding_type", "absolute");
  if (positions != "absolute") in->Unsupported("position_embedding_type", positions, "absolute");
  if (in->Bool("is_decoder", false)) in->Unsupported("is_decoder", "true", "false");
  config->rms_norm_eps = static_cast<float>(in->Float("layer_norm_eps", 0, 1, 1e-12));
  config->attention_bias = config->attention_out_bias = config->mlp_bias = true;
  config->norm_before = false;
  config->centered_norms = config->norm_biases = config->norm_of_sum = true;
  config->gated = false;
  config->both_ways = true;
  config->tie_word_embeddings = true;  // no head is computed
  config->without_rope.assign(static_cast<size_t>(config->num_layers), 1);
  config->position_rows = config->max_position_embeddings;
  config->token_types = in->Int("type_vocab_size", 1, kMostVocabulary, 2);
  config->embedding_norm = true;
}

void ReadBert(JsonFields* in, ModelConfig* config) {
  ReadEncoder(in, config);
  AddHead("pooler.dense", "classifier", config);
}

void ReadRoberta(JsonFields* in, ModelConfig* config) {
  ReadEncoder(in, config);
  AddHead("classifier.dense", "classifier.out_proj", config);
  config->position_offset = in->Int("pad_token_id", 0, kMostVocabulary, 1) + 1;
  config->max_position_embeddings -= config->position_offset;
  if (config->max_position_embeddings < 1) {
    in->Invalid(
        fmt::format("max_position_embeddings is {}; expected more than pad_token_id + 1 = {}",
                    config->position_rows, config->position_offset));
  }
}

}  // namespace

const Family kBert{"bert",
                   "BERT",
                   kBertArchitectures,
                   &BertLayerNames,
                   {.activation = Activation::kErfGelu, .read_more = &ReadBert},
                   &BertNameHere};
const Family kRoberta{"roberta",
                      "RoBERTa, XLM-RoBERTa",
                      kRobertaArchitectures,
                      &BertLayerNames,
                      {.activation = Activation::kErfGelu, .read_more = &ReadRoberta},
                      &BertNameHere};

}  // namespace forebay::model
