// What the layer program declares of the KV cache: a checker sees a step that touches blocks which
// are on their way to another rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/hazard_checker.h"
#include "device/sim/sim_device.h"
#include "fabric/sim/sim_fabric.h"
#include "model/builtin_configs.h"
#include "model/testing/shape_decoder.h"

namespace forebay::model {
namespace {

constexpr int kBlocksPerSequence = 4;

// A step of one row for each sequence, each at its position; sequence s has the blocks from s *
// kBlocksPerSequence on.
struct Step {
  Step(const std::vector<int32_t>& of, int32_t position) {
    for (uint32_t block = 0; block < 2 * kBlocksPerSequence; ++block) table.push_back(block);
    for (const int32_t sequence : of) {
      const auto row = static_cast<int32_t>(sequences.size());
      sequences.push_back({row, 1, position, sequence});
      context.Add(position, 1);
    }
    const auto rows = static_cast<int32_t>(of.size());
    batch = {.num_rows = rows,
             .num_sequences = rows,
             .own_end = rows,
             .sequences = sequences.data(),
             .table_stride = kBlocksPerSequence};
    batch.group_tables[0] = table.data();
  }
  std::vector<uint32_t> table;
  std::vector<kernels::SequenceRows> sequences;
  kernels::ContextSums context;
  kernels::StepBatch batch;
};

struct Rank {
  Rank(device::EventEngine& engine, std::unique_ptr<fabric::Fabric> own_fabric,
       const ModelConfig& config)
      : fabric(std::move(own_fabric)),
        device(device::CreateSimDevice(
            engine, {.rank = fabric->rank(),
                     .memory_bytes = uint64_t{100} << 30,
                     .price = [](const cost::OpDesc&) { return device::SimPrice{1e-5}; },
                     .node = {.egress_bytes_per_s = 1e9}})),
        decoder(MakeShapeDecoder(config, *device, 8)) {
    const auto groups = PlanKvGroups(config, decoder.dtype, decoder.weights.shard);
    block_bytes = static_cast<uint64_t>(groups[0].layout.block_stride);
    kv = device->arena().Allocate("kv", 2 * kBlocksPerSequence * block_bytes + 64).value();
    decoder.kv = kv::CutCache(groups, 2 * kBlocksPerSequence, false, kv->data);
    FB_CHECK(fabric->Publish(*kv).ok(), "publish");
  }
  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<device::Device> device;
  Decoder decoder;
  const device::Region* kv;
  uint64_t block_bytes;
};

enum class Mistake { kNone, kGiverGoesOn, kThiefDoesNotWait };

// Rank 0 decodes two sequences and lends the first, of two blocks, to rank 1, which pulls them and
// goes on with it.
base::Status RunTheft(Mistake mistake) {
  ModelConfig config = LoadBuiltinConfig("Llama-3-8B").value();
  config.num_layers = 4;
  config.sliding_window.resize(4);
  device::HazardChecker checker;
  runtime::VirtualRuntime runtime(1);
  const base::Status status = runtime.Run([&] {
    device::EventEngine engine(runtime, 1);
    engine.set_checker(&checker);
    std::vector<std::unique_ptr<Rank>> ranks;
    for (auto& fabric : fabric::CreateSimFabric(engine, 2))
      ranks.push_back(std::make_unique<Rank>(engine, std::move(fabric), config));
    Rank &giver = *ranks[0], &thief = *ranks[1];
    const Step both({0, 1}, 40), other({1}, 41), again({0, 1}, 41), stolen({0}, 41);
    giver.decoder.Forward(both.batch, both.context);
    FB_CHECK(giver.device->Synchronize(giver.device->compute()).ok(), "no faults here");

    fabric::CopyPlan plan;
    plan.spans.push_back({.rank = 0,
                          .region = giver.kv->id,
                          .offset = 0,
                          .bytes = 2 * giver.block_bytes,
                          .destination = thief.kv->data});
    const auto pulled = thief.device->NewEvent();
    device::Stream& copies = thief.device->copy(device::CopyKind::kKvUp);
    FB_CHECK(thief.fabric->Pull(copies, plan, {}, {}).ok(), "pull");
    copies.Record(*pulled);
    const Step& next = mistake == Mistake::kGiverGoesOn ? again : other;
    giver.decoder.Forward(next.batch, next.context);
    if (mistake != Mistake::kThiefDoesNotWait) thief.device->compute().Wait(*pulled);
    thief.decoder.Forward(stolen.batch, stolen.context);
    for (auto& rank : ranks) {
      FB_CHECK(rank->device->Synchronize(rank->device->compute()).ok() &&
                   rank->device->Synchronize(rank->device->copy(device::CopyKind::kKvUp)).ok(),
               "no faults here");
    }
  });
  FB_CHECK(status.ok(), "{}", status.ToString());
  EXPECT_GT(checker.num_operations(), 0);
  return checker.status();
}

TEST(KvHazards, AStepThatTouchesBlocksOnTheirWayIsFound) {
  EXPECT_TRUE(RunTheft(Mistake::kNone).ok());
  const base::Status written = RunTheft(Mistake::kGiverGoesOn),
                     read = RunTheft(Mistake::kThiefDoesNotWait);
  EXPECT_EQ(written.code(), device::kHazard);
  EXPECT_THAT(written.message(),
              testing::AllOf(testing::HasSubstr("'pull' on rank 1 kv copy up reads"),
                             testing::HasSubstr("'rope_kv' on rank 0 compute writes")));
  EXPECT_EQ(read.code(), device::kHazard);
  EXPECT_THAT(read.message(),
              testing::AllOf(testing::HasSubstr("'pull' on rank 1 kv copy up writes"),
                             testing::HasSubstr("on rank 1 compute")));
}

}  // namespace
}  // namespace forebay::model
