#include "device/sim/sim_device.h"

#include <array>
#include <string_view>
#include <utility>

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
      : CpuArena(options.rank, options.memory_bytes, options.max_usable_bytes), engine_(engine), node_(node) {}
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

class SimStream final : public Stream {
 public:
  SimStream(EventEngine& engine, int node, std::string name, bool computes, const SimDeviceOptions& options)
      : engine_(engine), options_(options), id_(engine.AddStream(std::move(name), node, computes)) {}

  int id() const { return id_; }
  void set_requests_in_flight(int requests) { requests_in_flight_ = requests; }
  const std::vector<OpProfile>& profile() const { return profile_; }

  void Enqueue(const Operation& operation) override {
    SimPrice price;
    if (operation.desc.kind == cost::OpKind::kCopy && EnqueueTransfer(operation)) {
      // Its time is known when it ends.
    } else {
      price = options_.price(operation.desc);
      engine_.Run(id_, price, operation);
    }
    if (options_.profile) Count(operation.desc, price.seconds);
  }

  void Record(DeviceEvent& event) override {
    auto& point = static_cast<SimEvent&>(event);
    point.stream = id_;
    point.position = engine_.pushed(id_);
  }

  void Wait(const DeviceEvent& event) override {
    const auto& point = static_cast<const SimEvent&>(event);
    if (point.stream >= 0) engine_.Wait(id_, point.stream, point.position);
  }

  void Post(Counter& counter, uint64_t value) override {
    engine_.Post(id_, static_cast<SimCounter&>(counter).id(), value);
  }

  void Await(Counter& counter, uint64_t value) override {
    engine_.Await(id_, static_cast<SimCounter&>(counter).id(), value);
  }

 private:
  // False: the copy stays inside one device, or is none from one range to another.
  bool EnqueueTransfer(const Operation& operation) {
    if (operation.num_accesses != 2 || operation.accesses[0].write || !operation.accesses[1].write) return false;
    const int from = engine_.NodeOf(operation.accesses[0].data), to = engine_.NodeOf(operation.accesses[1].data);
    if (from == to) return false;
    engine_.Transfer(id_, from, to, operation.accesses[1].bytes, requests_in_flight_, operation);
    return true;
  }

  void Count(const cost::OpDesc& desc, double seconds) {
    OpProfile* entry = nullptr;
    for (OpProfile& known : profile_) {
      if (known.kind == desc.kind && std::string_view(known.label) == desc.label) entry = &known;
    }
    if (entry == nullptr) entry = &profile_.emplace_back(OpProfile{.label = desc.label, .kind = desc.kind});
    ++entry->calls;
    entry->seconds += seconds;
    entry->flops += desc.flops;
    entry->read_bytes += desc.read_bytes;
  }

  EventEngine& engine_;
  const SimDeviceOptions& options_;
  const int id_;
  int requests_in_flight_ = 1;
  std::vector<OpProfile> profile_;
};

class SimDevice final : public Device {
 public:
  SimDevice(EventEngine& engine, SimDeviceOptions options)
      : engine_(engine),
        options_(std::move(options)),
        node_(engine.AddNode(options_.node)),
        arena_(engine, node_, options_),
        compute_(engine, node_, Name("compute"), true, options_),
        copies_{SimStream(engine, node_, Name("weights copy"), false, options_),
                SimStream(engine, node_, Name("kv copy"), false, options_),
                SimStream(engine, node_, Name("disk copy"), false, options_)} {}

  ~SimDevice() override {
    (void)Synchronize(compute_);
    for (SimStream& copy : copies_) (void)Synchronize(copy);
  }

  int rank() const override { return options_.rank; }
  Arena& arena() override { return arena_; }
  Stream& compute() override { return compute_; }
  Stream& copy(CopyKind kind) override { return copies_[static_cast<size_t>(kind)]; }
  std::unique_ptr<DeviceEvent> NewEvent() override { return std::make_unique<SimEvent>(); }
  int num_workers() const override { return options_.num_workers; }

  base::Status Synchronize(Stream& stream) override {
    const int id = static_cast<SimStream&>(stream).id();
    engine_.WaitFor(id, engine_.pushed(id), runtime::kForever);
    return engine_.fault(id);
  }

  bool WaitFor(const DeviceEvent& event, runtime::TimeNs timeout) override {
    const auto& point = static_cast<const SimEvent&>(event);
    return point.stream < 0 || engine_.WaitFor(point.stream, point.position, timeout);
  }

  std::vector<OpProfile> Profile() const override {
    std::vector<OpProfile> all = compute_.profile();
    for (const SimStream& copy : copies_) all.insert(all.end(), copy.profile().begin(), copy.profile().end());
    return all;
  }

 private:
  std::string Name(std::string_view stream) const { return fmt::format("rank {} {}", options_.rank, stream); }

  EventEngine& engine_;
  const SimDeviceOptions options_;
  const int node_;
  SimArena arena_;
  SimStream compute_;
  std::array<SimStream, 3> copies_;
};

}  // namespace

std::unique_ptr<Device> CreateSimDevice(EventEngine& engine, SimDeviceOptions options) {
  FB_CHECK(options.price != nullptr, "rank {} has no prices", options.rank);
  return std::make_unique<SimDevice>(engine, std::move(options));
}

std::unique_ptr<Counter> CreateSimCounter(EventEngine& engine) { return std::make_unique<SimCounter>(engine); }

void SetRequestsInFlight(Stream& stream, int requests) {
  static_cast<SimStream&>(stream).set_requests_in_flight(requests);
}

}  // namespace forebay::device
