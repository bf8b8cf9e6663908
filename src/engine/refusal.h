// Which requests the engine does not run.
#pragma once

#include <optional>

#include "forebay/engine.h"

namespace forebay::engine {

// Host memory outside --memory for log probabilities: the most that one request may ask for, and
// the most that all requests hold before no further one is taken. With the program, its books and
// the lines that are read ahead both stay below 300 MB.
inline constexpr int64_t kMostLogprobBytes = 192 << 20, kHeldLogprobBytes = 32 << 20;

// The error to report for the request's line, as Engine::Refusal has it; nothing: it would run.
std::optional<RequestResult> RefusalOf(const Request& request, const ModelFacts& facts);

}  // namespace forebay::engine
