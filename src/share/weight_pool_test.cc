// A rank's pool on streams that write down what they are given and run nothing: what would be
// overwritten or read too early, or read where something else lies, whatever the layers.
#include "share/weight_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/testing/allocation_counter.h"
#include "device/cpu/arena.h"
#include "model/blocks/experts.h"
#include "share/testing/small_decoders.h"

namespace forebay::share {
namespace {

constexpr int kComputeStream = 0, kCopyStream = 1;
// How many operations of each stream have ended.
using Clock = std::array<size_t, 2>;

struct Event final : device::DeviceEvent {
  Clock ended{};
};

// An operation that was enqueued.
struct Enqueued {
  int stream;
  size_t number;  // in its stream, from 1 on
  Clock ended;    // when it begins, for certain
  device::Operation operation;

  bool EndsBefore(const Enqueued& other) const { return other.ended[stream] >= number; }
};

class RecordingStream final : public device::Stream {
 public:
  RecordingStream(int index, std::vector<Enqueued>& runs)
      : index_(index), own_(static_cast<size_t>(index)), runs_(runs) {}

  void Enqueue(const device::Operation& operation) override {
    runs_.push_back({index_, clock_[own_] + 1, clock_, operation});
    ++clock_[own_];
  }
  void Record(device::DeviceEvent& event) override { static_cast<Event&>(event).ended = clock_; }
  void Wait(const device::DeviceEvent& event) override {
    const Clock& ended = static_cast<const Event&>(event).ended;
    for (size_t stream = 0; stream < clock_.size(); ++stream)
      clock_[stream] = std::max(clock_[stream], ended[stream]);
  }
  // Nobody meets where weights are pulled.
  void Post(device::Counter&, uint64_t) override { ADD_FAILURE() << "a post"; }
  void Await(device::Counter&, uint64_t) override { ADD_FAILURE() << "a wait for a peer"; }

 private:
  const int index_;
  const size_t own_;
  std::vector<Enqueued>& runs_;
  Clock clock_{};
};

class RecordingDevice final : public device::Device {
 public:
  RecordingDevice() { runs.reserve(8192); }

  int rank() const override { return 0; }
  device::Arena& arena() override { return arena_; }
  std::unique_ptr<device::Arena> NewHostArena(uint64_t) override { return nullptr; }
  device::Stream& compute() override { return compute_; }
  device::Stream& copy(device::CopyKind) override { return copies_; }
  std::unique_ptr<device::DeviceEvent> NewEvent() override { return std::make_unique<Event>(); }
  int num_workers() const override { return 1; }
  base::Status Synchronize(device::Stream&) override { return {}; }
  base::Status FaultOf(const device::Stream&) const override { return {}; }
  bool WaitFor(const device::DeviceEvent&, runtime::TimeNs) override {
    ADD_FAILURE() << "the host waits";
    return true;
  }
  std::vector<device::OpProfile> Profile() const override { return {}; }
  std::vector<device::OpProfile> ProfileOf(const device::Stream&) const override { return {}; }
  device::StreamTime TimeOf(const device::Stream&) const override { return {}; }

  int64_t copies() const { return std::ranges::count(runs, kCopyStream, &Enqueued::stream); }

  std::vector<Enqueued> runs;

 private:
  device::CpuArena arena_{0, 64 << 20};
  RecordingStream compute_{kComputeStream, runs}, copies_{kCopyStream, runs};
};

struct Shape {
  std::vector<uint8_t> has_experts;
  int64_t experts = 5;
  int ranks = 2;
  PoolOptions options;
};

// Memory that is named and never touched.
device::Region NamedRegion(int rank, int id, const char* name, uint64_t bytes) {
  const uint64_t address = uint64_t{1} << 40 | static_cast<uint64_t>(8 * rank + id) << 32;
  return {rank, id, name, reinterpret_cast<std::byte*>(address), bytes};
}

// Steps of one rank of a group, as the layer program takes them.
class PooledRank {
 public:
  PooledRank(Shape shape, int rank) : fabrics_(fabric::CreatePullFabric(shape.ranks)) {
    shape.options.experts = {&weights::kByExpert};
    shape.options.order = weights::FetchOrder::kAsUsed;
    shape.options.slice_bytes = 4096;
    shape.options.requests_in_flight = 2;
    model::DecoderPlan decoder = SmallMixture(shape.has_experts, shape.experts);
    const std::vector<PoolPlan> plans = PlanPools(shape.options, shape.ranks, decoder).value();
    plan_ = plans[static_cast<size_t>(rank)];
    MarkPooled(plan_, &decoder);
    fabric::Communicator peers{.my_index = rank};
    for (int peer = 0; peer < shape.ranks; ++peer) {
      peers.ranks.push_back(peer);
      regions_.push_back(NamedRegion(peer, 0, "pool", plans[static_cast<size_t>(peer)].pool_bytes));
    }
    slots_ = NamedRegion(rank, 1, "slots", plan_.slots_bytes());
    const auto allocate = [&](const char* name, uint64_t bytes) {
      return device_.arena().Allocate(name, bytes, device::MemoryUse::kControl).value();
    };
    placed_ = model::LoadDecoder(decoder, 64, nullptr, *allocate("weights", decoder.bytes(64)),
                                 *allocate("tables", decoder.table_bytes()),
                                 OwnRuns(plan_, regions_[static_cast<size_t>(rank)]), 1)
                  .value();
    pool_ = std::make_unique<WeightPool>(plan_, placed_, device_, slots_,
                                         *allocate("pool tables", plan_.table_bytes),
                                         *fabrics_[static_cast<size_t>(rank)], peers);
  }

  // After what a test changes of the regions.
  base::Status Connect() {
    for (const device::Region& region : regions_)
      FB_RETURN_IF_ERROR(fabrics_[static_cast<size_t>(region.rank)]->Publish(region));
    return pool_->Connect("pool");
  }

  // `early`: the mistake of the paper's public code, *consumed* recorded before the kernel.
  void Step(FfnMode mode, bool early = false) {
    pool_->BeginStep({.ffn = mode});
    copies_at_begin_ = device_.copies();
    for (int64_t layer = 0; layer < static_cast<int64_t>(placed_.layers.size()); ++layer) {
      if (pool_->Shares(layer, model::kExpertsGateUp)) RunLayer(layer, early);
    }
    pool_->EndStep();
  }

  // Pairs of operations that touch the same bytes, one of them writing, in no order; and experts
  // that a kernel read where others lay.
  int Mistakes() const {
    int mistakes = 0;
    const std::vector<Enqueued>& runs = device_.runs;
    for (size_t later = 0; later < runs.size(); ++later) {
      for (size_t first = 0; first < later; ++first) {
        if (runs[first].stream != runs[later].stream && Conflict(runs[first], runs[later]) &&
            !runs[first].EndsBefore(runs[later]))
          ++mistakes;
      }
    }
    return mistakes + misread_;
  }

  RecordingDevice& device() { return device_; }
  WeightPool& pool() { return *pool_; }
  std::vector<device::Region>& regions() { return regions_; }
  // Copies that were enqueued by the time the last step had begun, before its first layer.
  int64_t copies_at_begin() const { return copies_at_begin_; }

 private:
  static bool Conflict(const Enqueued& a, const Enqueued& b) {
    for (int i = 0; i < a.operation.num_accesses; ++i) {
      for (int j = 0; j < b.operation.num_accesses; ++j) {
        const device::Access &x = a.operation.accesses[i], &y = b.operation.accesses[j];
        const auto *x_at = static_cast<const std::byte*>(x.data),
                   *y_at = static_cast<const std::byte*>(y.data);
        if ((x.write || y.write) && x_at < y_at + y.bytes && y_at < x_at + x.bytes) return true;
      }
    }
    return false;
  }

  void RunLayer(int64_t layer, bool early) {
    device::Operation group;
    group.desc.label = "group";
    device_.compute().Enqueue(group.Writes(offsets_.data(), sizeof(offsets_)));
    pool_->PullWanted(layer, offsets_.data());
    const std::span<const model::ExpertPart> parts = pool_->Parts(layer);
    const model::Role roles[] = {model::kExpertsGateUp, model::kExpertsDown};
    if (parts.empty()) {
      for (int matrix = 0; matrix < 2; ++matrix) {
        const weights::PlacedWeight& placed = pool_->Acquire(layer, roles[matrix]);
        if (early) pool_->Release(layer, roles[matrix]);
        Use(layer, matrix, placed, {0, placed.num_experts});
        if (!early) pool_->Release(layer, roles[matrix]);
      }
      return;
    }
    const weights::PlacedWeight* placed[2];
    for (int matrix = 0; matrix < 2; ++matrix)
      placed[matrix] = &pool_->Acquire(layer, roles[matrix]);
    for (size_t part = 0; part < parts.size(); ++part) {
      if (part > 0) pool_->AcquirePart(layer, part);
      for (int matrix = 0; matrix < 2; ++matrix) Use(layer, matrix, *placed[matrix], parts[part]);
    }
    for (const model::Role& role : roles) pool_->Release(layer, role);
  }

  // A kernel that reads these experts of the layer's matrix.
  void Use(int64_t layer, int matrix, const weights::PlacedWeight& placed,
           const model::ExpertPart& experts) {
    const weights::LayerRuns& runs = plan_.book->group().layer(layer);
    device::Operation kernel;
    kernel.desc.label = "experts";
    for (int32_t expert = experts.begin; expert < experts.end; ++expert) {
      const int64_t run = int64_t{matrix} * runs.num_leaves + expert;
      const uint64_t bytes = runs.runs[static_cast<size_t>(run)].bytes;
      kernel.Reads(placed.runs[expert], bytes);
      if (!IsRun({layer, run}, OriginOf(placed.runs[expert]))) ++misread_;
      if (!IsRun({layer, run}, OriginOf(placed.runs[expert] + bytes - 1) - (bytes - 1))) ++misread_;
    }
    device_.compute().Enqueue(kernel);
  }

  // Where the byte comes from that lies at `at`, after all copies that were enqueued.
  const std::byte* OriginOf(const std::byte* at) const {
    for (auto run = device_.runs.rbegin(); run != device_.runs.rend(); ++run) {
      if (run->stream != kCopyStream) continue;
      const device::Access &from = run->operation.accesses[0], &to = run->operation.accesses[1];
      const std::ptrdiff_t offset = at - static_cast<const std::byte*>(to.data);
      if (offset >= 0 && offset < static_cast<std::ptrdiff_t>(to.bytes))
        return static_cast<const std::byte*>(from.data) + offset;
    }
    return at;
  }
  bool IsRun(const weights::RunId& run, const std::byte* at) const {
    return std::ranges::any_of(regions_, [&](const device::Region& region) {
      const uint64_t offset = plan_.book->OffsetOf(region.rank, run);
      return offset != weights::PoolBook::kNotHeld && region.data + offset == at;
    });
  }

  std::vector<std::unique_ptr<fabric::Fabric>> fabrics_;
  RecordingDevice device_;
  PoolPlan plan_;
  std::vector<device::Region> regions_;  // by rank
  device::Region slots_;
  model::DecoderWeights placed_;
  std::unique_ptr<WeightPool> pool_;
  std::array<int32_t, 16> offsets_{};
  int64_t copies_at_begin_ = 0;
  int misread_ = 0;
};

// One layer, an odd number, and such as stand apart; the paper's two slots, more, and by matrix.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const std::vector<uint8_t>& has_experts :
       {std::vector<uint8_t>{1}, {0, 0, 1}, {1, 1}, {1, 1, 1}, {0, 1, 0, 1, 1}}) {
    for (const int ranks : {2, 3}) {
      for (const int64_t ahead : {1, 3}) {
        for (const bool by_matrix : {false, true}) {
          Shape& shape = shapes.emplace_back(Shape{.has_experts = has_experts, .ranks = ranks});
          shape.options.slots.look_ahead_layers = ahead;
          shape.options.by_matrix = by_matrix;
        }
        Shape& in_parts = shapes.emplace_back(Shape{.has_experts = has_experts, .ranks = ranks});
        in_parts.options.slots.look_ahead_layers = ahead;
        in_parts.options.waits_by_part = true;
      }
    }
  }
  return shapes;
}

TEST(WeightPool, KernelsReadWhatCameAndNothingIsOverwrittenBefore) {
  int64_t wanted = 0;
  for (const Shape& shape : Shapes()) {
    for (int number = 0; number < shape.ranks; ++number) {
      SCOPED_TRACE(fmt::format("rank {} of {}, {} layers, {} ahead, {}", number, shape.ranks,
                               shape.has_experts.size(), shape.options.slots.look_ahead_layers,
                               shape.options.by_matrix));
      PooledRank rank(shape, number);
      ASSERT_TRUE(rank.Connect().ok());
      using enum FfnMode;
      for (const FfnMode mode : {kPull, kPull, kRouted, kRouted, kPull}) rank.Step(mode);
      EXPECT_EQ(rank.Mistakes(), 0);
      EXPECT_GT(rank.device().copies(), 0);
      wanted += std::ranges::count_if(rank.device().runs, [](const Enqueued& run) {
        return std::string_view(run.operation.desc.label) == "pull_wanted";
      });
    }
  }
  EXPECT_GT(wanted, 0);
}

TEST(WeightPool, ConsumedBeforeTheKernelIsFoundOut) {
  for (const Shape& shape : Shapes()) {
    if (shape.options.waits_by_part) continue;
    PooledRank rank(shape, 0);
    ASSERT_TRUE(rank.Connect().ok());
    for (int step = 0; step < 3; ++step) rank.Step(FfnMode::kPull, /*early=*/true);
    EXPECT_GT(rank.Mistakes(), 0);
  }
}

// The first step's layers come once it has begun; those of the others while the last one ran.
TEST(WeightPool, OnlyTheFirstStepBeginsCold) {
  for (const Shape& shape : Shapes()) {
    PooledRank rank(shape, 1);
    ASSERT_TRUE(rank.Connect().ok());
    EXPECT_EQ(rank.device().copies(), 0);
    rank.Step(FfnMode::kPull);
    EXPECT_GT(rank.copies_at_begin(), 0);
    int64_t before = rank.device().copies();
    const int64_t ahead = rank.copies_at_begin();
    const uint64_t bytes_ahead = rank.pool().bytes_ahead();
    EXPECT_GT(bytes_ahead, 0u);
    int64_t a_step = 0;
    for (int step = 1; step < 4; ++step) {
      rank.Step(FfnMode::kPull);
      EXPECT_EQ(rank.copies_at_begin(), before) << "the step began cold";
      const int64_t copies = rank.device().copies() - std::exchange(before, rank.device().copies());
      EXPECT_EQ(std::exchange(a_step, copies), step == 1 ? 0 : copies);
      EXPECT_EQ(rank.pool().bytes_ahead(), bytes_ahead);
    }
    EXPECT_EQ(rank.device().copies(), 4 * a_step + ahead);
  }
}

// As public code has it, to compare with: nothing comes before its step.
TEST(WeightPool, PullsMayStopAtTheBorderOfAStep) {
  for (Shape& shape : Shapes()) {
    shape.options.begins_cold = true;
    PooledRank rank(shape, 1);
    ASSERT_TRUE(rank.Connect().ok());
    int64_t before = 0;
    for (int step = 0; step < 3; ++step) {
      rank.Step(FfnMode::kPull);
      EXPECT_GT(rank.copies_at_begin(), before);
      EXPECT_EQ(rank.pool().bytes_ahead(), 0u);
      before = rank.device().copies();
    }
    EXPECT_EQ(rank.Mistakes(), 0);
  }
}

TEST(WeightPool, AStepAllocatesNothing) {
  for (const Shape& shape : Shapes()) {
    PooledRank rank(shape, 0);
    ASSERT_TRUE(rank.Connect().ok());
    rank.Step(FfnMode::kPull);
    const size_t bytes = base::PeakBytes([&] {
      for (const FfnMode mode : {FfnMode::kPull, FfnMode::kRouted, FfnMode::kPull}) rank.Step(mode);
    });
    EXPECT_EQ(bytes, 0u);
  }
}

TEST(WeightPool, AnErrorNamesRankLayerAndTransfer) {
  PooledRank rank({.has_experts = {0, 1, 0, 1}}, 0);
  rank.regions()[1].bytes /= 2;  // which has the second layer of experts
  const base::Status status = rank.Connect();
  EXPECT_EQ(status.code(), fabric::kOutOfRange);
  EXPECT_THAT(status.message(), testing::StartsWith("layer 3: rank 0 pulls"));
  EXPECT_THAT(status.message(), testing::HasSubstr("of region 0 ('pool') of rank 1, which has"));
}

}  // namespace
}  // namespace forebay::share
