// Flags that would do nothing in the layout that is asked for. In a batch nobody is there to
// notice, so they are refused. Pure.
#pragma once

#include <span>

#include "base/status.h"
#include "layout/options.h"

namespace forebay::layout {

// kInvalidArgument names the first of them, the layout, and what would give it a meaning. Values
// that are defaults count as not given. `compared`: layouts instead of that of the options; a flag
// is for those that it suits, and so it is where the job chooses the layout.
base::Status CheckMuteFlags(const EngineOptions& options, std::span<const Layout> compared = {});

}  // namespace forebay::layout
