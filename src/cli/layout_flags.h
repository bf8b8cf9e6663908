// The flags that say how devices share a model and its memory, for `run` and `plan`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/options.h"

namespace forebay::cli {

// Texts as they were given; "": not given.
struct LayoutFlags {
  std::string memory, memory_per_rank, touch_kv, pool_slots, pool_slice, pool_order = "peak-shifted", pool_parts = "layer", pool_streams = "owner";
};

// All but --devices, --memory, and --layout, of which `plan` takes several.
void AddLayoutFlags(CLI::App& command, LayoutFlags& flags, engine::EngineOptions& engine);
// Errors name the flag, what was given and what was expected.
base::Status ApplyLayoutFlags(const LayoutFlags& flags, engine::EngineOptions* engine);

}  // namespace forebay::cli
