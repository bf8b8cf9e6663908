// What DWDP's paper lacks: context steps by lengths, ranks and devices.
#pragma once

#include <string>

#include "base/status.h"

namespace forebay::repro {

class Lab;

// A Markdown table, a line a cell that fits, and a sentence on what it comes to. A quick lab runs
// some of the cells.
base::Result<std::string> ContextTable(Lab& lab);

}  // namespace forebay::repro
