// Layouts of several ranks: the same answers, digests included, as one rank gives; and counters
// that prove the modes ran.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "choose/create_engine.h"
#include "choose/decide.h"
#include "device/cpu/cpu_device.h"
#include "kernels/testing/tile_sets.h"
#include "layout/layout.h"
#include "runtime/real/real_runtime.h"
#include "schedule/step_mode.h"
#include "testing/layout_fixture.h"
#include "testing/list_source.h"

namespace forebay {
namespace {

TEST_P(LayoutTest, EveryPlacementGivesTheSameDigests) {
  const Answers expected = Run("cpu", "");
  ASSERT_EQ(expected.size(), static_cast<size_t>(kRequests + (kRequests + 4) / 5));
  EXPECT_EQ(stats_.mode_counters.count("bytes_pulled"), 0u);
  const uint64_t alone = weight_bytes_;
  for (const int ranks : {2, 3, 4}) {
    for (const std::string placement : {"by_layer", "striped", "sharded"}) {
      if (placement == "striped" && ranks > 3) continue;  // these models have 3 leaves
      for (const char* attention : {"off", "on"}) {
        const std::string layout =
            fmt::format("dp={},weights={},pool-attention={}", ranks, placement, attention);
        EXPECT_EQ(Run(fmt::format("{}xcpu", ranks), layout), expected) << layout;
        EXPECT_GT(stats_.mode_counters["bytes_pulled"], 0) << layout;
        EXPECT_GT(stats_.mode_counters["steps_pull"], 0) << layout;
        EXPECT_LT(weight_bytes_, alone * static_cast<uint64_t>(ranks)) << layout;
      }
    }
  }
}

TEST_P(LayoutTest, EveryCutGivesTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const std::pair<const char*, const char*> layouts[] = {
      {"2xcpu", "tp=2"},
      {"3xcpu", "tp=3"},
      {"2xcpu", "pp=2"},
      {"4xcpu", "tp=2,pp=2"},
      {"4xcpu", "dp=2,tp=2"},
      {"2xcpu", "sp=2"},
      {"3xcpu", "sp=3"},
      {"4xcpu", "sp=2,pp=2"},
      {"4xcpu", "dp=2,sp=2"},
      {"4xcpu", "dp=2,tp=2,weights=by_layer"},
      {"4xcpu", "dp=2,pp=2,weights=sharded,pool-attention=on"},
      {"4xcpu", "groups=2,dp=2,weights=by_layer"},
      {"8xcpu", "groups=2,dp=2,tp=2,weights=sharded"}};
  int ran = 0;
  for (const auto& [devices, layout] : layouts) {
    const auto parsed = layout::ParseLayout(layout);
    ASSERT_TRUE(parsed.ok()) << layout;
    if (!layout::ValidateLayout(*parsed, files_.config, parsed->num_devices()).ok()) continue;
    options_.shift.mode.reset();
    if (parsed->sp > 1) options_.shift.mode = parsed->degrees();
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_EQ(stats_.mode_counters.contains("bytes_pulled"), parsed->pools()) << layout;
    EXPECT_EQ(stats_.mode_counters["bytes_all_to_all"] > 0, parsed->sp > 1) << layout;
    EXPECT_EQ(stats_.mode_counters["bytes_all_reduce"] > 0, parsed->tp > 1) << layout;
    ++ran;
  }
  EXPECT_GE(ran, 10);
}

// Class `amx` on model tiles: its layouts agree with each other and with its oracle, not with class
// `pair`.
TEST_P(LayoutTest, ClassAmxGivesTheSameDigests) {
  if (!kernels::testing::HasModelTiles()) GTEST_SKIP() << "model tiles need AVX2";
  options_.machine.dtype = tensor::DType::kBF16;
  options_.machine.kernels = *kernels::ChooseKernels("avx2");
  const Answers pair = Run("cpu", "");
  EXPECT_EQ(numerics_class_, "pair-bf16-kvbf16");
  const kernels::KernelSet tiles = kernels::testing::ModelTileKernels(kernels::TileOrder::kSplit);
  const kernels::KernelSet oracle = kernels::testing::OracleOfTiles(kernels::TileOrder::kSplit);
  options_.machine.kernels = &tiles;
  const Answers expected = Run("cpu", "");
  EXPECT_EQ(numerics_class_, "amx_split-bf16-kvbf16");
  EXPECT_NE(expected, pair);
  for (const auto& [devices, layout] :
       {std::pair{"2xcpu", "tp=2"}, {"3xcpu", "tp=3"}, {"4xcpu", "dp=2,tp=2"}, {"2xcpu", "pp=2"}}) {
    EXPECT_EQ(Run(devices, layout), expected) << layout;
  }
  for (const StepMode& mode : {kPull, kShip}) {
    options_.ship.mode = mode;
    EXPECT_EQ(Run("2xcpu", "dp=2,weights=striped"), expected) << schedule::Name(mode);
    EXPECT_GT(stats_.mode_counters[schedule::StepsCounter(mode)], 0);
  }
  options_.machine.threads = 2;
  options_.limits.max_num_batched_tokens = 21;
  EXPECT_EQ(Run("cpu", ""), expected);
  options_.machine.kernels = &oracle;
  EXPECT_EQ(Run("cpu", ""), expected);
}

// Class `amx_*_p1024`, which attends on tiles too: likewise, with and without shared prefixes, in
// chunks of prompts.
TEST_P(LayoutTest, ClassAmxOfPartsGivesTheSameDigests) {
  if (!kernels::testing::HasModelTiles()) GTEST_SKIP() << "model tiles need AVX2";
  options_.machine.dtype = tensor::DType::kBF16;
  const kernels::TileOrder order = kernels::TileOrder::kSplit;
  const kernels::KernelSet linear = kernels::testing::ModelTileKernels(order),
                           tiles = kernels::testing::ModelPartKernels(order),
                           oracle = kernels::testing::OracleOfParts(order);
  options_.machine.kernels = &linear;
  const Answers other = Run("cpu", "");
  options_.machine.kernels = &tiles;
  const Answers expected = Run("cpu", "");
  EXPECT_EQ(numerics_class_, "amx_split_p1024-bf16-kvbf16");
  EXPECT_NE(expected, other);
  EXPECT_EQ(Run("2xcpu", "tp=2"), expected);
  options_.prefix_caching = false;
  options_.machine.threads = 2;
  options_.limits.max_num_batched_tokens = 21;
  EXPECT_EQ(Run("cpu", ""), expected);
  options_.machine.kernels = &oracle;
  EXPECT_EQ(Run("cpu", ""), expected);
}

// Steps of other choices are under way on other stages; with so few blocks they take them from each
// other.
TEST_P(LayoutTest, StepsInFlightChangeNothing) {
  // more than admission looks ahead
  for (Request& request : requests_) request.sampling.max_tokens += 40;
  const Answers expected = Run("cpu", "");
  for (const int steps : {1, 2, 3}) {
    for (const int blocks : {0, 4, 9}) {
      options_.limits.steps_in_flight = steps;
      options_.limits.kv_blocks = blocks;
      EXPECT_EQ(Run("2xcpu", "pp=2"), expected) << steps << " " << blocks;
      EXPECT_TRUE(stats_.preemptions > 0 || blocks != 9 || steps > 1) << steps;
      EXPECT_GT(stats_.mode_counters["stage1_busy_ms"] + stats_.mode_counters["stage1_idle_ms"], 0)
          << steps;
    }
    options_.limits.kv_blocks = 0;
    EXPECT_EQ(Run("4xcpu", "dp=2,pp=2,weights=by_layer"), expected) << steps;
  }
  options_.limits.steps_in_flight = 0;
  options_.ship.mode = kShip;
  options_.trial.flip_every = 2;
  EXPECT_EQ(Run("4xcpu", "dp=2,pp=2,weights=by_layer"), expected);
  EXPECT_GT(stats_.mode_counters["steps_ship"], 0);
  EXPECT_GT(stats_.mode_counters["steps_pull"], 0);
}

// Each rank has its heads or layers of what is parked below.
TEST_P(LayoutTest, ParkedBelowChangesNothing) {
  for (Request& request : requests_) request.sampling.max_tokens += 40;
  const Answers expected = Run("cpu", "");
  options_.tier = {.host_bytes = 64 << 20, .preempt = layout::Preempting::kPark};
  options_.limits.kv_blocks = 9;
  int64_t returns = 0;
  for (const auto& [devices, layout, steps] : {std::tuple{"2xcpu", "tp=2", 1},
                                               {"2xcpu", "pp=2", 1},
                                               {"2xcpu", "pp=2", 3},
                                               {"4xcpu", "dp=2,tp=2", 1}}) {
    options_.limits.steps_in_flight = steps;
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_EQ(stats_.recomputed_tokens, 0) << layout;
    EXPECT_EQ(stats_.mode_counters["kv_parks"], stats_.preemptions) << layout;
    EXPECT_TRUE(steps > 1 || stats_.mode_counters["kv_returns"] > 0) << layout;
    returns += stats_.mode_counters["kv_returns"];
  }
  EXPECT_GT(returns, 0);
}

// Prompts that begin alike while others take the blocks: what the cache gave up is found below.
// Requests of the second half are run again alone, as a resumed job does.
TEST_P(LayoutTest, APrefixFoundBelowChangesNothing) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    std::vector<int32_t>& prompt = requests_[i].prompts[0];
    std::vector<int32_t> begin(70);
    for (size_t t = 0; t < begin.size(); ++t) begin[t] = static_cast<int32_t>(i % 4 * 50 + t) % 250;
    prompt.resize(std::min<size_t>(prompt.size(), 20));
    prompt.insert(prompt.begin(), begin.begin(), begin.end());
    requests_[i].sampling.max_tokens = 6 + static_cast<int32_t>(i % 9);
  }
  const std::vector<Request> all = requests_;
  const Answers expected = Run("cpu", "");
  options_.tier = {.host_bytes = 64 << 20, .preempt = layout::Preempting::kPark};
  const bool windows = std::ranges::count(files_.config.sliding_window, 0) !=
                       std::ssize(files_.config.sliding_window);
  for (const auto& [devices, layout, blocks, rows] : {std::tuple{"cpu", "", 5, 48},
                                                      {"cpu", "", 9, 7},
                                                      {"2xcpu", "tp=2", 5, 48},
                                                      {"2xcpu", "pp=2", 9, 33},
                                                      {"4xcpu", "dp=2,tp=2", 5, 48}}) {
    options_.limits.kv_blocks = blocks;
    options_.limits.max_num_batched_tokens = rows;
    EXPECT_EQ(Run(devices, layout), expected) << layout << " " << blocks;
    EXPECT_EQ(stats_.mode_counters["prefix_blocks_hit_below"] > 0, !windows) << layout << blocks;
    EXPECT_EQ(stats_.mode_counters["kv_blocks_evicted_down"] > 0, !windows) << layout << blocks;
    requests_.erase(requests_.begin(), requests_.begin() + kRequests / 2);
    for (const auto& [which, answer] : Run(devices, layout))
      EXPECT_EQ(answer, expected.at(which)) << which.first;
    requests_ = all;
  }
  options_.prefix_caching = false;
  EXPECT_EQ(Run("cpu", ""), expected);
  EXPECT_EQ(stats_.mode_counters["prefix_blocks_hit_below"], 0);
}

TEST_P(LayoutTest, SlotsOrdersAndPartsChangeNothing) {
  const Answers expected = Run("cpu", "");
  for (const bool by_matrix : {false, true}) {
    for (const auto order : {weights::FetchOrder::kAsUsed, weights::FetchOrder::kPeakShifted}) {
      for (const int64_t ahead : {1, 3}) {
        options_.pool.by_matrix = by_matrix;
        options_.pool.order = order;
        options_.pool.slots.look_ahead_layers = ahead;
        options_.pool.slice_bytes = 4096;
        EXPECT_EQ(Run("3xcpu", "dp=3,weights=by_layer"), expected) << by_matrix << " " << ahead;
        EXPECT_EQ(Run("2xcpu", "dp=2,weights=striped,pool=1"), expected)
            << by_matrix << " " << ahead;
      }
    }
  }
}

// Rows go to the owners of the weights: the same bytes as at home, whoever owns what.
TEST_P(LayoutTest, ShippedRowsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  options_.ship.mode = kShip;
  for (const int ranks : {2, 3, 4}) {
    for (const std::string placement : {"by_layer", "striped", "by_layer,pool=1"}) {
      if (placement == "striped" && ranks > 3) continue;
      options_.limits.max_num_batched_tokens = ranks == 3 ? 16 : 48;
      const std::string layout = fmt::format("dp={},weights={}", ranks, placement);
      EXPECT_EQ(Run(fmt::format("{}xcpu", ranks), layout), expected) << layout;
      EXPECT_GT(stats_.mode_counters["steps_ship"], 0) << layout;
      EXPECT_GT(stats_.mode_counters["rows_shipped"], 0) << layout;
      EXPECT_GT(stats_.mode_counters["bytes_shipped"], 0) << layout;
      EXPECT_EQ(stats_.mode_counters["steps_ship"] + stats_.mode_counters["steps_pull"],
                stats_.steps)
          << layout;
    }
  }
}

TEST_P(LayoutTest, GroupsAndStagesShip) {
  const Answers expected = Run("cpu", "");
  options_.ship.mode = kShip;
  EXPECT_EQ(Run("4xcpu", "groups=2,dp=2,weights=by_layer"), expected);
  EXPECT_GT(stats_.mode_counters["steps_ship"], 0);
  EXPECT_EQ(Run("4xcpu", "dp=2,pp=2,weights=striped"), expected);
  EXPECT_GT(stats_.mode_counters["steps_ship"], 0);
  for (const std::string layout :
       {"4xcpu dp=2,tp=2,weights=by_layer", "4xcpu dp=2,tp=2,weights=by_layer,pool=1",
        "6xcpu dp=3,tp=2,weights=by_layer"}) {
    EXPECT_EQ(Run(layout.substr(0, 5), layout.substr(6)), expected) << layout;
    EXPECT_GT(stats_.mode_counters["steps_ship"], 0) << layout;
  }
}

TEST_P(LayoutTest, EachStepOfShippingCanBeTurnedOff) {
  const Answers expected = Run("cpu", "");
  options_.ship.mode = kShip;
  for (const bool fuse : {false, true}) {
    for (const bool skip : {false, true}) {
      options_.ship.rounds = {.fuse = fuse, .skip_idle = skip};
      EXPECT_EQ(Run("3xcpu", "dp=3,weights=by_layer"), expected) << fuse << skip;
      EXPECT_EQ(stats_.mode_counters["rows_skipped"] == 0, !skip) << fuse << skip;
      EXPECT_EQ(Run("2xcpu", "dp=2,weights=striped"), expected) << fuse << skip;
    }
  }
  options_.ship.mode = kGather;
  options_.ship.rounds = {};
  for (const std::string placement : {"by_layer", "striped", "sharded"}) {
    EXPECT_EQ(Run("3xcpu", "dp=3,weights=" + placement), expected) << placement;
    EXPECT_GT(stats_.mode_counters["steps_gather"], 0) << placement;
    EXPECT_GT(stats_.mode_counters["bytes_pulled"], 0) << placement;
    EXPECT_GT(stats_.mode_counters["copy_core_us"], 0) << placement;
  }
}

// The mode changes under way; what was pulled ahead waits for the next step that pulls.
TEST_P(LayoutTest, FlipsOfTheModeChangeNothing) {
  const Answers expected = Run("cpu", "");
  for (const int every : {1, 3}) {
    for (const std::string placement : {"by_layer", "striped"}) {
      options_.ship.mode = kShip;
      options_.trial.flip_every = every;
      EXPECT_EQ(Run("2xcpu", "dp=2,weights=" + placement), expected) << every << placement;
      EXPECT_GT(stats_.mode_counters["steps_pull"], 0) << every << placement;
      EXPECT_GT(stats_.mode_counters["steps_ship"], 0) << every << placement;
      EXPECT_EQ(stats_.mode_counters["steps_pull"] + stats_.mode_counters["steps_ship"],
                stats_.steps)
          << every << placement;
    }
  }
}

TEST_P(LayoutTest, AModeThatNoStepTookIsFoundOut) {
  const Answers expected = Run("cpu", "");
  options_.ship.mode = kShip;
  EXPECT_EQ(Run("2xcpu", "dp=2,weights=by_layer"), expected);
  EXPECT_TRUE(mode_status_.ok()) << mode_status_.ToString();
  // Prompts of more rows than a rank ships, and one token each.
  options_.ship.rounds.rows = 1;
  for (Request& request : requests_) request.sampling.max_tokens = request.n = 1;
  Run("2xcpu", "dp=2,weights=by_layer");
  EXPECT_EQ(stats_.mode_counters["steps_ship"], 0);
  EXPECT_EQ(mode_status_.code(), engine::kModeNotTaken);
  EXPECT_EQ(
      mode_status_.message(),
      fmt::format("--mode ship: none of {} steps was taken so (steps_ship is 0); expected one "
                  "at least",
                  stats_.steps));
}

TEST_P(LayoutTest, AutoShipsTheTailAndLargeStepsPull) {
  const Answers expected = Run("cpu", "");
  options_.ship.mode = std::nullopt;
  options_.ship.threshold = 6;
  options_.ship.patience = 1;
  options_.ship.rounds.rows = 5;
  EXPECT_EQ(Run("2xcpu", "dp=2,weights=striped"), expected);
  EXPECT_GT(stats_.mode_counters["steps_pull"], 0);
  EXPECT_GT(stats_.mode_counters["steps_ship"], 0);
}

TEST_P(LayoutTest, PlacementsThatCannotShipAreRefusedOrPull) {
  options_.ship.mode = kShip;
  const auto runtime = runtime::CreateRealRuntime();
  options_.machine.devices = *layout::ParseDevices("2xcpu");
  for (const std::string layout :
       {"dp=2,weights=sharded,pool=2", "dp=2,weights=by_layer,pool=2,pool-attention=on"}) {
    options_.layout = *layout::ParseLayout(layout);
    EXPECT_EQ(choose::CreateEngine(*runtime, options_, files_, nullptr).status().code(),
              share::kCannotShip)
        << layout;
  }
  const Answers expected = Run("cpu", "");
  options_.ship.mode = std::nullopt;
  options_.ship.threshold = 1000;
  options_.ship.patience = 1;
  EXPECT_EQ(Run("2xcpu", "dp=2,weights=sharded,pool=2"), expected);
  EXPECT_EQ(stats_.mode_counters["steps_pull"], stats_.steps);
}

// Does something when the first result comes, on the replica's control task.
class FirstResult : public testing_support::ListSink {
 public:
  explicit FirstResult(std::function<void()> act) : act_(std::move(act)) {}
  bool Finish(RequestResult result) override {
    if (results.empty()) act_();
    return ListSink::Finish(std::move(result));
  }

 private:
  std::function<void()> act_;
};

// The run ends, and so does the engine, whatever of the stage's steps is in flight.
TEST_P(LayoutTest, AStageThatFailsOrHangsEndsTheRun) {
  options_.machine.devices = *layout::ParseDevices("2xcpu");
  options_.layout = *layout::ParseLayout("pp=2");
  for (const int stage : {0, 1}) {
    for (const bool hangs : {false, true}) {
      options_.stall_seconds = hangs ? 0.2 : 60;
      const auto runtime = runtime::CreateRealRuntime();
      const auto never = device::CreateCpuCounter(*runtime, "never");
      const auto engine = choose::CreateEngine(*runtime, options_, files_, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      device::Device& device = (*engine)->replica(0).ranks()[static_cast<size_t>(stage)]->device();
      FirstResult sink([&] {
        if (hangs) return device.compute().Await(*never, 1);
        static_cast<device::CpuDevice&>(device).Fail(device.compute(), {base::kIoError, "planted"});
      });
      testing_support::ListSource source(MakeRequests());
      RunControl control;
      EXPECT_EQ((*engine)->Run(source, sink, control), RunEnd::kStalled) << stage << hangs;
      EXPECT_LT(sink.results.size(), static_cast<size_t>(kRequests));
      EXPECT_THAT((*engine)->replica(0).what_stalled(),
                  testing::HasSubstr(hangs ? "did not finish" : "planted"));
      never->Abort({base::kIoError, "planted"});
    }
  }
}

// What the plan says of a rank is what its arena holds.
TEST_P(LayoutTest, ArenasHaveWhatThePlanSays) {
  for (const auto& [devices, layout] : {std::pair{"2xcpu", "dp=2"},
                                        {"3xcpu", "dp=3,weights=by_layer,pool=2"},
                                        {"2xcpu", "dp=2,weights=striped,pool=1,pool-attention=on"},
                                        {"2xcpu", "tp=2"}}) {
    SCOPED_TRACE(layout);
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.layout = *layout::ParseLayout(layout);
    const auto plan = choose::Decide(options_, files_.config);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto runtime = runtime::CreateRealRuntime();
    const auto engine = choose::CreateEngine(*runtime, options_, files_, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    for (int replica = 0; replica < (*engine)->num_replicas(); ++replica) {
      const auto ranks = (*engine)->replica(replica).ranks();
      ASSERT_EQ(ranks.size(), plan->ranks.size());
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const layout::MemoryPlan& memory = plan->ranks[rank].memory;
        device::Arena& arena = ranks[rank]->device().arena();
        // The device's own regions, if any, come first.
        ASSERT_GE(arena.regions().size(), memory.regions.size());
        const auto allocated = arena.regions().last(memory.regions.size());
        for (size_t i = 0; i < allocated.size(); ++i) {
          EXPECT_EQ(allocated[i]->name, layout::NameOf(memory.regions[i].id));
          EXPECT_EQ(allocated[i]->bytes, memory.regions[i].bytes) << allocated[i]->name;
        }
        EXPECT_LE(arena.used(), plan->machine.device_bytes + memory.fixed_bytes() +
                                    memory.bytes(layout::RegionUse::kKv));
        EXPECT_LE(arena.used(), arena.budget());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutTest, testing::Values("llama3-gqa", "qwen3"));

// Layers of two kinds of heads; layers that read others' keys and values, and inputs by layer;
// experts beside a dense block, or with biases.
class LayersOfTwoKinds : public LayoutTest {};

TEST_P(LayersOfTwoKinds, EveryCutGivesTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const std::pair<const char*, const char*> layouts[] = {
      {"2xcpu", "dp=2"},
      {"2xcpu", "tp=2"},
      {"2xcpu", "pp=2"},
      {"4xcpu", "tp=2,pp=2"},
      {"2xcpu", "sp=2"},
      {"4xcpu", "dp=2,tp=2"},
      {"2xcpu", "dp=2,weights=by_layer"},
      {"2xcpu", "dp=2,weights=striped,pool-attention=on"},
      {"2xcpu", "dp=2,experts=by_expert"},
      {"4xcpu", "dp=2,pp=2,experts=by_expert"}};
  int ran = 0;
  for (const auto& [devices, layout] : layouts) {
    const layout::Layout parsed = *layout::ParseLayout(layout);
    if (parsed.pools_experts() && !files_.config.moe) continue;
    if (parsed.weights.pools() && files_.config.moe) continue;
    options_.shift.mode.reset();
    if (parsed.sp > 1) options_.shift.mode = parsed.degrees();
    const base::Status valid = layout::ValidateLayout(parsed, files_.config, parsed.num_devices());
    if (!valid.ok()) {
      EXPECT_EQ(valid.code(), model::kShardLayers) << valid.ToString();
      continue;
    }
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    ++ran;
  }
  EXPECT_GE(ran, 5);
  if (files_.config.moe) {  // what is pulled beside what a rank holds
    options_.ship.mode = kRouted;
    EXPECT_EQ(Run("2xcpu", "dp=2,experts=by_expert"), expected);
    options_.ship.mode = kPull;
  }
  // Modes of one layout, in turn.
  const layout::Layout turns = *layout::ParseLayout("sp=2");
  if (!layout::ValidateLayout(turns, files_.config, turns.num_devices()).ok()) return;
  options_.shift.mode.reset();
  options_.trial.shift_every = 2;
  EXPECT_EQ(Run("2xcpu", "sp=2"), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, LayersOfTwoKinds,
                         testing::Values("gemma4-e", "gemma4-moe", "gpt-oss"));

}  // namespace
}  // namespace forebay
