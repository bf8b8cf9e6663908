// The steps of a mixture of experts, for its block and for ranks that compute each other's rows.
#pragma once

#include "model/blocks/block.h"

namespace forebay::model {

inline constexpr Role kExpertsGateUp{"experts_gate_up"}, kExpertsDown{"experts_down"};

// The experts' outputs for rows of Activations::ffn.
struct ExpertBuffers {
  float* logits = nullptr;       // [rows, experts]
  int32_t* experts = nullptr;    // [rows, chosen]
  float* weights = nullptr;      // [rows, chosen]
  int32_t* source = nullptr;     // [rows * chosen], the grouped order
  int32_t* positions = nullptr;  // [rows, chosen]
  std::byte* weighed = nullptr;  // [rows, hidden] T, where the weight meets the input
  std::byte* codes =
      nullptr;  // of the experts' inputs (kernels::CodedRowBytes), where they are int8
  std::byte* gated = nullptr;         // [rows * chosen, width] T
  std::byte* outputs = nullptr;       // [rows * chosen, hidden] T
  std::byte* shared_gated = nullptr;  // [rows, shared width] T
  float* shared = nullptr;            // [rows, hidden]
  float* shared_gates = nullptr;      // [rows]; where the shared expert has one
};
// Cuts them from `at` on; returns their bytes.
uint64_t CutExpertBuffers(const ModelConfig& config, tensor::DType dtype, int64_t step_rows,
                          std::byte* at, ExpertBuffers* buffers);

// logits and what the router chooses by them, of the normed rows, which are the step's from
// `first_row` on.
void RouteRows(const BlockContext& context, int64_t layer, const std::byte* normed,
               int64_t first_row, int32_t rows, const ExpertBuffers& buffers);
// Rows of x in the grouped order that `source` and context.weights.expert_offsets say.
struct GroupedRows {
  const std::byte* x;  // [x_count, hidden] T
  int32_t x_count;
  const int32_t* source;
  int32_t max_rows;
  std::byte* gated;    // [max_rows, width] T, on the way
  std::byte* outputs;  // [max_rows, hidden] T: the experts' outputs
  std::byte* codes;    // ExpertBuffers::codes; null: the experts share none
};
// With all experts, or with those alone that the rank holds; no other has rows then.
enum class ExpertsFrom : uint8_t { kEverywhere, kHeld };
void RunExperts(const BlockContext& context, int64_t layer, ExpertsFrom from,
                const GroupedRows& rows);
// buffers.shared of the normed rows, where the model has a shared expert.
void RunSharedExpert(const BlockContext& context, int64_t layer, const std::byte* normed,
                     int32_t rows, const ExpertBuffers& buffers);
// residual += what the experts, whose rows lie at `positions` of buffers.outputs (null: by slot),
// and the shared one make of the rows.
void CombineExperts(const BlockContext& context, int32_t rows, const ExpertBuffers& buffers,
                    const int32_t* positions, std::byte* residual);

}  // namespace forebay::model
