// Builds the real parts and puts them together: the one place that knows which device, kernels and
// policy there are.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "engine/open_model.h"
#include "layout/job_plan.h"
#include "text/tokenizer.h"

namespace forebay::engine {

// What a model settles of its choices, here and in forecasts: the least chunk of a prompt, whether
// prompts are cut and prefixes shared, whether choices keep states.
void FitToModel(const model::ModelConfig& config, ChoicesOptions* options);

// Loads the model, on simulated devices its shapes alone. `job_plan`: what the options come to,
// which fits (choose/create_engine.h decides it). `runtime` (a VirtualRuntime for simulated
// devices, where this is called by one of its tasks) and `tokenizer` (null: token ids only) must
// outlive the engine.
base::Result<std::unique_ptr<LocalEngine>> CreateEngine(runtime::Runtime& runtime,
                                                        const layout::EngineOptions& options,
                                                        const layout::JobPlan& job_plan,
                                                        const ModelFiles& files,
                                                        const text::Tokenizer* tokenizer);

}  // namespace forebay::engine
