// config.json and generation_config.json of Hugging Face folders.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "model/family.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"
#include "model/rope.h"
#include "model/unused.h"

namespace forebay::model {
namespace {

using base::Result;
using base::Status;

constexpr double kLeastPositive = 1e-12, kMostFactor = 1e6, kLeastTheta = 2, kMostTheta = 1e15;

// Infinity, which Python writes and JSON does not have, as newer programs write it.
std::string WithoutBareInfinity(std::string_view json) {
  constexpr std::string_view kBare = "Infinity", kWritten = R"({"__float__":"Infinity"})";
  std::string text;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!in_string && json.substr(i).starts_with(kBare)) {
      text += kWritten;
      i += kBare.size() - 1;
      continue;
    }
    if (json[i] == '"') in_string = !in_string;
    text += json[i];
    if (in_string && json[i] == '\\' && i + 1 < json.size()) text += json[++i];
  }
  return text;
}

Result<simdjson::dom::object> ParseObject(simdjson::dom::parser& parser, std::string_view json,
                                          std::string_view file) {
  if (json.size() > kMostConfigBytes) {
    return Status(kConfigInvalid, fmt::format("{}: {} bytes; expected at most {}", file,
                                              json.size(), kMostConfigBytes));
  }
  const auto document = base::ParseJson(parser, WithoutBareInfinity(json));
  if (!document.ok()) return document.status().WithContext(file);
  simdjson::dom::object object;
  if (document->get_object().get(object)) {
    return Status(kConfigInvalid, fmt::format("{}: expected a JSON object", file));
  }
  return object;
}

Result<const Family*> FindConfigFamily(JsonFields* in, ModelConfig* config) {
  std::vector<std::string> names = in->Strings("architectures");
  if (names.empty()) names.push_back(in->String("model_type", ""));
  FB_RETURN_IF_ERROR(in->status());
  const Family* family = FamilyOfArchitecture(names[0]);
  if (family == nullptr) {
    return Status(kArchitectureUnknown,
                  fmt::format("{}: architecture {} is not known; supported: {} (docs/status.md)",
                              in->where(), base::Quoted(names[0]), SupportedArchitectures()));
  }
  config->architecture = names[0];
  config->family = family->id;
  return family;
}

void ReadActivation(JsonFields* in, const ConfigRules& rules, ModelConfig* config) {
  config->activation = rules.activation;
  const bool gelu = rules.activation == Activation::kGelu;
  const bool erf = rules.activation == Activation::kErfGelu;
  const std::string expected = gelu ? "gelu_pytorch_tanh" : erf ? "gelu" : "silu";
  const std::string key =
      (gelu || erf) && in->Has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string found = in->String(key, expected);
  if (found != expected && !(found == "swish" && expected == "silu"))
    in->Unsupported(key, found, expected);
}

void ReadSizes(JsonFields* in, const ConfigRules& rules, ModelConfig* config) {
  config->vocab_size = in->Int("vocab_size", 1, kMostVocabulary);
  config->hidden_size = in->Int("hidden_size", 1, kMostWidth);
  // Models of experts alone need not say how wide a dense block would be.
  std::optional<int64_t> of_expert;
  if (in->Has("moe_intermediate_size")) of_expert = in->Int("moe_intermediate_size", 1, kMostWidth);
  const std::string_view width = in->Has(rules.width_key) ? rules.width_key : "intermediate_size";
  config->intermediate_size = in->Int(width, 1, kMostWidth, of_expert);
  config->num_layers = in->Int("num_hidden_layers", 1, kMostLayers);
  config->num_heads = in->Int("num_attention_heads", 1, kMostHeads);
  config->num_kv_heads = in->Int("num_key_value_heads", 1, kMostHeads, config->num_heads);
  if (!in->Has("head_dim") && rules.default_head_dim == 0 &&
      config->hidden_size % config->num_heads != 0) {
    in->Invalid(fmt::format(
        "hidden_size {} is no multiple of num_attention_heads {}, and there is no head_dim",
        config->hidden_size, config->num_heads));
  }
  const int64_t even_share = config->hidden_size / config->num_heads;
  config->head_dim = in->Int("head_dim", 1, kMostHeadDim,
                             rules.default_head_dim != 0 ? rules.default_head_dim : even_share);
  config->max_position_embeddings = in->Int("max_position_embeddings", 1, kMostPositions);
  // Rounded to fp32, as it is added to fp32 sums; GGUF has it so.
  config->rms_norm_eps = static_cast<float>(in->Float("rms_norm_eps", 0, 1, 1e-6));
}

// layer_types, where the file has it: one of the two kinds for each layer.
std::vector<std::string> ReadLayerTypes(JsonFields* in, const ModelConfig& config) {
  std::vector<std::string> types = in->Strings("layer_types");
  if (types.empty()) return types;
  if (!HasEntryALayer(in, "layer_types", types.size(), config.num_layers)) return {};
  for (const std::string& type : types) {
    if (type == "sliding_attention" || type == "full_attention") continue;
    in->Unsupported("layer_types", type, "full_attention, sliding_attention");
    return {};
  }
  return types;
}

// Layers with a window by layer_types, or all but every sliding_window_pattern-th.
void ReadTypedWindows(JsonFields* in, const ConfigRules& rules, bool null_window,
                      ModelConfig* config) {
  const std::vector<std::string> types = ReadLayerTypes(in, *config);
  const int64_t pattern =
      types.empty() ? in->Int("sliding_window_pattern", 1, kMostLayers, rules.window_pattern) : 0;
  if (null_window) return;
  const int64_t window = in->Int("sliding_window", 1, kMostPositions, rules.default_window);
  for (int64_t layer = 0; layer < config->num_layers; ++layer) {
    const bool windowed = types.empty() ? (layer + 1) % pattern != 0
                                        : types[static_cast<size_t>(layer)] == "sliding_attention";
    if (windowed) config->sliding_window[layer] = static_cast<int32_t>(window);
  }
}

// Layers with a window by layer_types, where the file has it, else by max_window_layers.
void ReadUpperLayerWindows(JsonFields* in, const ConfigRules& rules, ModelConfig* config) {
  const bool on = in->Bool("use_sliding_window", false);
  const int64_t window = in->Int("sliding_window", 1, kMostPositions, rules.default_window);
  const int64_t first = in->Int("max_window_layers", 0, kMostPositions, 28);
  const std::vector<std::string> types = ReadLayerTypes(in, *config);
  for (int64_t layer = 0; layer < config->num_layers; ++layer) {
    bool windowed = on && layer >= first;
    if (!types.empty()) {
      windowed = types[layer] == "sliding_attention";
      if (windowed && (!on || !in->Has("sliding_window"))) {
        return in->Invalid(
            "layer_types asks for sliding_attention, but use_sliding_window and sliding_window do "
            "not");
      }
    }
    if (windowed) config->sliding_window[layer] = static_cast<int32_t>(window);
  }
}

void ReadWindows(JsonFields* in, const ConfigRules& rules, bool null_window, ModelConfig* config) {
  config->sliding_window.assign(config->num_layers, 0);
  if (rules.window == WindowRule::kUpperLayers) return ReadUpperLayerWindows(in, rules, config);
  if (rules.window == WindowRule::kTypedLayers)
    return ReadTypedWindows(in, rules, null_window, config);
  if (rules.window != WindowRule::kAllLayers || null_window) return;
  if (rules.default_window == 0 && !in->Has("sliding_window")) return;
  const int64_t window = in->Int("sliding_window", 1, kMostPositions, rules.default_window);
  config->sliding_window.assign(config->num_layers, static_cast<int32_t>(window));
}

void ReadYarn(JsonFields* in, RopeParameters* rope) {
  rope->beta_fast = in->Float("beta_fast", kLeastPositive, kMostFactor, 32);
  rope->beta_slow = in->Float("beta_slow", kLeastPositive, kMostFactor, 1);
  rope->truncate = in->Bool("truncate", true);
  if (in->Has("attention_factor"))
    rope->attention_factor = in->Float("attention_factor", kLeastPositive, kMostFactor);
  if (in->Has("mscale")) rope->mscale = in->Float("mscale", 0, kMostFactor);
  if (in->Has("mscale_all_dim")) rope->mscale_all_dim = in->Float("mscale_all_dim", 0, kMostFactor);
}

// A divisor for each frequency, in short runs and in long ones.
void ReadLongrope(JsonFields* in, int64_t max_positions, RopeParameters* rope) {
  rope->scaling = RopeScaling::kLongrope;
  rope->factor = static_cast<double>(max_positions) / rope->original_max_position_embeddings;
  rope->short_factors = in->Floats("short_factor", kLeastPositive, kMostFactor);
  rope->long_factors = in->Floats("long_factor", kLeastPositive, kMostFactor);
  if (in->Has("attention_factor"))
    rope->attention_factor = in->Float("attention_factor", kLeastPositive, kMostFactor);
}

// The object rope_scaling or rope_parameters. `rope` has what stands outside of it.
void ReadScaling(JsonFields* in, int64_t max_positions, RopeParameters* rope) {
  const std::string type = in->String("rope_type", in->String("type", "default"));
  if (type == "default" || !in->status().ok()) return;
  const auto original = static_cast<int64_t>(rope->original_max_position_embeddings);
  rope->original_max_position_embeddings =
      static_cast<double>(in->Int("original_max_position_embeddings", 1, kMostPositions,
                                  original > 0 ? original : max_positions));
  if (type == "longrope" || type == "su") return ReadLongrope(in, max_positions, rope);
  if (type == "proportional") {
    rope->scaling = RopeScaling::kProportional;
    rope->factor = in->Float("factor", kLeastPositive, kMostFactor, 1);
    return;
  }
  rope->factor = in->Float("factor", kLeastPositive, kMostFactor);
  if (type == "linear") {
    rope->scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    rope->scaling = RopeScaling::kLlama3;
    rope->low_freq_factor = in->Float("low_freq_factor", kLeastPositive, kMostFactor);
    rope->high_freq_factor = in->Float("high_freq_factor", kLeastPositive, kMostFactor);
    if (in->status().ok() && rope->low_freq_factor > rope->high_freq_factor) {
      in->Invalid(fmt::format("low_freq_factor {} is above high_freq_factor {}",
                              rope->low_freq_factor, rope->high_freq_factor));
    }
  } else if (type == "yarn") {
    rope->scaling = RopeScaling::kYarn;
    ReadYarn(in, rope);
  } else {
    in->Unsupported("rope_type", type, "default, linear, llama3, yarn, longrope, proportional");
  }
}

// Parameters of a kind of layers, and which part of a head they turn.
struct RopeReading {
  RopeParameters rope;
  double part = 1;

  void Read(JsonFields* object, int64_t max_positions) {
    rope.theta = object->Float("rope_theta", kLeastTheta, kMostTheta, rope.theta);
    part = object->Float("partial_rotary_factor", 0, 1, part);
    ReadScaling(object, max_positions, &rope);
    if (rope.scaling == RopeScaling::kProportional) rope.turned_part = std::exchange(part, 1);
  }
};

// The parameters of full layers and of those with a window, where the file has them apart.
struct RopeReadings {
  RopeReading full;
  std::optional<RopeReading> windowed;
};

RopeReadings ReadRopeObjects(JsonFields* in, const ConfigRules& rules, int64_t max_positions) {
  constexpr char kFull[] = "full_attention", kWindowed[] = "sliding_attention";
  const bool typed = rules.window == WindowRule::kTypedLayers;
  RopeReadings readings;
  RopeParameters& rope = readings.full.rope;
  rope.theta = in->Float("rope_theta", kLeastTheta, kMostTheta, rope.theta);
  rope.original_max_position_embeddings =
      static_cast<double>(in->Int("original_max_position_embeddings", 1, kMostPositions, 0));
  readings.full.part = in->Float("partial_rotary_factor", 0, 1, 1.0);
  if (typed && in->Has("local_rope_theta")) {  // ModernBERT
    rope.theta = in->Float("global_rope_theta", kLeastTheta, kMostTheta, 160000);
    readings.windowed.emplace().rope.theta = in->Float("local_rope_theta", kLeastTheta, kMostTheta);
  }
  if (typed && in->Has("rope_local_base_freq")) {
    readings.windowed.emplace().rope.theta =
        in->Float("rope_local_base_freq", kLeastTheta, kMostTheta);
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    std::optional<JsonFields> object = in->Object(key);
    if (!object) continue;
    const bool apart = object->Has(kFull) || object->Has(kWindowed);
    if (apart && !typed) {
      object->Unsupported(object->Has(kFull) ? kFull : kWindowed, "given",
                          "one set of parameters for all layers");
    } else if (apart) {
      readings.windowed.emplace();
      for (const auto& [kind, reading] :
           {std::pair{kFull, &readings.full}, {kWindowed, &*readings.windowed}}) {
        std::optional<JsonFields> part = object->Object(kind);
        if (!part) continue;
        reading->Read(&*part, max_positions);
        object->Fail(part->status());
      }
    } else {
      readings.full.Read(&*object, max_positions);
    }
    in->Fail(object->status());
    break;
  }
  if (rules.windows_unscaled && !readings.windowed) {
    readings.windowed = readings.full;
    readings.windowed->rope.scaling = RopeScaling::kNone;
  }
  return readings;
}

// The elements of a head that rope turns, of a part of all as transformers rounds it.
void SetRotaryDim(JsonFields* in, const ConfigRules& rules, double part, ModelConfig* config) {
  if (part == 1) return;
  if (!rules.partial_rope)
    return in->Unsupported("partial_rotary_factor", fmt::format("{}", part), "1");
  config->rotary_dim = static_cast<int64_t>(part * static_cast<double>(config->head_dim));
  if (config->rotary_dim < 2 || config->rotary_dim % 2 != 0) {
    in->Invalid(
        fmt::format("partial_rotary_factor {} of heads of {} turns {} elements; expected "
                    "an even number of at least 2",
                    part, config->head_dim, config->rotary_dim));
  }
}

void ReadRope(JsonFields* in, const ConfigRules& rules, ModelConfig* config) {
  const RopeReadings readings = ReadRopeObjects(in, rules, config->max_position_embeddings);
  const RopeParameters& rope = readings.full.rope;
  SetRotaryDim(in, rules, readings.full.part, config);
  const auto pairs = static_cast<size_t>(config->RotaryDim() / 2);
  if (rope.scaling == RopeScaling::kLongrope &&
      (rope.short_factors.size() != pairs || rope.long_factors.size() != pairs)) {
    in->Invalid(
        fmt::format("short_factor has {} entries and long_factor {}; expected {}, one a "
                    "pair of elements that rope turns",
                    rope.short_factors.size(), rope.long_factors.size(), pairs));
  }
  if (!in->status().ok()) return;
  const auto rope_of = [&](const RopeParameters& parameters, int64_t head_dim) {
    const int64_t turned = config->rotary_dim > 0 ? config->rotary_dim : head_dim;
    return MakeRope(parameters, turned, head_dim);
  };
  config->rope =
      rope_of(rope, config->full_heads ? config->full_heads->head_dim : config->head_dim);
  const bool any_window =
      std::ranges::any_of(config->sliding_window, [](int32_t window) { return window > 0; });
  if (any_window && (readings.windowed || config->full_heads))
    config->windowed_rope =
        rope_of(readings.windowed.value_or(readings.full).rope, config->head_dim);
  if (config->mla) {
    config->mla->softmax_scale = static_cast<float>(
        YarnScoreScale(rope) / std::sqrt(static_cast<double>(config->mla->qk_head_dim())));
  }
  config->max_position_embeddings = LengthenedContext(rope, config->max_position_embeddings);
}

// compressed-tensors: what is done to the matrices of linear layers, by groups of them.
void ReadCompressed(JsonFields* object, ModelConfig* config) {
  const std::string format = object->String("format", "");
  if (format == "pack-quantized" || format == "nvfp4-pack-quantized") {
    config->stored = {
        format == "pack-quantized" ? cost::NumberFormat::kInt4 : cost::NumberFormat::kNVFP4,
        object->Strings("ignore")};
  } else if (format == "float-quantized" || format == "int-quantized") {
    config->stored = {
        format == "int-quantized" ? cost::NumberFormat::kInt8 : cost::NumberFormat::kFP8,
        object->Strings("ignore")};
  } else {
    object->Unsupported("format", format,
                        "pack-quantized, float-quantized, int-quantized or nvfp4-pack-quantized");
  }
  if (std::optional<JsonFields> sparsity = object->Object("sparsity_config")) {
    const std::string kind = sparsity->String("format", "dense");
    if (kind != "dense") sparsity->Unsupported("format", kind, "dense: 2:4 sparsity is not read");
    object->Fail(sparsity->status());
  }
  std::optional<JsonFields> groups = object->Object("config_groups");
  if (!groups) return;
  for (const auto& group : groups->object()) {
    std::optional<JsonFields> fields = groups->Object(group.key);
    if (!fields) continue;
    if (std::optional<JsonFields> weights = fields->Object("weights")) {
      const int64_t bits = weights->Int("num_bits", 1, 64, 4);
      if (format == "pack-quantized" && bits != 4)
        weights->Unsupported("num_bits", fmt::format("{}", bits), "4");
      if (const std::string order = weights->String("actorder", ""); order == "group")
        weights->Unsupported("actorder", order, "a model whose groups are in order");
      fields->Fail(weights->status());
    }
    std::optional<JsonFields> inputs = fields->Object("input_activations");
    if (inputs && format == "int-quantized" && !inputs->Bool("dynamic", true))
      inputs->Unsupported("dynamic", "false", "true: static scales of activations are not read");
    if (inputs && format == "int-quantized") config->int8 = Int8::kStored;
    if (inputs) fields->Fail(inputs->status());
    groups->Fail(fields->status());
  }
  object->Fail(groups->status());
}

// AWQ and GPTQ, which have the same keys for the same things.
void ReadFourBits(const std::string& method, JsonFields* object, ModelConfig* config) {
  const int64_t bits = object->Int("bits", 1, 64, 4);
  if (bits != 4) object->Unsupported("bits", fmt::format("{}", bits), "4");
  if (object->Bool("desc_act", false))
    object->Unsupported("desc_act", "true", "a model without activation order");
  const std::string version = object->String("version", "gemm");
  if (method == "awq" && version != "gemm" && version != "GEMM")
    object->Unsupported("version", version, "gemm");
  const std::string layout = object->String("checkpoint_format", "gptq");
  if (method == "gptq" && layout != "gptq")
    object->Unsupported("checkpoint_format", layout, "gptq");
  config->stored = {cost::NumberFormat::kInt4, object->Strings("modules_to_not_convert")};
}

// What weights are quantised in. Files' tensors say it too (weights/formats/quantised_tensors.h);
// here is what only the configuration tells, and what cannot be read.
void ReadQuantization(JsonFields* in, ModelConfig* config) {
  std::optional<JsonFields> object = in->Object("quantization_config");
  if (!object) return;
  const std::string method = object->String("quant_method", "");
  if (method == "fp8") {
    const std::vector<int32_t> block = object->Sizes("weight_block_size");
    if (!block.empty() && block != std::vector<int32_t>{128, 128})
      object->Unsupported("weight_block_size", "another", "[128, 128]");
    config->stored = {block.empty() ? cost::NumberFormat::kFP8 : cost::NumberFormat::kFP8Block,
                      object->Strings("modules_to_not_convert")};
  } else if (method == "modelopt") {
    const std::string algorithm = object->String("quant_algo", "");
    if (algorithm != "NVFP4" && algorithm != "FP8")
      object->Unsupported("quant_algo", algorithm, "NVFP4 or FP8");
    config->stored = {algorithm == "FP8" ? cost::NumberFormat::kFP8 : cost::NumberFormat::kNVFP4,
                      object->Strings(object->Has("ignore") ? "ignore" : "exclude_modules")};
  } else if (method == "compressed-tensors") {
    ReadCompressed(&*object, config);
  } else if (method == "awq" || method == "gptq") {
    ReadFourBits(method, &*object, config);
  } else if (method == "mxfp4") {
    config->stored = {cost::NumberFormat::kInt4, object->Strings("modules_to_not_convert")};
  } else {
    in->Unsupported(
        "quantization_config", method.empty() ? "given" : method,
        "fp8, modelopt, compressed-tensors, awq, gptq, mxfp4, or weights in F32, F16 or "
        "BF16");
  }
  in->Fail(object->status());
}

void ReadDtype(JsonFields* in, ModelConfig* config) {
  const std::string name = in->String("dtype", in->String("torch_dtype", ""));
  if (name == "float32") config->stored_dtype = tensor::DType::kF32;
  if (name == "float16") config->stored_dtype = tensor::DType::kF16;
}

// A decoder's head of labels: of the last token's row, and in place of the head of tokens.
void AddScore(ModelConfig* config) {
  Classifier& head = *config->classifier;
  head.rows = Pooling::Rows::kLast;
  head.layers = {{.name = "score",
                  .in = config->hidden_size,
                  .out = std::ssize(head.labels.names),
                  .bias = false}};
  config->tie_word_embeddings = true;  // no head of tokens is loaded
}

}  // namespace

Result<ModelConfig> ParseHfConfig(std::string_view json, std::string_view file) {
  simdjson::dom::parser parser;
  FB_ASSIGN_OR_RETURN(const simdjson::dom::object object, ParseObject(parser, json, file));
  JsonFields in(object, std::string(file));
  ModelConfig config;
  FB_ASSIGN_OR_RETURN(const Family* family, FindConfigFamily(&in, &config));
  const ConfigRules& rules = family->rules;
  ReadQuantization(&in, &config);
  if (config.architecture.ends_with(kOfLabels))
    config.classifier.emplace(Classifier{.labels = ReadLabels(&in)});
  std::optional<JsonFields> text = in.Object("text_config");
  FB_RETURN_IF_ERROR(in.status());
  if (text && rules.text_part) {
    constexpr char kTied[] = "tie_word_embeddings";
    if (in.Has(kTied) && text->Has(kTied) && in.Bool(kTied, false) != text->Bool(kTied, false)) {
      base::Log(base::LogLevel::kWarning,
                fmt::format("{}: {} is another in text_config; that one is taken", file, kTied));
    }
    in = *text;
  }

  ReadActivation(&in, rules, &config);
  ReadSizes(&in, rules, &config);
  FB_RETURN_IF_ERROR(in.status());

  config.tie_word_embeddings = in.Bool("tie_word_embeddings", false);
  config.attention_bias = rules.qkv_bias || in.Bool("attention_bias", false);
  config.attention_out_bias = !rules.qkv_bias && config.attention_bias;
  config.mlp_bias = in.Bool("mlp_bias", false);
  config.qk_norm = rules.qk_norm;
  simdjson::dom::element window;
  const bool null_window = !in.object().at_key("sliding_window").get(window) && window.is_null();
  ReadWindows(&in, rules, null_window, &config);
  FB_RETURN_IF_ERROR(in.status());
  if (rules.read_more != nullptr) rules.read_more(&in, &config);
  if (config.classifier && config.classifier->layers.empty()) AddScore(&config);
  FB_RETURN_IF_ERROR(in.status());
  FB_RETURN_IF_ERROR(ValidateConfig(config, file));

  ReadRope(&in, rules, &config);
  const std::vector<int32_t> bos = in.TokenIds("bos_token_id");
  if (!bos.empty()) config.bos_token_id = bos[0];
  config.eos_token_ids = in.TokenIds("eos_token_id");
  ReadDtype(&in, &config);
  FB_RETURN_IF_ERROR(in.status());
  FB_ASSIGN_OR_RETURN(config.unused_keys, UnusedKeys(in));
  return config;
}

Result<GenerationConfig> ParseGenerationConfig(std::string_view json, std::string_view file) {
  simdjson::dom::parser parser;
  FB_ASSIGN_OR_RETURN(const simdjson::dom::object object, ParseObject(parser, json, file));
  GenerationConfig config;
  // What a sampler would mind costs a warning: requests may say what they want, or be greedy.
  const auto read = [&](auto* to, auto&& take) {
    JsonFields in(object, std::string(file));
    const auto value = take(in);
    if (!in.status().ok()) {
      base::Log(base::LogLevel::kWarning,
                fmt::format("{}; nothing is taken from it", in.status().message()));
    } else if (value) {
      *to = *value;
    }
  };
  const auto number = [&](std::optional<double>* to, const char* key, double least, double most) {
    read(to, [&](JsonFields& in) {
      return in.Has(key) ? std::optional(in.Float(key, least, most)) : std::nullopt;
    });
  };
  const auto count = [&](std::optional<int64_t>* to, const char* key, int64_t least, int64_t most) {
    read(to, [&](JsonFields& in) {
      return in.Has(key) ? std::optional(in.Int(key, least, most)) : std::nullopt;
    });
  };
  constexpr double kMost = 1e6;
  number(&config.temperature, "temperature", 0, kMost);
  number(&config.top_p, "top_p", 0, 1);
  number(&config.min_p, "min_p", 0, 1);
  number(&config.repetition_penalty, "repetition_penalty", kLeastPositive, kMost);
  count(&config.top_k, "top_k", -1, kMostVocabulary);
  if (config.top_k) config.top_k = std::max<int64_t>(*config.top_k, 0);  // -1, like 0: no limit
  count(&config.max_new_tokens, "max_new_tokens", 1, kMostPositions);
  JsonFields in(object, std::string(file));
  config.eos_token_ids = in.TokenIds("eos_token_id");
  FB_RETURN_IF_ERROR(in.status());
  return config;
}

}  // namespace forebay::model
