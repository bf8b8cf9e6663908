// The flags of a command that settings (settings/table.h) have.
#pragma once

#include <utility>
#include <vector>

#include "cli/flags.h"
#include "settings/table.h"

namespace forebay::cli {

class SettingFlags {
 public:
  // Adds to `command` the settings that `caller` takes, in groups, and --help-all, which shows more
  // than --help does.
  SettingFlags(Command command, settings::Caller caller);

  // What the command line said, once it is parsed. Errors: settings::Read's.
  base::Status Read(settings::RunOptions* options) const;

 private:
  std::vector<std::pair<const settings::Setting*, Flag>> flags_;
};

}  // namespace forebay::cli
