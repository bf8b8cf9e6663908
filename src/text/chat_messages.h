// Checks and reshapes a request's messages before a template sees them.
#pragma once

#include "text/chat_template.h"
#include "text/jinja/value.h"

namespace forebay::text {

// `messages` is what JSON gave. Null keys are dropped and reasoning is given all its names, as
// transformers does; in the style kOpenAi parts are flattened unless `keep_parts`, and arguments
// parsed.
base::Result<jinja::Value> PrepareMessages(jinja::Arena& arena, const jinja::Value& messages,
                                           MessageStyle style, bool keep_parts);

// Appends `tag` to the last message's text, so that the rendered text can be cut there.
base::Result<jinja::Value> TagLastMessage(jinja::Arena& arena, const jinja::Value& messages,
                                          std::string_view tag);

}  // namespace forebay::text
