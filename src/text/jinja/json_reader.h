// JSON text straight into values: integers of any length keep their digits, strings without escapes
// are shared with the text, and every string counts as the request's.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace forebay::text::jinja {

inline constexpr int kMaxJsonDepth = 128;

// Strict JSON in valid UTF-8, one document. Errors are base::kJsonInvalid (the message gives the
// byte) and kTemplateLimit. `json` must outlive the values. The arena and the reader's own stack
// together stay within 16 bytes for a byte of `json`, plus small change.
base::Result<Value> ReadJson(Arena& arena, std::string_view json, Origin origin = Origin::kRequest);

}  // namespace forebay::text::jinja
