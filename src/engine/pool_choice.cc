#include "engine/pool_choice.h"

#include <algorithm>

namespace forebay::engine {
namespace {

constexpr double kAsGood = 0.995;

PoolTrial Try(const PoolQuestion& question, int64_t layers) {
  const PooledMemory memory = question.memory(layers);
  PoolTrial trial{.layers = layers,
                  .batch = std::min(question.max_batch, memory.kv_tokens / question.mean_context),
                  .fetch_seconds = static_cast<double>(memory.pull_bytes) / question.pull_rate};
  if (trial.batch == 0) return trial;
  // Copies slow the kernels beside them, the more the shorter the step is.
  const double alone = std::max(question.step_seconds(trial.batch, 0), trial.fetch_seconds);
  trial.step_seconds = question.step_seconds(trial.batch, static_cast<double>(memory.pull_bytes) / alone);
  return trial;
}

}  // namespace

double PoolTrial::tokens_per_s() const {
  return batch == 0 ? 0 : static_cast<double>(batch) / std::max(step_seconds, fetch_seconds);
}

PoolChoice ChoosePoolLayers(const PoolQuestion& question) {
  PoolChoice choice;
  double best = 0;
  for (int64_t layers = 0; layers <= question.num_layers; ++layers) {
    choice.trials.push_back(Try(question, layers));
    best = std::max(best, choice.trials.back().tokens_per_s());
  }
  choice.layers = question.num_layers;
  if (best == 0) return choice;
  const auto as_good = [&](const PoolTrial& trial) { return trial.tokens_per_s() >= kAsGood * best; };
  choice.layers = std::ranges::find_if(choice.trials, as_good)->layers;
  return choice;
}

}  // namespace forebay::engine
