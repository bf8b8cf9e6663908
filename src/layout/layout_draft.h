// What an engine's options come to before the memory of its ranks is divided: devices, how they are
// cut, and what is left open. Pure, but for machine.cc and the choice of kernels, which ask what
// machine this is.
#pragma once

#include <memory>
#include <vector>

#include "layout/layout.h"
#include "layout/machine.h"
#include "layout/options.h"
#include "layout/shift_plan.h"
#include "model/decoder.h"
#include "model/routing.h"

namespace forebay::layout {

struct LayoutDraft {
  tensor::DType dtype = tensor::DType::kBF16;
  const kernels::KernelSet* kernels = nullptr;
  MachinePlan machine;
  Layout layout;
  int32_t steps_in_flight = 1;  // a replica's steps at once
  // Which experts rows go to where there are no data; null: data say so, or there are no experts.
  std::shared_ptr<const model::Routing> routing;
  // The model as the devices hold it: --quantization and --kv-cache-dtype count.
  model::ModelConfig config;
  // What the ranks of a replica hold before anything is pooled, stage by stage.
  std::vector<std::shared_ptr<const model::DecoderPlan>> decoders;
  ShiftPlan shift;  // In which mode a step is taken.
  // Blocks of running choices that are to lie below, at most: memory has what there is room for.
  int32_t streamed_blocks = 0;

  // How many layers are pooled.
  bool pool_is_open() const { return layout.pools_layers() && !layout.pool_layers; }
  // How many experts of a layer a rank holds.
  bool experts_are_open() const { return layout.pools_experts() && !layout.expert_size; }
  // Which steps take which mode.
  bool modes_are_open() const { return layout.sp > 1 && shift.table.entries.empty(); }
};

// The draft of the layout that the options name; of copies of the model, where they name none.
// Errors are those of the options: their value, the devices, the layout, what the model cannot do.
// `num_devices`: the layout's, of the machine's; 0: all.
base::Result<LayoutDraft> DraftLayout(const EngineOptions& options, const model::ModelConfig& model,
                                      int num_devices = 0);

// The cut of a rank of a replica of the draft's layout.
model::ReplicaCut CutOf(const EngineOptions& options, const Layout& layout, int rank);

}  // namespace forebay::layout
