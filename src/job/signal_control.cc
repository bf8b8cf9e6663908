#include "job/signal_control.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <iterator>
#include <string_view>

#include "base/check.h"

namespace forebay::job {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};

// A handler has no other way to its object.
std::atomic<RunControl*> installed{nullptr};
static_assert(std::atomic<RunControl*>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

// Messages to a terminal clear the progress that is drawn from the cursor on.
std::atomic<bool> on_terminal{false};
constexpr std::string_view kClear = "\r\x1b[J";

void Say(std::string_view message) {
  if (on_terminal) {
    [[maybe_unused]] const ssize_t count = write(STDERR_FILENO, kClear.data(), kClear.size());
  }
  [[maybe_unused]] const ssize_t count = write(STDERR_FILENO, message.data(), message.size());
}

// Calls nothing but what signal-safety(7) allows.
void Handle(int signal_number) {
  const int saved_errno = errno;
  RunControl* control = installed.load();
  if (control && !control->drain.exchange(true)) {
    Say("forebay: finishing what runs; once more to stop at once\n");
  } else if (control) {
    control->abort = true;
    Say("forebay: stopping\n");
    // A third one ends the process even where it hangs.
    signal(signal_number, SIG_DFL);
  }
  errno = saved_errno;
}

}  // namespace

SignalControl::SignalControl(RunControl* control) {
  FB_CHECK(installed.exchange(control) == nullptr, "a SignalControl is installed already");
  on_terminal = isatty(STDERR_FILENO) == 1;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action {};
    action.sa_handler = kSignals[i] == SIGPIPE || kSignals[i] == SIGXFSZ ? SIG_IGN : Handle;
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], &action, &previous_[i]);
    // Under nohup the terminal's end is ignored on purpose.
    if (kSignals[i] == SIGHUP && previous_[i].sa_handler == SIG_IGN)
      sigaction(SIGHUP, &previous_[i], nullptr);
  }
}

SignalControl::~SignalControl() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
  installed = nullptr;
}

}  // namespace forebay::job
