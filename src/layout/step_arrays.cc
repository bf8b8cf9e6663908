#include "layout/step_arrays.h"

#include "base/units.h"

namespace forebay::layout {
namespace {

// Calls visit(&array, count) in memory order. `sequences`: with the arrays that belong to
// sequences.
template <typename Visit>
void ForEachArray(const StepShape& shape, bool sequences, StepArrays* arrays, Visit visit) {
  kernels::StepBatch& batch = arrays->batch;
  visit(&batch.tokens, shape.rows);
  visit(&batch.positions, shape.rows);
  visit(&batch.row_sequence, shape.rows);
  visit(&batch.logit_rows, shape.rows);
  visit(&arrays->logit_positions, shape.rows);
  visit(&arrays->logit_digests, shape.rows);
  visit(&batch.sequences, shape.sequences);
  visit(&batch.state_rows, shape.state_rows);
  if (shape.typed) visit(&batch.types, shape.rows);
  if (shape.draws) {
    visit(&arrays->draws, shape.rows);
    visit(&arrays->drawn, shape.rows);
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
  if (!sequences) return;
  visit(&batch.sampled, shape.sequences);
  for (int group = 0; group < shape.kv_groups; ++group)
    visit(&batch.group_tables[group], shape.sequences * shape.blocks_per_sequence);
}

template <typename T>
uint64_t ArrayBytes(T** /*array*/, int64_t count) {
  return static_cast<uint64_t>(count) * sizeof(T);
}

}  // namespace

uint64_t StepArrayBytes(const StepShape& shape, int32_t steps_in_flight) {
  StepArrays none;
  uint64_t sum = 0;
  for (int32_t step = 0; step < steps_in_flight; ++step) {
    ForEachArray(shape, step == 0, &none, [&](auto** array, int64_t count) {
      sum += base::RoundUp(ArrayBytes(array, count), 64);
    });
  }
  return sum;
}

StepArrays CutStepArrays(const StepShape& shape, const StepArrays* shared,
                         device::RegionCutter* cutter) {
  StepArrays arrays;
  if (shared) arrays.batch = shared->batch;
  arrays.batch.table_stride = shape.blocks_per_sequence;
  ForEachArray(shape, shared == nullptr, &arrays, [&]<typename T>(T** array, int64_t count) {
    *array = reinterpret_cast<T*>(cutter->Cut(ArrayBytes(array, count)));
  });
  return arrays;
}

}  // namespace forebay::layout
