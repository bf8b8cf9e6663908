// Weights that lie in memory as files store them: the answers, digests included, of the same
// weights expanded when they are loaded, in every set and layout.
#include <gtest/gtest.h>

#include "testing/sets_fixture.h"

namespace forebay {
namespace {

class StoredTest : public SetsTest {
 protected:
  Answers RunExpanded(const std::string& devices, const std::string& layout) {
    options_.machine.quantization.expanded = true;
    Answers answers = Run(devices, layout);
    options_.machine.quantization.expanded = false;
    return answers;
  }
  void ExpectEveryLayout(const Answers& expected);
};

TEST_P(StoredTest, EverySetGivesTheDigestsOfExpandedWeights) {
  struct Expanded {
    Answers answers;
    uint64_t weight_bytes;
  };
  for (const tensor::DType dtype : {tensor::DType::kBF16, tensor::DType::kF32}) {
    options_.machine.dtype = dtype;
    std::map<std::string, Expanded> of_class;
    for (const auto& [set, oracle] : kernels::testing::SetsWithOracles()) {
      // Tiles multiply bf16 alone: in fp32 these sets have another one's layers.
      if (dtype == tensor::DType::kF32 && oracle.linear != &kernels::ref::Linear) continue;
      options_.machine.kernels = &set;
      const Answers answers = Run("cpu", "");
      const uint64_t bytes = weight_bytes_;
      const std::string numerics = numerics_class_;
      if (!of_class.contains(numerics)) {
        of_class[numerics] = {RunExpanded("cpu", ""), weight_bytes_};
        EXPECT_EQ(numerics_class_, numerics);
      }
      EXPECT_EQ(answers, of_class[numerics].answers) << set.name;
      EXPECT_LT(bytes, of_class[numerics].weight_bytes) << set.name;
    }
  }
}

void StoredTest::ExpectEveryLayout(const Answers& expected) {
  std::vector<std::pair<const char*, const char*>> layouts = {
      {"2xcpu", "tp=2"}, {"3xcpu", "tp=3"}, {"2xcpu", "pp=2"}, {"2xcpu", "sp=2"}};
  if (files_.config.moe) {
    layouts.insert(layouts.end(),
                   {{"2xcpu", "dp=2,experts=by_expert"}, {"3xcpu", "dp=3,experts=by_expert"}});
  } else {
    layouts.insert(layouts.end(), {{"2xcpu", "dp=2,weights=by_layer"},
                                   {"2xcpu", "dp=2,weights=striped,pool-attention=on"},
                                   {"3xcpu", "dp=3,weights=sharded"}});
  }
  for (const auto& [devices, layout] : layouts) {
    const auto parsed = *layout::ParseLayout(layout);
    if (!layout::ValidateLayout(parsed, files_.config, parsed.num_devices()).ok()) continue;
    options_.shift.mode.reset();
    if (parsed.sp > 1) options_.shift.mode = parsed.degrees();
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_EQ(stats_.mode_counters.contains("bytes_pulled"), parsed.pools()) << layout;
  }
  options_.shift.mode.reset();
  options_.ship.mode = kShip;
  EXPECT_EQ(Run("2xcpu", files_.config.moe ? "dp=2,experts=by_expert" : "dp=2,weights=striped"),
            expected);
  EXPECT_GT(stats_.mode_counters["steps_ship"], 0);
}

TEST_P(StoredTest, EveryLayoutGivesTheDigestsOfExpandedWeights) {
  ExpectEveryLayout(RunExpanded("cpu", ""));
}

// What a step of a pooled model pulls is counted in the stored tiles' bytes (CountBytes), which are
// fewer.
TEST_P(StoredTest, WhatIsPulledIsWhatIsStored) {
  const auto step_bytes = [&] {
    const bool experts = files_.config.moe.has_value();
    Run("2xcpu", experts ? "dp=2,experts=by_expert" : "dp=2,weights=by_layer");
    EXPECT_GT(stats_.mode_counters["bytes_pulled"], 0);
    return pooled_step_bytes_;
  };
  const uint64_t stored = step_bytes(), stored_weights = weight_bytes_;
  options_.machine.quantization.expanded = true;
  const uint64_t expanded = step_bytes();
  EXPECT_LT(stored, expanded);
  EXPECT_LT(stored_weights, weight_bytes_);
}

// Longer answers than there are blocks for.
TEST_P(StoredTest, AfterPreemption) {
  for (Request& request : requests_) request.sampling.max_tokens += 40;
  const Answers expected = RunExpanded("cpu", "");
  options_.limits.kv_blocks = 9;
  EXPECT_EQ(Run("cpu", ""), expected);
  EXPECT_GT(stats_.preemptions, 0);
}

// Layers that multiply in int8: another class, in which every set and layout gives one answer.
class Int8Test : public StoredTest {
 protected:
  void SetUp() override {
    StoredTest::SetUp();
    options_.machine.quantization.format = cost::NumberFormat::kInt8;
  }
};

TEST_P(Int8Test, EverySetGivesTheDigestsOfItsOracle) {
  requests_.resize(4);
  for (const tensor::DType dtype : {tensor::DType::kBF16, tensor::DType::kF32}) {
    options_.machine.dtype = dtype;
    ExpectOraclesAnswers(
        testing::HasSubstr(dtype == tensor::DType::kF32 ? "-w8a8-kvf32" : "-w8a8-kvbf16"));
  }
}

TEST_P(Int8Test, EveryLayoutGivesTheDigestsOfOneRank) {
  const Answers expected = Run("cpu", "");
  options_.machine.quantization.format.reset();
  EXPECT_NE(Run("cpu", ""), expected);
  options_.machine.quantization.format = cost::NumberFormat::kInt8;
  ExpectEveryLayout(expected);
}

TEST_P(Int8Test, AfterPreemption) {
  for (Request& request : requests_) request.sampling.max_tokens += 40;
  const Answers expected = Run("cpu", "");
  options_.limits.kv_blocks = 9;
  EXPECT_EQ(Run("cpu", ""), expected);
  EXPECT_GT(stats_.preemptions, 0);
}

// Layers that are made Q4_0, of a class of their own.
class Int4Test : public StoredTest {
 protected:
  void SetUp() override {
    StoredTest::SetUp();
    options_.machine.quantization.format = cost::NumberFormat::kInt4;
  }
};

TEST_P(Int4Test, EverySetGivesTheDigestsOfItsOracle) {
  requests_.resize(4);
  ExpectOraclesAnswers(testing::HasSubstr("-int4-kvbf16"));
  const uint64_t bytes = weight_bytes_;
  options_.machine.kernels = nullptr;  // the sets are gone
  options_.machine.quantization.format.reset();
  Run("cpu", "");
  EXPECT_LT(bytes, weight_bytes_);
}

TEST_P(Int4Test, EveryLayoutGivesTheDigestsOfOneRank) {
  const Answers expected = Run("cpu", "");
  options_.machine.quantization.format.reset();
  EXPECT_NE(Run("cpu", ""), expected);
  options_.machine.quantization.format = cost::NumberFormat::kInt4;
  ExpectEveryLayout(expected);
}

TEST_P(Int4Test, AreOfBf16Alone) {
  options_.machine.dtype = tensor::DType::kF32;
  options_.machine.devices = *layout::ParseDevices("cpu");
  const base::Status status = choose::Decide(options_, files_.config).status();
  EXPECT_EQ(status.code(), layout::kQuantization);
  EXPECT_THAT(status.message(), testing::HasSubstr("--dtype float32"));
}

INSTANTIATE_TEST_SUITE_P(Files, Int4Test,
                         testing::Values("llama3-gqa", "qwen3-moe", "../gguf/qwen3-Q4_1.gguf"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(Files, Int8Test,
                         testing::Values("llama3-gqa", "qwen3-moe", "mixtral", "deepseek-v3",
                                         "llama4-text", "../gguf/qwen3-Q4_1.gguf"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(Files, StoredTest,
                         testing::Values("../gguf/qwen3-mixed.gguf", "../gguf/llama3-gqa-Q8_0.gguf",
                                         "../gguf/qwen3-Q4_1.gguf", "../gguf/mixtral-Q8_0.gguf",
                                         "../gguf/qwen3-moe-Q8_0.gguf", "qwen3-awq", "qwen3-gptq",
                                         "qwen3-nvfp4", "qwen3-w4a16-asym"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace forebay
