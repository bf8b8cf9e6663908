// `--report FILE`: a run as one HTML page that needs no network.
#pragma once

#include <string>

#include "sim/simulation.h"
#include "sim/timeline.h"

namespace forebay::sim {

// Under 1 MB, however many steps there were. What the run does not have (links, modes, a profile) is not drawn.
std::string ReportHtml(const CountedRun& run, const Timeline& timeline);

}  // namespace forebay::sim
