// Layouts of several ranks: the same answers, digests included, as one rank gives; and counters
// that prove the modes ran.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "device/cpu/cpu_device.h"
#include "engine/compose.h"
#include "kernels/testing/tile_sets.h"
#include "layout/layout.h"
#include "layout/layout_plan.h"
#include "layout_test_base.h"
#include "runtime/real/real_runtime.h"
#include "schedule/step_mode.h"
#include "tests_support/list_source.h"

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
    EXPECT_EQ(engine::CreateEngine(*runtime, options_, files_, nullptr).status().code(),
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

// Requests of very unequal lengths that nobody knows: some rank runs out of work while another has
// much.
std::vector<Request> MakeTail() {
  std::vector<Request> requests = MakeRequests();
  for (Request& request : requests) {
    request.sampling.max_tokens = -1;
    request.ends_after = request.line % 8 == 0 ? 60 : 1 + static_cast<int32_t>(request.line % 3);
  }
  return requests;
}

// Whoever ends a request gives the same answer, whether its KV came along or is computed again.
TEST_P(LayoutTest, StolenRequestsGiveTheSameDigests) {
  requests_ = MakeTail();
  const Answers expected = Run("cpu", "");
  int64_t requests = 0, bytes = 0;
  const std::pair<const char*, const char*> layouts[] = {{"2xcpu", "dp=2"},
                                                         {"4xcpu", "dp=4"},
                                                         {"4xcpu", "groups=2,dp=2"},
                                                         {"4xcpu", "dp=2,tp=2"},
                                                         {"4xcpu", "dp=2,pp=2"},
                                                         {"3xcpu", "dp=3,weights=by_layer"},
                                                         {"2xcpu", "dp=2,weights=striped"}};
  for (const schedule::WantedMode& mode : {schedule::WantedMode(kPull), {kShip}, {}}) {
    for (const auto steal : {layout::Stealing::kAlways, layout::Stealing::kAuto}) {
      for (const auto& [devices, layout] : layouts) {
        if (mode != kPull && std::string(layout).find("weights") == std::string::npos) continue;
        options_.ship.mode = mode;
        options_.steal = steal;
        EXPECT_EQ(Run(devices, layout), expected)
            << layout << " " << schedule::Name(mode) << " " << static_cast<int>(steal);
        requests += stats_.requests_stolen;
        bytes += stats_.kv_bytes_stolen;
        EXPECT_EQ(stats_.mode_counters["requests_stolen"], stats_.requests_stolen);
      }
    }
  }
  EXPECT_GT(requests, 0);
  EXPECT_GT(bytes, 0);
  options_.ship.mode = kPull;
  options_.steal = layout::Stealing::kOff;
  EXPECT_EQ(Run("4xcpu", "dp=4"), expected);
  EXPECT_EQ(stats_.requests_stolen, 0);
}

// One replica has requests for 11, 90 and 110 tokens, at most two at once; the other has none and
// gets the first two, whose places are taken until it has pulled them.
TEST_P(LayoutTest, WhatIsLentKeepsItsPlace) {
  requests_.resize(3);
  const int lengths[] = {11, 90, 110};
  for (size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].prompts = {{1, 2, static_cast<int32_t>(i)}};
    requests_[i].n = 1;
    requests_[i].sampling.max_tokens = lengths[i];
  }
  options_.limits.max_num_seqs = 2;
  const Answers expected = Run("cpu", "");
  options_.steal = layout::Stealing::kAlways;
  hand_out_.replicas = {{{0, 0}, {0, 1}, {0, 2}}, {}};
  int64_t stolen = 0;
  for (const auto& layout : {"dp=2", "dp=2,weights=by_layer"}) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(Run("2xcpu", layout), expected) << layout;
      stolen += stats_.requests_stolen;
    }
  }
  EXPECT_GT(stolen, 0);
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
      const auto engine = engine::CreateEngine(*runtime, options_, files_, nullptr);
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

// What PlanLayout says of a rank is what its arena holds.
TEST_P(LayoutTest, ArenasHaveWhatThePlanSays) {
  for (const auto& [devices, layout] : {std::pair{"2xcpu", "dp=2"},
                                        {"3xcpu", "dp=3,weights=by_layer,pool=2"},
                                        {"2xcpu", "dp=2,weights=striped,pool=1,pool-attention=on"},
                                        {"2xcpu", "tp=2"}}) {
    SCOPED_TRACE(layout);
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.layout = *layout::ParseLayout(layout);
    const auto plan = layout::PlanLayout(options_, files_.config);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const auto runtime = runtime::CreateRealRuntime();
    const auto engine = engine::CreateEngine(*runtime, options_, files_, nullptr);
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
          EXPECT_EQ(allocated[i]->name, memory.regions[i].name);
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

// Models of random weights whose heads and leaves are cut more finely than the golden ones'.
struct Shape {
  int heads, kv_heads, intermediate;
  std::vector<const char*> layouts;
};

class ShapeLayoutTest : public LayoutTest {
 protected:
  void Open(const Shape& shape) {
    const std::string path = (std::filesystem::path(testing::TempDir()) /
                              fmt::format("shape_{}_{}.json", shape.heads, shape.kv_heads))
                                 .string();
    std::ofstream(path) << fmt::format(
        R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 5000,
            "hidden_size": 64, "intermediate_size": {}, "num_hidden_layers": 2,
            "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": 16,
            "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}})",
        shape.intermediate, shape.heads, shape.kv_heads);
    files_ = std::move(*engine::OpenModel(path, true, 5));
  }
};

TEST_P(ShapeLayoutTest, RanksThatCutRowsGiveTheSameDigests) {
  requests_.resize(12);
  for (const Shape& shape : std::vector<Shape>{{6, 6, 256, {"sp=3,tp=2", "sp=2,tp=3", "sp=6"}},
                                               {8, 2, 256, {"sp=4", "sp=2,tp=2", "sp=8"}},
                                               {32, 4, 256, {"sp=4,tp=2", "sp=8"}},
                                               {9, 3, 288, {"sp=3"}},
                                               {14, 2, 256, {"sp=2", "sp=4", "sp=2,tp=2"}}}) {
    Open(shape);
    const Answers expected = Run("cpu", "");
    for (const char* text : shape.layouts) {
      const layout::Layout layout = *layout::ParseLayout(text);
      const std::string name = fmt::format("{} of {}/{}", text, shape.heads, shape.kv_heads);
      options_.shift.mode = layout.degrees();
      EXPECT_EQ(Run(fmt::format("{}xcpu", layout.num_devices()), text), expected) << name;
      EXPECT_EQ(stats_.mode_counters[fmt::format("steps_sp{}tp{}", layout.sp, layout.tp)],
                stats_.steps)
          << name;
      EXPECT_GT(stats_.mode_counters["bytes_all_to_all"], 0) << name;
      EXPECT_GT(stats_.mode_counters["bytes_head"], 0) << name;
    }
    options_.shift.mode.reset();
  }
}

// Each mode of a layout, forced, and all of them in turn: a step may take any, for KV lies where
// all find it.
TEST_P(ShapeLayoutTest, EveryModeGivesTheSameDigests) {
  requests_.resize(12);
  for (const Shape& shape : std::vector<Shape>{{8, 2, 256, {"sp=4", "sp=2,tp=2", "sp=8"}},
                                               {6, 6, 256, {"sp=3,tp=2"}},
                                               {14, 2, 256, {"sp=2,pp=2"}},
                                               {9, 3, 288, {"dp=2,sp=3"}}}) {
    Open(shape);
    const Answers expected = Run("cpu", "");
    for (const char* text : shape.layouts) {
      const layout::Layout layout = *layout::ParseLayout(text);
      const std::string devices = fmt::format("{}xcpu", layout.num_devices());
      const std::string name = fmt::format("{} of {}/{}", text, shape.heads, shape.kv_heads);
      const auto steps = [&](const model::Degrees& mode) {
        return stats_.mode_counters[fmt::format("steps_sp{}tp{}", mode.sp, mode.tp)];
      };
      const std::vector<model::Degrees> modes = layout::ModesOf(layout.degrees(), false);
      uint64_t weights = 0;
      for (const model::Degrees& mode : modes) {
        options_.shift.mode = mode;
        EXPECT_EQ(Run(devices, text), expected) << name << " as " << layout::FormatMode(mode);
        EXPECT_EQ(steps(mode), stats_.steps) << name;
        EXPECT_EQ(stats_.mode_counters["bytes_all_to_all"] > 0, mode.sp > 1) << name;
        EXPECT_EQ(stats_.mode_counters["bytes_all_reduce"] > 0, mode.tp > 1) << name;
        EXPECT_EQ(stats_.mode_counters["shift_switches"], 0) << name;
        weights = weight_bytes_;
      }
      options_.shift.mode.reset();
      for (const int every : {1, 3}) {
        options_.trial.shift_every = every;
        EXPECT_EQ(Run(devices, text), expected) << name << " shifted every " << every;
        int64_t all = 0;
        for (const model::Degrees& mode : modes) {
          EXPECT_GT(steps(mode), 0) << name;
          all += steps(mode);
        }
        EXPECT_EQ(all, stats_.steps) << name;
        EXPECT_GT(stats_.mode_counters["shift_switches"], 0) << name;
        EXPECT_EQ(weight_bytes_, weights) << name;  // views
      }
      options_.trial.shift_every = 0;
      // Steps of prompts are large here, and those that decode small.
      options_.shift.threshold = 12;
      EXPECT_EQ(Run(devices, text), expected) << name << " by threshold";
      EXPECT_GT(steps(layout.degrees()), 0) << name;
      EXPECT_GT(steps({1, layout.ranks_per_stage()}), 0) << name;
      options_.shift.threshold = 0;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Models, ShapeLayoutTest, testing::Values("llama3-gqa"));

// What a window let go of is not lent, and nobody finds it where it did not come to: all prompts
// are the same, so that those which wait look for it.
class ExpertLayoutTest : public LayoutTest {};

// DWDP: experts that a rank lacks come a layer ahead, whoever holds how many.
TEST_P(ExpertLayoutTest, PulledExpertsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const uint64_t alone = weight_bytes_;
  for (const auto& [devices, layout] : {std::pair{"2xcpu", "dp=2,experts=by_expert"},
                                        {"2xcpu", "dp=2,experts=by_expert,expert-size=3"},
                                        {"3xcpu", "dp=3,experts=by_expert"},
                                        {"4xcpu", "dp=4,experts=by_expert"},
                                        {"4xcpu", "dp=2,pp=2,experts=by_expert"},
                                        {"4xcpu", "groups=2,dp=2,experts=by_expert"}}) {
    // 2 ranks hold at least half of each layer's
    if (std::string(layout).ends_with("=3") && files_.config.moe->num_experts != 4) continue;
    for (const bool by_matrix : {false, true}) {
      for (const int64_t ahead : {1, 3}) {
        options_.pool.by_matrix = by_matrix;
        options_.pool.slots.look_ahead_layers = ahead;
        EXPECT_EQ(Run(devices, layout), expected) << layout << " " << by_matrix << " " << ahead;
        EXPECT_GT(stats_.mode_counters["bytes_pulled"], 0) << layout;
        EXPECT_EQ(stats_.mode_counters["steps_pull"],
                  stats_.steps * layout::ParseLayout(layout)->pp)
            << layout;
        EXPECT_LT(weight_bytes_, alone * static_cast<uint64_t>(layout::ParseLayout(layout)->dp *
                                                               layout::ParseLayout(layout)->groups))
            << layout;
      }
    }
  }
}

// In which order slices come, and whether experts are computed with as they come or out of one
// buffer, changes no digest.
TEST_P(ExpertLayoutTest, PeerOrdersPartsAndMergesGiveTheSameDigests) {
  requests_.resize(8);
  const Answers expected = Run("cpu", "");
  using enum fabric::PeerOrder;
  std::vector<std::pair<const char*, const char*>> layouts = {{"2xcpu", "dp=2,experts=by_expert"},
                                                              {"4xcpu", "dp=4,experts=by_expert"}};
  if (GetParam() == "deepseek-v3")  // has layers without experts
    layouts.emplace_back("2xcpu", "dp=2,experts=by_expert,weights=striped,pool=1");
  for (const auto& [devices, layout] : layouts) {
    for (const auto order : {kRotated, kSliced, kSerial, kRandom}) {
      options_.pool.peers = order;
      for (const auto& [part, merge] : {std::pair{false, false}, {true, false}, {false, true}}) {
        options_.pool.waits_by_part = part;
        options_.pool.merges_experts = merge;
        options_.pool.slice_bytes = order == kSliced ? 1000 : 0;
        EXPECT_EQ(Run(devices, layout), expected)
            << layout << " " << static_cast<int>(order) << " " << part << " " << merge;
        EXPECT_GT(stats_.mode_counters["bytes_pulled"], 0) << layout;
        EXPECT_EQ(stats_.mode_counters["merge_bytes"] > 0, merge) << layout;
      }
    }
  }
}

// DEP: rows go to the experts, in as many rounds as staging needs.
TEST_P(ExpertLayoutTest, ShippedRowsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const model::MoeConfig& moe = *files_.config.moe;
  EXPECT_EQ(stats_.mode_counters["rows_routed"], stats_.computed_tokens * moe.experts_per_token *
                                                     std::ranges::count(moe.has_experts, 1));
  options_.ship.mode = kShip;
  for (const auto& [devices, layout] : {std::pair{"2xcpu", "dp=2,experts=by_expert"},
                                        {"2xcpu", "dp=2,experts=by_expert,expert-size=3"},
                                        {"3xcpu", "dp=3,experts=by_expert"},
                                        {"4xcpu", "dp=2,pp=2,experts=by_expert"},
                                        {"4xcpu", "groups=2,dp=2,experts=by_expert"}}) {
    if (std::string(layout).ends_with("=3") && files_.config.moe->num_experts != 4) continue;
    for (const int32_t rows : {2, 7, 2048}) {
      options_.ship.rounds.expert_rows = rows;
      EXPECT_EQ(Run(devices, layout), expected) << layout << " " << rows;
      EXPECT_GT(stats_.mode_counters["steps_ship"], 0) << layout;
      EXPECT_GT(stats_.mode_counters["expert_rows_sent"], 0) << layout;
      EXPECT_EQ(
          stats_.mode_counters["rows_routed"],
          stats_.computed_tokens * moe.experts_per_token * std::ranges::count(moe.has_experts, 1))
          << layout;
      EXPECT_GE(stats_.mode_counters["expert_rows_returned"],
                stats_.mode_counters["expert_rows_sent"])
          << layout;
    }
  }
  options_.trial.flip_every = 2;
  EXPECT_EQ(Run("3xcpu", "dp=3,experts=by_expert"), expected);
  EXPECT_GT(stats_.mode_counters["steps_ship"], 0);
  EXPECT_GT(stats_.mode_counters["steps_pull"], 0);
}

TEST_P(ExpertLayoutTest, WhatCannotBeIsRefused) {
  if (files_.config.mla) {
    options_.machine.devices = *layout::ParseDevices("2xcpu");
    options_.layout = *layout::ParseLayout("tp=2");
    EXPECT_EQ(layout::PlanLayout(options_, files_.config).status().code(), model::kLayoutExperts);
  }
  for (const auto& [devices, layout, expected] :
       {std::tuple{"9xcpu", "dp=9,experts=by_expert", "placement_cannot"},
        {"2xcpu", "dp=2,experts=by_expert,expert-size=99", "placement_cannot"},
        {"2xcpu", "dp=2,expert-size=4", "layout_pool"},
        {"2xcpu", "dp=2,experts=striped", "layout_invalid"},
        {"2xcpu", "dp=2,weights=by_expert", "layout_invalid"}}) {
    options_.machine.devices = *layout::ParseDevices(devices);
    const auto parsed = layout::ParseLayout(layout);
    if (parsed.ok()) options_.layout = *parsed;
    const base::Status refused =
        parsed.ok() ? layout::PlanLayout(options_, files_.config).status() : parsed.status();
    EXPECT_EQ(refused.code(), base::ErrorCode{expected}) << layout;
  }
  options_.machine.devices = *layout::ParseDevices("2xcpu");
  const auto refusal = [&](const char* layout) {
    options_.layout = *layout::ParseLayout(layout);
    return layout::PlanLayout(options_, files_.config).status();
  };
  options_.pool.merges_experts = true;
  EXPECT_THAT(refusal("dp=2,weights=by_layer").message(),
              testing::HasSubstr("--expert-merge with experts=replicated; expected"));
  EXPECT_TRUE(refusal("dp=2,experts=by_expert").ok());
  options_.pool.waits_by_part = true;
  EXPECT_THAT(refusal("dp=2,experts=by_expert").message(),
              testing::HasSubstr("--expert-merge with --pool-wait part; expected"));
  options_.pool.merges_experts = false;
  options_.pool.by_matrix = true;
  EXPECT_THAT(refusal("dp=2,experts=by_expert").message(),
              testing::HasSubstr("--pool-wait part with --pool-parts matrix; expected"));
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertLayoutTest,
                         testing::Values("qwen3-moe", "mixtral", "deepseek-v3", "llama4-text"));

class WindowedLayoutTest : public LayoutTest {};
TEST_P(WindowedLayoutTest, StolenRequestsGiveTheSameDigests) {
  requests_.resize(6);
  const int lengths[] = {50, 60, 58, 62, 30, 30};
  for (size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].prompts = {std::vector<int32_t>(64, 3)};
    requests_[i].n = 1;
    requests_[i].sampling.max_tokens = lengths[i];
  }
  options_.limits.max_num_seqs = 4;
  for (const bool mixed : {false, true}) {
    if (mixed) files_.config.sliding_window = {0, 32};
    hand_out_.replicas.clear();
    options_.steal = layout::Stealing::kOff;
    const Answers expected = Run("cpu", "");
    options_.steal = layout::Stealing::kAlways;
    hand_out_.replicas = {{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}}, {}};
    int64_t bytes = 0;
    for (const auto& [devices, layout] :
         {std::pair("2xcpu", "dp=2"), std::pair("4xcpu", "dp=2,tp=2"),
          std::pair("2xcpu", "dp=2,weights=by_layer")}) {
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(Run(devices, layout), expected) << layout;
        bytes += stats_.kv_bytes_stolen;
      }
    }
    EXPECT_GT(bytes, 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Models, WindowedLayoutTest, testing::Values("mistral"));

}  // namespace
}  // namespace forebay
