#include "engine/step_buffers.h"

#include <algorithm>

#include "model/blocks/latent_forms.h"

namespace forebay::engine {

StepBuffers::StepBuffers(const layout::StepShape& shape, device::RegionCutter* cutter,
                         const StepBuffers* shared)
    : arrays_(layout::CutStepArrays(shape, shared ? &shared->arrays_ : nullptr, cutter)),
      max_rows_(static_cast<int32_t>(shape.rows)),
      max_sequences_(static_cast<int32_t>(shape.sequences)),
      expanded_blocks_(shape.expanded_blocks) {}

void StepBuffers::SetTable(int group, int32_t sequence, size_t from,
                           std::span<const int32_t> blocks) {
  uint32_t* table = arrays_.batch.group_tables[group] + sequence * arrays_.batch.table_stride;
  for (size_t i = from; i < blocks.size(); ++i) table[i] = static_cast<uint32_t>(blocks[i]);
  if (from >= blocks.size()) return;
  const auto* const begin = reinterpret_cast<const std::byte*>(table + from);
  const auto* const end = reinterpret_cast<const std::byte*>(table + blocks.size());
  changed_begin_ = changed_begin_ == nullptr ? begin : std::min(changed_begin_, begin);
  changed_end_ = std::max(changed_end_, end);
}

void StepBuffers::SendTables(device::Stream& stream) {
  if (changed_begin_ != nullptr)
    stream.SendControl(changed_begin_, static_cast<uint64_t>(changed_end_ - changed_begin_));
  changed_begin_ = changed_end_ = nullptr;
}

void StepBuffers::SendStep(device::Stream& stream) const {
  stream.SendControl(arrays_.written.data(), arrays_.written.size());
}

void StepBuffers::SendSampled(device::Stream& stream) const {
  stream.SendControl(arrays_.batch.sampled,
                     static_cast<uint64_t>(max_sequences_) * sizeof(*arrays_.batch.sampled));
}

void StepBuffers::FetchSampled(device::Stream& stream) const {
  stream.FetchControl(arrays_.batch.sampled,
                      static_cast<uint64_t>(max_sequences_) * sizeof(*arrays_.batch.sampled));
}

bool StepBuffers::HasRoomForLikely(int32_t tokens, int32_t further) const {
  const int32_t most = std::max(tokens, further), rows = (tokens >= 0) + (further >= 0);
  const int64_t all = num_likely_tokens_ + std::max(tokens, 0) + std::max(further, 0);
  return most <= kernels::kMostLikely && num_likely_ + rows <= max_sequences_ &&
         all <= int64_t{layout::kLikelyTokens} * max_sequences_;
}

void StepBuffers::AddLikely(kernels::LikelyRow row) {
  row.tokens = num_likely_tokens_;
  num_likely_tokens_ += row.top_k;
  arrays_.likely[num_likely_++] = row;
}

void StepBuffers::TakeDrawn() {
  TakeResults(num_draws_, &drawn_);
  TakeResults(num_likely_, &likely_heads_);
  TakeResults(num_likely_tokens_, &likely_tokens_);
}

void StepBuffers::FetchResults(device::Stream& stream) const {
  if (results_bytes_ > 0) stream.FetchControl(arrays_.results.data(), results_bytes_);
}

void StepBuffers::CopyStep(const StepBuffers& other) {
  const kernels::StepBatch& from = other.arrays_.batch;
  kernels::StepBatch& batch = arrays_.batch;
  std::copy_n(from.tokens, from.num_rows, batch.tokens);
  std::copy_n(from.positions, from.num_rows, batch.positions);
  std::copy_n(from.row_sequence, from.num_rows, batch.row_sequence);
  if (batch.types != nullptr) std::copy_n(from.types, from.num_rows, batch.types);
  std::copy_n(from.sequences, from.num_sequences, batch.sequences);
  std::copy_n(from.state_rows, from.num_state_rows, batch.state_rows);
  std::copy_n(from.logit_rows, from.num_logit_rows, batch.logit_rows);
  std::copy_n(other.arrays_.logit_positions, from.num_logit_rows, arrays_.logit_positions);
  batch.num_rows = from.num_rows;
  batch.num_sequences = from.num_sequences;
  batch.num_state_rows = from.num_state_rows;
  batch.num_logit_rows = from.num_logit_rows;
  context_ = other.context_;
  if (expanded_blocks_ > 0) {
    const kernels::LatentForms& forms = other.arrays_.forms;
    arrays_.forms.num_prompts = forms.num_prompts;
    arrays_.forms.num_answers = forms.num_answers;
    arrays_.forms.num_answer_rows = forms.num_answer_rows;
    arrays_.forms.answer_context = forms.answer_context;
    std::copy_n(forms.prompts, forms.num_prompts, arrays_.forms.prompts);
    std::copy_n(forms.answers, forms.num_answers, arrays_.forms.answers);
    std::copy_n(forms.answer_rows, forms.num_answer_rows, arrays_.forms.answer_rows);
  }
}

void StepBuffers::Begin() {
  arrays_.batch.num_rows = 0;
  arrays_.batch.num_sequences = 0;
  arrays_.batch.num_state_rows = 0;
  arrays_.batch.num_logit_rows = 0;
  context_ = {};
  kernels::LatentForms& forms = arrays_.forms;
  forms.num_prompts = forms.num_answers = forms.num_rounds = forms.num_answer_rows = 0;
  forms.answer_context = {};
}

void StepBuffers::Add(const PlannedRows& rows) {
  kernels::StepBatch& batch = arrays_.batch;
  const auto count = static_cast<int32_t>(rows.tokens.size());
  FB_CHECK(count > 0 && batch.num_rows + count <= max_rows_, "{} + {} rows exceed the step's {}",
           batch.num_rows, count, max_rows_);
  const int32_t first_row = batch.num_rows;
  const auto first_position = static_cast<int32_t>(rows.first_position);
  batch.sequences[batch.num_sequences] = {first_row, count, first_position, rows.sequence};
  for (int32_t i = 0; i < count; ++i) {
    batch.tokens[first_row + i] = rows.tokens[i];
    batch.positions[first_row + i] = first_position + i;
    batch.row_sequence[first_row + i] = batch.num_sequences;
    const bool last = i == count - 1;
    const int32_t position = first_position + i;
    if (batch.types != nullptr)
      batch.types[first_row + i] = rows.second_text > 0 && position >= rows.second_text ? 1 : 0;
    if (rows.logits.contains(position) || (rows.last_logits && last)) {
      batch.logit_rows[batch.num_logit_rows] = first_row + i;
      arrays_.logit_positions[batch.num_logit_rows++] = position;
    }
  }
  if (expanded_blocks_ > 0) {
    const int64_t prompt_rows =
        std::clamp<int64_t>(rows.prompt_tokens - rows.first_position, 0, count);
    model::AddForms(batch.sequences[batch.num_sequences], static_cast<int32_t>(prompt_rows),
                    &arrays_.forms);
  }
  int32_t place = rows.state_place, row = first_row;
  for (const kv::StatePart& part : rows.state_parts) {
    const int32_t end = first_row + static_cast<int32_t>(part.end - rows.first_position);
    batch.state_rows[batch.num_state_rows++] = {row, end - row, place, part.place};
    place = part.place;
    row = end;
  }
  context_.Add(rows.first_position, count);
  batch.num_rows += count;
  ++batch.num_sequences;
}

const kernels::StepBatch& StepBuffers::Finish() {
  kernels::StepBatch& batch = arrays_.batch;
  num_draws_ = num_likely_ = num_likely_tokens_ = 0;
  results_bytes_ = 0;
  batch.own_begin = 0;
  batch.own_end = batch.num_rows;
  if (expanded_blocks_ > 0) {
    arrays_.forms.answer_context.repeated = context_.repeated;
    // Rounds are of this rank's tables, so they are planned once these stand.
    model::PlanRounds(batch.group_tables[0], batch.table_stride, expanded_blocks_, &arrays_.forms);
    batch.forms = &arrays_.forms;
  }
  return batch;
}

}  // namespace forebay::engine
