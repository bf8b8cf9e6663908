// The table of parameters in words: the tables of docs/formats/requests.md.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::job {

// `page` with a table of parameters between each pair of the marks
//     <!-- parameters: SECTION -->
//     <!-- end -->
// Errors: as base::FillMarks. REQUIRES: each parameter of Parameters() is described in one section,
// and nothing else is.
base::Result<std::string> FillParameters(std::string_view page);

}  // namespace forebay::job
