#include "repro/vasuki/offload.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kv/book/offload_plan.h"
#include "layout/memory_plan.h"
#include "layout/step_price.h"
#include "model/builtin_configs.h"

namespace forebay::repro {
namespace {

constexpr int64_t kMostBatch = 256;

// Steps of Llama-3-8B on the device of a case.
class Steps {
 public:
  static base::Result<std::unique_ptr<Steps>> Make(const OffloadCase& where) {
    std::unique_ptr<Steps> steps(new Steps());
    FB_ASSIGN_OR_RETURN(steps->config_, model::LoadBuiltinConfig("Llama-3-8B"));
    FB_ASSIGN_OR_RETURN(steps->profile_, cost::LoadProfile(where.device));
    const int64_t rows = std::max(where.chunk, kMostBatch);
    steps->pricer_ = std::make_unique<layout::StepPricer>(
        steps->config_, tensor::DType::kBF16, model::Degrees{},
        model::StepCapacity{rows, layout::LogitRows(steps->config_, rows)}, steps->profile_,
        layout::StepPricing{where.uncalibrated ? cost::Calibration::kUncalibrated
                                               : cost::Calibration::kCalibrated});
    return steps;
  }

  // Between whole batches and contexts.
  double Decode(double batch, double context) const {
    const auto below = static_cast<int64_t>(batch);
    const double part = batch - static_cast<double>(below);
    const auto at = [&](int64_t choices) {
      return pricer_->Decode(std::max<int64_t>(1, choices), static_cast<int64_t>(context))
          .all()
          .seconds;
    };
    return at(below) + (part > 0 ? part * (at(below + 1) - at(below)) : 0);
  }
  double Chunk(int64_t rows, double prompt) const {
    return pricer_->Prompts(rows, std::min(rows, static_cast<int64_t>(prompt))).all().seconds;
  }
  kv::CopySeconds Up() const {
    return [rate = cost::HostRate(profile_), latency = profile_.link_latency_s](double bytes) {
      return bytes > 0 ? latency + bytes / rate : 0;
    };
  }

 private:
  Steps() = default;

  model::ModelConfig config_;
  cost::DeviceProfile profile_;
  std::unique_ptr<layout::StepPricer> pricer_;
};

// Tokens that a running choice holds on average, and that its rows see.
double MeanContext(const MeanLengths& lengths) { return lengths.prompt + lengths.output / 2; }

// Each choice takes a step for each token, which it shares with the batch; a chunk of prompts rides
// along with a step, and adds what it takes beyond the weights, which are read once.
SteadyState Priced(const Steps& steps, const MeanLengths& lengths, int64_t chunk, double batch,
                   double exposed_seconds) {
  const double context = MeanContext(lengths), decode = steps.Decode(batch, context);
  const double mixed = steps.Chunk(chunk, lengths.prompt) + decode - steps.Decode(batch, 1);
  const double with_chunk = lengths.prompt / static_cast<double>(chunk),
               all = std::max(with_chunk, lengths.output / batch);
  const double seconds =
      with_chunk * std::max(mixed, decode) + (all - with_chunk) * decode + all * exposed_seconds;
  return {.batch = batch, .step_ms = 1e3 * seconds / all, .request_seconds = seconds};
}

double MostBatch(double tokens, double held) {
  return std::clamp(tokens / held, 1.0, static_cast<double>(kMostBatch));
}

kv::OffloadPlan Stream(const Steps& steps, double step_seconds, double bytes) {
  const auto layers = static_cast<double>(kLayers);
  return kv::JudgeOffload({.num_layers = kLayers,
                           .layer_seconds = step_seconds / layers,
                           .layer_bytes = bytes / layers,
                           .up = steps.Up()},
                          {.slots = 2, .streamed_bytes = bytes / layers});
}

SteadyState Physical(const Steps& steps, const MeanLengths& lengths, const OffloadCase& where) {
  const double room = where.room_gb * 1e9, held = MeanContext(lengths) * kTokenBytes;
  const double fitting = MostBatch(room / kTokenBytes, MeanContext(lengths));
  SteadyState best = Priced(steps, lengths, where.chunk, fitting, 0);
  for (double batch = std::floor(fitting) + 1; batch <= kMostBatch; ++batch) {
    // X bytes in all live below; two slots of X / layers come out of the room.
    const double slots = 2.0 / static_cast<double>(kLayers);
    const double streamed = (batch * held - room) / (1 - slots);
    if (streamed > batch * held) break;
    const SteadyState resident = Priced(steps, lengths, where.chunk, batch, 0);
    const kv::OffloadPlan plan = Stream(steps, resident.step_ms * 1e-3, streamed);
    SteadyState state = Priced(steps, lengths, where.chunk, batch, plan.exposed_seconds);
    state.streamed_gb = streamed * 1e-9;
    if (state.request_seconds < best.request_seconds) best = state;
  }
  return best;
}

}  // namespace

base::Result<SteadyState> Steady(OffloadForm form, const MeanLengths& lengths,
                                 const OffloadCase& where) {
  FB_ASSIGN_OR_RETURN(const std::unique_ptr<Steps> steps, Steps::Make(where));
  if (form == OffloadForm::kPhysical) return Physical(*steps, lengths, where);
  const double held = form == OffloadForm::kOff ? MeanContext(lengths) : lengths.prompt;
  const double batch = MostBatch(where.room_gb * 1e9 / kTokenBytes, held);
  return Priced(*steps, lengths, where.chunk, batch, 0);
}

base::Result<OffloadedLayers> LayersOf(int64_t batch, int64_t context, const OffloadCase& where) {
  FB_ASSIGN_OR_RETURN(const std::unique_ptr<Steps> steps, Steps::Make(where));
  const double seconds = steps->Decode(static_cast<double>(batch), static_cast<double>(context));
  const double layer_bytes = static_cast<double>(batch * context) * kTokenBytes / kLayers;
  const kv::PrintedLayers printed = kv::PrintedAlgorithm2({.num_layers = kLayers,
                                                           .batch_seconds = seconds,
                                                           .layer_bytes = layer_bytes,
                                                           .down = steps->Up(),
                                                           .up = steps->Up()});
  const kv::OffloadPlan physical = kv::PlanKeepSome({.num_layers = kLayers,
                                                     .layer_seconds = seconds / kLayers,
                                                     .layer_bytes = layer_bytes,
                                                     .up = steps->Up()},
                                                    /*slots=*/2, /*tolerance=*/0.02);
  return OffloadedLayers{.printed = printed.layers,
                         .physical = kLayers - physical.kept_layers,
                         .step_ms = 1e3 * seconds,
                         .layer_copy_ms = 1e3 * steps->Up()(layer_bytes)};
}

}  // namespace forebay::repro
