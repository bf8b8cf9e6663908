#include "kv/cache.h"

#include <algorithm>

#include "base/units.h"
#include "kv/state/layer_states.h"

namespace forebay::kv {
namespace {

// A transfer of KV is one turn: links are shared fluidly.
constexpr uint64_t kSlice = 64 << 20;

}  // namespace

CacheView CutCache(std::span<const KvGroup> groups, int64_t num_blocks, bool digests,
                   std::byte* data) {
  CacheView cache;
  for (const KvGroup& group : groups) {
    const auto index = static_cast<int32_t>(cache.groups.size());
    cache.groups.push_back({.layout = group.layout});
    for (size_t i = 0; i < group.layers.size(); ++i) {
      const auto layer = static_cast<size_t>(group.layers[i]);
      if (cache.layers.size() <= layer) cache.layers.resize(layer + 1);
      std::byte* const base = data + static_cast<int64_t>(i) * group.layout.LayerBytes();
      cache.layers[layer] = {
          .bases = {.resident = base, .window = nullptr}, .group = index, .first = i == 0};
    }
    data += group.BlocksOf(num_blocks) * group.layout.block_stride;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!digests || !groups[i].has_digests()) continue;
    cache.groups[i].digests = reinterpret_cast<uint64_t*>(data);
    data += groups[i].BlocksOf(num_blocks) * static_cast<int64_t>(kBlockDigestBytes);
  }
  return cache;
}

Cache::Cache(device::Device& device, const device::Region& region, std::span<const KvGroup> groups,
             int64_t num_blocks, bool digests, const StateRegion& states)
    : device_(device),
      region_(region),
      view_(CutCache(groups, num_blocks, digests, region.data)),
      states_(states) {
  std::byte* next = region.data;
  for (size_t i = 0; i < groups.size(); ++i) {
    const CacheView::KvGroupView& group = view_.groups[i];
    const auto bytes = static_cast<uint64_t>(group.layout.block_stride);
    std::vector<Strip>& strips = strips_.emplace_back();
    if (bytes > 0) strips.push_back({next, bytes, bytes});
    next += static_cast<uint64_t>(groups[i].BlocksOf(num_blocks)) * bytes;
    if (group.digests == nullptr) continue;
    auto* const first = reinterpret_cast<std::byte*>(group.digests);
    strips.push_back({first, kBlockDigestBytes, kBlockDigestBytes});
  }
  for (int32_t part = 0; part < states.parts; ++part) {
    std::vector<Strip>& strips = strips_.emplace_back();
    const base::Part bytes = PartOfPlace(states.place_bytes, states.parts, part);
    if (bytes.size() == 0) continue;
    strips.push_back({states.region->data + bytes.begin, states.place_bytes,
                      static_cast<uint64_t>(bytes.size())});
  }
}

uint64_t Cache::DigestOf(int group, std::span<const BlockId> table, int64_t begin,
                         int64_t end) const {
  uint64_t sum = 0;
  const uint64_t* const digests = view_.groups[static_cast<size_t>(group)].digests;
  if (digests == nullptr) return 0;  // the rank has none of the group's layers
  for (int64_t position = begin; position < end;) {
    const int64_t in_block = position % kBlockTokens,
                  count = std::min(end - position, kBlockTokens - in_block);
    const uint64_t* from = digests + table[position / kBlockTokens] * kBlockTokens + in_block;
    std::array<uint64_t, kBlockTokens> read;
    if (!device_.host_reaches_data()) {
      const auto bytes = static_cast<uint64_t>(count) * sizeof(uint64_t);
      if (!device_.Read(read.data(), from, bytes).ok()) return 0;
      from = read.data();
    }
    for (int64_t i = 0; i < count; ++i) sum += from[i];
    position += count;
  }
  return sum;
}

base::Status Cache::GrowAddends(size_t blocks) {
  const uint64_t bytes = blocks * kBlockDigestBytes;
  if (bytes == 0 || (addends_ != nullptr && bytes <= addends_->bytes)) return base::Status::Ok();
  // Twice as much: making it may take the time of what streams do.
  const uint64_t budget = base::RoundUp(2 * bytes, 4 * base::kKiB);
  addends_ = nullptr;
  host_ = device_.NewHostArena(budget);
  FB_ASSIGN_OR_RETURN(addends_,
                      host_->Allocate("digests of several", budget, device::MemoryUse::kControl));
  return base::Status::Ok();
}

base::Status Cache::EnqueuePull(fabric::Fabric& fabric, std::span<const PullPart> parts,
                                std::span<const Move> moves) {
  fabric::CopyPlan plan{.spans = {}, .slice_bytes = kSlice};
  summands_.clear();
  size_t added = 0;
  std::vector<bool> digested(moves.size(), false);
  for (const PullPart& part : parts) {
    if (!part.digests) continue;
    if (digested[part.group]) added += moves[part.group].to.size();
    digested[part.group] = true;
  }
  FB_RETURN_IF_ERROR(GrowAddends(added));
  digested.assign(moves.size(), false);
  for (const PullPart& part : parts) {
    const auto group = static_cast<size_t>(part.group);
    const device::Region& own = group < num_kv_groups() ? region_ : *states_.region;
    FB_ASSIGN_OR_RETURN(const device::Region* theirs, fabric.FindRegion(part.peer, own.name));
    const Strip& strip = part.digests ? strips_[group].back() : strips_[group].front();
    const bool adds = part.digests && digested[group];
    if (part.digests) digested[group] = true;
    const Move& move = moves[group];
    for (size_t block = 0; block < move.to.size(); ++block) {
      const auto from = static_cast<uint64_t>(move.from[block]);
      std::byte* destination = strip.Of(move.to[block]) + part.to;
      // A peer's digests are of its own heads: where several give parts of a block theirs are
      // summed.
      if (adds) {
        std::byte* const addend = addends_->data + summands_.size() * kBlockDigestBytes;
        summands_.push_back(
            {reinterpret_cast<uint64_t*>(destination), reinterpret_cast<const uint64_t*>(addend)});
        destination = addend;
      }
      plan.spans.push_back({.rank = part.peer,
                            .region = theirs->id,
                            .offset = part.begin + from * part.stride + part.from,
                            .bytes = part.bytes,
                            .destination = destination});
    }
  }
  // What no peer has a summand for has others, in other ranks of the replica.
  for (size_t group = 0; group < num_kv_groups(); ++group) {
    uint64_t* const digests = view_.groups[group].digests;
    if (digests == nullptr || digested[group]) continue;
    constexpr std::array<uint64_t, kBlockTokens> kNone{};
    for (const BlockId block : moves[group].to) {
      FB_RETURN_IF_ERROR(
          device_.Write(digests + int64_t{block} * kBlockTokens, kNone.data(), sizeof kNone));
    }
  }
  if (!pulled_) pulled_ = device_.NewEvent();
  const uint64_t before = fabric.bytes_pulled();
  FB_RETURN_IF_ERROR(fabric.Pull(stream(), plan, {}, {}));
  stream().Record(*pulled_);
  pull_bytes_ = fabric.bytes_pulled() - before;
  bytes_pulled_ += pull_bytes_;
  return base::Status::Ok();
}

base::Status Cache::WaitPull(runtime::TimeNs timeout) {
  if (!device_.WaitFor(*pulled_, timeout)) {
    return base::Status(
        kPullTimeout,
        fmt::format("{} of KV cache did not arrive in {}", base::FormatBytes(pull_bytes_),
                    base::FormatDuration(runtime::SecondsOf(timeout))));
  }
  FB_RETURN_IF_ERROR(device_.Synchronize(stream()));
  // On the host, once the copies are there.
  for (const Summand& summand : summands_) {
    std::array<uint64_t, kBlockTokens> sums;
    FB_RETURN_IF_ERROR(device_.Read(sums.data(), summand.to, sizeof sums));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += summand.digests[i];
    FB_RETURN_IF_ERROR(device_.Write(summand.to, sums.data(), sizeof sums));
  }
  summands_.clear();
  return base::Status::Ok();
}

void Cache::Quiesce() {
  if (pulled_) (void)device_.Synchronize(stream());
}

}  // namespace forebay::kv
