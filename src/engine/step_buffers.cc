#include "engine/step_buffers.h"

#include <algorithm>

namespace forebay::engine {

StepBuffers::StepBuffers(const MemoryPlan& plan, int32_t max_num_seqs, device::RegionCutter* cutter, const StepBuffers* shared)
    : max_rows_(static_cast<int32_t>(plan.capacity.rows)) {
  if (shared) batch_ = shared->batch_;
  const auto rows = static_cast<uint64_t>(max_rows_), seqs = static_cast<uint64_t>(max_num_seqs);
  const auto ints = [&](uint64_t count) { return reinterpret_cast<int32_t*>(cutter->Cut(count * sizeof(int32_t))); };
  batch_.tokens = ints(rows);
  batch_.positions = ints(rows);
  batch_.row_sequence = ints(rows);
  batch_.logit_rows = ints(rows);
  logit_positions_ = ints(rows);
  logit_digests_ = reinterpret_cast<uint64_t*>(cutter->Cut(rows * sizeof(uint64_t)));
  batch_.sequences = reinterpret_cast<kernels::SequenceRows*>(cutter->Cut(seqs * sizeof(kernels::SequenceRows)));
  if (shared) return;
  batch_.sampled = ints(seqs);
  batch_.table_stride = plan.max_blocks_per_sequence;
  for (size_t group = 0; group < plan.kv_groups.size(); ++group) {
    batch_.group_tables[group] = reinterpret_cast<uint32_t*>(
        cutter->Cut(seqs * static_cast<uint64_t>(plan.max_blocks_per_sequence) * sizeof(uint32_t)));
  }
}

void StepBuffers::SetTable(int group, int32_t slot, size_t from, std::span<const int32_t> blocks) {
  uint32_t* table = batch_.group_tables[group] + slot * batch_.table_stride;
  for (size_t i = from; i < blocks.size(); ++i) table[i] = static_cast<uint32_t>(blocks[i]);
}

void StepBuffers::CopyStep(const StepBuffers& other) {
  const kernels::StepBatch& from = other.batch_;
  std::copy_n(from.tokens, from.num_rows, batch_.tokens);
  std::copy_n(from.positions, from.num_rows, batch_.positions);
  std::copy_n(from.row_sequence, from.num_rows, batch_.row_sequence);
  std::copy_n(from.sequences, from.num_sequences, batch_.sequences);
  std::copy_n(from.logit_rows, from.num_logit_rows, batch_.logit_rows);
  std::copy_n(other.logit_positions_, from.num_logit_rows, logit_positions_);
  batch_.num_rows = from.num_rows;
  batch_.num_sequences = from.num_sequences;
  batch_.num_logit_rows = from.num_logit_rows;
  context_ = other.context_;
}

void StepBuffers::Begin() {
  batch_.num_rows = 0;
  batch_.num_sequences = 0;
  batch_.num_logit_rows = 0;
  context_ = {};
}

void StepBuffers::Add(const PlannedRows& rows) {
  const auto count = static_cast<int32_t>(rows.tokens.size());
  FB_CHECK(count > 0 && batch_.num_rows + count <= max_rows_, "{} + {} rows exceed the step's {}", batch_.num_rows, count,
           max_rows_);
  const int32_t first_row = batch_.num_rows;
  const auto first_position = static_cast<int32_t>(rows.first_position);
  batch_.sequences[batch_.num_sequences] = {first_row, count, first_position, rows.slot};
  for (int32_t i = 0; i < count; ++i) {
    batch_.tokens[first_row + i] = rows.tokens[i];
    batch_.positions[first_row + i] = first_position + i;
    batch_.row_sequence[first_row + i] = batch_.num_sequences;
    const bool last = i == count - 1;
    if (rows.all_logits || (rows.last_logits && last)) {
      batch_.logit_rows[batch_.num_logit_rows] = first_row + i;
      logit_positions_[batch_.num_logit_rows++] = first_position + i;
    }
  }
  context_.Add(rows.first_position, count);
  batch_.num_rows += count;
  ++batch_.num_sequences;
}

const kernels::StepBatch& StepBuffers::Finish() {
  batch_.own_begin = 0;
  batch_.own_end = batch_.num_rows;
  return batch_;
}

}  // namespace forebay::engine
