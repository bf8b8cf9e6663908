#include "engine/pool_choice.h"

#include <gtest/gtest.h>

#include "engine/step_price.h"
#include "model/builtin_configs.h"

namespace forebay::engine {
namespace {

// A rank with room for `spare` tokens when nothing is pooled and 1000 more a pooled layer, of 10 layers; a step takes
// 10 ms and 0.1 ms a choice, a layer 1 GB of pulls.
PoolQuestion Question(int64_t spare, double pull_rate) {
  PoolQuestion question{.num_layers = 10, .mean_context = 100, .max_batch = 1000, .pull_rate = pull_rate};
  question.memory = [spare](int64_t layers) {
    return PooledMemory{.kv_tokens = std::max<int64_t>(0, spare + 1000 * layers), .pull_bytes = static_cast<uint64_t>(layers) * 1'000'000'000};
  };
  question.step_seconds = [](int64_t batch, double) { return 10e-3 + 0.1e-3 * static_cast<double>(batch); };
  return question;
}

TEST(PoolChoice, Table) {
  struct Case {
    const char* what;
    int64_t spare;
    double pull_rate;
    int64_t max_batch;
    int64_t layers;
  };
  const Case cases[] = {
      {"a link that hides everything: as large a batch as there can be", 1000, 1e15, 1000, 10},
      {"a link that hides nothing: plain data parallelism", 1000, 1e9, 1000, 0},
      {"in between the fetch of n layers is as long as the step: 10 + 0.1 (10 + 10 n) = 2.5 n ms", 1000, 0.4e12, 1000, 8},
      {"no memory without pooling: each layer adds more batch than fetch", -3000, 1e9, 1000, 10},
      {"more memory than the batch can use", 1'000'000, 1e15, 1000, 0},
      {"a batch that may not grow", 1000, 1e15, 40, 3},
      {"nothing fits", -1'000'000, 1e15, 1000, 10},
  };
  for (const Case& c : cases) {
    PoolQuestion question = Question(c.spare, c.pull_rate);
    question.max_batch = c.max_batch;
    const PoolChoice choice = ChoosePoolLayers(question);
    EXPECT_EQ(choice.layers, c.layers) << c.what;
    ASSERT_EQ(choice.trials.size(), 11u);
    for (const PoolTrial& trial : choice.trials) {
      EXPECT_GE(choice.chosen().tokens_per_s(), 0.995 * trial.tokens_per_s()) << c.what << ", " << trial.layers;
    }
  }
}

TEST(PoolChoice, CopiesThatSlowTheStepCount) {
  PoolQuestion question = Question(1000, 1e15);
  question.step_seconds = [](int64_t batch, double pulled_per_s) {
    return (10e-3 + 0.1e-3 * static_cast<double>(batch)) * (1 + pulled_per_s / 1e11);
  };
  EXPECT_LT(ChoosePoolLayers(question).layers, 10);
}

// The step's price comes from the layer program: a batch of one is bound by the weights, a copy takes of their bandwidth.
TEST(PoolChoice, AStepCostsItsWeights) {
  const model::ModelConfig config = model::LoadBuiltinConfig("Qwen3-32B").value();
  const cost::DeviceProfile profile = cost::LoadProfile("h200").value();
  const StepPricer one(config, tensor::DType::kBF16, 1, 1024, profile, cost::Calibration::kUncalibrated);
  const double weights_s = 64e9 / (profile.memory_bytes_per_s * profile.mbu);
  EXPECT_NEAR(one.Seconds(1, 1000, 0), weights_s + profile.step_overhead_s, 0.25 * weights_s);
  EXPECT_GT(one.Seconds(512, 1000, 0), one.Seconds(1, 1000, 0));
  EXPECT_GT(one.Seconds(64, 1000, 300e9), 1.02 * one.Seconds(64, 1000, 0));
  const StepPricer four(config, tensor::DType::kBF16, 4, 1024, profile, cost::Calibration::kUncalibrated);
  EXPECT_LT(four.Seconds(64, 1000, 0), 0.6 * one.Seconds(64, 1000, 0));
  EXPECT_GT(four.Seconds(64, 1000, 0), 0.25 * one.Seconds(64, 1000, 0));
}

}  // namespace
}  // namespace forebay::engine
