// Counters between simulated ranks: they take no time and hold a stream until the post.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/hazard_checker.h"
#include "device/sim/sim_device.h"
#include "fabric/collectives.h"
#include "fabric/sim/sim_fabric.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::fabric {
namespace {

using runtime::TimeNs;

// `rows` is the operation's time in microseconds.
device::Operation Work(int64_t us) {
  device::Operation operation;
  operation.desc = {.kind = cost::OpKind::kLinear, .label = "work", .rows = us};
  return operation;
}

class SimCounters : public testing::Test {
 protected:
  void RunRanks(int num_ranks, const std::function<void()>& body) {
    const base::Status status = runtime_.Run([&] {
      device::EventEngine engine(runtime_, 1);
      engine.set_checker(&checker_);
      fabrics_ = CreateSimFabric(engine, num_ranks);
      for (int rank = 0; rank < num_ranks; ++rank) {
        const auto price = [](const cost::OpDesc& desc) {
          return device::SimPrice{.seconds = 1e-6 * static_cast<double>(desc.rows)};
        };
        devices_.push_back(
            CreateSimDevice(engine, {.rank = rank, .memory_bytes = 4096, .price = price}));
      }
      body();
      devices_.clear();
      fabrics_.clear();
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(checker_.status().ok());
  }
  device::Stream& stream(int rank) { return devices_[rank]->compute(); }
  base::Status Finish(int rank) { return devices_[rank]->Synchronize(stream(rank)); }

  runtime::VirtualRuntime runtime_{1};
  device::HazardChecker checker_;
  std::vector<std::unique_ptr<Fabric>> fabrics_;
  std::vector<std::unique_ptr<device::Device>> devices_;
};

TEST_F(SimCounters, AStreamWaitsForThePost) {
  RunRanks(2, [&] {
    // Rank 1: 3 us, then from 10 us on 5 us, then from 30 us on 1 us.
    stream(1).Enqueue(Work(3));
    fabrics_[1]->Await(stream(1), 0, 0, 1);
    stream(1).Enqueue(Work(5));
    fabrics_[1]->Post(stream(1), 0, 0, 1);
    fabrics_[1]->Await(stream(1), 0, 0, 2);
    stream(1).Enqueue(Work(1));
    stream(0).Enqueue(Work(10));
    fabrics_[0]->Post(stream(0), 1, 0, 1);
    fabrics_[0]->Await(stream(0), 1, 0, 1);
    EXPECT_TRUE(Finish(0).ok());
    EXPECT_EQ(runtime_.Now(), 15'000);
    stream(0).Enqueue(Work(15));
    fabrics_[0]->Post(stream(0), 1, 1, 7);  // another channel
    fabrics_[0]->Post(stream(0), 1, 0, 2);
    EXPECT_TRUE(Finish(1).ok());
    EXPECT_EQ(runtime_.Now(), 31'000);
    const device::StreamTime time = devices_[1]->TimeOf(stream(1));
    EXPECT_DOUBLE_EQ(time.busy, 9e-6);
    EXPECT_DOUBLE_EQ(time.waits[WaitCause::kPeer], 22e-6);
    EXPECT_EQ(time.waits.total(), time.waits[WaitCause::kPeer]);
    EXPECT_DOUBLE_EQ(devices_[0]->TimeOf(stream(0)).waits.total(), 5e-6);
  });
}

// Who waits until what it staged was read, and not for what a peer computes, says so.
TEST_F(SimCounters, StagingIsACauseOfItsOwn) {
  RunRanks(2, [&] {
    stream(0).Enqueue(Work(4));
    fabrics_[0]->Post(stream(0), 1, kStageChannel, 1);
    stream(0).Enqueue(Work(6));
    fabrics_[0]->Post(stream(0), 1, kTakenChannel, 1);
    fabrics_[1]->Await(stream(1), 0, kStageChannel, 1);
    fabrics_[1]->Await(stream(1), 0, kTakenChannel, 1);
    EXPECT_TRUE(Finish(1).ok());
    const WaitSeconds waits = devices_[1]->TimeOf(stream(1)).waits;
    EXPECT_DOUBLE_EQ(waits[WaitCause::kPeer], 4e-6);
    EXPECT_DOUBLE_EQ(waits[WaitCause::kStaging], 6e-6);
    EXPECT_DOUBLE_EQ(waits.total(), 10e-6);
    EXPECT_TRUE(Finish(0).ok());
  });
}

TEST_F(SimCounters, AnAbortedStreamRunsNothingMore) {
  RunRanks(3, [&] {
    fabrics_[0]->Await(stream(0), 1, 0, 1);
    stream(0).Enqueue(Work(100));
    stream(2).Enqueue(Work(100));  // waits for nobody
    runtime_.Sleep(20'000);
    fabrics_[1]->Abort({base::kInvalidArgument, "rank 1 died"});
    EXPECT_EQ(Finish(0).message(), "rank 1 died");
    EXPECT_EQ(runtime_.Now(), 20'000);
    EXPECT_TRUE(Finish(2).ok());
    EXPECT_EQ(runtime_.Now(), 100'000);
    stream(0).Enqueue(Work(100));
    EXPECT_EQ(Finish(0).message(), "rank 1 died");
    EXPECT_EQ(runtime_.Now(), 100'000);
  });
}

}  // namespace
}  // namespace forebay::fabric
