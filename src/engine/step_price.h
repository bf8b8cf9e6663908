// What a step of a model costs on a device: the layer program, enqueued on a stream that only adds prices.
#pragma once

#include <memory>

#include "cost/model.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace forebay::engine {

// Of one rank of `tp`; stages of a pipeline take turns, so that a step is that of all layers. Not thread-safe.
class StepPricer {
 public:
  // REQUIRES: the model can be cut so; the arguments outlive the pricer.
  StepPricer(const model::ModelConfig& config, tensor::DType dtype, int tp, int64_t max_batch,
             const cost::DeviceProfile& profile, cost::Calibration calibration);
  ~StepPricer();

  // Seconds of a step that decodes one row of each of `batch` <= max_batch sequences of `context` tokens, while the rank pulls
  // `pulled_per_s` bytes a second and is pulled from as fast.
  double Seconds(int64_t batch, int64_t context, double pulled_per_s) const;

 private:
  struct Program;
  const std::unique_ptr<Program> program_;
};

}  // namespace forebay::engine
