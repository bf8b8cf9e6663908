// A rank's paged cache of keys and values: where blocks and what goes with them lie in its region,
// and how they get there from another rank's.
//
//   region: the blocks of the first group, of the second, ...; then the digests of the first, ...
//
// A block of a group has a strip of bytes for its K and V, and one for its digests where these are
// wanted: whatever moves blocks moves all strips of a block. States of layers move likewise
// (kv/state/layer_states.h): their places are the blocks of further groups, which stand behind
// those of KV. A place has a part in each, the first of which begins where the place does.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "fabric/fabric.h"
#include "kv/book/block_book.h"
#include "kv/groups.h"
#include "kv/pull_parts.h"

namespace forebay::kv {

// The same code as a step's: the run ends with both alike.
inline constexpr base::ErrorCode kPullTimeout{"step_timeout"};

// What the layer program writes and reads.
struct CacheView {
  struct KvGroupView {
    kernels::KvLayout layout;
    // [blocks * 32], or null: not wanted, or the rank has no such layers
    uint64_t* digests = nullptr;
  };
  struct Layer {
    kernels::KvLayer bases;
    int32_t group = 0;
    bool first = true;  // whether it is the first layer of its group
  };
  std::vector<KvGroupView> groups;
  std::vector<Layer> layers;
};
// Lays out `num_blocks` of each group, or its most, as above. `data`: KvCacheBytes(num_blocks).
CacheView CutCache(std::span<const KvGroup> groups, int64_t num_blocks, bool digests,
                   std::byte* data);

// Where a rank's states lie, and in how many parts a place goes below.
struct StateRegion {
  const device::Region* region = nullptr;  // null: the rank keeps none
  uint64_t place_bytes = 0;
  int32_t parts = 0;
};

// A rank has one, which its control task calls.
class Cache {
 public:
  // Where the strip of block 0 lies, how far it is to the next block's, and how long each is: all
  // that moves with a block.
  struct Strip {
    std::byte* data;
    uint64_t stride, bytes;

    std::byte* Of(BlockId block) const { return data + static_cast<uint64_t>(block) * stride; }
  };
  // Blocks of a sequence in a KV group: where the rank has them that gives them, and where they go.
  struct Move {
    std::span<const BlockId> from, to;
  };

  // `region`: at least KvCacheBytes(num_blocks); it and `device` outlive the cache.
  Cache(device::Device& device, const device::Region& region, std::span<const KvGroup> groups,
        int64_t num_blocks, bool digests, const StateRegion& states = {});

  const CacheView& view() const { return view_; }
  const device::Region& region() const { return region_; }
  size_t num_kv_groups() const { return view_.groups.size(); }
  // By KV group, then by part of a state.
  std::span<const std::vector<Strip>> strips() const { return strips_; }
  // Sums the digests of positions [begin, end) of the sequence whose table in the group this is.
  // REQUIRES: no step that writes them is under way. A device that cannot be read any more gives 0.
  uint64_t DigestOf(int group, std::span<const BlockId> table, int64_t begin, int64_t end) const;

  // Begins to pull `parts` of blocks from peers that have published their caches under the same
  // name, and of states; moves are by KV group, then of a state's place. REQUIRES: the last pull
  // was waited for; no operation writes to the blocks meanwhile.
  base::Status EnqueuePull(fabric::Fabric& fabric, std::span<const PullPart> parts,
                           std::span<const Move> moves);
  // kPullTimeout, or the fault that the device met.
  base::Status WaitPull(runtime::TimeNs timeout);
  // Blocks until no pull is under way, whatever became of it.
  void Quiesce();
  // Bytes of the last pull, and of all pulls; any thread may ask for the latter.
  uint64_t pull_bytes() const { return pull_bytes_; }
  uint64_t bytes_pulled() const { return bytes_pulled_; }

 private:
  // Digests of a block that come beside others for the same positions, and are added to these.
  struct Summand {
    uint64_t* to;             // [kBlockTokens]
    const uint64_t* digests;  // [kBlockTokens], of addends_
  };

  // Makes room for the addends of so many blocks.
  base::Status GrowAddends(size_t blocks);
  device::Stream& stream() { return device_.copy(device::CopyKind::kKvUp); }

  device::Device& device_;
  const device::Region& region_;
  const CacheView view_;
  const StateRegion states_;
  std::vector<std::vector<Strip>> strips_;       // as strips() has them
  std::unique_ptr<device::DeviceEvent> pulled_;  // null: nothing was ever pulled
  std::vector<Summand> summands_;                // what the pull that is under way adds up
  // Memory of the host that copies go to while it does something else.
  std::unique_ptr<device::Arena> host_;
  const device::Region* addends_ = nullptr;  // null: none ever came
  uint64_t pull_bytes_ = 0;
  std::atomic<uint64_t> bytes_pulled_{0};
};

}  // namespace forebay::kv
