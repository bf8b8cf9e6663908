// What a step of a model costs on a device: the layer program, enqueued on a stream that only adds prices.
#pragma once

#include <memory>

#include "cost/model.h"
#include "model/decoder.h"
#include "model/ship_plan.h"
#include "tensor/dtype.h"

namespace forebay::engine {

// A step's, by what shipping changes.
struct StepPrice {
  cost::Work ffn;   // of all layers
  cost::Work rest;

  cost::Work all() const {
    cost::Work sum = ffn;
    return sum += rest;
  }
};

// Of one rank of `tp`; stages of a pipeline take turns, so that a step is that of all layers. Not thread-safe.
class StepPricer {
 public:
  // REQUIRES: the model can be cut so; the arguments outlive the pricer.
  StepPricer(const model::ModelConfig& config, tensor::DType dtype, int tp, const model::StepCapacity& capacity,
             const cost::DeviceProfile& profile, cost::Calibration calibration);
  ~StepPricer();

  const cost::DeviceProfile& profile() const;
  const model::Decoder& decoder() const;
  // Of a step that decodes one row of each of `batch` <= capacity.rows sequences of `context` tokens, alone on its device.
  StepPrice Decode(int64_t batch, int64_t context) const;

 private:
  struct Program;
  const std::unique_ptr<Program> program_;
};

// B_th: rows of each rank below which a step ships. From there on the copies of what the rank of `pool` lacks are hidden behind
// its step, or shipping takes as long as they do. Rows decode, each with `context` positions before it.
double ShipThreshold(const StepPricer& pricer, const model::PoolPlan& pool, const model::ShipPlan& ship, int64_t context);

}  // namespace forebay::engine
