// forebay: the command line.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "cli/commands.h"
#include "cli/flag_spelling.h"
#include "cli/open_text.h"

namespace {

// The next file to be opened takes the number of a closed standard stream, and messages would be
// written into it.
void OpenStandardStreams() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

// Threads get the stack that the limit of the process says, which may be too small for parsers of
// deep texts; the first thread's own cannot grow beyond it.
constexpr size_t kStackBytes = 8 << 20;

bool StackIsSmall() {
  rlimit limit;
  return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kStackBytes;
}

void EndWithoutMemory() {
  constexpr std::string_view kMessage =
      "forebay: error: the system gives no more memory; lower --memory, or raise the limit of this "
      "process [out_of_memory]\n";
  [[maybe_unused]] const ssize_t count = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  std::_Exit(1);
}

int Main(int argc, char** argv) {
  CLI::App app{
      "forebay: offline LLM inference. A job of many requests, every answer once, as fast as the "
      "machine allows."};
  app.name("forebay");
  app.set_version_flag("--version", "forebay " FOREBAY_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  forebay::cli::AddRunCommand(app, &exit_code);
  forebay::cli::AddMergeCommand(app, &exit_code);
  forebay::cli::AddReproCommand(app, &exit_code);
  forebay::cli::AddPlanCommand(app, &exit_code);
  forebay::cli::AddPackCommand(app, &exit_code);
  forebay::cli::AddProfileCommand(app, &exit_code);
  forebay::cli::AddTokenizeCommand(app, &exit_code);
  forebay::cli::AddDetokenizeCommand(app, &exit_code);
  try {
    std::vector<std::string> arguments = forebay::cli::NormalArguments(argc, argv);
    std::ranges::reverse(arguments);  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    // Help and version are no errors; everything else about flags is exit code 2.
    if (error.get_exit_code() == 0) return app.exit(error);
    return forebay::cli::Fail(forebay::base::Status(forebay::base::kInvalidArgument,
                                                    forebay::cli::DescribeFlagError(app, error)),
                              2);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardStreams();
  std::set_new_handler(EndWithoutMemory);
  if (!StackIsSmall()) return Main(argc, argv);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  int exit_code = 1;
  std::thread([&] { exit_code = Main(argc, argv); }).join();
  return exit_code;
}
