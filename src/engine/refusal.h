// Which requests the engine does not run.
#pragma once

#include <optional>

#include "forebay/engine.h"

namespace forebay::engine {

// The error to report for the request's line, as Engine::Refusal has it; nothing: it would run.
std::optional<RequestResult> RefusalOf(const Request& request, const ModelFacts& facts);

}  // namespace forebay::engine
