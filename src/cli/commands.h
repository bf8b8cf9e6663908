// The subcommands of `forebay`, one file each. Each adds itself to the app; what it returned is the
// exit code.
#pragma once

#include <CLI/CLI.hpp>

namespace forebay::cli {

void AddRunCommand(CLI::App& app, int* exit_code);
void AddMergeCommand(CLI::App& app, int* exit_code);
void AddPackCommand(CLI::App& app, int* exit_code);
void AddPlanCommand(CLI::App& app, int* exit_code);
void AddProfileCommand(CLI::App& app, int* exit_code);
void AddReproCommand(CLI::App& app, int* exit_code);
void AddTokenizeCommand(CLI::App& app, int* exit_code);
void AddDetokenizeCommand(CLI::App& app, int* exit_code);

}  // namespace forebay::cli
