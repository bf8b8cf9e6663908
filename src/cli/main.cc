// forebay: the command line.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include <csignal>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "cli/commands.h"
#include "cli/flag_spelling.h"
#include "cli/outcome.h"
#include "runtime/real/real_runtime.h"

namespace {

// The next file to be opened takes the number of a closed standard stream, and messages would be
// written into it.
void OpenStandardStreams() {
  int fd;
  do {
    fd = ::open("/dev/null", O_RDWR);
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
  forebay::cli::CommandLine line(
      "forebay",
      "forebay: offline LLM inference. A job of many requests, every answer once, as fast as the "
      "machine allows.");
  line.RequireCommand("forebay " FOREBAY_VERSION);
  const forebay::cli::Command app = line.root();
  int exit_code = 0;
  forebay::cli::AddRunCommand(app, &exit_code);
  forebay::cli::AddMergeCommand(app, &exit_code);
  forebay::cli::AddReproCommand(app, &exit_code);
  forebay::cli::AddPlanCommand(app, &exit_code);
  forebay::cli::AddPackCommand(app, &exit_code);
  forebay::cli::AddProfileCommand(app, &exit_code);
  forebay::cli::AddTokenizeCommand(app, &exit_code);
  forebay::cli::AddDetokenizeCommand(app, &exit_code);
  forebay::cli::AddDocsCommand(app, &exit_code);
  const forebay::base::Status parsed = line.Parse(forebay::cli::NormalArguments(argc, argv));
  if (!parsed.ok()) return forebay::cli::Fail(parsed, 2);
  const int written = forebay::cli::FinishOutput();
  return exit_code != 0 ? exit_code : written;
}

int MainOnALargeStack(int argc, char** argv) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  int exit_code = 1;
  try {
    std::thread([&] { exit_code = Main(argc, argv); }).join();
  } catch (const std::system_error& error) {
    return forebay::cli::Fail(forebay::base::Status(
        forebay::runtime::kThreadUnavailable,
        fmt::format("no thread for the command line with a stack of {} MiB, since `ulimit -s` is "
                    "below that: {}; raise `ulimit -s`, or `ulimit -u`, `ulimit -v` and the "
                    "container's limit of processes",
                    kStackBytes >> 20, error.what())));
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardStreams();
  // A reader of stderr that goes away ends no job; results that cannot be written are an error.
  std::signal(SIGPIPE, SIG_IGN);
  std::set_new_handler(EndWithoutMemory);
  return StackIsSmall() ? MainOnALargeStack(argc, argv) : Main(argc, argv);
}
