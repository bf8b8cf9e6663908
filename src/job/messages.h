// A chat's messages on their way to the template.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>

#include "job/parsed_line.h"

namespace forebay::job {

// Appends `value` as compact JSON that means the same: members in order, repeated ones kept, floats stay floats.
void AppendJson(simdjson::dom::element value, std::string* out);

// Checks the parameter `messages` and appends it as JSON: an array, not empty, of objects with a string `role`.
// `content` given as a list of text parts becomes one string (the parts joined by LF), and the `arguments` of a tool
// call given as JSON text become what that text says: templates expect them so. Parts of other types are refused.
std::optional<LineError> AppendMessages(simdjson::dom::element messages, std::string* out);

}  // namespace forebay::job
