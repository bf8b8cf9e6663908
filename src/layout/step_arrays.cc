#include "layout/step_arrays.h"

#include "base/units.h"

namespace forebay::layout {
namespace {

// Calls visit(&array, count) in memory order: what the host writes for a step.
template <typename Visit>
void ForEachWritten(const StepShape& shape, StepArrays* arrays, Visit visit) {
  kernels::StepBatch& batch = arrays->batch;
  visit(&batch.tokens, shape.rows);
  visit(&batch.positions, shape.rows);
  visit(&batch.row_sequence, shape.rows);
  visit(&batch.logit_rows, shape.rows);
  visit(&arrays->logit_positions, shape.rows);
  visit(&batch.sequences, shape.sequences);
  visit(&batch.state_rows, shape.state_rows);
  if (shape.typed) visit(&batch.types, shape.rows);
  if (shape.draws) {
    visit(&arrays->draws, shape.sequences);
    visit(&arrays->likely, shape.sequences);
  }
  if (shape.expanded_blocks > 0) {
    kernels::LatentForms& forms = arrays->forms;
    visit(&forms.prompts, shape.sequences);
    visit(&forms.answers, shape.sequences);
    visit(&forms.rounds, shape.sequences);
    visit(&forms.answer_rows, shape.sequences);
    visit(&forms.blocks, shape.sequences * shape.blocks_per_sequence);
    visit(&forms.places, shape.sequences * shape.blocks_per_sequence);
  }
}

// Room for what kernels write for a step: digests of its logits, and where they draw a token and
// some log probabilities a sequence.
uint64_t ResultBytes(const StepShape& shape) {
  const auto rows = static_cast<uint64_t>(shape.rows),
             sequences = static_cast<uint64_t>(shape.draws ? shape.sequences : 0);
  const uint64_t of_sequence =
      64 + sizeof(kernels::LikelyHead) + kLikelyTokens * sizeof(kernels::LikelyToken);
  return base::RoundUp(rows * sizeof(uint64_t) + sequences * of_sequence, 64);
}

template <typename Visit>
void ForEachTable(const StepShape& shape, StepArrays* arrays, Visit visit) {
  for (int group = 0; group < shape.kv_groups; ++group)
    visit(&arrays->batch.group_tables[group], shape.sequences * shape.blocks_per_sequence);
}

template <typename T>
uint64_t ArrayBytes(T** /*array*/, int64_t count) {
  return static_cast<uint64_t>(count) * sizeof(T);
}

}  // namespace

uint64_t StepArrayBytes(const StepShape& shape, int32_t steps_in_flight) {
  StepArrays none;
  uint64_t sum = 0;
  const auto add = [&](auto** array, int64_t count) {
    sum += base::RoundUp(ArrayBytes(array, count), 64);
  };
  for (int32_t step = 0; step < steps_in_flight; ++step) {
    ForEachWritten(shape, &none, add);
    sum += ResultBytes(shape);
  }
  add(&none.batch.sampled, shape.sequences);
  ForEachTable(shape, &none, add);
  return sum;
}

StepArrays CutStepArrays(const StepShape& shape, const StepArrays* shared,
                         device::RegionCutter* cutter) {
  StepArrays arrays;
  if (shared) arrays.batch = shared->batch;
  arrays.batch.table_stride = shape.blocks_per_sequence;
  const auto cut = [&]<typename T>(T** array, int64_t count) {
    *array = reinterpret_cast<T*>(cutter->Cut(ArrayBytes(array, count)));
  };
  const std::byte* const begin = cutter->Cut(0);
  ForEachWritten(shape, &arrays, cut);
  arrays.written = {begin, cutter->Cut(0)};
  arrays.results = {cutter->Cut(ResultBytes(shape)), ResultBytes(shape)};
  if (shared) return arrays;
  cut(&arrays.batch.sampled, shape.sequences);
  ForEachTable(shape, &arrays, cut);
  return arrays;
}

}  // namespace forebay::layout
