#include "repro/vasuki/offload.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "cost/copy_forms.h"
#include "kv/book/offload_plan.h"
#include "layout/memory_plan.h"
#include "model/builtin_configs.h"
#include "price/step_price.h"

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
    steps->pricer_ = std::make_unique<price::StepPricer>(
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
  kv::CopySeconds Up() const { return cost::HostCopies(profile_); }

 private:
  Steps() = default;

  model::ModelConfig config_;
  cost::DeviceProfile profile_;
  std::unique_ptr<price::StepPricer> pricer_;
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

constexpr int64_t kSlots = 2;
constexpr double kHidden = 0.02;  // of a step, which may be exposed

// What is streamed of a batch that holds so many bytes, `surplus` more than there is room for;
// nothing: it does not fit, or is not hidden where it has to be.
std::optional<kv::OffloadPlan> Stream(OffloadForm form, const Steps& steps, double step_seconds,
                                      double held, double surplus) {
  const auto layers = static_cast<double>(kLayers);
  const kv::OffloadCosts costs{.num_layers = kLayers,
                               .layer_seconds = step_seconds / layers,
                               .layer_bytes = held / layers,
                               .up = steps.Up()};
  if (form == OffloadForm::kAlg1 || form == OffloadForm::kAlg2) {
    const auto plan = form == OffloadForm::kAlg1 ? kv::PlanKeepSome(costs, kSlots, kHidden)
                                                 : kv::PlanStreamAll(costs, kSlots, kHidden);
    return plan.saved_bytes(costs) >= surplus ? std::optional(plan) : std::nullopt;
  }
  // X bytes in all live below; two slots of X / layers come out of the room.
  const double streamed = surplus / (1 - static_cast<double>(kSlots) / layers);
  if (streamed > held) return {};
  const kv::OffloadPlan plan =
      kv::JudgeOffload(costs, {.slots = kSlots, .streamed_bytes = streamed / layers});
  if (form == OffloadForm::kUniform && plan.exposed_seconds > kHidden * plan.step_seconds)
    return {};
  return plan;
}

SteadyState Streamed(OffloadForm form, const Steps& steps, const MeanLengths& lengths,
                     const OffloadCase& where) {
  const double room = where.room_gb * 1e9, held = MeanContext(lengths) * kTokenBytes;
  const double fitting = MostBatch(room / kTokenBytes, MeanContext(lengths));
  SteadyState best = Priced(steps, lengths, where.chunk, fitting, 0);
  for (double batch = std::floor(fitting) + 1; batch <= kMostBatch; ++batch) {
    const SteadyState resident = Priced(steps, lengths, where.chunk, batch, 0);
    const std::optional<kv::OffloadPlan> plan =
        Stream(form, steps, resident.step_ms * 1e-3, batch * held, batch * held - room);
    // What a batch cannot do, a larger one cannot.
    if (!plan) break;
    SteadyState state = Priced(steps, lengths, where.chunk, batch, plan->exposed_seconds);
    state.streamed_gb =
        plan->streamed_bytes * static_cast<double>(kLayers - plan->kept_layers) * 1e-9;
    if (form == OffloadForm::kAlways || state.request_seconds < best.request_seconds) best = state;
  }
  return best;
}

// The layers that the listing sends away go down and come up in every step.
SteadyState OnLink(const Steps& steps, const MeanLengths& lengths, const OffloadCase& where,
                   const SteadyState& free) {
  const double context = MeanContext(lengths), step = steps.Decode(free.batch, context);
  const double layer_bytes = free.batch * context * kTokenBytes / kLayers;
  const kv::PrintedLayers printed = kv::PrintedAlgorithm2({.num_layers = kLayers,
                                                           .batch_seconds = step,
                                                           .layer_bytes = layer_bytes,
                                                           .down = steps.Up(),
                                                           .up = steps.Up()});
  const double bytes = layer_bytes * static_cast<double>(printed.layers),
               copies = 2 * steps.Up()(bytes);
  SteadyState state =
      Priced(steps, lengths, where.chunk, free.batch, std::max(0.0, copies - free.step_ms * 1e-3));
  state.streamed_gb = 2 * bytes * 1e-9;
  state.clamps = printed.clamped;
  return state;
}

}  // namespace

base::Result<SteadyState> Steady(OffloadForm form, const MeanLengths& lengths,
                                 const OffloadCase& where) {
  FB_ASSIGN_OR_RETURN(const std::unique_ptr<Steps> steps, Steps::Make(where));
  const bool resident = form == OffloadForm::kOff || form == OffloadForm::kPrinted ||
                        form == OffloadForm::kPrintedOnLink;
  if (!resident) return Streamed(form, *steps, lengths, where);
  const double held = form == OffloadForm::kOff ? MeanContext(lengths) : lengths.prompt;
  const double batch = MostBatch(where.room_gb * 1e9 / kTokenBytes, held);
  const SteadyState state = Priced(*steps, lengths, where.chunk, batch, 0);
  return form == OffloadForm::kPrintedOnLink ? OnLink(*steps, lengths, where, state) : state;
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
                         .returned = printed.raw,
                         .clamps = printed.clamped,
                         .step_ms = 1e3 * seconds,
                         .layer_copy_ms = 1e3 * steps->Up()(layer_bytes)};
}

}  // namespace forebay::repro
