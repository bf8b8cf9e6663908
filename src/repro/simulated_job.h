// A job of known lengths on simulated devices, run to its end in this process.
#pragma once

#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "engine/options.h"
#include "forebay/engine.h"

namespace forebay::repro {

struct RequestLength {
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
};

struct SimulatedRun {
  ModelFacts facts;
  EngineStats stats;
  std::vector<StepRecord> steps;
  std::vector<device::OpProfile> profile;  // where options.profile asks for it
  double seconds = 0;  // of virtual time, to the last step's end

  // Seconds that all devices' compute streams spent in operations of this kind.
  double SecondsIn(cost::OpKind kind) const;
};

// options.model is "builtin:NAME", options.devices simulated ones. Requests are there from the start, in this order; their
// lengths are known to the engine's commit alone. REQUIRES: options.prefix_caching off, prompts are all alike.
base::Result<SimulatedRun> Simulate(const engine::EngineOptions& options, const std::vector<RequestLength>& lengths);

}  // namespace forebay::repro
