// What DWDP's paper lacks: context steps, and jobs in which prompts and decoding share steps, by
// lengths, ranks and devices; and its Figure 5 with generation matched to each user's rate.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace forebay::repro {

class Lab;

using PrintLine = std::function<void(const std::string&)>;

// Each prints a Markdown table, a line a cell that fits, each as it comes, and what all come to. A
// quick lab runs some of the cells.
base::Status PrintContextTable(Lab& lab, const PrintLine& print);
base::Status PrintMixedTable(Lab& lab, const PrintLine& print);
// The frontier of a user's rate and a GPU's, DEP's beside DWDP's.
base::Status PrintFrontier(Lab& lab, const PrintLine& print);

}  // namespace forebay::repro
