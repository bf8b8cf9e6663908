// What a step of a model costs on a device: the layer program, enqueued on a stream that only adds
// prices.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "cost/model.h"
#include "layout/machine.h"
#include "model/decoder.h"
#include "model/routing.h"
#include "price/step_load.h"
#include "share/ship_plan.h"
#include "tensor/dtype.h"

namespace forebay::price {

// A step's, by what shipping changes.
struct StepPrice {
  cost::Work ffn;      // the dense FFNs of all layers
  cost::Work experts;  // the routed experts of all layers
  cost::Work rest;
  // Seconds of the rest in which tp ranks add what their FFNs made: who ships does without.
  double ffn_sums = 0;
  // Seconds of the rest that are the shared experts'.
  double shared_experts = 0;
  // Seconds of the rest that only the first stage of a pipeline has, and only the last.
  double first = 0, last = 0;

  cost::Work all() const {
    cost::Work sum = ffn;
    sum += experts;
    return sum += rest;
  }
  // Seconds of the longest stage, of which one has at most this part of the layers.
  double LongestStage(double part) const {
    return part * (all().seconds - first - last) + std::max(first, last);
  }
};

// How `tp` ranks add their sums in steps of at most `max_rows` rows: in one meeting or two, by
// price.
model::AllReducePlan PlanAllReduce(const model::ModelConfig& config, tensor::DType dtype, int tp,
                                   int64_t max_rows, const cost::DeviceProfile& profile,
                                   const layout::StepPricing& pricing);

// Prices of near steps that pricers have in common: those who look for a layout ask for the same
// ones again and again. Any thread may call it. REQUIRES: these pricers' models, devices and
// pricings are the same, and their capacities but for rows.
class SharedPrices {
 public:
  using Key = std::array<int64_t, 9>;  // what cuts a pricer, its rows, and a step's counts
  std::optional<StepPrice> Find(const Key& key) const;
  void Add(const Key& key, const StepPrice& price);

 private:
  mutable std::mutex mutex_;
  std::map<Key, StepPrice> prices_;
};

// Prices steps of one rank of a stage cut so, one with the most rows. Stages of a pipeline take
// turns, so a step is that of all layers. Not thread-safe.
class StepPricer {
 public:
  // `shared` may be null. REQUIRES: the model can be cut so; the arguments outlive the pricer.
  StepPricer(const model::ModelConfig& config, tensor::DType dtype, const model::Degrees& degrees,
             const model::StepCapacity& capacity, const cost::DeviceProfile& profile,
             const layout::StepPricing& pricing, SharedPrices* shared = nullptr);
  ~StepPricer();

  const cost::DeviceProfile& profile() const;
  const model::Decoder& decoder() const;
  SharedPrices* shared() const { return shared_; }
  // The price of a step that decodes one row of each of `batch` <= capacity.rows sequences of
  // `context` tokens, alone on its device.
  StepPrice Decode(int64_t batch, int64_t context) const;
  // The same of a step of `rows` rows of whole prompts of `length` tokens, or of the middle of a
  // longer one.
  StepPrice Prompts(int64_t rows, int64_t length) const;
  // The price of any step of at most capacity.rows rows.
  StepPrice Step(const StepLoad& load) const;
  // The price of a step whose counts are those of `load` rounded to a few percent. Each is reckoned
  // once, so that it costs little to ask for many.
  const StepPrice& Near(const StepLoad& load) const;
  // Seconds of an operation.
  double Seconds(const cost::OpDesc& op) const;
  // Seconds of what a rank computes of one layer whose rows come to their weights, with these
  // leaves of it, or with so many experts, of which the busiest has `skew` times as many rows as it
  // would have if they went evenly to all. Rows are rounded as in Near.
  double ServedLeaves(const share::ShipPlan::Layer& layer, const base::Part& leaves,
                      int64_t rows) const;
  double ServedExperts(int64_t experts, int64_t rows, double skew) const;

 private:
  struct Program;
  const std::unique_ptr<Program> program_;
  SharedPrices* const shared_;
};

// Pulls of a step: over the busiest link, one way.
struct StepPulls {
  uint64_t bytes = 0;
  double bytes_per_s = 0;  // the rate of a rank's pulls
  cost::Contention contention;

  double seconds() const { return static_cast<double>(bytes) / bytes_per_s; }
};

// Bytes of the rank's pool that a step moves over the busiest link: what a rank pulls, or what all
// others pull from it, which is more for the busiest owner of whole layers.
uint64_t PullBytes(const share::PoolPlan& pool);

// What the ranks of a stage pull in a step, over the busiest link. `pools`: of the replicas of one
// rank; empty: nothing. `stages`: of so many stages of a pipeline, which pull about as much each: a
// step that passes them all needs it of all.
StepPulls PullsOf(const StepPricer& pricer, const layout::MachinePlan& machine,
                  std::span<const share::PoolPlan> pools, int stages = 1);

// The seconds of a step's kernels beside its pulls, which slow them and are as fast as they are
// needed; each rank is pulled from as fast. A step lasts as long as the longer of the two.
double SecondsBeside(const cost::Work& step, const StepPulls& pulls);

}  // namespace forebay::price
