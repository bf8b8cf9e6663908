// One discrete-event engine for all devices of a virtual run: streams are lists of work items,
// copies between devices are flows over links. It has no task of its own: the virtual runtime calls
// it when no control task is runnable.
//
// Invariants:
//  1. Items of a stream start and retire in order. A run or a wait starts when all before it have
//     retired; a transfer
//     also beside earlier transfers of its stream, while fewer than its window are under way.
//  2. A wait ends when the awaited stream has retired the given number of items, or the counter was
//     raised to the given
//     value; nothing starts before it (causality).
//  3. Time never runs backwards. All events of one time happen, in an
//     order that the seed draws, before new rates are set and time goes
//     on.
//  4. While control tasks run, the engine's time is theirs. A task that waits for a position is
//     woken at the nanosecond
//     (rounded up) at which it is reached.
//  5. Work that declares its accesses is active in the HazardChecker from its start to its end.
//  6. Repeated bodies of streams that meet only each other are worked out at once when
//     the last of the streams begins them (Jump). If a copy starts beside one of them,
//     or a counter is aborted, all continue in full from their present points. Bodies
//     that copy run in full until all streams and flows are where they were a body
//     ago; then all bodies that end before the next other event pass at once
//     (SkipBodies).
// Calls are made by control tasks on the runtime's thread; none blocks but WaitFor. In a steady
// state nothing allocates but the checker.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cost/model.h"
#include "device/hazard_checker.h"
#include "device/operation.h"
#include "device/sim/due_heap.h"
#include "device/sim/jump.h"
#include "device/sim/links.h"
#include "device/sim/ring.h"
#include "device/sim/scene.h"
#include "device/sim/sim_work.h"
#include "forebay/waits.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::device {

// What an operation costs on its device when nothing else runs there.
struct SimPrice {
  double seconds = 0;
  double memory_share = 1;     // part of that time at full memory bandwidth
  bool compute_bound = false;  // limited by the clock frequency, not by memory
};

// REQUIRES: 0 <= seconds < 1e6.
SimWork WorkOf(const SimPrice& price);

// A device's links and what copies do to the kernels beside them.
struct SimNodeOptions {
  double egress_bytes_per_s = 450e9;    // to peers (NVLink 4, one direction)
  double ingress_bytes_per_s = 450e9;   // from peers
  double from_host_bytes_per_s = 55e9;  // PCIe 5 x16, as reached
  double to_host_bytes_per_s = 55e9;
  // Peers are reached by the way to the host: copies to and from both share it, at the peers'
  // rates.
  bool one_link = false;
  double request_latency_s = 1e-6;  // from a request's start to its first byte
  cost::Contention contention;
};

// Prices operations whose description is complete when they begin (Operation::complete).
class BeginPricer {
 public:
  virtual SimWork PriceAtBegin(const Operation& operation) = 0;

 protected:
  ~BeginPricer() = default;
};

class EventEngine final : public runtime::TimedWork {
 public:
  static constexpr int kHost = -1;

  // `host_bytes_per_s`: the host memory's bandwidth in each direction, shared by all devices.
  EventEngine(runtime::VirtualRuntime& runtime, uint64_t seed,
              LinkSharing sharing = LinkSharing::kFair, double host_bytes_per_s = 400e9);
  ~EventEngine() override;

  // REQUIRES (both): no transfer is under way. Nodes with `contention.machine_bytes_per_s` are of
  // one machine: what copies leave of its memory's bandwidth their kernels share max-min fairly.
  int AddNode(const SimNodeOptions& options);
  // Copies slow what a `computes` stream runs. At most one such stream a node. A stream that waits
  // for this one waits for `cause`.
  int AddStream(std::string name, int node, bool computes, WaitCause cause = WaitCause::kStaging);
  // The streams' work is checked from here on; null: not.
  void set_checker(HazardChecker* checker) { checker_ = checker; }

  bool checked() const { return checker_ != nullptr; }

  // Work, in the stream's order. `operation` is what the checker sees; if its `control` is set, its
  // code runs at its end. It is copied where it is needed. Null: nothing to see or to run. The time
  // that it takes is added to the stream's `account` (-1: to none).
  void Run(int stream, const SimWork& work, const Operation* operation, int account = -1);
  // Work that is priced when it begins. The pricer must live until the operation has run.
  void Run(int stream, BeginPricer& pricer, const Operation& operation, int account = -1);
  // From node to node; one may be kHost. An operation with `complete` says its bytes when the
  // transfer begins. REQUIRES: from != to, window > 0.
  void Transfer(int stream, int from, int to, uint64_t bytes, int window,
                const Operation* operation);
  void Wait(int stream, int awaited, uint64_t position);
  // One item that stands for `times` > 0 bodies; `growth` of their steps is found here.
  void Repeat(int stream, std::span<const SimStep> body, int64_t times);

  // Counters that streams raise and wait for; see device::Counter. Posting and awaiting take no
  // time.
  int AddCounter();
  void Post(int stream, int counter, uint64_t value);
  void Await(int stream, int counter, uint64_t value, WaitCause cause = WaitCause::kPeer);
  void Abort(int counter, const base::Status& why);
  // Why the stream runs nothing any more, if it passed an aborted counter.
  const base::Status& fault(int stream) const { return streams_[stream]->fault; }

  uint64_t pushed(int stream) const { return streams_[stream]->items.end(); }
  bool Reached(int stream, uint64_t position) const {
    return streams_[stream]->items.begin() >= position;
  }
  // Blocks the calling task. False: `timeout` has passed.
  bool WaitFor(int stream, uint64_t position, runtime::TimeNs timeout);

  // Which node holds this address: kHost where none does.
  void AddMemory(const void* data, uint64_t bytes, int node);
  void RemoveMemory(int node);
  int NodeOf(const void* data) const;

  TimePs now() const { return now_; }
  // Items that have retired and flows that have begun or ended.
  int64_t num_events() const { return num_events_; }
  // A hash of what retired where and when: equal for equal runs.
  uint64_t trace_hash() const { return trace_hash_; }
  // Seconds of the stream's runs that have ended (transfers not counted).
  double busy_seconds(int stream) const {
    return static_cast<double>(streams_[stream]->busy) * 1e-12;
  }
  // The part of these seconds with this account.
  double spent_seconds(int stream, int account) const {
    const std::vector<TimePs>& spent = streams_[stream]->spent;
    const auto entry = static_cast<size_t>(account);
    return entry < spent.size() ? static_cast<double>(spent[entry]) * 1e-12 : 0;
  }
  // Seconds of ended waits and awaits at the stream's head.
  WaitSeconds waits(int stream) const {
    WaitSeconds waits;
    for (size_t i = 0; i < waits.by_cause.size(); ++i)
      waits.by_cause[i] = static_cast<double>(streams_[stream]->waited[i]) * 1e-12;
    return waits;
  }
  // Seconds of the stream's ended transfers.
  double moved_seconds(int stream) const {
    return static_cast<double>(streams_[stream]->moved) * 1e-12;
  }
  // Bytes of the transfers from node to node that have begun.
  uint64_t moved_bytes(int from, int to) const {
    const std::vector<uint64_t>& bytes = nodes_[to].moved_from;
    return static_cast<size_t>(from) < bytes.size() ? bytes[static_cast<size_t>(from)] : 0;
  }
  const Links& links() const { return links_; }
  int ingress_link(int node) const { return nodes_[node].ingress; }
  int egress_link(int node) const { return nodes_[node].egress; }

  runtime::TimeNs RunUntil(runtime::TimeNs limit) override;

 private:
  enum class Kind : uint8_t { kRun, kTransfer, kWait, kPost, kAwait, kRepeat };
  struct Item {
    Kind kind;
    bool kept = false;  // has an entry in the stream's `operations`
    bool done = false;
    // transfer: nodes. Otherwise `from` is the awaited stream or the counter
    int from = 0, to = 0;
    int window = 0;
    int account = -1;  // run
    // wait and await; of repeated bodies streams wait for peers alone
    WaitCause cause = WaitCause::kPeer;
    uint64_t amount = 0;            // transfer: bytes. Wait: position. Counter: value
    SimWork work;                   // run
    BeginPricer* pricer = nullptr;  // run: `work` is not known before it begins
    TimePs start = 0;
    int64_t token = -1;  // the checker's
  };
  // A stream's repeated bodies, and where it is in them.
  struct Bodies {
    std::vector<SimStep> steps;
    int64_t times = 0, body = 0;
    size_t step = 0;      // that has not started
    bool copies = false;  // some step is a transfer
    bool begun = false;
    bool disturbed = false;                  // by a copy beside it
    TimePs begin = 0, busy = 0, waited = 0;  // the stream's at the begin; waited: for peers
  };
  struct Waiter {
    uint64_t position;
    runtime::Event* event;
  };
  struct Stream {
    std::string name;
    int id, node;
    bool computes;
    bool queued = false;         // in ready_
    Ring<Item> items;            // begin(): how many have retired
    Ring<Operation> operations;  // the kept items that have not retired
    Ring<Bodies> bodies;         // bodies of the repeats that have not retired
    Jump* jump = nullptr;        // works out the repeat at the head
    uint64_t mark = 0;           // the last search that met the stream
    uint64_t started = 0;        // items
    uint64_t started_operations = 0;
    int under_way = 0;  // transfers that have started and not ended
    TimePs moving_since = 0, moved = 0;
    // The run at the head: `remaining` picoseconds alone at `since`, done at `speed`.
    bool running = false;
    double remaining = 0, speed = 1;
    TimePs since = 0;
    TimePs busy = 0;
    std::vector<TimePs> spent;  // by account
    base::Status fault;         // an aborted counter's: the rest of the items do nothing
    // The wait at the head.
    bool waiting = false;
    TimePs waiting_since = 0;
    std::array<TimePs, kNumWaitCauses> waited{};
    WaitCause cause = WaitCause::kStaging;  // of the item that waits for this one
    uint64_t awaited_position = 0;
    Stream* next_waiter = nullptr;   // in the awaited stream's or counter's list
    Stream* first_waiter = nullptr;  // streams that wait for this one
    std::vector<Waiter*> control_waiters;
    std::vector<std::unique_ptr<runtime::Event>> idle_events;

    TimePs& waited_for_peers() { return waited[static_cast<size_t>(WaitCause::kPeer)]; }
  };
  struct CounterState {
    uint64_t value = 0;
    int poster = -1;       // a stream whose repeated bodies post it
    uint64_t in_body = 0;  // steps that name it, while a body is pushed
    Stream* first_waiter = nullptr;
    base::Status fault;
  };
  struct Node {
    SimNodeOptions options;
    int egress, ingress, from_host, to_host;  // links
    Stream* compute = nullptr;
    cost::CopyLoad copy_load;
    std::vector<uint64_t> moved_from;  // bytes, by node

    bool shares_memory() const { return options.contention.machine_bytes_per_s > 0; }
  };
  struct MemoryUse {
    const Node* node;
    double bytes_per_s;  // that its kernel reads alone
  };
  struct Memory {
    uintptr_t begin, end;
    int node;
  };

  void Push(int stream, Item item, const Operation* operation);
  void EndRun(Stream& stream);
  void PopFlow();
  void MakeReady(Stream& stream);
  void AdvanceReady();
  void Advance(Stream& stream);
  bool StartNext(Stream& stream);
  void StartRun(Stream& stream, Item& item);
  void StartTransfer(Stream& stream, Item& item);
  void StartFlow(Stream& stream, int from, int to, uint64_t bytes);
  void BeginWork(Stream& stream, const SimWork& work);
  bool StartWait(Stream& stream, Item& item);
  bool Pass(Stream& stream, uint64_t reached, uint64_t wanted, const base::Status& fault,
            Stream*& waiters);
  void StandAt(Stream& stream, TimePs since, uint64_t wanted, Stream*& waiters);
  bool StartRepeat(Stream& stream, Item& item);
  bool StartStep(Stream& stream, Item& item, Bodies& bodies);
  Bodies* BegunBodies(Stream& stream);
  void SkipBodies(TimePs end);
  bool FindPeers(Stream& stream);
  void TryJump(Stream& stream);
  void EnterJump(Jump& jump);
  void EndJump(Stream& stream);
  void RetireIfLeft(Jump& jump);
  void LeaveJump(Jump& jump);
  void Disturb(const Node& node);
  void Raise(CounterState& counter, uint64_t value);
  void Skip(Stream& stream, Item& item);
  void BeginChecked(Stream& stream, Item& item);
  void End(Stream& stream, Item& item);
  void Retire(Stream& stream);
  void WakeStreams(Stream*& first_waiter, uint64_t reached);
  void WakeWaiters(Stream& stream);
  void Settle();
  void ShareMemory();
  void SetSpeed(const Node& node, double others);

  runtime::VirtualRuntime& runtime_;
  base::Rng ties_;
  Links links_;
  DueHeap due_;             // streams whose run ends
  int host_out_, host_in_;  // links
  std::vector<int> node_of_link_;
  std::vector<Node> nodes_;
  std::vector<MemoryUse> memory_uses_;  // the nodes that share memory, while it is shared out
  bool memory_use_changed_ = false;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<CounterState> counters_;
  std::vector<Stream*> ready_;  // whose next item may start
  std::vector<Stream*> peers_;  // that a search has met
  uint64_t last_mark_ = 0;
  std::vector<std::unique_ptr<Jump>> jumps_, idle_jumps_;
  // By whose bodies that copy scenes are told (null: by none), whether it begins one at this time,
  // and whether a counter was aborted, after which nothing is skipped.
  struct {
    Stream* leader = nullptr;
    bool begins = false, aborted = false;
    Scene now, before;
  } skip_;
  std::vector<Memory> memory_;  // ascending
  HazardChecker* checker_ = nullptr;
  TimePs now_ = 0;
  bool woke_task_ = false;
  int64_t num_events_ = 0;
  uint64_t trace_hash_ = 0;
};

}  // namespace forebay::device
