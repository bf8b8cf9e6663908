// Routed pull: of experts those come that a step's rows go to, with the same answers as one rank
// gives, and to the byte.
#include <map>
#include <numeric>
#include <set>

#include "choose/create_engine.h"
#include "choose/decide.h"
#include "layout/plan_checks.h"
#include "runtime/virtual/virtual_runtime.h"
#include "testing/layout_fixture.h"
#include "testing/recorded_rows.h"
#include "weights/formats/testing/weight_files.h"

namespace forebay {
namespace {

class RoutedLayoutTest : public LayoutTest {};

// Those experts come that have rows, once that is known.
TEST_P(RoutedLayoutTest, RoutedExpertsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  options_.ship.mode = kRouted;
  for (const auto& [devices, layout] : ExpertLayouts()) {
    for (const auto& [by_matrix, ahead] : kPulls) {
      options_.pool.by_matrix = by_matrix;
      options_.pool.slots.look_ahead_layers = ahead;
      options_.pool.slice_bytes = ahead == 1 ? 4096 : 1 << 20;
      EXPECT_EQ(Run(devices, layout), expected) << layout << " " << by_matrix << " " << ahead;
      EXPECT_GT(stats_.mode_counters["bytes_routed"], 0) << layout;
      EXPECT_EQ(stats_.mode_counters["bytes_pulled"], stats_.mode_counters["bytes_routed"]);
      EXPECT_EQ(stats_.mode_counters["pulled_unused_bytes"], 0) << layout;
      EXPECT_EQ(stats_.mode_counters["steps_routed"],
                stats_.steps * layout::ParseLayout(layout)->pp)
          << layout;
      EXPECT_TRUE(mode_status_.ok()) << mode_status_.ToString();
    }
  }
}

// What came ahead, in full, is used by the next step that pulls in either way.
TEST_P(RoutedLayoutTest, FlipsBetweenWaysToPullAndShippingChangeNothing) {
  const Answers expected = Run("cpu", "");
  const auto steps = [&](const StepMode& mode) {
    return stats_.mode_counters[schedule::StepsCounter(mode)];
  };
  for (const int every : {1, 3}) {
    options_.trial.flip_every = every;
    for (const bool by_matrix : {false, true}) {
      options_.pool.by_matrix = by_matrix;
      options_.ship.mode = kRouted;
      options_.ship.routed_threshold = 0;
      for (const char* layout : {"dp=2,experts=by_expert", "dp=3,experts=by_expert"}) {
        EXPECT_EQ(Run(layout[3] == '2' ? "2xcpu" : "3xcpu", layout), expected) << every << layout;
        EXPECT_GT(steps(kRouted), 0) << every << layout;
        EXPECT_GT(steps(kPull), 0) << every << layout;
        EXPECT_EQ(steps(kRouted) + steps(kPull), stats_.steps) << every << layout;
        EXPECT_GT(stats_.mode_counters["bytes_routed"], 0) << every << layout;
        EXPECT_LT(stats_.mode_counters["bytes_routed"], stats_.mode_counters["bytes_pulled"]);
      }
      // Rounds that are not taken together pull in either way, by their rows.
      options_.ship.mode = kShip;
      options_.ship.routed_threshold = 6;
      EXPECT_EQ(Run("2xcpu", "dp=2,experts=by_expert"), expected) << every;
      EXPECT_GT(steps(kRouted), 0) << every;
      EXPECT_GT(steps(kPull), 0) << every;
      EXPECT_GT(steps(kShip), 0) << every;
      EXPECT_EQ(steps(kRouted) + steps(kPull) + steps(kShip), stats_.steps) << every;
    }
  }
}

TEST_P(RoutedLayoutTest, DenseLayersComeAheadBesideRoutedExperts) {
  if (std::ranges::count(files_.config.moe->has_experts, 0) == 0)
    GTEST_SKIP() << "no layers without experts";
  const Answers expected = Run("cpu", "");
  options_.ship.mode = kRouted;
  for (const int every : {0, 2}) {
    options_.trial.flip_every = every;
    EXPECT_EQ(Run("2xcpu", "dp=2,weights=striped,pool=1,experts=by_expert"), expected);
    EXPECT_GT(stats_.mode_counters["steps_routed"], 0);
    EXPECT_GT(stats_.mode_counters["bytes_pulled"], stats_.mode_counters["bytes_routed"]);
  }
}

TEST_P(RoutedLayoutTest, AutoPullsFewRowsByTheirExperts) {
  const Answers expected = Run("cpu", "");
  options_.ship.mode = std::nullopt;
  options_.ship.patience = 1 << 20;  // nobody ships
  options_.ship.routed_threshold = 6;
  EXPECT_EQ(Run("2xcpu", "dp=2,experts=by_expert"), expected);
  EXPECT_GT(stats_.mode_counters["steps_routed"], 0);
  EXPECT_GT(stats_.mode_counters["steps_pull"], 0);
  EXPECT_EQ(stats_.mode_counters["steps_routed"] + stats_.mode_counters["steps_pull"],
            stats_.steps);
}

// How many experts that replica 0 of two lacks have rows, for each record, which is a step where
// one choice runs at a time, and each layer with experts. It holds `held` of each `part`.
std::vector<int64_t> LackedWithRows(const std::string& file, const model::MoeConfig& moe,
                                    int64_t part, int64_t held) {
  const auto layers = static_cast<size_t>(std::ranges::count(moe.has_experts, 1)),
             chosen = static_cast<size_t>(moe.experts_per_token);
  std::vector<int64_t> counts;
  for (const RecordedRows& record : ReadRecords(file, moe)) {
    for (size_t layer = 0; layer < layers; ++layer) {
      std::set<uint16_t> lacked;
      for (size_t row = 0; row < record.rows; ++row) {
        for (size_t slot = 0; slot < chosen; ++slot) {
          const uint16_t expert = record.experts[(row * layers + layer) * chosen + slot];
          if (expert % part >= held) lacked.insert(expert);
        }
      }
      counts.push_back(static_cast<int64_t>(lacked.size()));
    }
  }
  return counts;
}

// To the byte: what came is what the replica lacks and has rows; pulling all says how much of it
// had none. The same on simulated ranks, where the recorded routing says which rows go where.
TEST_P(RoutedLayoutTest, RoutedBytesAreThoseOfExpertsThatHaveRows) {
  const base::TemporaryFolder folder;
  const std::string recorded = folder.path() + "/chosen.routing";
  options_.prefix_caching = false;
  options_.limits.max_num_seqs = 1;
  options_.steal = layout::Stealing::kOff;
  hand_out_.replicas.resize(2);
  for (const Request& request : requests_) hand_out_.replicas[0].push_back({0, request.id});
  const model::MoeConfig& moe = *files_.config.moe;
  const int64_t layers = ExpertLayers(), expert_bytes = ExpertBytes();
  for (const int tp : {1, 2}) {
    if (tp > 1 && files_.config.mla) continue;
    SCOPED_TRACE(tp);
    const std::string layout = fmt::format("dp=2,tp={},experts=by_expert", tp);
    const int64_t part = moe.num_experts / tp, held = (part + 1) / 2;
    options_.machine.record_routing = recorded;
    options_.digest = true;
    std::map<std::string, int64_t> bytes;
    for (const StepMode& mode : {kRouted, kPull}) {
      options_.ship.mode = mode;
      Run(fmt::format("{}xcpu", 2 * tp), layout);
      const std::vector<int64_t> with_rows =
          LackedWithRows(*base::ReadFile(recorded), moe, part, held);
      ASSERT_EQ(static_cast<int64_t>(with_rows.size()), stats_.steps * layers);
      const int64_t sum = std::accumulate(with_rows.begin(), with_rows.end(), int64_t{0}),
                    lacked = tp * (part - held) * stats_.steps * layers;
      EXPECT_LT(sum, lacked);
      if (mode == kRouted) {
        EXPECT_EQ(stats_.mode_counters["bytes_routed"], sum * expert_bytes);
        EXPECT_EQ(stats_.mode_counters["bytes_pulled"], sum * expert_bytes);
      } else {
        EXPECT_EQ(stats_.mode_counters["pulled_unused_bytes"], (lacked - sum) * expert_bytes);
        EXPECT_EQ(stats_.mode_counters["bytes_pulled"] - stats_.mode_counters["bytes_pulled_ahead"],
                  lacked * expert_bytes);
      }
      bytes[std::string(schedule::Name(mode))] = sum * expert_bytes;
    }
    options_.machine.record_routing.clear();
    options_.machine.routing = *model::ParseRouting(recorded, 0);
    options_.ship.mode = kRouted;
    options_.digest = false;
    const auto shapes = engine::OpenModel(golden::Path("models/" + GetParam()), true, 0);
    options_.machine.devices = *layout::ParseDevices(fmt::format("sim:{}xzen4", 2 * tp));
    runtime::VirtualRuntime runtime(3);
    EngineStats simulated;
    const base::Status status = runtime.Run([&] {
      auto engine = choose::CreateEngine(runtime, options_, *shapes, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      (*engine)->ReplayHandOut(&hand_out_);
      testing_support::RunAll(**engine, requests_);
      simulated = (*engine)->stats();
    });
    options_.machine.routing.reset();
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(simulated.mode_counters["steps_routed"], simulated.steps * tp);
    EXPECT_EQ(simulated.mode_counters["bytes_routed"], bytes["routed"]);
  }
}

TEST_P(RoutedLayoutTest, RoutedWithoutPooledExpertsIsRefused) {
  options_.ship.mode = kRouted;
  options_.machine.devices = *layout::ParseDevices("2xcpu");
  for (const char* layout : {"dp=2", "dp=1,pp=2,experts=by_expert", ""}) {
    options_.layout.reset();
    if (*layout != 0) options_.layout = *layout::ParseLayout(layout);
    EXPECT_EQ(choose::Decide(options_, files_.config).status().code(), layout::kCannotRoute)
        << layout;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RoutedLayoutTest,
                         testing::Values("qwen3-moe", "mixtral", "deepseek-v3", "llama4-text"));

}  // namespace
}  // namespace forebay
