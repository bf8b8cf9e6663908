// The groups of a model's layers by what they keep in the KV cache.
#pragma once

#include <cstdint>
#include <vector>

#include "base/part.h"
#include "kv/groups.h"
#include "kv/state/layer_states.h"
#include "model/shard.h"

namespace forebay::model {

// The layout of a layer's part of the cache, alone (its block stride is 0), with these heads.
// Latent attention has one of its own.
kernels::KvLayout KvLayoutOf(const ModelConfig& config, tensor::DType dtype,
                             const HeadSizes& heads);

// The layout of K and V of `heads` heads expanded from latents, block after block.
kernels::KvLayout ExpandedLayoutOf(const ModelConfig& config, tensor::DType dtype, int64_t heads);

// What each of a rank's layers keeps of a choice whatever its length; empty: no layer of the model
// does.
std::vector<kv::StateSpec> PlanStates(const ModelConfig& config, const Shard& shard);

// The groups for a rank: of its layers and KV heads.
std::vector<kv::KvGroup> PlanKvGroups(const ModelConfig& config, tensor::DType dtype,
                                      const Shard& shard);

}  // namespace forebay::model
