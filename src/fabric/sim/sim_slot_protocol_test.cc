#include "fabric/testing/pool_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::fabric {
namespace {

using device::LinkSharing;

constexpr int kSteps = PoolProgram().num_steps, kLayers = PoolProgram().num_layers;
constexpr uint64_t kTileBytes = PoolProgram().tile_bytes;

TEST(SimSlotProtocol, BoundByTheKernels) {
  const PoolOutcome outcome = RunPoolProgram({.kernel_ns = 10'000'000});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_TRUE(outcome.hazard.ok()) << outcome.hazard.ToString();
  EXPECT_EQ(outcome.bytes_pulled, kSteps * kLayers * kPoolRanks * 7 * kTileBytes);
  // A step begins cold: seven tiles of 1 ms, then the kernels, one behind the other.
  EXPECT_NEAR(static_cast<double>(outcome.end), kSteps * (7e9 + kLayers * 10e9), 1e6);
}

TEST(SimSlotProtocol, BoundByTheLinks) {
  const PoolOutcome outcome = RunPoolProgram({.kernel_ns = 3'000'000});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_TRUE(outcome.hazard.ok()) << outcome.hazard.ToString();
  // In rotation every ingress and every egress is full: the pulls one behind the other, then the
  // last kernel.
  EXPECT_NEAR(static_cast<double>(outcome.end), kSteps * (kLayers * 7e9 + 3e9), 1e6);
}

TEST(SimSlotProtocol, RightOnEverySeed) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const LinkSharing sharing : {LinkSharing::kFair, LinkSharing::kFifo}) {
      const PeerOrder order = seed % 2 == 0 ? PeerOrder::kRotated : PeerOrder::kAsListed;
      const PoolProgram program{.seed = seed,
                                .kernel_ns = 5'000'000,
                                .slice_bytes = 32 << 20,
                                .order = order,
                                .sharing = sharing};
      const PoolOutcome outcome = RunPoolProgram(program);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      ASSERT_TRUE(outcome.hazard.ok()) << "seed " << seed << ": " << outcome.hazard.ToString();
      EXPECT_GE(static_cast<double>(outcome.end), kSteps * (kLayers * 7e9 + 5e9) - 1e6);
    }
  }
}

// With and without a checker, layers in full or not; kernels that differ from rank to rank and feel
// the copies.
TEST(SimSlotProtocol, EveryDetailIsTheSame) {
  PoolProgram program{.kernels = 3,
                      .kernel_ns = 1'500'000,
                      .kernel_spread = 0.07,
                      .copy_memory_weight = 1,
                      .order = PeerOrder::kAsListed,
                      .detail = device::SimDetail::kFull};
  const PoolOutcome full = RunPoolProgram(program);
  ASSERT_TRUE(full.status.ok()) << full.status.ToString();
  EXPECT_TRUE(full.hazard.ok()) << full.hazard.ToString();
  program.detail = device::SimDetail::kJump;
  for (const bool checked : {true, false}) {
    program.checked = checked;
    const PoolOutcome outcome = RunPoolProgram(program);
    EXPECT_TRUE(outcome.hazard.ok()) << outcome.hazard.ToString();
    EXPECT_EQ(outcome.bytes_pulled, full.bytes_pulled);
    EXPECT_EQ(outcome.end, full.end);
    EXPECT_EQ(outcome.num_events, full.num_events);
    EXPECT_EQ(outcome.device_trace, full.device_trace);
  }
}

TEST(SimSlotProtocol, ConsumedBeforeTheKernelIsFoundAndReplayed) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const PoolProgram program{.seed = seed, .kernel_ns = 10'000'000, .consumed_too_early = true};
    const PoolOutcome outcome = RunPoolProgram(program);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.hazard.code(), device::kHazard);
    EXPECT_THAT(outcome.hazard.message(), testing::AllOf(testing::HasSubstr("'use' on rank"),
                                                         testing::HasSubstr("'pull' on rank")));
    const PoolOutcome replayed = RunPoolProgram(program);
    EXPECT_EQ(replayed.hazard.message(), outcome.hazard.message());
    EXPECT_EQ(replayed.device_trace, outcome.device_trace);
    EXPECT_EQ(replayed.task_trace, outcome.task_trace);
    EXPECT_EQ(replayed.end, outcome.end);
  }
}

}  // namespace
}  // namespace forebay::fabric
