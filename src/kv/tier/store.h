// Where the blocks of a tier lie, and how their bytes get there and back: host memory, or a file.
// The tier (kv/tier/tier.h) orders the moves of both ways.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "kv/book/prefix_index.h"
#include "kv/tier/gather.h"

namespace forebay::kv {

// Blocks in memory and in a file. With both, the file is the second level.
struct TierBlocks {
  int32_t in_memory = 0, in_file = 0;

  int32_t all() const { return in_memory + in_file; }
  // The levels, as kv/book/tier_book.h has them.
  int32_t near() const { return in_memory > 0 ? in_memory : in_file; }
  int32_t far() const { return all() - near(); }
};

// A block of a KV group, or a part of a state (kv/cache.h), and where it lies below.
struct TierMove {
  int32_t group = 0;
  BlockId device = 0, below = 0;
  PrefixKey key = {};  // a full block's that others may ask for; else zeros
  // Down: the block below that has the content, if it goes from there to `below`; the device is not
  // asked then.
  BlockId from = -1;
};
struct TierMoves {
  std::vector<TierMove> down, up;
  bool up_at_once = false;  // the step itself reads what comes up, not the one after

  bool empty() const { return down.empty() && up.empty(); }
  void Clear() {
    down.clear();
    up.clear();
    up_at_once = false;
  }
};

// Adds the moves of a state, of which the part in each of these blocks below lies in `place` on the
// device.
inline void AddStateMoves(int num_kv_groups, BlockId place, std::span<const BlockId> below,
                          std::vector<TierMove>* moves) {
  int32_t group = num_kv_groups;
  for (const BlockId block : below)
    moves->push_back({.group = group++, .device = place, .below = block});
}

// A full block that a store had before the job.
struct KeptBlock {
  BlockId below = 0;
  PrefixKey key;
};

// What became of blocks whose bytes do not come back: they could not be written or read, or are not
// what was written.
struct LostBlocks {
  std::vector<BlockId> blocks;
  base::Status closed;  // why nothing is written any more
};

class HostStore;

// The rank's control task calls; counters may be asked for from any thread.
class Store {
 public:
  virtual ~Store() = default;

  // Enqueues the way down. `stored` is recorded when the device's blocks may be overwritten.
  // Operations enqueued after this call can read them from below.
  virtual void Down(device::Stream& stream, std::span<const TierMove> moves,
                    device::DeviceEvent& stored) = 0;
  virtual void Up(device::Stream& stream, std::span<const TierMove> moves) = 0;
  // Enqueues the way of one layer of some blocks into a window's slot. REQUIRES: the blocks are
  // among the first level's, and there is one.
  virtual void UpLayer(device::Stream& stream, const LayerFetch& fetch) = 0;
  // The first level where it is memory; else null.
  virtual const HostStore* near() const { return nullptr; }
  virtual uint64_t block_bytes() const = 0;
  // Whether what these bring up may have been written with the last way down, and not only copied.
  virtual bool ReadsWritten(std::span<const TierMove> /*up*/) const { return true; }
  // Whether blocks can be lost.
  virtual bool can_lose() const { return false; }
  // Blocks found lost since the last call. Losses on the way up are known once the copy has ended.
  virtual LostBlocks TakeLost() { return {}; }
  virtual std::span<const KeptBlock> kept() const { return {}; }

  // What was asked of the disk, of files.
  virtual uint64_t bytes_written() const { return 0; }
  virtual uint64_t bytes_read() const { return 0; }
};

}  // namespace forebay::kv
