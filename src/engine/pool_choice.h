// How many layers a group pools where the user leaves it open (pool=auto): pooling a layer frees memory for KV cache, and so
// for a larger batch, and adds bytes that every step pulls. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

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
  // Of a step that decodes `batch` choices, while the rank pulls so many bytes per second.
  std::function<double(int64_t batch, double pulled_per_s)> step_seconds;
};

struct PoolTrial {
  int64_t layers = 0, batch = 0;
  double step_seconds = 0, fetch_seconds = 0;

  // A rank's, in a steady state of full batches; 0: the model does not fit.
  double tokens_per_s() const;
};

struct PoolChoice {
  std::vector<PoolTrial> trials;  // [num_layers + 1], by layers: 0 is plain data parallelism, all of them SiDP
  int64_t layers = 0;             // the chosen number

  const PoolTrial& chosen() const { return trials[layers]; }
};

// Maximises batch / max(step(batch), fetch): the fewest layers within half a percent of the best, so that a batch which no
// longer pays is not grown. All layers where nothing fits.
PoolChoice ChoosePoolLayers(const PoolQuestion& question);

}  // namespace forebay::engine
