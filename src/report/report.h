// `--report FILE`: a run as one HTML page that needs no network.
#pragma once

#include <string>

#include "report/timeline.h"
#include "trace/simulation.h"

namespace forebay::report {

// Under 1 MB, however many steps there were. What the run does not have (links, modes, a profile)
// is not drawn.
std::string ReportHtml(const trace::CountedRun& run, const Timeline& timeline);

}  // namespace forebay::report
