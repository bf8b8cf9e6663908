// The way from options to an engine: decides what they leave open, says what was chosen, and makes
// the engine of the plan.
#pragma once

#include <memory>

#include "choose/layout_search.h"
#include "engine/compose.h"

namespace forebay::choose {

// engine::CreateEngine of what DecideJob comes to. Errors are those of both, and
// layout::kMemoryTooSmall. `tell` hears how far a search of layouts is.
base::Result<std::unique_ptr<engine::LocalEngine>> CreateEngine(
    runtime::Runtime& runtime, const layout::EngineOptions& options,
    const engine::ModelFiles& files, const text::Tokenizer* tokenizer, const TellSearch& tell = {});

}  // namespace forebay::choose
