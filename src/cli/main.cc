// forebay: the command line.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "cli/commands.h"

namespace {

// The next file to be opened takes the number of a closed standard stream, and messages would be written into it.
void OpenStandardStreams() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardStreams();
  CLI::App app{"forebay: offline LLM inference. A job of many requests, every answer once, as fast as the machine allows."};
  app.set_version_flag("--version", "forebay " FOREBAY_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  forebay::cli::AddRunCommand(app, &exit_code);
  forebay::cli::AddReproCommand(app, &exit_code);
  forebay::cli::AddPlanCommand(app, &exit_code);
  forebay::cli::AddProfileCommand(app, &exit_code);
  forebay::cli::AddTokenizeCommand(app, &exit_code);
  forebay::cli::AddDetokenizeCommand(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are no errors; everything else about flags is exit code 2.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
