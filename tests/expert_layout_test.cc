// Experts that ranks share: pulled or rows shipped to them, with the same answers as one rank
// gives.
#include <gmock/gmock.h>

#include <set>

#include "choose/create_engine.h"
#include "choose/decide.h"
#include "runtime/virtual/virtual_runtime.h"
#include "testing/layout_fixture.h"
#include "testing/recorded_rows.h"
#include "weights/formats/testing/weight_files.h"

namespace forebay {
namespace {

class ExpertLayoutTest : public LayoutTest {
 protected:
  int64_t Counter(const char* name) { return stats_.mode_counters[name]; }

  // What ranks of the layout pulled, by the form of the placement: in each step, of each layer with
  // experts, those that a rank does not hold.
  void ExpectPulledBytes(const layout::Layout& layout) {
    const int64_t experts = files_.config.moe->num_experts,
                  size = layout.expert_size.value_or(0) > 0
                             ? *layout.expert_size
                             : weights::ExpertSizes(experts, layout.dp).front();
    EXPECT_EQ(Counter("bytes_pulled") - Counter("bytes_pulled_ahead"),
              stats_.steps * ExpertLayers() * (experts - size) * ExpertBytes());
    // Nobody met anybody.
    EXPECT_EQ(Counter("ship_meetings") + Counter("meetings"), 0);
  }

  // Rows of a step times their experts, in all layers.
  int64_t RowsRouted() const {
    return stats_.computed_tokens * files_.config.moe->experts_per_token * ExpertLayers();
  }
};

// DWDP: experts that a rank lacks come a layer ahead, whoever holds how many.
TEST_P(ExpertLayoutTest, PulledExpertsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const uint64_t alone = weight_bytes_;
  for (const auto& [devices, layout] : ExpertLayouts()) {
    for (const auto& [by_matrix, ahead] : kPulls) {
      options_.pool.by_matrix = by_matrix;
      options_.pool.slots.look_ahead_layers = ahead;
      SCOPED_TRACE(fmt::format("{} {} {}", layout, by_matrix, ahead));
      EXPECT_EQ(Run(devices, layout), expected);
      const layout::Layout parsed = *layout::ParseLayout(layout);
      ExpectPulledBytes(parsed);
      EXPECT_EQ(Counter("steps_pull"), stats_.steps * parsed.pp);
      EXPECT_LT(weight_bytes_, alone * static_cast<uint64_t>(parsed.dp * parsed.groups));
      // Who pulls waits for nobody, but for the stage before.
      if (parsed.pp == 1) {
        EXPECT_EQ(Counter("waited_peer_us"), 0);
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
        EXPECT_GT(Counter("bytes_pulled"), 0) << layout;
        EXPECT_EQ(Counter("merge_bytes"), merge ? stats_.steps * ExpertLayers() * ExpertBytes() *
                                                      files_.config.moe->num_experts
                                                : 0)
            << layout;
      }
    }
  }
}

// DEP: rows go to the experts, in as many rounds as staging needs.
TEST_P(ExpertLayoutTest, ShippedRowsGiveTheSameDigests) {
  const Answers expected = Run("cpu", "");
  const model::MoeConfig& moe = *files_.config.moe;
  EXPECT_EQ(Counter("rows_routed"), RowsRouted());
  options_.ship.mode = kShip;
  auto layouts = ExpertLayouts();
  if (moe.num_experts == 8)  // one of them on all four ranks
    layouts.emplace_back("4xcpu", "dp=4,experts=by_expert,expert-size=5");
  const int64_t dense = files_.config.num_layers - ExpertLayers();
  // Layers without experts are pooled, and shipped, beside them.
  const std::string both = fmt::format("dp=2,experts=by_expert,weights=striped,pool={}", dense);
  if (dense > 0) layouts.emplace_back("2xcpu", both.c_str());
  for (const auto& [devices, layout] : layouts) {
    for (const int32_t rows : {5, 2048}) {
      SCOPED_TRACE(fmt::format("{} {}", layout, rows));
      options_.ship.rounds.expert_rows = rows;
      EXPECT_EQ(Run(devices, layout), expected);
      EXPECT_GT(Counter("steps_ship"), 0);
      if (layout != both) {
        EXPECT_EQ(Counter("waited_pull_us"), 0);
      }
      EXPECT_GT(Counter("waited_peer_us"), 0);
      EXPECT_GT(Counter("expert_rows_sent"), 0);
      EXPECT_EQ(Counter("rows_routed"), RowsRouted());
      EXPECT_GE(Counter("expert_rows_returned"), Counter("expert_rows_sent"));
    }
  }
  options_.trial.flip_every = 2;
  EXPECT_EQ(Run("3xcpu", "dp=3,experts=by_expert"), expected);
  EXPECT_GT(Counter("steps_ship"), 0);
  EXPECT_GT(Counter("steps_pull"), 0);
  if (moe.num_shared_experts == 0) return;
  options_.ship.rounds.hides_return = false;
  EXPECT_EQ(Run("3xcpu", "dp=3,experts=by_expert"), expected);
}

// To the row, by the recorded routing: a row goes once to each other rank that has experts of its
// choice, and one comes back of each of these experts.
TEST_P(ExpertLayoutTest, WhatIsShippedIsCountedToTheRow) {
  const base::TemporaryFolder folder;
  options_.machine.record_routing = folder.path() + "/chosen.routing";
  options_.prefix_caching = false;
  options_.ship.mode = kShip;
  const model::MoeConfig& moe = *files_.config.moe;
  const auto layers = static_cast<size_t>(ExpertLayers()),
             chosen = static_cast<size_t>(moe.experts_per_token);
  std::vector<std::pair<size_t, size_t>> cuts = {{2, 1}, {4, 1}, {2, 2}};
  if (files_.config.mla) cuts.pop_back();
  for (const auto& [ranks, tp] : cuts) {  // which hold an expert once
    HandOutInTurn(ranks);
    Run(fmt::format("{}xcpu", ranks * tp), fmt::format("dp={},tp={},experts=by_expert", ranks, tp));
    EXPECT_EQ(Counter("steps_ship"), stats_.steps * static_cast<int64_t>(tp));
    const size_t held = static_cast<size_t>(moe.num_experts) / (ranks * tp);
    int64_t rows = 0, sent = 0, returned = 0;
    for (const RecordedRows& record :
         ReadRecords(*base::ReadFile(options_.machine.record_routing), moe)) {
      const size_t home = static_cast<size_t>(record.line) % ranks;
      rows += static_cast<int64_t>(record.rows);
      for (size_t first = 0; first < record.experts.size(); first += chosen) {
        std::set<size_t> owners;
        for (size_t slot = first; slot < first + chosen; ++slot) {
          const size_t owner = record.experts[slot] / held;  // by tp rank, then by replica
          // A replica's tp ranks all take what the others and each other's experts made.
          if (owner % ranks == home) {
            returned += static_cast<int64_t>(tp) - 1;
            continue;
          }
          owners.insert(owner);
          returned += static_cast<int64_t>(tp);
        }
        sent += static_cast<int64_t>(owners.size());
      }
    }
    rows *= static_cast<int64_t>(tp);
    EXPECT_EQ(rows, Counter("rows_shipped"));
    EXPECT_EQ(Counter("expert_rows_sent"), sent);
    EXPECT_EQ(Counter("expert_rows_returned"), returned);
    // And which experts a row chose goes to all.
    const auto index_bytes = static_cast<int64_t>((ranks - 1) * layers * chosen * sizeof(int32_t));
    EXPECT_EQ(Counter("bytes_shipped"),
              (sent + returned) * 2 * files_.config.hidden_size + rows * index_bytes);
  }
}

// Ranks meet twice a layer and round, and who has no rows meets them and sends none.
TEST_P(ExpertLayoutTest, MeetingsAreTwoALayerAndRound) {
  const base::TemporaryFolder folder;
  options_.machine.record_routing = folder.path() + "/chosen.routing";
  options_.prefix_caching = false;
  options_.ship.mode = kShip;
  options_.limits.max_num_seqs = 1;  // a record is a step
  requests_.resize(8);
  constexpr int64_t kRanks = 3, kRows = 7;
  options_.ship.rounds.expert_rows = kRows;
  HandOutInTurn(1);
  hand_out_.replicas.resize(kRanks);
  Run("3xcpu", "dp=3,experts=by_expert");
  int64_t rounds = 0;
  for (const RecordedRows& record :
       ReadRecords(*base::ReadFile(options_.machine.record_routing), *files_.config.moe))
    rounds += (static_cast<int64_t>(record.rows) + kRows - 1) / kRows;
  EXPECT_GT(rounds, stats_.steps);
  EXPECT_EQ(Counter("ship_meetings"), kRanks * 2 * ExpertLayers() * rounds);
  EXPECT_EQ(Counter("rows_skipped"), (kRanks - 1) * stats_.steps);
  EXPECT_EQ(Counter("rows_shipped"), stats_.computed_tokens);
}

// A router that says the same of all experts, so that all rows choose the first ones.
class EvenRouter final : public weights::TensorReader {
 public:
  explicit EvenRouter(std::unique_ptr<weights::TensorReader> reader) : reader_(std::move(reader)) {}
  base::Result<tensor::Shape> ShapeOf(std::string_view name) const override {
    return reader_->ShapeOf(name);
  }
  bool Has(std::string_view name) const override { return reader_->Has(name); }
  using TensorReader::ReadRows;
  base::Status ReadRows(std::string_view name, int64_t begin, int64_t end,
                        float* out) const override {
    FB_RETURN_IF_ERROR(reader_->ReadRows(name, begin, end, out));
    if (name.find(".gate.") == name.npos && name.find(".router.") == name.npos) return {};
    FB_ASSIGN_OR_RETURN(const tensor::Shape shape, ShapeOf(name));
    std::fill_n(out, (end - begin) * shape[shape.rank() - 1], 0.0f);
    return {};
  }

 private:
  const std::unique_ptr<weights::TensorReader> reader_;
};

// The worst that routing can do: staging has room for it, and the same rounds are needed.
TEST_P(ExpertLayoutTest, AllRowsAtOneRankGiveTheSameDigests) {
  files_.reader = std::make_unique<EvenRouter>(std::move(files_.reader));
  requests_.resize(12);
  const Answers expected = Run("cpu", "");
  // One expert's rows are all.
  EXPECT_EQ(Counter("expert_busiest_rows"), stats_.computed_tokens * ExpertLayers());
  EXPECT_EQ(Counter("experts_touched"),
            stats_.steps * ExpertLayers() * files_.config.moe->experts_per_token);
  options_.ship.mode = kShip;
  HandOutInTurn(2);
  for (const int32_t rows : {2, 2048}) {
    options_.ship.rounds.expert_rows = rows;
    EXPECT_EQ(Run("2xcpu", "dp=2,experts=by_expert"), expected) << rows;
    const int64_t others = stats_.replicas[1].tokens * ExpertLayers();
    EXPECT_EQ(Counter("expert_rows_sent"), others);
    EXPECT_EQ(Counter("expert_rows_returned"), others * files_.config.moe->experts_per_token);
  }
  hand_out_.replicas.clear();
  for (const StepMode& mode : {kShip, kRouted, kPull}) {
    options_.ship.mode = mode;
    EXPECT_EQ(Run("3xcpu", "dp=3,experts=by_expert"), expected);
  }
}

// As many ranks as the experts reach.
TEST_P(ExpertLayoutTest, FiveToEightRanksGiveTheSameDigests) {
  if (files_.config.moe->num_experts < 8) GTEST_SKIP() << "four experts";
  requests_.resize(10);
  const Answers expected = Run("cpu", "");
  for (const int ranks : {5, 6, 7, 8}) {
    const std::string layout = fmt::format("dp={},experts=by_expert", ranks);
    for (const StepMode& mode : {kPull, kShip, kRouted}) {
      SCOPED_TRACE(fmt::format("{} {}", layout, schedule::Name(mode)));
      options_.ship.mode = mode;
      EXPECT_EQ(Run(fmt::format("{}xcpu", ranks), layout), expected);
      EXPECT_EQ(stats_.mode_counters[schedule::StepsCounter(mode)], stats_.steps);
      if (mode == kPull) ExpectPulledBytes(*layout::ParseLayout(layout));
    }
  }
}

// All meet before each layer's pull, as FSDP has it.
TEST_P(ExpertLayoutTest, GatheredExpertsGiveTheSameDigests) {
  requests_.resize(12);
  const Answers expected = Run("cpu", "");
  options_.ship.mode = kGather;
  for (const auto& [devices, layout] : ExpertLayouts()) {
    SCOPED_TRACE(layout);
    const layout::Layout parsed = *layout::ParseLayout(layout);
    EXPECT_EQ(Run(devices, layout), expected);
    EXPECT_EQ(Counter("steps_gather"), stats_.steps * parsed.pp);
    EXPECT_EQ(Counter("expert_rows_sent"), 0);
    EXPECT_GT(Counter("bytes_pulled"), 0);
    if (parsed.pp > 1) continue;
    // All ranks of a group in each round, of which some have rows on some ranks alone.
    const int64_t places = stats_.steps + Counter("rows_skipped");
    EXPECT_EQ(places % parsed.dp, 0);
    EXPECT_EQ(Counter("ship_meetings"), places * ExpertLayers());
  }
}

TEST_P(ExpertLayoutTest, AutoPullsForPromptsAndShipsWhileDecoding) {
  requests_.resize(12);
  const Answers expected = Run("cpu", "");
  options_.ship.mode = std::nullopt;
  options_.ship.threshold = 12;
  options_.ship.patience = 1;
  for (const auto& [devices, layout] : ExpertLayouts()) {
    SCOPED_TRACE(layout);
    const layout::Layout parsed = *layout::ParseLayout(layout);
    // Else one rank may take all before another has begun.
    HandOutInTurn(static_cast<size_t>(parsed.groups * parsed.dp));
    EXPECT_EQ(Run(devices, layout), expected);
    EXPECT_GT(Counter("steps_pull"), 0);
    EXPECT_GT(Counter("steps_ship"), 0);
    EXPECT_GT(Counter("expert_rows_sent"), 0);
    EXPECT_EQ(Counter("steps_pull") + Counter("steps_ship") + Counter("steps_routed"),
              stats_.steps * parsed.pp);
  }
}

TEST_P(ExpertLayoutTest, WhatCannotBeIsRefused) {
  if (files_.config.mla) {
    options_.machine.devices = *layout::ParseDevices("2xcpu");
    options_.layout = *layout::ParseLayout("sp=2");
    EXPECT_EQ(choose::Decide(options_, files_.config).status().code(), model::kLayoutExperts);
  }
  for (const auto& [devices, layout, expected] :
       {std::tuple{"9xcpu", "dp=9,experts=by_expert", "placement_cannot"},
        {"2xcpu", "dp=2,experts=by_expert,expert-size=99", "placement_cannot"},
        {"2xcpu", "dp=2,expert-size=4", "layout_pool"},
        {"2xcpu", "dp=2,experts=by_expert:5,expert-size=6", "layout_pool"},
        {"2xcpu", "dp=2,experts=striped", "layout_invalid"},
        {"2xcpu", "dp=2,weights=by_expert", "layout_invalid"}}) {
    options_.machine.devices = *layout::ParseDevices(devices);
    const auto parsed = layout::ParseLayout(layout);
    if (parsed.ok()) options_.layout = *parsed;
    const base::Status refused =
        parsed.ok() ? choose::Decide(options_, files_.config).status() : parsed.status();
    EXPECT_EQ(refused.code(), base::ErrorCode{expected}) << layout;
  }
  options_.machine.devices = *layout::ParseDevices("2xcpu");
  const auto refusal = [&](const char* layout) {
    options_.layout = *layout::ParseLayout(layout);
    return choose::Decide(options_, files_.config).status();
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

// Replicas, stages and groups of them, each of which has all experts of its layers.
TEST_P(ExpertLayoutTest, RanksThatShareNothingGiveTheSameDigests) {
  requests_.resize(12);
  const Answers expected = Run("cpu", "");
  for (const auto& [devices, layout] : {std::pair{"2xcpu", "dp=2"},
                                        {"2xcpu", "pp=2"},
                                        {"2xcpu", "groups=2"},
                                        {"4xcpu", "dp=2,pp=2"}}) {
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_EQ(Counter("rows_routed"), RowsRouted()) << layout;
    EXPECT_EQ(Counter("bytes_pulled") + Counter("expert_rows_sent"), 0) << layout;
  }
}

// Four requests on simulated devices.
struct Simulated {
  runtime::TimeNs end = 0;
  std::map<std::string, int64_t> counters;
};
Simulated Simulate(const layout::EngineOptions& options, const engine::ModelFiles& files) {
  Simulated simulated;
  runtime::VirtualRuntime runtime(0);
  const base::Status status = runtime.Run([&] {
    const auto engine = choose::CreateEngine(runtime, options, files, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    std::vector<Request> requests = MakeRequests();
    requests.resize(4);
    for (Request& request : requests) request.ends_after = request.sampling.max_tokens;
    EXPECT_EQ(testing_support::RunAll(**engine, requests).size(), requests.size());
    simulated = {runtime.Now(), (*engine)->stats().mode_counters};
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return simulated;
}

// Copies run beside the shared expert, or after it.
TEST(ExpertOverlap, RowsComeHomeWhileTheSharedExpertComputes) {
  layout::EngineOptions options;
  options.model = golden::Path("models/deepseek-v3");
  options.machine.devices = *layout::ParseDevices("sim:4xh20");
  options.layout = *layout::ParseLayout("dp=4,experts=by_expert");
  options.ship.mode = kShip;
  options.limits.max_model_len = 128;
  const auto files = engine::OpenModel(options.model, true, 0);
  device::HazardChecker checker;
  options.trial.checker = &checker;
  Simulated beside = Simulate(options, *files);
  options.ship.rounds.hides_return = false;
  Simulated after = Simulate(options, *files);
  EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
  EXPECT_GT(after.end, beside.end);
  EXPECT_GT(beside.counters["expert_rows_returned"], 0);
  EXPECT_EQ(beside.counters["waited_pull_us"], 0);
}

// Simulated devices have copy engines, to which it matters how many slices are under way.
TEST(PoolRequests, MoreAtOnceTakeLessTime) {
  layout::EngineOptions options;
  options.model = golden::Path("models/qwen3-moe");
  options.machine.devices = *layout::ParseDevices("sim:4xh20");
  options.layout = *layout::ParseLayout("dp=4,experts=by_expert");
  options.ship.mode = kPull;
  options.limits.max_model_len = 128;
  options.pool.slice_bytes = 256;
  const auto files = engine::OpenModel(options.model, true, 0);
  const auto time = [&](int in_flight) {
    options.pool.requests_in_flight = in_flight;
    return Simulate(options, *files).end;
  };
  EXPECT_GT(time(1), time(3) * 5 / 4);
  EXPECT_EQ(time(0), time(3));  // one a peer
  const auto refusal = [&] { return choose::Decide(options, files->config).status(); };
  options.pool.requests_in_flight = 2;
  EXPECT_TRUE(refusal().ok());
  options.layout = *layout::ParseLayout("dp=4");
  EXPECT_THAT(refusal().message(), testing::HasSubstr("where no rank pulls weights; expected"));
  options.machine.devices = *layout::ParseDevices("4xcpu");
  EXPECT_THAT(refusal().message(), testing::HasSubstr("--pool-requests 2 on real devices"));
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertLayoutTest,
                         testing::Values("qwen3-moe", "mixtral", "deepseek-v3", "llama4-text"));

}  // namespace
}  // namespace forebay
