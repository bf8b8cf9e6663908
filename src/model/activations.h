// The memory of a step: its activations, and the staging through which the ranks of a replica
// exchange them.
#pragma once

#include <atomic>
#include <limits>
#include <vector>

#include "device/device.h"
#include "fabric/collectives.h"
#include "fabric/pace.h"
#include "model/shard.h"
#include "tensor/dtype.h"

namespace forebay::model {

// A mode, and the most rows of its steps.
struct ModeRows {
  Degrees mode;
  int64_t rows = 0;
};

// Largest step that the buffers hold.
struct StepCapacity {
  int64_t rows = 0;        // max_num_batched_tokens
  int64_t logit_rows = 0;  // rows of logits at once
  // the longest context, where prompts are expanded; 0: no longer than `rows`
  int64_t max_model_len = 0;
  // Where prompts are expanded: bounds the heads whose K and V are expanded at once, at least one.
  uint64_t expanded_bytes = std::numeric_limits<uint64_t>::max();
  // Rows in a step that ships: those of all ranks; own rows x planes of sums.
  int64_t gathered_rows = 0, returned_rows = 0;
  std::vector<ModeRows> modes;  // modes of all steps; empty: the layout's own, for all rows
};

// Activations of a step, cut from the workspace region. T is the compute type.
struct Activations {
  // [own rows, hidden] T; own rows are the rank's where rows are cut, else all
  std::byte* residual = nullptr;
  std::byte* normed = nullptr;  // [own rows, hidden] T
  // [own rows, hidden]: what a block gives, where it is not added plainly; else null
  float* sums = nullptr;
  // [own rows, hidden] T: the embedded rows, of which layers make inputs; empty where they do not
  std::byte* embedded = nullptr;
  // What the layer's kinds of blocks make of it; the second, which layers' inputs take turns with,
  // for max(own rows, gathered_rows) rows.
  std::byte* attention = nullptr;
  std::byte* ffn = nullptr;
  std::byte* linear = nullptr;  // packed inputs of linear layers
  // [logit_rows, hidden] T; this and the next on the last stage alone
  std::byte* head_input = nullptr;
  float* logits = nullptr;  // [DrawnRows of logit_rows, vocab]: all of the vocabulary
  // [gathered_rows, hidden] T: an owner's input in a step that ships
  std::byte* gathered = nullptr;
  // [returned_rows, hidden]: the owners' partial sums of this rank's rows
  float* returned = nullptr;
};
uint64_t ActivationBytes(const ModelConfig& config, tensor::DType dtype,
                         const StepCapacity& capacity, const ReplicaCut& cut = {});
Activations CutActivations(const ModelConfig& config, tensor::DType dtype,
                           const StepCapacity& capacity, device::RegionCutter* cutter,
                           const ReplicaCut& cut = {});

// Bytes of worker scratch that the matrices of the model's experts and of latent attention's heads
// need; 0: it has none.
uint64_t GroupedScratch(const ModelConfig& config, tensor::DType dtype);

// How ranks add their partial sums.
struct AllReducePlan {
  // sums of more rows are added in two meetings (cost/all_reduce.h)
  int64_t one_meeting_rows = std::numeric_limits<int64_t>::max();
  int32_t wire_bytes = 4;  // an element's between ranks: for the price alone
};

// How a rank meets the others of its replica; null where it meets none.
struct ReplicaLinks {
  // tp > 1: with the ranks of the stage that have the same rows, in the order of tp indices
  fabric::Exchange* tensor = nullptr;
  AllReducePlan all_reduce;
  // sp > 1: with the ranks of the same weights, in the order of sp indices; and with all ranks of
  // the stage, in the order of blocks
  fabric::Exchange* sequence = nullptr;
  fabric::Exchange* stage = nullptr;
  fabric::LinkPace pace;                   // trials: of meetings
  fabric::Handover* last_stage = nullptr;  // rows come from here, but on the first stage
  fabric::Handover* next_stage = nullptr;  // and go there, but on the last one
};
// What the ranks of a replica have exchanged; bytes that a rank read from others.
struct ExchangeCounters {
  std::atomic<int64_t> steps{0}, meetings{0};
  std::atomic<int64_t> pad_rows{0};  // that would make the ranks' rows equally many
  std::atomic<int64_t> bytes_all_to_all{0}, bytes_all_reduce{0}, bytes_head{0},
      bytes_expert_rows{0};
};

// Bytes of the regions through which the rank's exchanges go (0: it has none of the kind), and of
// that for the next stage.
uint64_t TensorStagingBytes(const ModelConfig& config, tensor::DType dtype,
                            const StepCapacity& capacity, const ReplicaCut& cut);
uint64_t SequenceStagingBytes(const ModelConfig& config, tensor::DType dtype,
                              const StepCapacity& capacity, const ReplicaCut& cut);
uint64_t HeadStagingBytes(const ModelConfig& config, const StepCapacity& capacity,
                          const ReplicaCut& cut);
uint64_t StageStagingBytes(const ModelConfig& config, tensor::DType dtype,
                           const StepCapacity& capacity, const ReplicaCut& cut);

}  // namespace forebay::model
