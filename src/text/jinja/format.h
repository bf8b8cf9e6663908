// Python's two ways of formatting.
#pragma once

#include "text/jinja/text_builder.h"

namespace forebay::text::jinja {

// format % args, where args is a tuple, a dict for %(name)s, or one value.
Value PercentFormat(Runtime& rt, const Value& format, const Value& args);
// format.format(*args, **named).
Value BraceFormat(Runtime& rt, const Value& format, const Arguments& args);

}  // namespace forebay::text::jinja
