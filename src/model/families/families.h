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

// What all Gemmas have: norms behind blocks, a factor of the embedding, a cap of logits (gemma.cc).
void ReadAnyGemma(JsonFields* in, ModelConfig* config);

}  // namespace forebay::model
