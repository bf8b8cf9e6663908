// The table in words: a line of --help, and the tables of docs/cli.md.
#pragma once

#include <string>

#include "base/status.h"
#include "settings/table.h"

namespace forebay::settings {

// The first line of a setting's help as plain text, with the default where the line names none.
std::string HelpLine(const Setting& setting);

// `page` with a table of settings between each pair of the marks
//     <!-- settings: GROUP -->
//     <!-- end -->
// where GROUP is the name of a group. Errors: as FillMarks.
base::Result<std::string> FillPage(std::string_view page);

}  // namespace forebay::settings
