// The subcommands of `forebay`, one file each. Each adds itself to the app; what it returned is the
// exit code.
#pragma once

#include "cli/flags.h"

namespace forebay::cli {

void AddRunCommand(Command app, int* exit_code);
void AddMergeCommand(Command app, int* exit_code);
void AddPackCommand(Command app, int* exit_code);
void AddPlanCommand(Command app, int* exit_code);
void AddProfileCommand(Command app, int* exit_code);
void AddReproCommand(Command app, int* exit_code);
void AddTokenizeCommand(Command app, int* exit_code);
void AddDetokenizeCommand(Command app, int* exit_code);
void AddDocsCommand(Command app, int* exit_code);

}  // namespace forebay::cli
