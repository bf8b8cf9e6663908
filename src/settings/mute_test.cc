#include "settings/mute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "settings/run_options.h"

namespace forebay::settings {
namespace {

using layout::EngineOptions;
using layout::FormatLayout;
using layout::Layout;
using layout::ParseLayout;

struct Case {
  std::string flag;
  std::function<void(EngineOptions&)> give;
  std::string mute, meant;  // layouts in which it does nothing, and something
};

RunOptions In(const std::string& layout) {
  RunOptions options;
  options.engine.layout = *ParseLayout(layout);
  options.engine.machine.devices.count = options.engine.layout->num_devices();
  return options;
}

void Ship(EngineOptions& options) { options.ship.mode = StepMode{.ffn = FfnMode::kShip}; }
void Pull(EngineOptions& options) { options.ship.mode = StepMode{.ffn = FfnMode::kPull}; }

std::vector<Case> Cases() {
  const auto slots = [](EngineOptions& o) { o.pool.slots.budget_bytes = 1; };
  const auto peers = [](EngineOptions& o) { o.pool.peers = fabric::PeerOrder::kSerial; };
  const auto rows = [](EngineOptions& o) { o.ship.rounds.expert_rows = 8; };
  const auto ship_threshold = [](EngineOptions& o) { o.ship.threshold = 8; };
  const auto routed_threshold = [](EngineOptions& o) { o.ship.routed_threshold = 8; };
  const std::string copies = "dp=2", striped = "dp=2,weights=striped",
                    experts = "dp=2,experts=by_expert";
  return {
      {"--mode ship", Ship, copies, striped},
      {"--pool-slots", slots, copies, striped},
      {"--pool-slots", slots, "dp=1,weights=striped", experts},
      {"--pool-look-ahead", [](auto& o) { o.pool.slots.look_ahead_layers = 1; }, copies, striped},
      {"--pool-order as-used", [](auto& o) { o.pool.order = weights::FetchOrder::kAsUsed; }, copies,
       "dp=3,weights=by_layer"},
      {"--pool-parts matrix", [](auto& o) { o.pool.by_matrix = true; }, copies, striped},
      {"--pool-streams one", [](auto& o) { o.pool.stream_per_owner = false; }, copies,
       "dp=3,weights=by_layer"},
      {"--pool-slice", [](auto& o) { o.pool.slice_bytes = 1 << 20; }, "tp=2",
       "sp=2,weights=striped"},
      {"--pool-peers serial", peers, striped, "dp=3,weights=striped"},
      {"--pool-peers serial", peers, "dp=3,weights=by_layer", "dp=3,experts=by_expert"},
      {"--pool-wait part", [](auto& o) { o.pool.waits_by_part = true; }, striped, experts},
      {"--expert-merge", [](auto& o) { o.pool.merges_experts = true; }, striped, experts},
      {"--expert-rows", rows, striped, experts},
      {"--expert-overlap off", [](auto& o) { o.ship.rounds.hides_return = false; }, copies,
       experts},
      {"--expert-wire reduced", [](auto& o) { o.ship.rounds.reduced_wire = true; }, striped,
       experts},
      {"--ship-threshold", ship_threshold, copies, striped},
      {"--ship-threshold", ship_threshold, "sp=2,weights=striped", experts},
      {"--routed-threshold", routed_threshold, striped, experts},
      {"--steal always", [](auto& o) { o.steal = layout::Stealing::kAlways; }, "tp=2", copies},
  };
}

TEST(Mute, ThoseThatWouldDoNothingAreRefused) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.flag + " in " + each.mute);
    RunOptions mute = In(each.mute), meant = In(each.meant);
    EXPECT_TRUE(CheckMute(mute).ok());
    each.give(mute.engine);
    each.give(meant.engine);
    const base::Status status = CheckMute(mute);
    EXPECT_EQ(status.code(), base::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::StartsWith(each.flag + " with " +
                                                      FormatLayout(*mute.engine.layout) + ": "));
    EXPECT_THAT(status.message(), testing::HasSubstr("; expected "));
    EXPECT_TRUE(CheckMute(meant).ok()) << CheckMute(meant).message();
    // Which layout it will be is not known yet.
    mute.engine.layout.reset();
    mute.engine.layout_by_job = true;
    mute.engine.machine.devices.count = 8;
    EXPECT_TRUE(CheckMute(mute).ok());
    // One of those that are compared has a use for it.
    const Layout both[] = {*ParseLayout(each.mute), *ParseLayout(each.meant)};
    EXPECT_TRUE(CheckMute(mute, both).ok());
    EXPECT_FALSE(CheckMute(mute, std::span(both).first(1)).ok());
  }
}

TEST(Mute, AModeThatIsForcedLeavesNothingToThresholds) {
  const auto refused = [](void (*mode)(EngineOptions&), const auto& give) {
    RunOptions options = In("dp=2,experts=by_expert");
    mode(options.engine);
    give(options.engine);
    return !CheckMute(options).ok();
  };
  const auto threshold = [](EngineOptions& o) { o.ship.threshold = 8; };
  const auto routed = [](EngineOptions& o) { o.ship.routed_threshold = 8; };
  const auto rows = [](EngineOptions& o) { o.ship.rounds.expert_rows = 8; };
  EXPECT_TRUE(refused(Ship, threshold));
  EXPECT_TRUE(refused(Pull, threshold));
  EXPECT_TRUE(refused(Ship, routed));
  EXPECT_FALSE(refused(Pull, routed));
  EXPECT_FALSE(refused(Ship, rows));
  EXPECT_TRUE(refused(Pull, rows));
}

TEST(Mute, OneOfTwoRolesIsEnough) {
  RunOptions options = In("dp=1");
  layout::EngineOptions& engine = options.engine;
  engine.roles = {*ParseLayout("dp=1"), *ParseLayout("dp=2,weights=striped")};
  engine.pool.slots.budget_bytes = 1;
  EXPECT_TRUE(CheckMute(options).ok());
  Ship(engine);
  EXPECT_TRUE(CheckMute(options).ok());
  engine.ship.mode.reset();
  options.generation_mode = schedule::Name(StepMode{.ffn = FfnMode::kShip});
  engine.roles->generation_mode = StepMode{.ffn = FfnMode::kShip};
  EXPECT_TRUE(CheckMute(options).ok());
  std::swap(engine.roles->context, engine.roles->generation);
  EXPECT_THAT(CheckMute(options).message(),
              testing::StartsWith("--generation-mode ship with groups=1,dp=1,"));
}

}  // namespace
}  // namespace forebay::settings
