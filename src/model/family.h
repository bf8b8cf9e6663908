// A model family: which architectures it serves and which tensors a decoder of it is made of. One
// file and one registry line each.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config.h"

namespace forebay::model {

// Names of the tensors of a layer's experts: matrix `gate` of expert N is prefix + "N." + gate.
struct ExpertNames {
  std::string router, selection_bias;
  std::string prefix;
  std::string gate = "gate_proj.weight", up = "up_proj.weight", down = "down_proj.weight";
  std::string router_bias;
  std::string gate_bias, up_bias, down_bias;  // of an expert, as its matrices
  std::string shared_gate, shared_up, shared_down;
  std::string shared_sigmoid;  // one row: the shared expert's gate
  // MoeConfig::beside_dense: the router's own norm and its scales by expert, the norms before and
  // behind the experts, and that behind the dense block.
  std::string router_norm, expert_scales, norm, post_norm, dense_post_norm;
};

// Names of what a layer takes of a row's token (ModelConfig::layer_input_size). The first two are
// of all layers, whose rows of the projection stand one behind the other.
struct InputNames {
  std::string projection, norm;
  std::string gate, out, post_norm;
};

// Names of the tensors of a layer's latent attention. Without a low rank of queries they are
// LayerNames::q.
struct LatentNames {
  std::string q_down, q_norm, q_up;
  std::string kv_down, kv_norm, kv_up;
};

// Names of the tensors of a layer that keeps a state. Equal names: the matrices lie in one tensor,
// by key head (qkv and z, b and a). Mamba-2 and short convolutions alone have all inputs in one,
// and no names of z, b and a.
struct StateNames {
  std::string qkv, z, b, a;
  std::string conv, conv_bias, a_log, dt_bias, d, norm, out;
};

// Names of one decoder layer's tensors; "" where the family has none.
// Matrices of one name lie in one tensor, one behind the other: q, k, v, or gate, up.
struct LayerNames {
  std::string attention_norm, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm, sinks;
  std::string attention_post_norm;  // of the block's output, before it is added
  std::string ffn_norm, gate, up, down, gate_bias, up_bias, down_bias;
  std::string ffn_post_norm;
  std::string scale;    // ModelConfig::layer_scales
  ExpertNames experts;  // where a layer has them
  LatentNames latent;   // likewise
  StateNames state;     // likewise
  InputNames inputs;    // likewise
};

// The layers of `sliding_window`. kUpperLayers (Qwen): only with use_sliding_window, the layers
// that layer_types names, or those from max_window_layers on. kTypedLayers: those that layer_types
// names, or all but every sliding_window_pattern-th.
enum class WindowRule : uint8_t { kNone, kAllLayers, kUpperLayers, kTypedLayers };

class GgufFields;
class JsonFields;

// A GGUF file's sizes, and its keys for what only the family has.
struct GgufSizes {
  int64_t layers = 0, hidden = 0, heads = 0, head_dim = 0;
  bool windowed_theta = false;  // layers with a window have a theta of their own
  GgufFields* in = nullptr;
};
// What config.json says of a GGUF file beside the keys that most families share, or in place of
// them: names of members and their values in JSON.
struct GgufImplied {
  std::vector<std::pair<std::string, std::string>> members;
  std::vector<std::pair<std::string, std::string>> scaling;  // of rope's, where rope is scaled
  bool output_bias_key = false;  // config.json has a switch for the bias of `o`
};

// What a family's configuration means beyond its keys.
struct ConfigRules {
  bool qkv_bias = false;  // q, k, v have a bias and o has none, whatever attention_bias says
  bool qk_norm = false;
  WindowRule window = WindowRule::kNone;
  int64_t default_window = 4096;  // where the key is not there; 0: then there is none
  int64_t window_pattern = 0;     // kTypedLayers: where neither list nor key is there
  // Layers with a window have rope without the scaling of the others.
  bool windows_unscaled = false;
  int64_t default_head_dim = 0;     // 0: hidden_size / num_attention_heads
  bool text_part = false;           // all keys may lie in an object "text_config"
  bool partial_rope = false;        // partial_rotary_factor means something
  std::string_view width_key = {};  // means intermediate_size, where the file has it
  Activation activation = Activation::kSilu;
  // Keys of config.json that this family alone has. Sizes, biases, norms and windows are read by
  // then, rope is not.
  void (*read_more)(JsonFields* in, ModelConfig* config) = nullptr;
  // The family's GGUF files, whose architectures are the last of its names, are read as config.json
  // with this beside it; null: config_gguf.cc reads them key by key, or there are none.
  GgufImplied (*gguf_implies)(const GgufSizes& sizes) = nullptr;
};

struct Family {
  std::string_view id;      // "llama"
  std::string_view models;  // as people call them, for the pages: "Llama 2, 3, 3.x, TinyLlama"
  // Names in config.json, and GGUF's general.architecture.
  std::span<const std::string_view> architectures;
  // The tensors of layer `layer`.
  LayerNames (*layer_names)(const ModelConfig& config, int64_t layer);
  ConfigRules rules = {};
  // What a stored tensor is called here, where that differs; null: as it is stored.
  std::string (*name_here)(const ModelConfig& config, std::string_view stored) = nullptr;
};

// All families; an unknown id or architecture is null. XForSequenceClassification is of the family
// of XForCausalLM or XModel.
std::span<const Family* const> Families();
const Family* FindFamily(std::string_view id);
const Family* FamilyOfArchitecture(std::string_view architecture);
// "LlamaForCausalLM, MistralForCausalLM, ...": for error messages.
std::string SupportedArchitectures();
// What GGUF files call the family: the last of its names, as far as they have no capital letter as
// those of config.json have; none: its models are read from folders alone.
std::span<const std::string_view> GgufArchitectures(const Family& family);
// "gemma2, gemma3, ...": those of all families, sorted.
std::string SupportedGgufArchitectures();

// Layers without rope: every no_rope_layer_interval-th one, or those of which the list
// no_rope_layers says 0.
void ReadLayersWithoutRope(JsonFields* in, int64_t interval, ModelConfig* config);

// Whether a list of the file has an entry for each layer; where not, an error.
bool HasEntryALayer(JsonFields* in, std::string_view key, size_t entries, int64_t num_layers);

// What the architecture of a model ends in that has a head of labels.
inline constexpr std::string_view kOfLabels = "ForSequenceClassification";
// Whether the model generates text: it sees no row ahead, and its head is one of tokens.
bool Generates(const ModelConfig& config);
// What a file says of its head's labels: their names (id2label, else num_labels), and what makes
// scores of their numbers (problem_type, or what a cross-encoder of sentence-transformers says).
Labels ReadLabels(JsonFields* in);

// What a GGUF file of a family says is all.
GgufImplied NothingImplied(const GgufSizes& sizes);

// The bias beside a tensor "....weight".
std::string BiasOf(std::string_view weight);
// `name` with the first of these beginnings that it has replaced: {there, here}.
using Beginning = std::pair<std::string_view, std::string_view>;
std::string WithBeginning(std::string_view name, std::span<const Beginning> beginnings);
// What the names of a layer's tensors begin with.
std::string LayerPrefix(int64_t layer);
// The names that Llama gave and that most families share; features (biases, QK norm) as the config
// says.
LayerNames LlamaLayerNames(const ModelConfig& config, int64_t layer);
// The same with Qwen's names of experts beside them: mlp.gate, mlp.experts.N.gate_proj.
LayerNames ExpertLayerNames(const ModelConfig& config, int64_t layer);

}  // namespace forebay::model
