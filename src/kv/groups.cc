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

namespace {

uint64_t BlockBytes(const KvGroup& group, bool digests) {
  return static_cast<uint64_t>(group.layout.block_stride) +
         (digests && group.has_digests() ? kBlockDigestBytes : 0);
}

}  // namespace

uint64_t KvBlockBytes(std::span<const KvGroup> groups, bool digests) {
  return KvCacheBytes(groups, 1, digests);
}

uint64_t KvCacheBytes(std::span<const KvGroup> groups, uint64_t blocks, bool digests) {
  uint64_t sum = 0;
  for (const KvGroup& group : groups) {
    sum += std::min(blocks, static_cast<uint64_t>(group.most_blocks)) * BlockBytes(group, digests);
  }
  return sum;
}

uint64_t KvBlocksWithin(std::span<const KvGroup> groups, uint64_t bytes, bool digests) {
  std::vector<const KvGroup*> ascending;
  uint64_t of_each = 0;  // a block of the groups that have not come to their most
  for (const KvGroup& group : groups) {
    ascending.push_back(&group);
    of_each += BlockBytes(group, digests);
  }
  std::ranges::sort(ascending, {}, &KvGroup::most_blocks);
  // A stage may have layers with state alone.
  uint64_t blocks = bytes / std::max<uint64_t>(1, of_each);
  for (const KvGroup* const group : ascending) {
    const auto most = static_cast<uint64_t>(group->most_blocks);
    if (group->most_blocks == INT32_MAX || most > blocks) break;
    bytes -= most * BlockBytes(*group, digests);
    of_each -= BlockBytes(*group, digests);
    // A stage may have no other layers.
    blocks = of_each == 0 ? UINT64_MAX : bytes / of_each;
  }
  return blocks;
}

}  // namespace forebay::kv
