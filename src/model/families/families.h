// The registry's entries: one a file in this folder.
#pragma once

#include "model/family.h"

namespace forebay::model {

extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kMixtral;
extern const Family kDeepseekV3;
extern const Family kLlama4;
extern const Family kGptOss;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kGemma4;
extern const Family kMinistral3;
extern const Family kPhi3;
extern const Family kGlm4;
extern const Family kGlm4Moe;
extern const Family kGlm4MoeLite;
extern const Family kMiniMaxM2;
extern const Family kOlmo2;
extern const Family kOlmo3;
extern const Family kSmolLm3;
extern const Family kGranite;
extern const Family kSeedOss;
extern const Family kErnie45;
extern const Family kExaone4;
extern const Family kHunyuan;
extern const Family kBert, kRoberta, kModernBert;
extern const Family kQwen35;
extern const Family kQwen35Moe;
extern const Family kQwen3Next;
extern const Family kLfm2;
extern const Family kNemotronH;
extern const Family kGraniteHybrid;

// What all Gemmas have: norms behind blocks, a factor of the embedding, a cap of logits (gemma.cc).
void ReadAnyGemma(JsonFields* in, ModelConfig* config);
// Factors of embeddings, scores, residual and logits (granite.cc).
void ReadGraniteFactors(JsonFields* in, ModelConfig* config);

// What a family calls the sizes of its Mamba-2 layers. ModelConfig::states has them afterwards, but
// for the layers and the heads of a norm (nemotron_h.cc).
struct Mamba2Keys {
  const char *heads, *head_dim, *state, *groups, *taps, *conv_bias;
};
StateConfig& ReadMamba2(const Mamba2Keys& keys, JsonFields* in, ModelConfig* config);
// The same of a GGUF file, as members of config.json.
void ImplyMamba2(const Mamba2Keys& keys, GgufFields* in, GgufImplied* implied);
// Names of a layer's tensors, which all families share behind `prefix`.
StateNames Mamba2Names(const std::string& prefix);

}  // namespace forebay::model
