#include "choose/pool_choice.h"

#include <algorithm>

#include "choose/count_search.h"
#include "kernels/kv_layout.h"
#include "price/step_price.h"

namespace forebay::choose {

Throughput ThroughputOf(const PoolQuestion& question, const PooledMemory& memory) {
  Throughput result;
  // Admission keeps a block more for each choice.
  result.batch = std::min(question.max_batch,
                          memory.kv_tokens / (question.mean_context + kernels::kBlockTokens));
  result.fetch_seconds = static_cast<double>(memory.pull_bytes) / question.pull_rate;
  if (result.batch == 0) return result;
  result.step_seconds = price::SecondsBeside(
      question.step(result.batch), {memory.pull_bytes, question.pull_rate, question.contention});
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
  CountSearch search(question.num_layers, question.rival, [&](int64_t layers, double least) {
    return ThroughputOf(question, question.memory(layers, least));
  });
  PoolChoice choice{.layers = search.Fewest().value_or(question.num_layers)};
  for (const auto& [layers, trial] : search.tried()) choice.trials.push_back({trial, layers});
  return choice;
}

}  // namespace forebay::choose
