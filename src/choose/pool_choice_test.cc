#include "choose/pool_choice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/builtin_configs.h"
#include "price/step_price.h"

namespace forebay::choose {
namespace {

// Choices of 68 tokens, for which 100 are kept: a rank with room for `spare` tokens when nothing is
// pooled and 1000 more a pooled layer, of 10 layers; a step takes 10 ms and 0.1 ms a choice, a
// layer 1 GB of pulls.
PoolQuestion Question(int64_t spare, double pull_rate) {
  PoolQuestion question{
      .num_layers = 10, .mean_context = 68, .max_batch = 1000, .pull_rate = pull_rate};
  question.memory = [spare](int64_t layers, double least) {
    return PooledMemory{.kv_tokens = std::max<int64_t>(0, spare + 1000 * layers),
                        .pull_bytes = static_cast<uint64_t>(layers) * 1'000'000'000};
  };
  question.step = [](int64_t batch) {
    return cost::Work{.seconds = 10e-3 + 0.1e-3 * static_cast<double>(batch)};
  };
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
      {"in between the fetch of n layers is as long as the step: 10 + 0.1 (10 + 10 n) = 2.5 n ms",
       1000, 0.4e12, 1000, 8},
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
      EXPECT_GE(choice.chosen().tokens_per_s(), 0.998 * trial.tokens_per_s())
          << c.what << ", " << trial.layers;
    }
  }
}

// A steady state says that nothing is to be pooled, the job that 7 layers are.
TEST(PoolChoice, TheJobDecidesWhereItIsKnown) {
  PoolQuestion question = Question(1000, 1e9);
  EXPECT_EQ(ChoosePoolLayers(question).layers, 0);
  question.memory = [memory = question.memory](int64_t layers, double least) {
    PooledMemory with_job = memory(layers, least);
    with_job.job = JobForecast{.seconds = 100 + std::abs(static_cast<double>(layers - 7)),
                               .output_tokens = 1000};
    return with_job;
  };
  const PoolChoice choice = ChoosePoolLayers(question);
  EXPECT_EQ(choice.layers, 7);
  EXPECT_DOUBLE_EQ(choice.chosen().tokens_per_s(), 10);
}

// What is tried first and then around the best is as good as trying all.
TEST(PoolChoice, FindsTheBestOfManyLayers) {
  for (const double pull_rate : {1e11, 3e11, 1e12, 3e12}) {
    for (const int64_t spare : {-20'000, 1000, 9000}) {
      PoolQuestion question = Question(spare, pull_rate);
      question.num_layers = 80;
      const PoolChoice choice = ChoosePoolLayers(question);
      EXPECT_LT(choice.trials.size(), 50u);
      EXPECT_EQ(choice.trials.back().layers, 80);
      double best = 0;
      for (int64_t layers = 0; layers <= 80; ++layers) {
        const PooledMemory memory = question.memory(layers, 0);
        const int64_t batch = memory.kv_tokens / 100;
        const double seconds = std::max(question.step(batch).seconds,
                                        static_cast<double>(memory.pull_bytes) / pull_rate);
        best = std::max(best, static_cast<double>(batch) / seconds);
      }
      EXPECT_GE(choice.chosen().tokens_per_s(), 0.998 * best) << pull_rate << " " << spare;
    }
  }
}

// What cannot come near a rival is tried in a few numbers; what can comes to the same as without.
TEST(PoolChoice, ARivalSparesTrials) {
  PoolQuestion question = Question(-20'000, 1e12);
  question.num_layers = 80;
  const PoolChoice alone = ChoosePoolLayers(question);
  const double best = alone.chosen().tokens_per_s();
  double least = 0;
  question.memory = [&, memory = question.memory](int64_t layers, double of_interest) {
    least = std::max(least, of_interest);
    return memory(layers, of_interest);
  };
  question.rival.tokens_per_s = best;
  const PoolChoice near = ChoosePoolLayers(question);
  EXPECT_EQ(near.layers, alone.layers);
  EXPECT_LT(near.trials.size(), alone.trials.size());
  EXPECT_GT(least, 0.99 * best);  // of the last ones
  EXPECT_LE(least, best);
  question.rival.about = alone.layers;
  EXPECT_EQ(ChoosePoolLayers(question).layers, alone.layers);
  question.rival = {.tokens_per_s = 2 * best};
  EXPECT_LE(ChoosePoolLayers(question).trials.size(), 3u);
  question.rival = {.quarters_do = true};
  EXPECT_EQ(ChoosePoolLayers(question).trials.size(), 5u);
}

TEST(PoolChoice, CopiesThatSlowTheStepCount) {
  PoolQuestion question = Question(1000, 1e15);
  question.step = [](int64_t batch) {
    const double seconds = 10e-3 + 0.1e-3 * static_cast<double>(batch);
    return cost::Work{.seconds = seconds, .memory_seconds = seconds};
  };
  EXPECT_EQ(ChoosePoolLayers(question).layers, 10);
  question.contention.memory_bytes_per_s = 1e12;
  EXPECT_LT(ChoosePoolLayers(question).layers, 10);
}

constexpr model::StepCapacity kCapacity{.rows = 1024, .logit_rows = 64};

// The step's price comes from the layer program: a batch of one is bound by the weights.
TEST(StepPrice, AStepCostsItsWeights) {
  const model::ModelConfig config = model::LoadBuiltinConfig("Qwen3-32B").value();
  const cost::DeviceProfile profile = cost::LoadProfile("h200").value();
  const price::StepPricer one(config, tensor::DType::kBF16, {}, kCapacity, profile,
                              {cost::Calibration::kUncalibrated});
  const double weights_s = 64e9 / (profile.memory_bytes_per_s * profile.mbu);
  const auto seconds = [](const price::StepPricer& pricer, int64_t batch) {
    return pricer.Decode(batch, 1000).all().seconds;
  };
  EXPECT_NEAR(seconds(one, 1), weights_s + profile.step_overhead_s, 0.25 * weights_s);
  EXPECT_GT(seconds(one, 512), seconds(one, 1));
  EXPECT_NEAR(one.Decode(1, 1000).ffn.seconds, 0.768 * weights_s, 0.05 * weights_s);
  const price::StepPricer four(config, tensor::DType::kBF16, {.tp = 4}, kCapacity, profile,
                               {cost::Calibration::kUncalibrated});
  EXPECT_LT(seconds(four, 64), 0.6 * seconds(one, 64));
  EXPECT_GT(seconds(four, 64), 0.25 * seconds(one, 64));
}

// Pricers of one cut have their prices in common, and those of another have others.
TEST(StepPrice, PricersShareWhatTheyHavePriced) {
  const model::ModelConfig config = model::LoadBuiltinConfig("Llama-3-8B").value();
  const cost::DeviceProfile profile = cost::LoadProfile("h200").value();
  price::SharedPrices shared;
  const auto seconds = [&](int tp, int64_t rows, price::SharedPrices* prices) {
    const price::StepPricer pricer(config, tensor::DType::kBF16, {.tp = tp}, kCapacity, profile, {},
                                   prices);
    return pricer.Near(price::Decoding(rows, /*context=*/1)).all().seconds;
  };
  const double alone = seconds(1, 8, nullptr), tensor = seconds(4, 8, nullptr);
  EXPECT_NE(alone, tensor);
  const auto key = [](int64_t tp, int64_t rows) {
    return price::SharedPrices::Key{tp, 1, kCapacity.rows, kCapacity.logit_rows, rows, rows, 0,
                                    0,  0};
  };
  EXPECT_FALSE(shared.Find(key(1, 8)));
  EXPECT_EQ(seconds(1, 8, &shared), alone);
  EXPECT_EQ(seconds(4, 8, &shared), tensor);
  ASSERT_TRUE(shared.Find(key(1, 8)));
  EXPECT_EQ(shared.Find(key(1, 8))->all().seconds, alone);
  shared.Add(key(1, 9), {.rest = {.seconds = 5}});
  EXPECT_EQ(seconds(1, 9, &shared), 5);
}

}  // namespace
}  // namespace forebay::choose
