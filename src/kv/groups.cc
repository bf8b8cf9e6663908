#include "kv/groups.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/step_batch.h"

namespace forebay::kv {

std::vector<KvGroup> PlanKvGroups(std::span<const KvLayerPlan> model, const base::Part& layers) {
  std::vector<KvGroup> groups;
  for (int64_t layer = 0; layer < static_cast<int64_t>(model.size()); ++layer) {
    const auto& [spec, layout, heads] = model[static_cast<size_t>(layer)];
    if (spec.token_bytes == 0) continue;
    auto group = std::ranges::find(groups, spec, &KvGroup::spec);
    if (group == groups.end())
      group = groups.insert(group, {.spec = spec, .layout = layout, .heads = heads, .layers = {}});
    if (layer < layers.begin || layer >= layers.end) continue;
    group->layers.push_back(static_cast<int32_t>(layer - layers.begin));
    group->layout.block_stride += layout.LayerBytes();
  }
  FB_CHECK(groups.size() <= kernels::kMaxKvGroups,
           "{} groups of layers by their KV caches, at most {}", groups.size(),
           kernels::kMaxKvGroups);
  return groups;
}

uint64_t KvBlockBytes(std::span<const KvGroup> groups, bool digests) {
  uint64_t sum = 0;
  for (const KvGroup& group : groups)
    sum += static_cast<uint64_t>(group.layout.block_stride) +
           (digests && group.has_digests() ? kBlockDigestBytes : 0);
  return sum;
}

}  // namespace forebay::kv
