// How many layers a group pools where the user leaves it open (pool=auto): pooling a layer frees memory for KV cache, and so
// for a larger batch, and adds bytes that every step pulls. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cost/model.h"

namespace forebay::engine {

// What a rank has with so many layers pooled.
struct PooledMemory {
  int64_t kv_tokens = 0;     // 0: the model does not fit
  uint64_t pull_bytes = 0;   // that the rank which lacks most pulls in a step
};

struct PoolQuestion {
  int64_t num_layers = 0;
  int64_t mean_context = 1;  // tokens that a running choice holds
  int64_t max_batch = 0;     // choices that run at once on a rank
  double pull_rate = 0;      // of a rank's pulls, in bytes per second
  std::function<PooledMemory(int64_t layers)> memory;
  // Of a step that decodes `batch` choices, alone on its device; and what pulls take from it.
  std::function<cost::Work(int64_t batch)> step;
  cost::Contention contention;
};

struct PoolTrial {
  int64_t layers = 0, batch = 0;
  double step_seconds = 0, fetch_seconds = 0;

  // A rank's, in a steady state of full batches; 0: the model does not fit.
  double tokens_per_s() const;
};

struct PoolChoice {
  std::vector<PoolTrial> trials;  // ascending layers: from 0, which is plain data parallelism, to all of them, which is SiDP
  int64_t layers = 0;             // the chosen number

  const PoolTrial& chosen() const;
};

// Maximises batch / max(step(batch), fetch): the fewest layers within a fraction of a percent of the best, so that a batch which no
// longer pays is not grown. All layers where nothing fits. Of more than 16 layers some are tried, then all between the best one's
// neighbours: more layers pay until the batch or the fetch stops them, and do not pay again.
PoolChoice ChoosePoolLayers(const PoolQuestion& question);

}  // namespace forebay::engine
