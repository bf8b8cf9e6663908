// The weights of another mode (model/modes.h) as views: tables over the tiles that the layout's own
// mode has loaded, no further weight bytes. A mode of a higher tp computes with whole leaves, heads
// and panels of the layout's part. Or as copies: the matrices that modes cut are loaded once more.
#pragma once

#include <optional>

#include "model/decoder_weights.h"

namespace forebay::model {

// What the modes of a rank read from: `own`, as `loaded` has it. All outlive it.
struct ModeSource {
  const DecoderPlan& own;
  const DecoderWeights& loaded;
  const weights::TensorReader* reader;  // null: shapes alone
  int num_threads;
  device::Device* device;                      // LoadDecoder's
  device::RegionCutter tables;                 // control memory
  std::optional<device::RegionCutter> copies;  // nothing: modes are views
};

// Bytes that ModeWeights cuts from `tables`, and from `copies`.
uint64_t ModeTableBytes(const DecoderPlan& mode);
uint64_t ModeCopyBytes(const DecoderPlan& mode);
// The weights as `mode` plans them. REQUIRES: plans of one rank, which holds the pooled weights
// that the mode reads. Errors: the reader's.
base::Result<DecoderWeights> ModeWeights(const DecoderPlan& mode, ModeSource* source);

}  // namespace forebay::model
