// Ranks that cut a step's rows, their weights, or both, by step: the same answers, digests
// included, as one rank gives.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "engine/compose.h"
#include "kernels/testing/tile_sets.h"
#include "layout/layout.h"
#include "layout/shift_plan.h"
#include "schedule/shift_table.h"
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

// Models of random weights whose heads and leaves are cut more finely than the golden ones'.
struct Shape {
  int heads, kv_heads, intermediate;
  std::vector<const char*> layouts;
};

class ShapeLayoutTest : public LayoutTest {
 protected:
  // Calls check(layout, its text) for each layout of each shape, without further options before.
  template <typename Check>
  void ForEachLayout(const std::vector<Shape>& shapes, const Check& check) {
    requests_.resize(12);
    for (const Shape& shape : shapes) {
      Open(shape);
      expected_ = Run("cpu", "");
      for (const char* text : shape.layouts) {
        SCOPED_TRACE(fmt::format("{} of {}/{}", text, shape.heads, shape.kv_heads));
        check(*layout::ParseLayout(text), std::string(text));
        options_.shift = {};
        options_.trial.shift_every = 0;
      }
    }
  }
  // The ranks of the layout give the answers of one rank.
  void RunAsOne(const std::string& layout) {
    const int devices = layout::ParseLayout(layout)->num_devices();
    EXPECT_EQ(Run(fmt::format("{}xcpu", devices), layout), expected_);
  }
  int64_t Counter(const std::string& name) { return stats_.mode_counters[name]; }
  int64_t StepsIn(const model::Degrees& mode) {
    return Counter(fmt::format("steps_sp{}tp{}", mode.sp, mode.tp));
  }

  // All steps in `mode`, whatever their rows.
  void RunForced(const model::Degrees& mode, const std::string& layout) {
    options_.shift.mode = mode;
    RunAsOne(layout);
    EXPECT_EQ(StepsIn(mode), stats_.steps);
    EXPECT_EQ(Counter("bytes_all_to_all") > 0, mode.sp > 1);
  }

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

  Answers expected_;
};

TEST_P(ShapeLayoutTest, RanksThatCutRowsGiveTheSameDigests) {
  const std::vector<Shape> shapes = {{6, 6, 256, {"sp=3,tp=2", "sp=2,tp=3", "sp=6"}},
                                     {8, 2, 256, {"sp=4", "sp=2,tp=2", "sp=8"}},
                                     {32, 4, 256, {"sp=4,tp=2", "sp=8"}},
                                     {40, 8, 256, {"sp=8"}},
                                     {64, 8, 256, {"sp=4,tp=2"}},
                                     {9, 3, 288, {"sp=3"}},
                                     {14, 2, 256, {"sp=2", "sp=4", "sp=2,tp=2"}}};
  ForEachLayout(shapes, [&](const layout::Layout& layout, const std::string& text) {
    options_.shift.mode = layout.degrees();
    RunAsOne(text);
    EXPECT_EQ(StepsIn(layout.degrees()), stats_.steps);
    EXPECT_GT(Counter("bytes_all_to_all"), 0);
    EXPECT_GT(Counter("bytes_head"), 0);
    options_.shift.mode.reset();
    options_.trial.shift_every = schedule::kFlipAtRandom;
    RunAsOne(text);
    for (const model::Degrees& mode : layout::ModesOf(layout.degrees(), false))
      EXPECT_GT(StepsIn(mode), 0) << layout::FormatMode(mode);
  });
}

// Whatever else steps do while each takes a mode at random: they find prefixes that others wrote in
// few blocks, overlap with steps of other stages, see windows, move to another replica; in fp32,
// and in class `amx`.
TEST_P(ShapeLayoutTest, ModesAtRandomChangeNothingElse) {
  requests_.resize(12);
  for (Request& request : requests_) {
    std::vector<int32_t>& prompt = request.prompts[0];
    prompt.resize(std::min<size_t>(prompt.size(), 20));
    prompt.insert(prompt.begin(), 64, 7);  // two blocks
    request.sampling.max_tokens += 30;
  }
  Open({8, 2, 256, {}});
  const auto run_one = [&] {
    options_.trial.shift_every = 0;
    expected_ = Run("cpu", "");
    options_.trial.shift_every = schedule::kFlipAtRandom;
  };
  const auto run = [&](const char* layout) {
    SCOPED_TRACE(layout);
    RunAsOne(layout);
    EXPECT_GT(Counter("shift_switches"), 0);
  };
  run_one();
  options_.limits.kv_blocks = 9;
  run("sp=2,tp=2");
  EXPECT_GT(stats_.prefix_blocks_hit, 0);
  options_.limits = {
      .max_model_len = 128, .max_num_seqs = 4, .max_num_batched_tokens = 48, .steps_in_flight = 3};
  run("sp=2,pp=2");
  options_.limits.steps_in_flight = 0;
  options_.steal = layout::Stealing::kAlways;
  hand_out_.replicas.assign(2, {});
  for (const Request& request : requests_) hand_out_.replicas[0].push_back({0, request.id});
  int64_t stolen = 0;
  for (int i = 0; i < 5 && stolen == 0; ++i) {
    run("dp=2,sp=2");
    stolen += stats_.requests_stolen;
  }
  EXPECT_GT(stolen, 0);
  hand_out_ = {};
  files_.config.sliding_window = {32, 32};
  run_one();
  run("sp=4");
  files_.config.sliding_window = {0, 0};
  options_.machine.dtype = tensor::DType::kF32;
  run_one();
  run("sp=2,tp=2");
  if (!kernels::testing::HasModelTiles()) return;
  options_.machine.dtype = tensor::DType::kBF16;
  const kernels::KernelSet tiles = kernels::testing::ModelTileKernels(kernels::TileOrder::kSplit);
  options_.machine.kernels = &tiles;
  run_one();
  run("sp=2,tp=2");
  EXPECT_EQ(numerics_class_, "amx_split-bf16-kvbf16");
}

// Choices that are preempted come back in other modes than they left. Each grows into three blocks,
// so that any three which run together are more than the cache holds.
TEST_P(ShapeLayoutTest, PreemptedChoicesComeBackInAnyMode) {
  requests_.resize(12);
  for (Request& request : requests_) {
    request.prompts[0].resize(20, 7);
    request.n = 1;
    request.sampling.max_tokens = 70;
  }
  options_.prefix_caching = false;
  ForEachLayout({{8, 2, 256, {"sp=2,tp=2"}}, {14, 2, 256, {"sp=2,pp=2"}}},
                [&](const layout::Layout&, const std::string& text) {
                  options_.trial.shift_every = schedule::kFlipAtRandom;
                  options_.limits.kv_blocks = 7;
                  RunAsOne(text);
                  EXPECT_GT(stats_.preemptions, 0);
                  EXPECT_GT(stats_.recomputed_tokens, 0);
                  EXPECT_GT(Counter("shift_switches"), 0);
                  options_.limits.kv_blocks = 0;
                });
}

// Every other product that is accepted: five and seven ranks, whose leaves are not equally many,
// and two replicas or stages of four.
TEST_P(ShapeLayoutTest, EveryModeOfEveryProductGivesTheSameDigests) {
  const std::vector<Shape> shapes = {
      {8,
       2,
       256,
       {"sp=2,tp=4", "sp=5", "sp=7", "dp=2,sp=4", "dp=2,sp=2,tp=2", "sp=4,pp=2", "sp=2,tp=2,pp=2"}},
      {9, 3, 288, {"sp=3,pp=2"}}};
  ForEachLayout(shapes, [&](const layout::Layout& layout, const std::string& text) {
    const std::vector<model::Degrees> modes = layout::ModesOf(layout.degrees(), false);
    for (const model::Degrees& mode : modes) {
      SCOPED_TRACE(layout::FormatMode(mode));
      RunForced(mode, text);
    }
    options_.shift.mode.reset();
    options_.trial.shift_every = schedule::kFlipAtRandom;
    RunAsOne(text);
    for (const model::Degrees& mode : modes) EXPECT_GT(StepsIn(mode), 0);
    EXPECT_GT(Counter("shift_switches"), 0);
  });
}

// Steps of fewer rows than ranks, of as many, and of one more: each is a prompt that ends with its
// first token. What would make the ranks' rows equally many is counted.
TEST_P(ShapeLayoutTest, StepsOfExactlySoManyRowsGiveTheSameDigests) {
  const std::vector<Shape> shapes = {
      {8, 2, 256, {"sp=2", "sp=4", "sp=2,tp=2", "sp=5", "sp=7", "sp=8"}},
      {6, 6, 256, {"sp=3,tp=2"}}};
  const auto prompts_of = [&](const std::set<int>& lengths) {
    requests_.clear();
    for (const int rows : lengths) {
      Request request;
      request.id = request.line = std::ssize(requests_);
      request.prompts.emplace_back();
      for (int t = 0; t < rows; ++t) request.prompts[0].push_back((rows * 31 + t * 7) % 250);
      request.sampling.temperature = 1;
      request.sampling.max_tokens = 1;
      request.sampling.ignore_eos = true;
      requests_.push_back(std::move(request));
    }
  };
  options_.prefix_caching = false;
  options_.limits.max_num_seqs = 1;
  for (const Shape& shape : shapes) {
    Open(shape);
    for (const char* text : shape.layouts) {
      SCOPED_TRACE(fmt::format("{} of {}/{}", text, shape.heads, shape.kv_heads));
      const model::Degrees degrees = layout::ParseLayout(text)->degrees();
      const std::set<int> lengths = {1, 2, std::max(1, degrees.sp - 1), degrees.sp, degrees.sp + 1,
                                     9};
      prompts_of(lengths);
      options_.shift = {};
      options_.trial.shift_every = 0;
      expected_ = Run("cpu", "");
      options_.shift.mode = degrees;
      RunAsOne(text);
      int64_t pads = 0;
      for (const int rows : lengths)
        pads += (rows + degrees.sp - 1) / degrees.sp * degrees.sp - rows;
      EXPECT_EQ(stats_.steps, std::ssize(lengths));
      EXPECT_EQ(StepsIn(degrees), stats_.steps);
      EXPECT_EQ(Counter("sp_pad_rows"), pads);
      options_.shift.mode.reset();
      options_.trial.shift_every = 1;
      RunAsOne(text);
      EXPECT_GT(Counter("shift_switches"), 0);
    }
  }
}

// A second model, loaded for tp alone, in place of views.
TEST_P(ShapeLayoutTest, CopiesOfWeightsGiveTheSameDigests) {
  const std::vector<Shape> shapes = {{8, 2, 256, {"sp=4", "sp=2,tp=2"}},
                                     {14, 2, 256, {"sp=2,pp=2"}}};
  ForEachLayout(shapes, [&](const layout::Layout&, const std::string& text) {
    options_.trial.shift_every = 1;
    options_.shift.among = layout::ModeChoice::kEnds;
    RunAsOne(text);
    const uint64_t views = weight_bytes_;
    options_.shift.copies_weights = true;
    RunAsOne(text);
    EXPECT_GT(weight_bytes_, views);
    EXPECT_GT(Counter("shift_switches"), 0);
  });
}

// Ranks that cut rows share the FFN: in the layout's own mode they pull it, with tp alone each owns
// its block. dp replicas are copies, and what was fetched ahead waits while the mode is another.
TEST_P(ShapeLayoutTest, PoolsAlongSpGiveTheSameDigests) {
  const std::vector<Shape> shapes = {{8, 2, 256, {"sp=4", "sp=2,tp=2", "dp=2,sp=2", "sp=4,pool=1"}},
                                     {6, 6, 256, {"sp=3,tp=2"}},
                                     {14, 2, 256, {"sp=2,pp=2"}}};
  ForEachLayout(shapes, [&](layout::Layout layout, const std::string& text) {
    const std::string pooled = text + ",weights=striped";
    layout.pool_layers.reset();
    options_.shift.mode = layout.degrees();
    RunAsOne(layout::FormatLayout(layout));
    const uint64_t replicated = weight_bytes_;
    RunAsOne(pooled);
    EXPECT_LT(weight_bytes_, replicated);
    EXPECT_GT(Counter("bytes_pulled"), 0);
    EXPECT_GT(Counter("steps_pull"), 0);
    options_.shift.mode = model::Degrees{1, layout.ranks_per_stage()};
    RunAsOne(pooled);
    EXPECT_EQ(Counter("bytes_pulled"), 0);
    EXPECT_EQ(Counter("steps_pull"), 0);
    options_.shift.mode.reset();
    for (const int every : {1, 3}) {
      options_.trial.shift_every = every;
      RunAsOne(pooled);
      EXPECT_GT(Counter("shift_switches"), 0) << every;
      EXPECT_GT(Counter("bytes_pulled"), 0) << every;
    }
  });
}

// Algorithm 1: KV heads that several ranks hold come in two meetings; all modes in turn, of which
// some have no such heads.
TEST_P(ShapeLayoutTest, KvHeadsInTwoStepsGiveTheSameDigests) {
  const std::vector<Shape> shapes = {
      {8, 2, 256, {"sp=4", "sp=8", "sp=2,tp=2"}}, {32, 4, 256, {"sp=8"}}, {14, 2, 256, {"sp=4"}}};
  ForEachLayout(shapes, [&](const layout::Layout& layout, const std::string& text) {
    options_.shift = {.mode = layout.degrees()};
    RunAsOne(text);
    const int64_t fused = Counter("meetings"), steps = stats_.steps,
                  bytes = Counter("bytes_all_to_all");
    options_.shift.two_step_kv = true;
    RunAsOne(text);
    if (stats_.steps == steps) {
      EXPECT_EQ(Counter("bytes_all_to_all"), bytes);
    }
    EXPECT_GT(Counter("meetings"), fused);
    options_.shift.mode.reset();
    options_.trial.shift_every = 1;
    RunAsOne(text);
    EXPECT_GT(Counter("shift_switches"), 0);
  });
}

// Each mode of a layout, forced, and all of them in turn: a step may take any, for KV lies where
// all find it.
TEST_P(ShapeLayoutTest, EveryModeGivesTheSameDigests) {
  const std::vector<Shape> shapes = {{8, 2, 256, {"sp=4", "sp=2,tp=2", "sp=8"}},
                                     {6, 6, 256, {"sp=3,tp=2"}},
                                     {14, 2, 256, {"sp=2,pp=2"}},
                                     {9, 3, 288, {"dp=2,sp=3"}}};
  ForEachLayout(shapes, [&](const layout::Layout& layout, const std::string& text) {
    const std::vector<model::Degrees> modes = layout::ModesOf(layout.degrees(), false);
    uint64_t weights = 0;
    for (const model::Degrees& mode : modes) {
      SCOPED_TRACE(layout::FormatMode(mode));
      RunForced(mode, text);
      EXPECT_EQ(Counter("bytes_all_reduce") > 0, mode.tp > 1);
      EXPECT_EQ(Counter("shift_switches"), 0);
      weights = weight_bytes_;
    }
    options_.shift.mode.reset();
    for (const int every : {1, 3, schedule::kFlipAtRandom}) {
      SCOPED_TRACE(every);
      options_.trial.shift_every = every;
      RunAsOne(text);
      int64_t all = 0;
      for (const model::Degrees& mode : modes) {
        EXPECT_GT(StepsIn(mode), 0);
        all += StepsIn(mode);
      }
      EXPECT_EQ(all, stats_.steps);
      EXPECT_GT(Counter("shift_switches"), 0);
      EXPECT_EQ(weight_bytes_, weights);  // views
    }
    options_.trial.shift_every = 0;
    // Steps of prompts are large here, and those that decode small.
    options_.shift.threshold = 12;
    RunAsOne(text);
    EXPECT_GT(StepsIn(layout.degrees()), 0);
    EXPECT_GT(StepsIn({1, layout.ranks_per_stage()}), 0);
  });
}

// Keys and values of each rank are the same bytes whichever modes wrote them; those of a KV head
// that several ranks hold are so on each.
TEST_P(ShapeLayoutTest, KeysAndValuesAreThoseOfEveryMode) {
  const std::vector<Shape> shapes = {
      {8, 2, 256, {"sp=4", "sp=2,tp=2"}}, {6, 6, 256, {"sp=3,tp=2"}}, {14, 2, 256, {"sp=2"}}};
  options_.limits.kv_blocks = 64;
  keeps_kv_ = true;
  ForEachLayout(shapes, [&](const layout::Layout& layout, const std::string& text) {
    options_.shift.mode = layout.degrees();
    RunAsOne(text);
    const auto expected = kv_;
    ASSERT_EQ(std::ssize(expected), layout.ranks_per_stage());
    for (const auto& [head, bytes] : expected) {
      for (const auto& [other, others] : expected)
        EXPECT_EQ(bytes == others, head == other) << head << " " << other;
    }
    options_.shift.mode = {{1, layout.ranks_per_stage()}};
    RunAsOne(text);
    EXPECT_TRUE(kv_ == expected);
    options_.shift.mode.reset();
    options_.trial.shift_every = schedule::kFlipAtRandom;
    RunAsOne(text);
    EXPECT_TRUE(kv_ == expected);
    EXPECT_GT(Counter("shift_switches"), 0);
  });
}
INSTANTIATE_TEST_SUITE_P(Models, ShapeLayoutTest, testing::Values("llama3-gqa"));

}  // namespace
}  // namespace forebay
