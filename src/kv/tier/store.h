// Where the blocks of a tier lie, and how their bytes get there and back: host memory, or a file.
// In which order moves of both ways meet is the tier's business (kv/tier/tier.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "kv/book/prefix_index.h"

namespace forebay::kv {

// A block of a KV group, and where it lies below.
struct TierMove {
  int32_t group = 0;
  BlockId device = 0, below = 0;
  PrefixKey key = {};  // of a full block that others may ask for; else zeros
};
struct TierMoves {
  std::vector<TierMove> down, up;

  bool empty() const { return down.empty() && up.empty(); }
  void Clear() {
    down.clear();
    up.clear();
  }
};

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

// The rank's control task calls; counters may be asked for from any thread.
class Store {
 public:
  virtual ~Store() = default;

  // Enqueues the way down. `stored` is recorded where the device's blocks may be written over;
  // they can be read from below behind all that was enqueued.
  virtual void Down(device::Stream& stream, std::span<const TierMove> moves,
                    device::DeviceEvent& stored) = 0;
  virtual void Up(device::Stream& stream, std::span<const TierMove> moves) = 0;
  // Where blocks lie, one behind the other; null: not in memory.
  virtual const std::byte* memory() const { return nullptr; }
  virtual uint64_t block_bytes() const = 0;
  // Whether blocks can be lost.
  virtual bool can_lose() const { return false; }
  // Those that were found lost since the last call. What came up is known once it has come.
  virtual LostBlocks TakeLost() { return {}; }
  virtual std::span<const KeptBlock> kept() const { return {}; }

  // Of files, what was asked of the disk.
  virtual uint64_t bytes_written() const { return 0; }
  virtual uint64_t bytes_read() const { return 0; }
};

}  // namespace forebay::kv
