#include "layout/pool_choice.h"

#include <algorithm>
#include <map>

#include "kernels/kv_layout.h"
#include "layout/step_price.h"

namespace forebay::layout {
namespace {

constexpr double kAsGood = 0.998;
constexpr int64_t kFirstTrials = 16;

}  // namespace

Throughput ThroughputOf(const PoolQuestion& question, const PooledMemory& memory) {
  Throughput result;
  // Admission keeps a block more for each choice.
  result.batch = std::min(question.max_batch,
                          memory.kv_tokens / (question.mean_context + kernels::kBlockTokens));
  result.fetch_seconds = static_cast<double>(memory.pull_bytes) / question.pull_rate;
  if (result.batch == 0) return result;
  result.step_seconds = SecondsBeside(question.step(result.batch),
                                      {memory.pull_bytes, question.pull_rate, question.contention});
  result.job = memory.job;
  if (!memory.together) return result;
  const double together = memory.together(result.batch);
  if (memory.always_together || together < std::max(result.step_seconds, result.fetch_seconds)) {
    result.step_seconds = together;
    result.fetch_seconds = 0;
  }
  return result;
}

double Throughput::tokens_per_s() const {
  if (job) return job->tokens_per_s();
  return batch == 0 ? 0 : static_cast<double>(batch) / std::max(step_seconds, fetch_seconds);
}

const PoolTrial& PoolChoice::chosen() const {
  return *std::ranges::find(trials, layers, &PoolTrial::layers);
}

PoolChoice ChoosePoolLayers(const PoolQuestion& question) {
  std::map<int64_t, PoolTrial> tried;
  const auto try_between = [&](int64_t first, int64_t last, int64_t step) {
    for (int64_t layers = std::max<int64_t>(first, 0);
         layers <= std::min(last, question.num_layers); layers += step) {
      if (tried.contains(layers)) continue;
      PoolTrial& trial = tried[layers];
      static_cast<Throughput&>(trial) = ThroughputOf(question, question.memory(layers));
      trial.layers = layers;
    }
  };
  const auto best = [&] {
    const auto less = [](const auto& a, const auto& b) {
      return a.second.tokens_per_s() < b.second.tokens_per_s();
    };
    return std::ranges::max_element(tried, less)->second;
  };
  const auto fewest = [&](double tokens_per_s) {
    return std::ranges::find_if(
               tried,
               [&](const auto& trial) { return trial.second.tokens_per_s() >= tokens_per_s; })
        ->first;
  };
  const int64_t step = std::max<int64_t>(1, question.num_layers / kFirstTrials);
  try_between(0, question.num_layers, step);
  try_between(question.num_layers, question.num_layers, 1);
  const int64_t about = best().layers;
  try_between(about - step, about + step, 1);
  const double as_good = kAsGood * best().tokens_per_s();
  if (as_good > 0) try_between(fewest(as_good) - step, fewest(as_good), 1);
  PoolChoice choice{.layers = as_good > 0 ? fewest(as_good) : question.num_layers};
  for (const auto& [layers, trial] : tried) choice.trials.push_back(trial);
  return choice;
}

}  // namespace forebay::layout
