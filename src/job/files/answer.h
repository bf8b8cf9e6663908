// What of a result line is its answer: the part that is the same whoever computed it and when.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::job {

// The answer of a result line as text: status, choices, usage, fingerprint and error; not when it
// was created, and not what a prefix index happened to hold. Two results of one line are the same
// answer if and only if these are equal. Errors: kJsonInvalid.
base::Result<std::string> AnswerOf(simdjson::dom::parser& parser, std::string_view line);

}  // namespace forebay::job
