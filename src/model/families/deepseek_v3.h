// What families after DeepSeek V3 share with it.
#pragma once

#include "model/family.h"

namespace forebay::model {

// Latent attention.
void ReadLatentAttention(JsonFields* in, ModelConfig* config);
// Experts with shared ones, and which layers have them. `v3`: where the file says nothing, scores
// are sigmoids with a correction bias, chosen by groups.
void ReadDeepseekExperts(JsonFields* in, bool v3, ModelConfig* config);
// What GGUF files say of such experts.
GgufImplied DeepseekExpertsImplied(const GgufSizes& sizes);
LayerNames DeepseekV3LayerNames(const ModelConfig& config, int64_t layer);

}  // namespace forebay::model
