// The way from options to an engine: decides what they leave open, says what was chosen, and makes
// the engine of the plan.
#pragma once

#include <memory>

#include "engine/compose.h"

namespace forebay::choose {

// engine::CreateEngine of what DecideJob comes to. Errors are those of both, and
// layout::kMemoryTooSmall.
base::Result<std::unique_ptr<engine::LocalEngine>> CreateEngine(
    runtime::Runtime& runtime, const layout::EngineOptions& options,
    const engine::ModelFiles& files, const text::Tokenizer* tokenizer);

}  // namespace forebay::choose
