// Pages that hold tables which the program writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::base {

struct MarkedTable {
  std::string_view name;
  std::string text;  // whole lines
};

// `page` with each table's text between the marks
//     <!-- KIND: NAME -->
//     <!-- end -->
// kInvalidArgument: a table has no mark or two, a mark of the kind names no table, or has no end.
Result<std::string> FillMarks(std::string_view page, std::string_view kind,
                              const std::vector<MarkedTable>& tables);

}  // namespace forebay::base
