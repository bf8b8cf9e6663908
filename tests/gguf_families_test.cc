// GGUF files of the families that config_gguf.cc reads as a config.json, written here as
// llama.cpp's converter writes them (llama-cpp-python 0.3.36, vendor/llama.cpp/conversion): the
// answers are those of the folder, to the byte.
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include "base/json.h"
#include "testing/answers.h"

namespace forebay {
namespace {

using testing_support::ForEachTensor;

// Tensors and keys, put together in any order.
class GgufModel {
 public:
  explicit GgufModel(std::string architecture) : architecture_(std::move(architecture)) {}

  void Int(std::string_view key, int64_t value) {
    keys_.push_back([key = architecture_ + "." + std::string(key), value](weights::GgufBytes* b) {
      b->Value<uint32_t>(key, 4, static_cast<uint32_t>(value));
    });
  }
  void Real(std::string_view key, double value) {
    keys_.push_back([key = architecture_ + "." + std::string(key), value](weights::GgufBytes* b) {
      b->Value<float>(key, 6, static_cast<float>(value));
    });
  }
  void String(std::string_view key, std::string value) {
    keys_.push_back([key = architecture_ + "." + std::string(key), value](weights::GgufBytes* b) {
      b->String(key, value);
    });
  }
  void Tensor(std::string name, std::vector<int64_t> shape, const std::vector<float>& values) {
    tensors_.push_back({std::move(name), std::move(shape), data_.size()});
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    data_.resize((data_.size() + 31) / 32 * 32);
  }
  // Returns the file's path.
  std::string Write() {
    weights::GgufBytes b(tensors_.size(), keys_.size() + 1);
    b.String("general.architecture", architecture_);
    for (const auto& key : keys_) key(&b);
    for (const Entry& entry : tensors_) {
      b.Text(entry.name).Raw(static_cast<uint32_t>(entry.shape.size()));
      for (size_t i = entry.shape.size(); i-- > 0;) b.Raw(static_cast<uint64_t>(entry.shape[i]));
      b.Raw<uint32_t>(0).Raw<uint64_t>(entry.offset);  // F32
    }
    b.Data(data_);
    folder_.Write("model.gguf", b.bytes());
    return folder_.path() + "/model.gguf";
  }

 private:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    size_t offset;
  };
  const std::string architecture_;
  base::TemporaryFolder folder_;
  std::vector<std::function<void(weights::GgufBytes*)>> keys_;
  std::vector<Entry> tensors_;
  std::string data_;
};

// Names within a layer: of the folder, and of the file.
using Names = std::vector<std::pair<std::string_view, std::string_view>>;

struct GgufFamily {
  const char* model;
  const char* architecture;
  Names names;            // that are not the usual ones
  bool plus_one = false;  // norms are written as 1 + w
  bool permuted = false;  // rows of Q and K are reordered
};

const Names kUsualNames = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},       {"self_attn.qkv_proj", "attn_qkv"},
    {"mlp.gate_up_proj", "ffn_up"},      {"mlp.router", "ffn_gate_inp"},
};
const Names kSandwich = {{"post_attention_layernorm", "post_attention_norm"},
                         {"pre_feedforward_layernorm", "ffn_norm"},
                         {"post_feedforward_layernorm", "post_ffw_norm"}};

std::string GgufName(const GgufFamily& family, const std::string& name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.find('.', kLayers.size());
  const std::string layer = "blk." + name.substr(kLayers.size(), dot - kLayers.size()) + ".";
  const std::string rest = name.substr(dot + 1);
  if (rest == "self_attn.sinks") return layer + "attn_sinks.weight";
  const size_t end = rest.rfind('.');
  for (const Names* names : {&family.names, &kUsualNames}) {
    for (const auto& [ours, theirs] : *names) {
      if (rest.substr(0, end) == ours) return layer + std::string(theirs) + rest.substr(end);
    }
  }
  ADD_FAILURE() << name << " has no name in GGUF";
  return name;
}

// The rows of each head: halves become neighbours.
std::vector<float> Permuted(const std::vector<float>& values, int64_t heads, int64_t columns) {
  const auto head = static_cast<int64_t>(values.size()) / columns / heads, half = head / 2;
  std::vector<float> out(values.size());
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < head; ++i) {
      const int64_t from = h * head + i % 2 * half + i / 2;
      std::copy_n(values.begin() + from * columns, columns, out.begin() + (h * head + i) * columns);
    }
  }
  return out;
}

// A number of the configuration's text, in `object` where that is given.
std::optional<double> Number(const simdjson::dom::element& config, std::string_view key) {
  double value;
  if (config[key].get(value)) return std::nullopt;
  return value;
}

void AddKeys(const simdjson::dom::element& config, GgufModel* out) {
  const auto whole = [&](std::string_view from, std::string_view to) {
    if (const auto value = Number(config, from)) out->Int(to, static_cast<int64_t>(*value));
  };
  const auto real = [&](std::string_view from, std::string_view to) {
    if (const auto value = Number(config, from)) out->Real(to, *value);
  };
  whole("max_position_embeddings", "context_length");
  whole("hidden_size", "embedding_length");
  whole("num_hidden_layers", "block_count");
  whole("intermediate_size", "feed_forward_length");
  whole("num_attention_heads", "attention.head_count");
  whole("num_key_value_heads", "attention.head_count_kv");
  whole("head_dim", "attention.key_length");
  whole("head_dim", "attention.value_length");
  whole("sliding_window", "attention.sliding_window");
  whole("num_local_experts", "expert_count");
  if (Number(config, "num_local_experts")) whole("intermediate_size", "expert_feed_forward_length");
  whole("num_experts_per_tok", "expert_used_count");
  real("rms_norm_eps", "attention.layer_norm_rms_epsilon");
  real("rope_theta", "rope.freq_base");
  real("attn_logit_softcapping", "attn_logit_softcapping");
  real("final_logit_softcapping", "final_logit_softcapping");
  real("embedding_multiplier", "embedding_scale");
  real("attention_multiplier", "attention.scale");
  real("residual_multiplier", "residual_scale");
  real("logits_scaling", "logit_scale");
  const double heads = Number(config, "num_attention_heads").value();
  const double head_dim =
      Number(config, "head_dim").value_or(Number(config, "hidden_size").value() / heads);
  if (const auto part = Number(config, "partial_rotary_factor"))
    out->Int("rope.dimension_count", static_cast<int64_t>(*part * head_dim));
}

void AddScaling(const simdjson::dom::element& config, GgufModel* out) {
  simdjson::dom::object scaling;
  if (config["rope_scaling"].get(scaling)) return;
  std::string_view type;
  if (scaling["rope_type"].get(type)) type = "longrope";
  if (type == "yarn") {
    out->String("rope.scaling.type", "yarn");
    out->Real("rope.scaling.factor", double(scaling["factor"]));
    out->Int("rope.scaling.original_context_length",
             int64_t(scaling["original_max_position_embeddings"]));
    out->Real("rope.scaling.yarn_beta_fast", double(scaling["beta_fast"]));
    out->Real("rope.scaling.yarn_beta_slow", double(scaling["beta_slow"]));
  } else if (type == "longrope") {
    const double original = Number(config, "original_max_position_embeddings").value();
    const double scale = Number(config, "max_position_embeddings").value() / original;
    out->Int("rope.scaling.original_context_length", static_cast<int64_t>(original));
    out->Real("rope.scaling.attn_factor", std::sqrt(1 + std::log(scale) / std::log(original)));
    for (const char* length : {"long", "short"}) {
      std::vector<float> factors;
      for (const auto factor : scaling[std::string(length) + "_factor"])
        factors.push_back(static_cast<float>(double(factor)));
      const std::string name = std::string("rope_factors_") + length + ".weight";
      out->Tensor(name, {std::ssize(factors)}, factors);
    }
  }
}

// "model.layers.N.mlp.experts.E.up_proj.weight": what it is called, and which expert's it is.
struct ExpertName {
  std::string stack;  // "blk.N.ffn_up_exps.weight"
  int64_t expert;
};
std::optional<ExpertName> ParseExpert(const std::string& name) {
  int layer = 0, expert = 0;
  char matrix[16], kind[16];
  if (std::sscanf(name.c_str(), "model.layers.%d.mlp.experts.%d.%15[a-z]_proj.%15s", &layer,
                  &expert, matrix, kind) != 4)
    return std::nullopt;
  return ExpertName{fmt::format("blk.{}.ffn_{}_exps.{}", layer, matrix, kind), expert};
}

std::string WriteGguf(const GgufFamily& family, std::string_view config_text, GgufModel* out) {
  simdjson::dom::parser parser;
  const simdjson::dom::element config = *base::ParseJson(parser, config_text);
  AddKeys(config, out);
  AddScaling(config, out);
  struct Stack {
    std::vector<int64_t> shape;
    std::map<int64_t, std::vector<float>> experts;
  };
  std::map<std::string, Stack> stacks;
  ForEachTensor(family.model, [&](const std::string& name, const tensor::Shape& shape,
                                  std::vector<float> values) {
    std::vector<int64_t> extents;
    for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
    if (const auto expert = ParseExpert(name)) {
      Stack& stack = stacks[expert->stack];
      stack.shape = extents;
      stack.experts[expert->expert] = std::move(values);
      return;
    }
    if (family.plus_one && name.ends_with("norm.weight")) {
      for (float& value : values) value += 1.0f;
    }
    const bool q = name.ends_with(".q_proj.weight"), k = name.ends_with(".k_proj.weight");
    if (family.permuted && (q || k)) {
      const double heads =
          Number(config, q ? "num_attention_heads" : "num_key_value_heads").value();
      values = Permuted(values, static_cast<int64_t>(heads), shape[1]);
    }
    out->Tensor(GgufName(family, name), extents, values);
  });
  for (auto& [name, stack] : stacks) {
    std::vector<int64_t> shape = {std::ssize(stack.experts)};
    shape.insert(shape.end(), stack.shape.begin(), stack.shape.end());
    std::vector<float> all;
    for (const auto& [expert, values] : stack.experts)
      all.insert(all.end(), values.begin(), values.end());
    out->Tensor(name, shape, all);
  }
  return out->Write();
}

class GgufFamilies : public testing::TestWithParam<GgufFamily> {};

TEST_P(GgufFamilies, FileAndFolderAnswerAlike) {
  const GgufFamily& family = GetParam();
  std::string config = testing_support::ConfigText(family.model);
  // The format has no place for it: it is the head's dimension.
  constexpr std::string_view kScalar = "\"query_pre_attn_scalar\": 48";
  if (const size_t at = config.find(kScalar); at != std::string::npos)
    config.replace(at, kScalar.size(), "\"query_pre_attn_scalar\": 16");
  testing_support::Folder folder;
  ForEachTensor(family.model,
                [&](const std::string& name, const tensor::Shape& shape,
                    const std::vector<float>& values) { folder.AddF32(name, shape, values); });
  const std::string written = folder.Write(config);
  GgufModel gguf(family.architecture);
  const std::string file = WriteGguf(family, config, &gguf);
  for (const tensor::DType dtype : {tensor::DType::kF32, tensor::DType::kBF16}) {
    const auto expected = testing_support::AnswersOf(written, dtype);
    EXPECT_NE(expected[0].second, 0u);
    EXPECT_EQ(testing_support::AnswersOf(file, dtype), expected);
  }
}

// Those whose models are committed, or lie where FOREBAY_GOLDEN says.
std::vector<GgufFamily> PresentFamilies() {
  std::vector<GgufFamily> families = {
      {"gemma2", "gemma2", kSandwich, true},
      {"gemma3", "gemma3", kSandwich, true},
      {"phi3", "phi3", {}},
      {"phi4-mini", "phi3", {}},
      {"glm4",
       "glm4",
       {{"post_self_attn_layernorm", "post_attention_norm"},
        {"post_mlp_layernorm", "post_ffw_norm"}}},
      {"granite", "granite", {}, false, true},
      {"gpt-oss", "gpt-oss", {{"post_attention_layernorm", "post_attention_norm"}}},
      {"olmo2", "olmo2", kSandwich},
      {"smollm3", "smollm3", {}, false, true},
      {"seed-oss", "seed_oss", {}},
  };
  std::erase_if(families, [](const GgufFamily& family) {
    return !std::filesystem::exists(golden::Path(std::string("models/") + family.model));
  });
  return families;
}

INSTANTIATE_TEST_SUITE_P(Models, GgufFamilies, testing::ValuesIn(PresentFamilies()),
                         [](const testing::TestParamInfo<GgufFamily>& info) {
                           std::string name = info.param.model;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace forebay
