// A decoder on a simulated device: shapes and addresses, no weights.
#pragma once

#include "model/decoder.h"
#include "model/kv_groups.h"

namespace forebay::model {

// For steps of up to `rows` rows, each of which may want its logits. REQUIRES: the arena holds it.
inline Decoder MakeShapeDecoder(const ModelConfig& config, device::Device& device, int64_t rows) {
  device::Arena& arena = device.arena();
  Decoder decoder;
  decoder.config = &config;
  decoder.kernels = &kernels::RefKernels();
  decoder.stream = &device.compute();
  decoder.capacity = {.rows = rows, .logit_rows = rows};
  const DecoderPlan plan = PlanDecoder(config, decoder.dtype);
  constexpr int64_t kMaxPositions = 4096;
  const device::Region* const weights =
      arena.Allocate("weights", plan.bytes(kMaxPositions)).value();
  const device::Region* const tables =
      arena.Allocate("weight tables", plan.table_bytes(), device::MemoryUse::kControl).value();
  decoder.weights = LoadDecoder(plan, kMaxPositions, nullptr, *weights, *tables, {}, 1).value();
  const uint64_t bytes = ActivationBytes(config, decoder.dtype, decoder.capacity);
  device::RegionCutter cutter(*arena.Allocate("activations", bytes).value());
  decoder.activations = CutActivations(config, decoder.dtype, decoder.capacity, &cutter);
  const auto groups = PlanKvGroups(config, decoder.dtype, decoder.weights.shard);
  decoder.kv = kv::CutCache(groups, 0, false, nullptr);
  decoder.states = kv::CutStates(PlanStates(config, decoder.weights.shard), nullptr);
  return decoder;
}

}  // namespace forebay::model
