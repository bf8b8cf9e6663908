// The flags that say what a model runs on, how devices share it and its memory, and its limits, for
// `run` and `plan`.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "layout/options.h"

namespace forebay::cli {

// Texts as they were given; "": not given.
struct LayoutFlags {
  // 0: not given
  int tensor_parallel = 0, pipeline_parallel = 0, data_parallel = 0, sequence_parallel = 0;
  bool shifts = false, keeps_mode = false;  // --enable-shift-parallel and its opposite
  std::string devices = "cpu", layout, context, generation, generation_mode, dtype = "auto",
              mla = "auto", quantization, kv_cache_dtype = "auto", expert_wire = "exact",
              expert_overlap = "on", tp_wire = "exact", kv_replication = "fused", steal = "auto",
              kv_preempt = "auto", kv_offload = "auto", policy = "continuous",
              length_predictor = "quantile", kv_offloading_size, kv_file_size, memory,
              memory_per_rank, touch_kv, pool_slots, pool_slice, pool_order = "peak-shifted",
              pool_parts = "layer", pool_streams = "owner", pool_peers = "rotated",
              pool_wait = "layer", shift_mode = "auto", shift_modes, shift_weights = "views",
              mode{schedule::Name(schedule::WantedMode())};
};

// All but --memory, and --layout, of which `plan` takes several.
void AddLayoutFlags(Command command, LayoutFlags& flags, layout::EngineOptions& engine);
// vLLM's --tensor-parallel-size, --pipeline-parallel-size and --data-parallel-size, and its plug-in
// ArcticInference's --ulysses-sequence-parallel-size and --[no-]enable-shift-parallel, for one
// layout.
void AddParallelFlags(Command command, LayoutFlags& flags);
// Turns them into texts of --layout and --devices.
base::Status ApplyParallelFlags(LayoutFlags* flags);
// A text of --layout: nothing, auto, or a layout.
base::Status ApplyLayout(const std::string& text, layout::EngineOptions* engine);
// Errors name the flag, what was given and what was expected.
base::Status ApplyLayoutFlags(const LayoutFlags& flags, layout::EngineOptions* engine);

}  // namespace forebay::cli
