#include "kv/pull_parts.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kv {
namespace {

uint64_t BlockStride(const KvGroup& group) {
  return static_cast<uint64_t>(group.layout.block_stride);
}

// Bytes of a block in all strips before that of the group.
uint64_t BytesBefore(const KvShare& share, size_t group, bool digests) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < (digests ? share.groups.size() : group); ++i)
    bytes += BlockStride(share.groups[i]);
  if (!digests) return bytes;
  const auto groups = share.groups.first(group);
  return bytes +
         kBlockDigestBytes * static_cast<uint64_t>(std::ranges::count_if(
                                 groups, [](const KvGroup& each) { return !each.layers.empty(); }));
}

base::Part HeadsOf(const KvGroup& group) {
  return group.spec.by_heads ? group.heads : base::Part{0, group.layout.kv_heads};
}

// Where a head of a layer of the model lies in a block of the group; -1: the rank lacks it.
int64_t OffsetOf(const KvShare& share, size_t group, int64_t layer, int64_t head) {
  const KvGroup& own = share.groups[group];
  const base::Part heads = HeadsOf(own);
  const auto found = std::ranges::find(own.layers, layer - share.layers.begin);
  if (found == own.layers.end() || head < heads.begin || head >= heads.end) return -1;
  return (found - own.layers.begin()) * own.layout.LayerBytes() +
         (head - heads.begin) * own.layout.HeadBytes();
}

// The one in the taker's place where it has them, else the first that does.
size_t GiverOf(std::span<const KvShare> givers, size_t place, size_t group, int64_t layer,
               int64_t head) {
  if (place < givers.size() && OffsetOf(givers[place], group, layer, head) >= 0) return place;
  for (size_t i = 0; i < givers.size(); ++i) {
    if (OffsetOf(givers[i], group, layer, head) >= 0) return i;
  }
  FB_CHECK(false, "nobody lends head {} of layer {}", head, layer);
}

// Who takes the digests of givers[giver], among those that have layers of the group.
size_t DigestTaker(std::span<const KvShare> takers, size_t giver, size_t group) {
  std::vector<size_t> with;
  for (size_t i = 0; i < takers.size(); ++i) {
    if (takers[i].groups[group].layers.empty()) continue;
    if (i == giver) return i;
    with.push_back(i);
  }
  FB_CHECK(!with.empty(), "nobody takes KV group {}", group);
  return with[giver % with.size()];
}

void Append(const PullPart& part, std::vector<PullPart>* parts) {
  if (!parts->empty()) {
    PullPart& last = parts->back();
    if (last.peer == part.peer && last.group == part.group && !last.digests &&
        last.from + last.bytes == part.from && last.to + last.bytes == part.to) {
      last.bytes += part.bytes;
      return;
    }
  }
  parts->push_back(part);
}

}  // namespace

std::vector<PullPart> PullParts(std::span<const KvShare> takers, size_t taker,
                                std::span<const KvShare> givers, bool digests) {
  std::vector<PullPart> parts;
  const KvShare& own = takers[taker];
  for (size_t group = 0; group < own.groups.size(); ++group) {
    const KvGroup& mine = own.groups[group];
    const base::Part heads = HeadsOf(mine);
    for (const int32_t local : mine.layers) {
      const int64_t layer = own.layers.begin + local;
      for (int64_t head = heads.begin; head < heads.end; ++head) {
        const KvShare& giver = givers[GiverOf(givers, taker, group, layer, head)];
        Append({.peer = giver.peer,
                .group = static_cast<int32_t>(group),
                .before = BytesBefore(giver, group, false),
                .stride = BlockStride(giver.groups[group]),
                .from = static_cast<uint64_t>(OffsetOf(giver, group, layer, head)),
                .to = static_cast<uint64_t>(OffsetOf(own, group, layer, head)),
                .bytes = static_cast<uint64_t>(mine.layout.HeadBytes())},
               &parts);
      }
    }
    for (size_t i = 0; digests && i < givers.size(); ++i) {
      const KvShare& giver = givers[i];
      if (giver.groups[group].layers.empty() || DigestTaker(takers, i, group) != taker) continue;
      parts.push_back({.peer = giver.peer,
                       .group = static_cast<int32_t>(group),
                       .digests = true,
                       .before = BytesBefore(giver, group, true),
                       .stride = kBlockDigestBytes,
                       .bytes = kBlockDigestBytes});
    }
  }
  return parts;
}

}  // namespace forebay::kv
