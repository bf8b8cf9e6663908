// A chat's messages on their way to the template.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>

#include "job/lines/parsed_line.h"

namespace forebay::job {

// Appends `value` as compact JSON that means the same: members in order, repeated ones kept, floats
// stay floats.
void AppendJson(simdjson::dom::element value, std::string* out);

// Checks that the parameter `messages` is an array, not empty, and appends it as JSON. What
// messages must be like, the chat template's code knows (text/chat_template.h).
std::optional<LineError> AppendMessages(simdjson::dom::element messages, std::string* out);

}  // namespace forebay::job
