#include "engine/step_buffers.h"

#include <algorithm>

namespace forebay::engine {

StepBuffers::StepBuffers(const layout::StepShape& shape, device::RegionCutter* cutter,
                         const StepBuffers* shared)
    : arrays_(layout::CutStepArrays(shape, shared ? &shared->arrays_ : nullptr, cutter)),
      max_rows_(static_cast<int32_t>(shape.rows)) {}

void StepBuffers::SetTable(int group, int32_t slot, size_t from, std::span<const int32_t> blocks) {
  uint32_t* table = arrays_.batch.group_tables[group] + slot * arrays_.batch.table_stride;
  for (size_t i = from; i < blocks.size(); ++i) table[i] = static_cast<uint32_t>(blocks[i]);
}

void StepBuffers::CopyStep(const StepBuffers& other) {
  const kernels::StepBatch& from = other.arrays_.batch;
  kernels::StepBatch& batch = arrays_.batch;
  std::copy_n(from.tokens, from.num_rows, batch.tokens);
  std::copy_n(from.positions, from.num_rows, batch.positions);
  std::copy_n(from.row_sequence, from.num_rows, batch.row_sequence);
  std::copy_n(from.sequences, from.num_sequences, batch.sequences);
  std::copy_n(from.logit_rows, from.num_logit_rows, batch.logit_rows);
  std::copy_n(other.arrays_.logit_positions, from.num_logit_rows, arrays_.logit_positions);
  batch.num_rows = from.num_rows;
  batch.num_sequences = from.num_sequences;
  batch.num_logit_rows = from.num_logit_rows;
  context_ = other.context_;
}

void StepBuffers::Begin() {
  arrays_.batch.num_rows = 0;
  arrays_.batch.num_sequences = 0;
  arrays_.batch.num_logit_rows = 0;
  context_ = {};
}

void StepBuffers::Add(const PlannedRows& rows) {
  kernels::StepBatch& batch = arrays_.batch;
  const auto count = static_cast<int32_t>(rows.tokens.size());
  FB_CHECK(count > 0 && batch.num_rows + count <= max_rows_, "{} + {} rows exceed the step's {}",
           batch.num_rows, count, max_rows_);
  const int32_t first_row = batch.num_rows;
  const auto first_position = static_cast<int32_t>(rows.first_position);
  batch.sequences[batch.num_sequences] = {first_row, count, first_position, rows.slot};
  for (int32_t i = 0; i < count; ++i) {
    batch.tokens[first_row + i] = rows.tokens[i];
    batch.positions[first_row + i] = first_position + i;
    batch.row_sequence[first_row + i] = batch.num_sequences;
    const bool last = i == count - 1;
    if (rows.all_logits || (rows.last_logits && last)) {
      batch.logit_rows[batch.num_logit_rows] = first_row + i;
      arrays_.logit_positions[batch.num_logit_rows++] = first_position + i;
    }
  }
  context_.Add(rows.first_position, count);
  batch.num_rows += count;
  ++batch.num_sequences;
}

const kernels::StepBatch& StepBuffers::Finish() {
  arrays_.batch.own_begin = 0;
  arrays_.batch.own_end = arrays_.batch.num_rows;
  return arrays_.batch;
}

}  // namespace forebay::engine
