// How many layers a group pools where the user leaves it open (pool=auto): pooling a layer frees
// memory for KV cache, and so for a larger batch, and adds bytes that every step pulls. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "choose/job_forecast.h"
#include "cost/model.h"

namespace forebay::choose {

// What a rank has with so much pooled.
struct PooledMemory {
  int64_t kv_tokens = 0;    // 0: the model does not fit
  uint64_t pull_bytes = 0;  // over the busiest link in a step, one way
  // The seconds of a step in which each rank decodes so many choices and that all take together,
  // instead of pulling; null: they cannot. They do where it is sooner, or always.
  std::function<double(int64_t batch)> together = nullptr;
  bool always_together = false;
  // What the whole job takes then, where something is known of it.
  std::optional<JobForecast> job;
};

// Tokens that a running choice holds where nothing is known of the job, of a context of at most
// `longest`.
inline int64_t AssumedContext(int64_t longest) { return std::clamp<int64_t>(longest / 4, 1, 2048); }

// A plan of something else that a choice has to come near, or none of its own is of interest.
struct CountRival {
  double tokens_per_s = 0;   // 0: there is none
  bool quarters_do = false;  // the best of a few numbers will do
  int64_t about = -1;        // what was chosen with other settings; -1: nothing
};

// Shared weights: how many layers are pooled, or how many experts of a layer each rank holds.
struct PoolQuestion {
  int64_t num_layers = 0;
  int64_t mean_context = 1;  // tokens that a running choice holds
  int64_t max_batch = 0;     // choices that run at once on a rank
  double pull_rate = 0;      // the rate of a rank's pulls, in bytes per second
  // With so many layers, or experts. A job that comes to less than `least` tokens/s need not be
  // foreseen to its end.
  std::function<PooledMemory(int64_t count, double least)> memory;
  // The work of a step that decodes `batch` choices, alone on its device; and what pulls take from
  // it.
  std::function<cost::Work(int64_t batch)> step;
  cost::Contention contention;
  CountRival rival;
};

struct Throughput {
  int64_t batch = 0;
  double step_seconds = 0, fetch_seconds = 0;  // a step's that pulls
  std::optional<JobForecast> job;

  // The job's, or a rank's in a steady state of full batches; 0: the model does not fit.
  double tokens_per_s() const;
};
Throughput ThroughputOf(const PoolQuestion& question, const PooledMemory& memory);

struct PoolTrial : Throughput {
  int64_t layers = 0;
};

struct PoolChoice {
  // ascending layers: from 0, which is plain data parallelism, to all of them, which is SiDP
  std::vector<PoolTrial> trials;
  int64_t layers = 0;  // the chosen number

  const PoolTrial& chosen() const;
};

// Maximises the job's tokens a second, or where nothing is known of it batch / max(step(batch),
// fetch): the fewest layers within a fraction of a percent of the best, so that a batch which no
// longer pays is not grown. All layers where nothing fits. Of more than 16 layers some are tried,
// then all between the best one's neighbours: more layers pay until the batch or the fetch stops
// them, and do not pay again.
PoolChoice ChoosePoolLayers(const PoolQuestion& question);

}  // namespace forebay::choose
