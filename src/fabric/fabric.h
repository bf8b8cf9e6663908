// One-sided transfers between the ranks of a group, of which the owner is not told, and counters at
// which streams of different ranks meet.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/device.h"

namespace forebay::fabric {

inline constexpr base::ErrorCode kUnknownRegion{"fabric_unknown_region"};
inline constexpr base::ErrorCode kOutOfRange{"fabric_out_of_range"};

// A range of a peer's region, and where it goes.
struct CopySpan {
  int rank;    // whose region
  int region;  // Region::id there
  uint64_t offset;
  uint64_t bytes;
  std::byte* destination;  // in the puller's memory
  int part = 0;            // with events a part: which event follows the part's last slice
  // In a pull of wanted items: `num_items` of equal size, starting with `first_item`.
  int first_item = 0, num_items = 1;
};

// The order of a pull's slices: as spans are listed; in turns over the peers, starting after the
// own rank (rotated) or from the lowest (sliced); peer after peer, ascending (serial); or in an
// order drawn from a seed.
enum class PeerOrder : uint8_t { kAsListed, kRotated, kSliced, kSerial, kRandom };

// What a pull copies.
struct CopyPlan {
  std::vector<CopySpan> spans;
  uint64_t slice_bytes = 1 << 20;  // a transfer is cut into slices of this size
  PeerOrder order = PeerOrder::kAsListed;
  uint64_t seed = 0;  // kRandom
  int requests_in_flight = 2;
};

// A plan whose sources were found and whose order of slices is fixed: prepared once, pulled many
// times.
struct PreparedPull {
  struct Slice {
    const std::byte* source;
    std::byte* destination;
    uint64_t bytes;  // 0: only an event follows
    int part;
    int first_item, num_items;
    bool remote;  // from another rank
    bool ends_part;
  };
  std::vector<Slice> slices;
  int num_parts = 0;
  int requests_in_flight = 2;
};

// An ordered list of ranks that act together; never a global.
struct Communicator {
  std::vector<int> ranks;
  int my_index = 0;
};

// Channels of counters between two ranks; their users agree on who uses which.
inline constexpr int kNumChannels = 16;

// One a rank; must outlive the rank's device. Pulls are asynchronous on `stream` (a copy stream of
// the rank's device).
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  // Makes a region of this rank's device readable by peers. Call before any peer pulls from it. The
  // region must outlive all pulls.
  virtual base::Status Publish(const device::Region& region) = 0;
  // Errors name rank, region, offset and size: kUnknownRegion (never published), kOutOfRange.
  virtual base::Result<PreparedPull> Prepare(const CopyPlan& plan) const = 0;
  // part_events[p], if given, is recorded after part p arrived. `wanted`: only items i with
  // wanted[i] < wanted[i + 1] are pulled, control memory that each copy reads when it begins; null:
  // all. Neither allocates nor locks.
  virtual void Pull(device::Stream& stream, const PreparedPull& pull, const int32_t* wanted,
                    std::span<device::DeviceEvent* const> part_events) = 0;
  // The same of a plan that is pulled once; Prepare's errors, and nothing is enqueued then.
  base::Status Pull(device::Stream& stream, const CopyPlan& plan, const int32_t* wanted,
                    std::span<device::DeviceEvent* const> part_events) {
    FB_ASSIGN_OR_RETURN(const PreparedPull prepared, Prepare(plan));
    Pull(stream, prepared, wanted, part_events);
    return base::Status::Ok();
  }
  // The region of that name that `rank` published, readable by operations of this rank's streams;
  // kUnknownRegion.
  virtual base::Result<const device::Region*> FindRegion(int rank, std::string_view name) const = 0;

  // Counters (from, to, channel), each 0 at first and growing. Neither call blocks.
  // Posts `value` to `peer` once all that was enqueued before on `stream` is done.
  virtual void Post(device::Stream& stream, int peer, int channel, uint64_t value) = 0;
  // Holds `stream` until `peer` has posted at least `value` to this rank.
  virtual void Await(device::Stream& stream, int peer, int channel, uint64_t value) = 0;
  // The group has failed: all awaits of all its ranks pass, so a dead rank holds none up. A stream
  // that passes one runs nothing more, and Synchronize returns `why`; the first Abort's stays. Any
  // task.
  virtual void Abort(const base::Status& why) = 0;
  // Why the group was aborted; OK: it was not. Any task.
  virtual base::Status status() const = 0;

  // Bytes of all pulls from other ranks so far, counted when the pull is called. The number of
  // wanted items is unknown then: the caller that chooses them counts them.
  virtual uint64_t bytes_pulled() const = 0;
};

// Ranks that are threads of one process, with cpu devices on `runtime`.
std::vector<std::unique_ptr<Fabric>> CreateLocalFabric(runtime::Runtime& runtime, int num_ranks);
// The same for ranks that pull and never meet, such as ranks of several groups. A rank's number
// here need not be its device's. REQUIRES: no rank posts or awaits.
std::vector<std::unique_ptr<Fabric>> CreatePullFabric(int num_ranks);

}  // namespace forebay::fabric
