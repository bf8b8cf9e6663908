#include "device/sim/sim_device.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/cpu/arena.h"

namespace forebay::device {
namespace {

// A point of a stream: after its first `position` items.
struct SimEvent final : public DeviceEvent {
  int stream = -1;  // -1: never recorded
  uint64_t position = 0;
};

class SimCounter final : public Counter {
 public:
  explicit SimCounter(EventEngine& engine) : engine_(engine), id_(engine.AddCounter()) {}
  int id() const { return id_; }
  void Abort(const base::Status& why) override { engine_.Abort(id_, why); }

 private:
  EventEngine& engine_;
  const int id_;
};

// Tells the engine where its regions are.
class SimArena final : public CpuArena {
 public:
  SimArena(EventEngine& engine, int node, const SimDeviceOptions& options)
      : CpuArena(options.rank, options.memory_bytes, options.max_usable_bytes),
        engine_(engine),
        node_(node) {}
  ~SimArena() override { engine_.RemoveMemory(node_); }

  base::Result<const Region*> Allocate(std::string name, uint64_t bytes, MemoryUse use) override {
    FB_ASSIGN_OR_RETURN(const Region* region, CpuArena::Allocate(std::move(name), bytes, use));
    engine_.AddMemory(region->data, region->bytes, node_);
    return region;
  }

 private:
  EventEngine& engine_;
  const int node_;
};

class SimStream;

// A first body that is nothing but runs, meetings and copies of one stream so far; one for all
// streams of a device.
struct FirstBody {
  SimStream* stream = nullptr;  // null: there is none
  std::vector<SimStep> steps;
  bool runs_alone = true;
};

class SimStream final : public Stream, private BeginPricer {
 public:
  SimStream(EventEngine& engine, int node, std::string name, bool computes, WaitCause cause,
            const SimDeviceOptions& options, FirstBody& first_body)
      : engine_(engine),
        options_(options),
        id_(engine.AddStream(std::move(name), node, computes, cause)),
        first_body_(first_body) {}

  int id() const { return id_; }
  void set_requests_in_flight(int requests) { requests_in_flight_ = requests; }
  std::vector<OpProfile> profile() const {
    std::vector<OpProfile> profile = profile_;
    for (size_t entry = 0; options_.profile_as_passed && entry < profile.size(); ++entry)
      profile[entry].seconds = engine_.spent_seconds(id_, static_cast<int>(entry));
    return profile;
  }

  void Enqueue(const Operation& operation) override {
    SimWork work;
    if (operation.desc.kind == cost::OpKind::kCopy && EnqueueTransfer(operation)) {
      // Its time is known when it ends.
    } else if (operation.complete != nullptr) {
      return EnqueueIncomplete(operation);
    } else {
      work = Price(operation.desc);
      if (first_body_.stream == this && !operation.control) {
        first_body_.steps.push_back({.work = work});
      } else {
        GoOnInFull();
        engine_.Run(id_, work, &operation, AccountOf(operation.desc));
      }
    }
    if (options_.profile) Count(operation.desc, static_cast<double>(work.alone) * 1e-12);
  }

  void Record(DeviceEvent& event) override {
    GoOnInFull();
    auto& point = static_cast<SimEvent&>(event);
    point.stream = id_;
    point.position = engine_.pushed(id_);
  }

  void Wait(const DeviceEvent& event) override {
    GoOnInFull();
    const auto& point = static_cast<const SimEvent&>(event);
    if (point.stream >= 0) engine_.Wait(id_, point.stream, point.position);
  }

  void Post(Counter& counter, uint64_t value) override {
    Meet({.kind = SimStep::Kind::kPost,
          .counter = static_cast<SimCounter&>(counter).id(),
          .value = value});
  }

  void Await(Counter& counter, uint64_t value) override {
    if (counter.cause() != WaitCause::kPeer) {
      GoOnInFull();
      return engine_.Await(id_, static_cast<SimCounter&>(counter).id(), value, counter.cause());
    }
    Meet({.kind = SimStep::Kind::kAwait,
          .counter = static_cast<SimCounter&>(counter).id(),
          .value = value});
  }

  void BeginRepeat(int64_t times, uint64_t key) override {
    FB_CHECK(times > 0 && first_body_.stream == nullptr, "{} equal bodies begin inside another",
             times);
    // Who shares memory is slowed by what others read at that moment, not by their mean.
    const bool shares_memory = options_.node.contention.machine_bytes_per_s > 0;
    if (options_.detail == SimDetail::kFull || engine_.checked() || shares_memory) return;
    first_body_.stream = this;
    // The first body is held back, not enqueued: only its end says whether it was runs and meetings
    // alone.
    first_body_.steps.clear();
    first_body_.runs_alone = true;
    times_ = times;
    known_ = key == 0 ? nullptr : &known_bodies_[key];
    next_known_ = 0;
    if (options_.profile) profile_before_ = profile_;
  }

  int64_t EndRepeat() override {
    known_ = nullptr;
    if (first_body_.stream != this) return 1;
    first_body_.stream = nullptr;
    // Runs alone are one sum; where they meet other ranks each has to stand in its place.
    if (!first_body_.runs_alone) {
      engine_.Repeat(id_, first_body_.steps, times_);
    } else if (!first_body_.steps.empty()) {
      SimWork sum;
      for (const SimStep& run : first_body_.steps) sum += run.work;
      engine_.Run(id_, sum * times_, nullptr);
    }
    if (options_.profile) CountTheOthers();
    return times_;
  }

 private:
  // Its body is not one of equal ones, and keeps no prices.
  void EnqueueIncomplete(const Operation& operation) {
    GoOnInFull();
    // What is not known when it is enqueued has no price to keep, and would shift the numbers of
    // those behind it.
    if (known_ != nullptr) known_->clear();
    known_ = nullptr;
    engine_.Run(id_, *this, operation, AccountOf(operation.desc));
  }

  // The number of the operation's entry; -1: nobody asks for its time as it passed.
  int AccountOf(const cost::OpDesc& desc) {
    if (!options_.profile_as_passed) return -1;
    AddCalls({.label = desc.label, .kind = desc.kind}, &profile_);
    const auto entry = std::ranges::find_if(profile_, [&](const OpProfile& each) {
      return each.kind == desc.kind && std::string_view(each.label) == desc.label;
    });
    return static_cast<int>(entry - profile_.begin());
  }

  SimWork PriceAtBegin(const Operation& operation) override {
    const cost::OpDesc desc = operation.CompleteDesc();
    const SimWork work = WorkOf(options_.price(desc));
    if (options_.profile) Count(desc, static_cast<double>(work.alone) * 1e-12);
    return work;
  }

  // False: the copy stays inside one device, or is none from one range to another.
  bool EnqueueTransfer(const Operation& operation) {
    if (operation.num_accesses != 2 || operation.accesses[0].write || !operation.accesses[1].write)
      return false;
    const int from = engine_.NodeOf(operation.accesses[0].data),
              to = engine_.NodeOf(operation.accesses[1].data);
    if (from == to) return false;
    const uint64_t bytes = operation.accesses[1].bytes;
    if (first_body_.stream == this && !operation.control && operation.complete == nullptr) {
      AddStep({.kind = SimStep::Kind::kTransfer,
               .from = from,
               .to = to,
               .window = requests_in_flight_,
               .bytes = bytes});
    } else {
      GoOnInFull();
      engine_.Transfer(id_, from, to, bytes, requests_in_flight_, &operation);
    }
    return true;
  }

  void AddStep(const SimStep& step) {
    first_body_.runs_alone = false;
    first_body_.steps.push_back(step);
  }

  // The body has more than runs on one stream: what it has enqueued so far is enqueued now.
  void GoOnInFull() {
    SimStream* const stream = std::exchange(first_body_.stream, nullptr);
    if (stream == nullptr) return;
    for (const SimStep& step : first_body_.steps) stream->Push(step);
  }

  void Push(const SimStep& step) {
    switch (step.kind) {
      case SimStep::Kind::kRun: return engine_.Run(id_, step.work, nullptr);
      case SimStep::Kind::kPost: return engine_.Post(id_, step.counter, step.value);
      case SimStep::Kind::kAwait: return engine_.Await(id_, step.counter, step.value);
      case SimStep::Kind::kTransfer:
        return engine_.Transfer(id_, step.from, step.to, step.bytes, step.window, nullptr);
    }
  }

  void Meet(const SimStep& step) {
    if (first_body_.stream == this) return AddStep(step);
    GoOnInFull();
    Push(step);
  }

  // Under a key only what is new, attention, and what has other rows of prompts than before is
  // priced.
  SimWork Price(const cost::OpDesc& desc) {
    if (known_ == nullptr) return WorkOf(options_.price(desc));
    const bool attention = desc.kind == cost::OpKind::kAttention;
    const bool is_new = next_known_ == known_->size();
    if (is_new)
      known_->push_back(
          {desc.kind, attention ? 0 : desc.rows, desc.columns, desc.prefill_rows, {}});
    KnownRun& known = (*known_)[next_known_++];
    FB_CHECK(known.kind == desc.kind && known.columns == desc.columns &&
                 (attention || known.rows == desc.rows),
             "rank {}: '{}' of {} rows and {} columns in a body that had '{}' of {} and {} under "
             "the same key",
             options_.rank, desc.label, desc.rows, desc.columns, cost::Name(known.kind), known.rows,
             known.columns);
    if (is_new || attention || known.prefill_rows != desc.prefill_rows)
      known.work = WorkOf(options_.price(desc));
    known.prefill_rows = desc.prefill_rows;
    return known.work;
  }

  void Count(const cost::OpDesc& desc, double seconds) {
    AddCalls({.label = desc.label,
              .kind = desc.kind,
              .calls = 1,
              .seconds = seconds,
              .flops = desc.flops,
              .read_bytes = desc.read_bytes},
             &profile_);
  }

  // What was counted of the first body stands for all.
  void CountTheOthers() {
    profile_before_.resize(profile_.size());
    for (size_t i = 0; i < profile_.size(); ++i) {
      const OpProfile& before = profile_before_[i];
      OpProfile& entry = profile_[i];
      const auto others = static_cast<double>(times_ - 1);
      entry.calls += (times_ - 1) * (entry.calls - before.calls);
      entry.seconds += others * (entry.seconds - before.seconds);
      entry.flops += others * (entry.flops - before.flops);
      entry.read_bytes += others * (entry.read_bytes - before.read_bytes);
    }
  }

  struct KnownRun {
    cost::OpKind kind;
    int64_t rows, columns;
    int64_t prefill_rows;  // rows of the latest prefill
    SimWork work;          // work of the latest
  };

  EventEngine& engine_;
  const SimDeviceOptions& options_;
  const int id_;
  int requests_in_flight_ = 1;
  FirstBody& first_body_;
  int64_t times_ = 0;
  std::unordered_map<uint64_t, std::vector<KnownRun>> known_bodies_;  // by key
  // The known runs of the body that is enqueued now.
  std::vector<KnownRun>* known_ = nullptr;
  size_t next_known_ = 0;
  std::vector<OpProfile> profile_, profile_before_;
};

class SimDevice final : public Device {
 public:
  SimDevice(EventEngine& engine, SimDeviceOptions options)
      : engine_(engine),
        options_(std::move(options)),
        node_(engine.AddNode(options_.node)),
        arena_(engine, node_, options_),
        compute_(engine, node_, Name("compute"), true, WaitCause::kStaging, options_, first_body_),
        copies_{NewCopy(CopyKind::kWeights, "weights copy"), NewCopy(CopyKind::kKvUp, "kv copy up"),
                NewCopy(CopyKind::kKvDown, "kv copy down")} {
    compute_.set_requests_in_flight(cost::kPeersRead);
    const bool cores_copy = options_.node.contention.core_bytes_per_s > 0;
    for (int i = 1; i < cost::kPeersRead && !cores_copy; ++i) {
      weight_copies_.push_back(NewCopy(CopyKind::kWeights, fmt::format("weights copy {}", i)));
    }
  }

  ~SimDevice() override {
    (void)Synchronize(compute_);
    for (SimStream& copy : copies_) (void)Synchronize(copy);
    for (SimStream& copy : weight_copies_) (void)Synchronize(copy);
  }

  int rank() const override { return options_.rank; }
  Arena& arena() override { return arena_; }
  // The arena is of no node: the engine takes it for the host's.
  std::unique_ptr<Arena> NewHostArena(uint64_t budget) override {
    return std::make_unique<CpuArena>(options_.rank, budget, options_.max_usable_bytes);
  }
  Stream& compute() override { return compute_; }
  Stream& copy(CopyKind kind) override { return copies_[static_cast<size_t>(kind)]; }
  int num_weight_copies() const override { return 1 + static_cast<int>(weight_copies_.size()); }
  Stream& weight_copy(int stream) override {
    return stream == 0 ? copies_[static_cast<size_t>(CopyKind::kWeights)]
                       : weight_copies_[stream - 1];
  }
  std::unique_ptr<DeviceEvent> NewEvent() override { return std::make_unique<SimEvent>(); }
  int num_workers() const override { return options_.num_workers; }

  base::Status Synchronize(Stream& stream) override {
    const int id = static_cast<SimStream&>(stream).id();
    engine_.WaitFor(id, engine_.pushed(id), runtime::kForever);
    return engine_.fault(id);
  }

  base::Status FaultOf(const Stream& stream) const override {
    return engine_.fault(static_cast<const SimStream&>(stream).id());
  }

  bool WaitFor(const DeviceEvent& event, runtime::TimeNs timeout) override {
    const auto& point = static_cast<const SimEvent&>(event);
    return point.stream < 0 || engine_.WaitFor(point.stream, point.position, timeout);
  }

  StreamTime TimeOf(const Stream& stream) const override {
    const int id = static_cast<const SimStream&>(stream).id();
    return {.busy = engine_.busy_seconds(id),
            .waits = engine_.waits(id),
            .moved = engine_.moved_seconds(id)};
  }
  uint64_t BytesFrom(const Device& peer) const override {
    return engine_.moved_bytes(static_cast<const SimDevice&>(peer).node_, node_);
  }

  std::vector<OpProfile> ProfileOf(const Stream& stream) const override {
    return static_cast<const SimStream&>(stream).profile();
  }
  std::vector<OpProfile> Profile() const override {
    std::vector<OpProfile> all = compute_.profile();
    for (const SimStream& copy : copies_) {
      const std::vector<OpProfile> profile = copy.profile();
      all.insert(all.end(), profile.begin(), profile.end());
    }
    for (const SimStream& copy : weight_copies_) {
      for (const OpProfile& entry : copy.profile()) AddCalls(entry, &all);
    }
    return all;
  }

 private:
  SimStream NewCopy(CopyKind kind, std::string_view name) {
    return SimStream(engine_, node_, Name(name), false, CauseOf(kind), options_, first_body_);
  }
  std::string Name(std::string_view stream) const {
    return fmt::format("rank {} {}", options_.rank, stream);
  }

  EventEngine& engine_;
  const SimDeviceOptions options_;
  const int node_;
  SimArena arena_;
  FirstBody first_body_;
  SimStream compute_;
  std::array<SimStream, 3> copies_;
  std::deque<SimStream> weight_copies_;  // beside that of copies_
};

}  // namespace

std::unique_ptr<Device> CreateSimDevice(EventEngine& engine, SimDeviceOptions options) {
  FB_CHECK(options.price != nullptr, "rank {} has no prices", options.rank);
  FB_CHECK(!options.profile_as_passed || (options.profile && options.detail == SimDetail::kFull),
           "rank {} profiles layers that do not pass", options.rank);
  return std::make_unique<SimDevice>(engine, std::move(options));
}

std::unique_ptr<Counter> CreateSimCounter(EventEngine& engine) {
  return std::make_unique<SimCounter>(engine);
}

void SetRequestsInFlight(Stream& stream, int requests) {
  static_cast<SimStream&>(stream).set_requests_in_flight(requests);
}

}  // namespace forebay::device
