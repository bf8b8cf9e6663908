// What DWDP's paper lacks: context steps by lengths, ranks and devices.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace forebay::repro {

class Lab;

// Prints a Markdown table, a line a cell that fits, each as it comes, and what all come to. A quick
// lab runs some of the cells.
base::Status PrintContextTable(Lab& lab, const std::function<void(const std::string&)>& print);

}  // namespace forebay::repro
