// A device: memory with a budget, streams that run operations in order, and events between streams.
//
// Invariants:
//  1. Stream calls never block and never fail; a fault latches and surfaces at the next
//     Synchronize.
//  2. Operations of one stream run one after another in the order of the calls.
//  3. An Event is recorded at a point of one stream; a Wait enqueued after the Record holds the
//     other stream until
//     that point is reached. Waiting for an event that was never recorded passes at once.
//  4. Control code (not operations) waits only in Synchronize and WaitFor, through the Runtime.
//  5. One control task at a time calls a device, its streams and its events; a peer's task may use
//     an event where a
//     message between the two orders the calls. Profile may be called at any time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/operation.h"
#include "forebay/waits.h"
#include "runtime/runtime.h"
#include "tensor/tensor.h"

namespace forebay::device {

inline constexpr base::ErrorCode kArenaFull{"arena_full"};

// A named piece of a device's memory. Lives as long as its arena.
struct Region {
  int rank = 0;
  int id = 0;
  std::string name;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  int64_t shared_offset = -1;  // in the rank's shared memory; -1: other processes cannot map it
};

// Who touches a region. kControl: small arrays that the host writes or reads (a step's rows, block
// tables, sampled tokens, extents): real memory on every device. Where the host does not reach the
// device's memory, it is there twice: addresses are the host's, kernels get the device's, and
// Stream::SendControl and FetchControl bring one up to date. kData: operations alone; on `sim` it
// is address space.
enum class MemoryUse : uint8_t { kData, kControl };

// All memory of a rank comes from its arena; the sum of its regions never exceeds the budget.
// Regions are zeroed, 2 MiB aligned on huge pages where the host gives them, followed by a page
// that faults, and freed together with the arena. Each counts as whole pages of 4 KiB, committed
// when touched. Not thread-safe.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual uint64_t budget() const = 0;
  virtual uint64_t used() const = 0;
  // kArenaFull names every region with its size, what was asked and what is left.
  virtual base::Result<const Region*> Allocate(std::string name, uint64_t bytes,
                                               MemoryUse use = MemoryUse::kData) = 0;
  virtual std::span<const std::unique_ptr<Region>> regions() const = 0;
  // REQUIRES: it was allocated.
  const Region& region(std::string_view name) const;
};

// Hands out aligned pieces of one region in order; for the many small buffers of a plan.
class RegionCutter {
 public:
  explicit RegionCutter(const Region& region) : region_(&region) {}
  // REQUIRES: the region is large enough (sizes are planned before they are cut).
  std::byte* Cut(uint64_t bytes, uint64_t alignment = 64);
  tensor::TensorView Cut(tensor::DType dtype, const tensor::Shape& shape);
  uint64_t used() const { return used_; }

 private:
  const Region* region_;
  uint64_t used_ = 0;
};

// A point in a stream's order. Reusable: each Record moves it.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// A number that only grows, 0 at first: how streams of different ranks meet. Must outlive what is
// enqueued with it.
class Counter {
 public:
  virtual ~Counter() = default;
  // Every Await passes from now on; a stream that passes one dies: it runs and posts nothing any
  // more, and its Synchronize returns `why` (the first fault's). A stream that waits for an event
  // of a dead one dies of the same. Any task.
  virtual void Abort(const base::Status& why) = 0;

  // What a stream that awaits it waits for. Set before the first Await.
  WaitCause cause() const { return cause_; }
  void set_cause(WaitCause cause) { cause_ = cause; }

 private:
  WaitCause cause_ = WaitCause::kPeer;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Copies the operation; what its arguments point to must live until it has run.
  virtual void Enqueue(const Operation& operation) = 0;
  virtual void Record(DeviceEvent& event) = 0;
  virtual void Wait(const DeviceEvent& event) = 0;
  // Raises the counter to `value`, once all that was enqueued before is done.
  virtual void Post(Counter& counter, uint64_t value) = 0;
  // Holds this stream until the counter is at least `value`, which may be posted later than this is
  // called.
  virtual void Await(Counter& counter, uint64_t value) = 0;
  // Control memory: kernels behind this call find these bytes as the host has them when the stream
  // gets there. The host may write others meanwhile.
  virtual void SendControl(const void* /*data*/, uint64_t /*bytes*/) {}
  // The other way: what kernels before this call have left there, the host finds.
  virtual void FetchControl(void* /*data*/, uint64_t /*bytes*/) {}

  // To which layer of the model belongs what is enqueued from here on; -1: to none. What stops the
  // stream there names it.
  virtual void SetLayer(int64_t /*layer*/) {}
  // Where it stands, for messages: "rank 0 compute in layer 3 waits for 'rank 1 for rank 0, channel
  // 5'"; "": it has nothing to do, or does not know. Any thread.
  virtual std::string Place() const { return {}; }

  // Up to EndRepeat comes the first of `times` > 0 equal bodies: equal shapes, other addresses.
  // Bodies of one `key` != 0 are equal whenever they come, but for attention's context, the rows of
  // prompts, and counters' values, each one higher than when a body last named that counter. A body
  // does not nest, synchronize or call WaitFor.
  virtual void BeginRepeat(int64_t /*times*/, uint64_t /*key*/) {}
  // How many of the bodies need not be enqueued any more: 1, or all where the device has priced the
  // first for all.
  virtual int64_t EndRepeat() { return 1; }
};

// Copies run on streams of their own, one a kind, so that a slow one blocks no other. KV comes up
// to the device, from peers and from tiers below, and goes down to tiers.
enum class CopyKind : uint8_t { kWeights, kKvUp, kKvDown };
inline constexpr std::array kCopyNames = {"weights copy", "kv copy up", "kv copy down"};

// What a stream that waits for an event of such copies waits for.
constexpr WaitCause CauseOf(CopyKind kind) {
  return kind == CopyKind::kWeights ? WaitCause::kPull : WaitCause::kKv;
}

// Time and work of each operation label, when profiling is on.
struct OpProfile {
  const char* label = "";
  cost::OpKind kind = cost::OpKind::kOther;
  int64_t calls = 0;
  double seconds = 0, flops = 0, read_bytes = 0;
};

// Adds calls to the entry of their kind and label, which it makes where there is none.
void AddCalls(const OpProfile& calls, std::vector<OpProfile>* profile);

// Where a stream's time went so far, in seconds.
struct StreamTime {
  double busy = 0;    // in operations; simulated copies to and from other devices do not count
  WaitSeconds waits;  // with an operation to come, held by Wait or Await: what was not hidden
  double core = 0;    // processor time of its copies; 0 where those have engines of their own
  double moved = 0;   // in simulated copies to and from other devices
};

// Kernels that a device's host launched, and those of them that went along in a graph.
struct LaunchCounts {
  int64_t kernels = 0, in_graphs = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual int rank() const = 0;
  virtual Arena& arena() = 0;
  // Memory of the host for what lies below the device, with a budget of its own; copies between it
  // and the arena go over the host's link. Operations may touch its regions while it lives.
  virtual std::unique_ptr<Arena> NewHostArena(uint64_t budget) = 0;
  virtual Stream& compute() = 0;
  virtual Stream& copy(CopyKind kind) = 0;  // its task starts with the first call
  // Streams for copies of weights that shall not wait for each other, as those from different
  // peers; stream 0 is copy(kWeights). One where the rank's own cores copy.
  virtual int num_weight_copies() const { return 1; }
  virtual Stream& weight_copy(int /*stream*/) { return copy(CopyKind::kWeights); }
  virtual std::unique_ptr<DeviceEvent> NewEvent() = 0;
  virtual int num_workers() const = 0;
  // Whether the host reaches data memory (MemoryUse::kData) through its addresses. Where it does
  // not, Write and Read do, from and to memory of the host. They return when the bytes are there.
  // Any thread. REQUIRES: no operation under way touches the bytes.
  virtual bool host_reaches_data() const { return true; }
  virtual base::Status Write(void* to, const void* from, uint64_t bytes);
  virtual base::Status Read(void* to, const void* from, uint64_t bytes);
  // Blocks until everything enqueued before on `stream` is done; returns and clears a latched
  // fault.
  virtual base::Status Synchronize(Stream& stream) = 0;
  // The fault that is latched on `stream` now, which stays; does not block.
  virtual base::Status FaultOf(const Stream& stream) const = 0;
  // Blocks until the event's last Record is reached, or `timeout` passes (false).
  virtual bool WaitFor(const DeviceEvent& event, runtime::TimeNs timeout = runtime::kForever) = 0;
  virtual std::vector<OpProfile> Profile() const = 0;
  // The part of it that is one stream's.
  virtual std::vector<OpProfile> ProfileOf(const Stream& stream) const = 0;
  // The time of one of this device's streams so far; may be asked at any time.
  virtual StreamTime TimeOf(const Stream& stream) const = 0;
  // Nothing: its kernels are not launched. Any time.
  virtual std::optional<LaunchCounts> launches() const { return std::nullopt; }
  // What its streams have copied from the memory of another device of its kind, where links between
  // devices are known: on simulated ones.
  virtual uint64_t BytesFrom(const Device& /*peer*/) const { return 0; }
};

class HazardChecker;

struct CpuDeviceOptions {
  int rank = 0;
  uint64_t memory_bytes = 0;  // the arena's budget
  int num_workers = 1;        // compute workers, the stream's own thread included
  // file (memfd) that the arena's regions lie in, for ranks in other processes; -1: none
  int shared_memory = -1;
  std::vector<int> cores;            // pinning, one a worker; empty: none
  uint64_t scratch_bytes = 4 << 20;  // a worker; counted in the budget
  // shared by the devices of a group: finds operations that conflict
  HazardChecker* checker = nullptr;
  bool profile = false;
  // On the virtual runtime an operation takes up to this long, before and after its code, drawn
  // from `seed`.
  runtime::TimeNs max_virtual_delay = 0;
  uint64_t seed = 0;
};

// The cpu device on any runtime: on the real one streams are threads, on the virtual one fibers.
// Destroying it waits for everything that was enqueued; what its streams wait for, and the checker,
// must outlive it. Errors: kInvalidArgument (workers, cores), kArenaFull or kOutOfMemory (scratch).
base::Result<std::unique_ptr<Device>> CreateCpuDevice(runtime::Runtime& runtime,
                                                      const CpuDeviceOptions& options);
// For streams of cpu devices on this runtime. `name` appears in deadlock reports.
std::unique_ptr<Counter> CreateCpuCounter(runtime::Runtime& runtime, std::string name);

}  // namespace forebay::device
