// Layers that the simulator prices once against layers that run in full: same times, bytes and
// counters.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cost/model.h"
#include "device/copy.h"
#include "device/sim/sim_device.h"
#include "fabric/sim/sim_fabric.h"
#include "model/builtin_configs.h"
#include "model/repeat_layers.h"
#include "model/testing/shape_decoder.h"

namespace forebay::model {
namespace {

using device::CopyKind;
using device::SimDetail;
using device::TimePs;

// What crosses ranks: nothing; pulls that start with a step and run beside its layers; pulls that
// the layers wait for; meetings in layers, of neighbours and of all; and these with pulls that
// begin and end while the layers run; rows that go to all and come back, with meetings before; and
// these beside such pulls.
enum class Traffic {
  kNone,
  kBeside,
  kInside,
  kMeetings,
  kMeetingsBeside,
  kShipped,
  kShippedBeside
};

// A rank of a random program. What is random is drawn from the program's seed alone, whatever the
// detail.
class RandomRank {
 public:
  RandomRank(device::EventEngine& engine, std::unique_ptr<fabric::Fabric> fabric, uint64_t seed,
             Traffic traffic, SimDetail detail)
      : rng_(base::Combine64(seed, static_cast<uint64_t>(fabric->rank()))),
        traffic_(traffic),
        fabric_(std::move(fabric)) {
    device_ = device::CreateSimDevice(engine, {.rank = fabric_->rank(),
                                               .memory_bytes = uint64_t{8} << 30,
                                               .price = &PriceOf,
                                               .detail = detail,
                                               .profile = true});
    weights_ = device_->arena().Allocate("weights", kWeightBytes).value();
    slots_ = device_->arena().Allocate("slots", 2 * kWeightBytes).value();
    FB_CHECK(fabric_->Publish(*weights_).ok(), "publish");
    for (auto* events : {&ready_, &consumed_}) {
      for (int slot = 0; slot < 2; ++slot) events->push_back(device_->NewEvent());
    }
    // Ranks that meet have equally many layers.
    base::Rng common(seed);
    base::Rng& layers = meets() ? common : rng_;
    kinds_.resize(1 + layers.Below(4));
    for (Kind& kind : kinds_) {
      kind.layers = static_cast<int64_t>(48 / kinds_.size() + layers.Below(8));
      const size_t operations = 3 + rng_.Below(8);
      for (size_t i = 0; i < operations; ++i)
        kind.body.push_back(RandomOperation(static_cast<int64_t>(i)));
      for (int peer = 0; ships() && peer < fabric_->num_ranks(); ++peer)
        kind.shipped_bytes.push_back(rng_.Below(4) == 0 ? 0 : (1 + rng_.Below(64)) << 14);
    }
    plan_.spans.push_back(
        {(fabric_->rank() + 1) % fabric_->num_ranks(), weights_->id, 0, 0, slots_->data});
    plan_.slice_bytes = 4 << 20;
  }

  void RunSteps(int steps) {
    const auto kv_done = device_->NewEvent(), layers_done = device_->NewEvent();
    device::Stream &compute = device_->compute(), &kv = device_->copy(CopyKind::kKvUp);
    for (step_ = 0; step_ < steps; ++step_) {
      compute.Enqueue(RandomOperation(100));
      const auto pull_beside = [&] {
        Pull(kv, 0, (1 + rng_.Below(32)) << 20);
        kv.Record(*kv_done);
      };
      if (traffic_ == Traffic::kBeside) pull_beside();
      uint16_t layer_kind = 0;
      int64_t layer = 0;
      for (const Kind& kind : kinds_) {
        const StepKey key{.layer_kind = layer_kind++, .row_bucket = 1};
        RepeatLayers(
            compute, key, {layer, layer + kind.layers}, 1, [&](int64_t l) { Body(kind, l); },
            [&] { return met_; },
            [&](const Met& before, int64_t others) {
              for (size_t i = 0; i < 2; ++i)
                met_[i] += static_cast<uint64_t>(others) * (met_[i] - before[i]);
            });
        layer += kind.layers;
      }
      if (waits_for_pulls()) {
        // While the layers run.
        compute.Record(*layers_done);
        device_->WaitFor(*layers_done, 10'000 * static_cast<int64_t>(1 + rng_.Below(400)));
        pull_beside();
      }
      if (traffic_ == Traffic::kBeside || waits_for_pulls()) compute.Wait(*kv_done);
      device::Operation count =
          device::MakeOperation<&Count>({.label = "count"}, CountArgs{&counted_});
      count.control = true;
      compute.Enqueue(count);
      FB_CHECK(device_->Synchronize(compute).ok(), "no faults here");
    }
  }

  bool meets() const {
    return traffic_ == Traffic::kMeetings || traffic_ == Traffic::kMeetingsBeside || ships();
  }
  bool ships() const {
    return traffic_ == Traffic::kShipped || traffic_ == Traffic::kShippedBeside;
  }
  bool waits_for_pulls() const {
    return traffic_ == Traffic::kMeetingsBeside || traffic_ == Traffic::kShippedBeside;
  }
  int bodies() const { return bodies_; }
  int counted() const { return counted_; }
  uint64_t bytes_pulled() const { return fabric_->bytes_pulled(); }
  device::Device& device() { return *device_; }

 private:
  static constexpr uint64_t kWeightBytes = 1 << 30;
  using Met = std::array<uint64_t, 2>;  // by channel
  struct Kind {
    int64_t layers;
    std::vector<device::Operation> body;
    std::vector<uint64_t> shipped_bytes;  // from each rank, where rows are shipped
  };
  struct CountArgs {
    int* counted;
  };
  static void Count(const CountArgs& args, const device::WorkerContext&) { ++*args.counted; }

  // In units that suit the test: read_bytes is the share of memory-bound time, depth what attention
  // adds.
  static device::SimPrice PriceOf(const cost::OpDesc& desc) {
    return {.seconds = desc.flops + 1e-9 * static_cast<double>(desc.depth),
            .memory_share = desc.read_bytes,
            .compute_bound = desc.read_bytes == 0};
  }

  device::Operation RandomOperation(int64_t number) {
    device::Operation operation;
    operation.desc = {.kind = rng_.Below(4) == 0 ? cost::OpKind::kAttention : cost::OpKind::kLinear,
                      .label = "random",
                      .columns = number,
                      .flops = 1e-6 * (1 + 39 * rng_.Uniform()),
                      .read_bytes = rng_.Below(3) == 0 ? 0 : rng_.Uniform()};
    return operation;
  }

  void Pull(device::Stream& stream, int slot, uint64_t bytes) {
    plan_.spans[0].bytes = bytes;
    plan_.spans[0].destination = slots_->data + static_cast<uint64_t>(slot) * kWeightBytes;
    FB_CHECK(fabric_->Pull(stream, plan_, {}, {}).ok(), "pull");
  }

  // Channel 0: of two neighbours; channel 1: of all ranks.
  void Meet(int channel) {
    const uint64_t value = ++met_[static_cast<size_t>(channel)];
    const auto with = [&](const auto& visit) {
      for (int peer = 0; peer < fabric_->num_ranks(); ++peer) {
        if (peer != fabric_->rank() && (channel == 1 || peer / 2 == fabric_->rank() / 2))
          visit(peer);
      }
    };
    with([&](int peer) { fabric_->Post(device_->compute(), peer, channel, value); });
    with([&](int peer) { fabric_->Await(device_->compute(), peer, channel, value); });
  }

  void Ship(const Kind& kind) {
    Meet(1);
    for (int peer = 0; peer < fabric_->num_ranks(); ++peer) {
      const uint64_t bytes = kind.shipped_bytes[static_cast<size_t>(peer)];
      if (bytes == 0 || peer == fabric_->rank()) continue;
      const device::Region& theirs = *fabric_->FindRegion(peer, "weights").value();
      device_->compute().Enqueue(device::MakeCopy("ship", slots_->data, theirs.data, bytes));
    }
  }

  void Body(const Kind& kind, int64_t layer) {
    ++bodies_;
    device::Stream &compute = device_->compute(), &copy = device_->copy(CopyKind::kWeights);
    const size_t slot = static_cast<size_t>(layer % 2);
    for (size_t i = 0; i < kind.body.size(); ++i) {
      if (traffic_ == Traffic::kInside && i == 1) {
        copy.Wait(*consumed_[slot]);
        Pull(copy, static_cast<int>(slot), 8 << 20);
        copy.Record(*ready_[slot]);
        compute.Wait(*ready_[slot]);
      }
      if (ships() && (i == 1 || i == 2)) {
        Ship(kind);
      } else if (meets() && i == 1) {
        Meet(0);
      } else if (meets() && i == 2) {
        Meet(1);
      }
      device::Operation operation = kind.body[i];
      if (operation.desc.kind == cost::OpKind::kAttention) operation.desc.depth = 1000 * step_;
      compute.Enqueue(operation);
    }
    if (traffic_ == Traffic::kInside) compute.Record(*consumed_[slot]);
  }

  base::Rng rng_;
  const Traffic traffic_;
  const std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<device::Device> device_;
  const device::Region *weights_, *slots_;
  std::vector<std::unique_ptr<device::DeviceEvent>> ready_, consumed_;
  std::vector<Kind> kinds_;
  fabric::CopyPlan plan_;
  Met met_{};
  int step_ = 0, bodies_ = 0, counted_ = 0;
};

struct Outcome {
  std::vector<TimePs> ends;     // one for each rank
  std::vector<double> carried;  // bytes, by link
  std::vector<double> waited;   // seconds, one for each rank
  int64_t events = 0;
  std::vector<device::OpProfile> profiles;
  uint64_t bytes_pulled = 0;
  int bodies = 0, counted = 0;
};

Outcome RunRandomProgram(uint64_t seed, Traffic traffic, SimDetail detail) {
  base::Rng rng(seed);
  const int num_ranks = 2 + static_cast<int>(rng.Below(7)),
            steps = 2 + static_cast<int>(rng.Below(3));
  runtime::VirtualRuntime runtime(seed);
  Outcome outcome;
  const base::Status status = runtime.Run([&] {
    device::EventEngine engine(runtime, seed);
    std::vector<std::unique_ptr<RandomRank>> ranks;
    for (auto& fabric : fabric::CreateSimFabric(engine, num_ranks)) {
      ranks.push_back(
          std::make_unique<RandomRank>(engine, std::move(fabric), seed, traffic, detail));
    }
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    outcome.ends.resize(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      tasks.push_back(runtime.Spawn({.name = "rank"}, [&, rank] {
        ranks[rank]->RunSteps(steps);
        outcome.ends[rank] = engine.now();
      }));
    }
    for (auto& task : tasks) task->Join();
    engine.links().CheckInvariants();
    outcome.events = engine.num_events();
    for (int rank = 0; rank < num_ranks; ++rank) {
      outcome.carried.push_back(engine.links().carried(engine.ingress_link(rank)));
      outcome.carried.push_back(engine.links().carried(engine.egress_link(rank)));
      outcome.bytes_pulled += ranks[rank]->bytes_pulled();
      outcome.bodies += ranks[rank]->bodies();
      device::Device& device = ranks[rank]->device();
      outcome.waited.push_back(device.TimeOf(device.compute()).waits.total());
      outcome.counted += ranks[rank]->counted();
      for (const device::OpProfile& profile : ranks[rank]->device().Profile())
        outcome.profiles.push_back(profile);
    }
  });
  FB_CHECK(status.ok(), "{}", status.ToString());
  return outcome;
}

void ExpectEqual(const Outcome& jump, const Outcome& full, double tolerance) {
  EXPECT_EQ(jump.bytes_pulled, full.bytes_pulled);
  EXPECT_EQ(jump.counted, full.counted);
  for (size_t link = 0; link < full.carried.size(); ++link)
    EXPECT_NEAR(jump.carried[link], full.carried[link], 1e3);
  ASSERT_EQ(jump.profiles.size(), full.profiles.size());
  for (size_t i = 0; i < full.profiles.size(); ++i) {
    const device::OpProfile &a = jump.profiles[i], &b = full.profiles[i];
    EXPECT_EQ(a.calls, b.calls);
    EXPECT_NEAR(a.seconds, b.seconds, 1e-9 * b.seconds);
    EXPECT_NEAR(a.flops, b.flops, 1e-9 * b.flops);
    EXPECT_NEAR(a.read_bytes, b.read_bytes, 1e-9 * b.read_bytes);
  }
  for (size_t rank = 0; rank < full.ends.size(); ++rank) {
    const auto a = static_cast<double>(jump.ends[rank]), b = static_cast<double>(full.ends[rank]);
    EXPECT_NEAR(a, b, tolerance * b) << "rank " << rank;
  }
}

TEST(SimDetail, EightyRandomProgramsAgreeWithFullDetail) {
  double farthest = 0;
  int64_t fewer_events = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    const auto traffic = static_cast<Traffic>(seed % 5);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Outcome jump = RunRandomProgram(seed, traffic, SimDetail::kJump);
    const Outcome full = RunRandomProgram(seed, traffic, SimDetail::kFull);
    ExpectEqual(jump, full,
                traffic == Traffic::kBeside || traffic == Traffic::kInside ? 1e-3 : 1e-9);
    if (traffic == Traffic::kMeetings) {
      // A few times as many for what is not a layer, and no more.
      EXPECT_EQ(jump.ends, full.ends);
      EXPECT_EQ(jump.waited, full.waited);
      EXPECT_LT(jump.events * 8, full.events);
    }
    if (traffic == Traffic::kMeetingsBeside) fewer_events += full.events - jump.events;
    if (traffic == Traffic::kInside) {
      EXPECT_EQ(jump.bodies, full.bodies);
      EXPECT_EQ(jump.ends, full.ends);
    } else {
      EXPECT_LT(jump.bodies * 8, full.bodies);
    }
    for (size_t rank = 0; rank < full.ends.size(); ++rank) {
      farthest = std::max(farthest, std::abs(static_cast<double>(jump.ends[rank]) /
                                                 static_cast<double>(full.ends[rank]) -
                                             1));
    }
  }
  EXPECT_GT(fewer_events, 0);
  fmt::print("farthest from full detail: {:.1e}\n", farthest);
}

// Rows go to all ranks and come back, as much between any two as was drawn, twice a layer.
TEST(SimDetail, RandomShippedLayersAgreeWithFullDetail) {
  int64_t fewer_events = 0;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    const Traffic traffic = seed % 2 == 0 ? Traffic::kShipped : Traffic::kShippedBeside;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Outcome jump = RunRandomProgram(seed, traffic, SimDetail::kJump);
    const Outcome full = RunRandomProgram(seed, traffic, SimDetail::kFull);
    ExpectEqual(jump, full, 1e-9);
    for (size_t rank = 0; rank < full.waited.size(); ++rank)
      EXPECT_NEAR(jump.waited[rank], full.waited[rank], 1e-9 * full.waited[rank]);
    EXPECT_LT(jump.bodies * 8, full.bodies);
    if (traffic == Traffic::kShipped) {
      EXPECT_LT(jump.events * 3, full.events);
    }
    fewer_events += full.events - jump.events;
  }
  EXPECT_GT(fewer_events, 0);
}

// The real layer program at the cost model's prices, layers with and without a window, steps whose
// rows come again.
TEST(SimDetail, ADecoderTakesTheSameTime) {
  ModelConfig config = LoadBuiltinConfig("Qwen3-32B").value();
  for (size_t layer = 0; layer < config.sliding_window.size(); ++layer)
    config.sliding_window[layer] = layer < 40 ? 0 : 512;
  const cost::DeviceProfile profile = cost::LoadProfile("h200").value();
  std::vector<TimePs> ends[2];
  int64_t events[2];
  for (const SimDetail detail : {SimDetail::kJump, SimDetail::kFull}) {
    const auto which = static_cast<size_t>(detail);
    runtime::VirtualRuntime runtime(1);
    const base::Status status = runtime.Run([&] {
      device::EventEngine engine(runtime, 1);
      const auto device = device::CreateSimDevice(
          engine, {.memory_bytes = uint64_t{100} << 30,
                   .price =
                       [&](const cost::OpDesc& op) {
                         return device::SimPrice{cost::Price(op, profile).seconds};
                       },
                   .detail = detail});
      const Decoder decoder = MakeShapeDecoder(config, *device, 512);
      for (int step = 0; step < 12; ++step) {
        const int32_t prefill = step % 3 == 0 ? 200 : 0, decode = 8 + step % 2;
        kernels::ContextSums context;
        if (prefill > 0) context.Add(0, prefill);
        for (int i = 0; i < decode; ++i) context.Add(1000 + 50 * i + step, 1);
        const kernels::StepBatch batch{.num_rows = prefill + decode,
                                       .num_sequences = decode + (prefill > 0),
                                       .num_logit_rows = decode};
        decoder.Forward(batch, context);
        decoder.WantedRows(batch, 0, decode);
        decoder.Logits(decode);
        EXPECT_TRUE(device->Synchronize(device->compute()).ok());
        ends[which].push_back(engine.now());
      }
      events[which] = engine.num_events();
    });
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_EQ(events[0], 12 * (1 + 2 + 2));
  EXPECT_EQ(events[1], 12 * (1 + 64 * 8 + 2));
}

}  // namespace
}  // namespace forebay::model
