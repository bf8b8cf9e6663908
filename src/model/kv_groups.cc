#include "model/kv_groups.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/step_batch.h"

namespace forebay::model {

constexpr int64_t kDigestBytes = kernels::kBlockTokens * sizeof(uint64_t);

std::vector<KvGroup> PlanKvGroups(const ModelConfig& config, tensor::DType dtype, const base::Part& layers, int64_t kv_heads) {
  std::vector<KvGroup> groups;
  const kernels::KvLayout layout{dtype, static_cast<int32_t>(kv_heads), static_cast<int32_t>(config.head_dim), 0};
  const int64_t token_bytes = 2 * config.num_kv_heads * config.head_dim * static_cast<int64_t>(tensor::SizeOf(dtype));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const KvSpec spec{.token_bytes = token_bytes, .window = config.sliding_window[layer]};
    auto group = std::ranges::find(groups, spec, &KvGroup::spec);
    if (group == groups.end()) group = groups.insert(group, {.spec = spec, .layout = layout, .layers = {}});
    if (layer < layers.begin || layer >= layers.end) continue;
    group->layers.push_back(static_cast<int32_t>(layer - layers.begin));
    group->layout.block_stride += layout.LayerBytes();
  }
  FB_CHECK(groups.size() <= kernels::kMaxKvGroups, "{} groups of layers by their KV caches, at most {}", groups.size(),
           kernels::kMaxKvGroups);
  return groups;
}

uint64_t KvBlockBytes(const std::vector<KvGroup>& groups, bool digests) {
  int64_t sum = 0;
  for (const KvGroup& group : groups) {
    sum += group.layout.block_stride + (digests && !group.layers.empty() ? kDigestBytes : 0);
  }
  return static_cast<uint64_t>(sum);
}

KvCache CutKvCache(const std::vector<KvGroup>& groups, int64_t num_blocks, bool digests, std::byte* data) {
  KvCache cache;
  for (const KvGroup& group : groups) {
    const auto index = static_cast<int32_t>(cache.groups.size());
    cache.groups.push_back({.layout = group.layout});
    for (size_t i = 0; i < group.layers.size(); ++i) {
      const auto layer = static_cast<size_t>(group.layers[i]);
      if (cache.layers.size() <= layer) cache.layers.resize(layer + 1);
      std::byte* const base = data + static_cast<int64_t>(i) * group.layout.LayerBytes();
      cache.layers[layer] = {.bases = {.resident = base, .window = nullptr}, .group = index, .first = i == 0};
    }
    data += num_blocks * group.layout.block_stride;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!digests || groups[i].layers.empty()) continue;
    cache.groups[i].digests = reinterpret_cast<uint64_t*>(data);
    data += num_blocks * kDigestBytes;
  }
  return cache;
}

}  // namespace forebay::model
