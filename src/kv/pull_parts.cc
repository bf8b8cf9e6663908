#include "kv/pull_parts.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kv {
namespace {

uint64_t BlockStride(const KvGroup& group) {
  return static_cast<uint64_t>(group.layout.block_stride);
}

// Bytes of all strips before that of the group.
uint64_t BytesBefore(const KvShare& share, size_t group, bool digests) {
  uint64_t bytes = 0;
  const auto blocks = [&](size_t i) {
    return static_cast<uint64_t>(share.groups[i].BlocksOf(share.num_blocks));
  };
  for (size_t i = 0; i < (digests ? share.groups.size() : group); ++i)
    bytes += blocks(i) * BlockStride(share.groups[i]);
  for (size_t i = 0; digests && i < group; ++i)
    bytes += share.groups[i].has_digests() ? blocks(i) * kBlockDigestBytes : 0;
  return bytes;
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

// The one in the taker's place where it has what is asked for, else the first that does.
template <typename Has>
const KvShare& GiverOf(std::span<const KvShare> givers, size_t place, int64_t layer,
                       const Has& has) {
  if (place < givers.size() && has(givers[place])) return givers[place];
  const auto found = std::ranges::find_if(givers, has);
  FB_CHECK(found != givers.end(), "nobody lends all of layer {}", layer);
  return *found;
}

// Who takes the digests of givers[giver], among those that have some of the group.
size_t DigestTaker(std::span<const KvShare> takers, size_t giver, size_t group) {
  std::vector<size_t> with;
  for (size_t i = 0; i < takers.size(); ++i) {
    if (!takers[i].groups[group].has_digests()) continue;
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

// The rank's state of a layer of the model, and where it lies in a place; null: it has none.
struct LayerState {
  const StateSpec* spec = nullptr;
  uint64_t offset = 0;
};
LayerState StateOf(const KvShare& share, int64_t layer) {
  const int64_t local = layer - share.layers.begin;
  if (local < 0 || local >= std::ssize(share.states)) return {};
  const auto index = static_cast<size_t>(local);
  return {&share.states[index], PlaceBytes(share.states.first(index))};
}

// Which of a rank's channels this is, and how many of those behind it follow; none: it lacks it.
struct ChannelRun {
  int64_t index = 0, count = 0;
};
ChannelRun RunFrom(const StateSpec* spec, int64_t channel) {
  int64_t before = 0;
  for (const base::Part& part : spec ? std::span(spec->channels) : std::span<const base::Part>()) {
    if (part.contains(channel)) return {before + channel - part.begin, part.end - channel};
    before += part.size();
  }
  return {};
}

bool HasHead(const StateSpec* spec, int64_t head) {
  return spec && head >= spec->first_head && head < spec->first_head + spec->heads;
}

int64_t ChannelsOf(const StateSpec& spec) {
  int64_t sum = 0;
  for (const base::Part& part : spec.channels) sum += part.size();
  return sum;
}

void AddStateParts(std::span<const KvShare> takers, size_t taker, std::span<const KvShare> givers,
                   std::vector<PullPart>* parts) {
  const KvShare& own = takers[taker];
  for (int64_t layer = own.layers.begin; layer < own.layers.end; ++layer) {
    const LayerState to = StateOf(own, layer);
    if (to.spec == nullptr || to.spec->bytes() == 0) continue;
    const auto add = [&](const KvShare& giver, uint64_t from, uint64_t at, uint64_t bytes) {
      Append({.peer = giver.peer,
              .group = static_cast<int32_t>(own.groups.size()),
              .stride = PlaceBytes(giver.states),
              .from = StateOf(giver, layer).offset + from,
              .to = to.offset + at,
              .bytes = bytes},
             parts);
    };
    const auto floats = [](int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); };
    const int64_t channels = ChannelsOf(*to.spec);
    const int64_t taps = static_cast<int64_t>(to.spec->tail_bytes / floats(channels));
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t at = tap * channels;
      for (const base::Part& part : to.spec->channels) {
        for (int64_t channel = part.begin; channel < part.end;) {
          const KvShare& giver = GiverOf(givers, taker, layer, [&](const KvShare& each) {
            return RunFrom(StateOf(each, layer).spec, channel).count > 0;
          });
          const StateSpec& theirs = *StateOf(giver, layer).spec;
          const auto [index, run] = RunFrom(&theirs, channel);
          const int64_t count = std::min(run, part.end - channel);
          add(giver, floats(tap * ChannelsOf(theirs) + index), floats(at), floats(count));
          channel += count;
          at += count;
        }
      }
    }
    if (to.spec->matrix_bytes == 0) continue;
    const uint64_t bytes = to.spec->matrix_bytes / static_cast<uint64_t>(to.spec->heads);
    for (int32_t i = 0; i < to.spec->heads; ++i) {
      const int32_t head = to.spec->first_head + i;
      const KvShare& giver = GiverOf(givers, taker, layer, [&](const KvShare& each) {
        return HasHead(StateOf(each, layer).spec, head);
      });
      const StateSpec& theirs = *StateOf(giver, layer).spec;
      add(giver, MatrixOffset(theirs) + static_cast<uint64_t>(head - theirs.first_head) * bytes,
          MatrixOffset(*to.spec) + static_cast<uint64_t>(i) * bytes, bytes);
    }
  }
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
        const KvShare& giver = GiverOf(givers, taker, layer, [&](const KvShare& each) {
          return OffsetOf(each, group, layer, head) >= 0;
        });
        Append({.peer = giver.peer,
                .group = static_cast<int32_t>(group),
                .begin = BytesBefore(giver, group, false),
                .stride = BlockStride(giver.groups[group]),
                .from = static_cast<uint64_t>(OffsetOf(giver, group, layer, head)),
                .to = static_cast<uint64_t>(OffsetOf(own, group, layer, head)),
                .bytes = static_cast<uint64_t>(mine.layout.HeadBytes())},
               &parts);
      }
    }
    for (size_t i = 0; digests && i < givers.size(); ++i) {
      const KvShare& giver = givers[i];
      if (!giver.groups[group].has_digests() || DigestTaker(takers, i, group) != taker) continue;
      parts.push_back({.peer = giver.peer,
                       .group = static_cast<int32_t>(group),
                       .digests = true,
                       .begin = BytesBefore(giver, group, true),
                       .stride = kBlockDigestBytes,
                       .bytes = kBlockDigestBytes});
    }
  }
  AddStateParts(takers, taker, givers, &parts);
  return parts;
}

}  // namespace forebay::kv
