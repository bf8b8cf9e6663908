// Makes a rank's decoder of its plan.
#pragma once

#include "model/decoder.h"

namespace forebay::model {

// Where the decoder keeps what it owns, and how large its steps may be.
struct DecoderMemory {
  const StepCapacity& capacity;
  int64_t max_positions;                   // rows of the rope tables
  const device::Region &weights, &tables;  // as LoadDecoder's
  const PooledRunAt& pooled_at;            // as LoadDecoder's
  const device::Region& workspace;         // at least ActivationBytes
};

// What the decoder runs on and with. All outlive it.
struct DecoderLinks {
  const kernels::KernelSet& kernels;
  device::Stream& stream;
  kv::CacheView kv;
  kv::StateView states;
  device::Device* device = nullptr;                 // LoadDecoder's
  const kernels::RoutingSource* routing = nullptr;  // null: data say which experts rows go to
  kernels::RoutingCounters* routed = nullptr;       // null: the model has no experts
  uint64_t replica = 0;                             // its number among the job's
};

// Loads the weights with `load_threads` (no reader: shapes alone) and cuts the activations. The
// decoder reads the plan's configuration: the plan outlives it. Its rank adds what other ranks
// have: links, shared weights, FFNs, and a window. Errors: LoadDecoder's.
base::Result<Decoder> MakeDecoder(const DecoderPlan& plan, const DecoderMemory& memory,
                                  const DecoderLinks& links, const weights::TensorReader* reader,
                                  int load_threads);

}  // namespace forebay::model
