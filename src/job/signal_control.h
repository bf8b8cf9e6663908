// SIGINT, SIGTERM and SIGHUP as a job's RunControl.
#pragma once

#include <signal.h>

#include "forebay/engine.h"

namespace forebay::job {

// While it lives: the first signal drains, the second aborts, the third has its usual effect (which
// the results file survives as well). A SIGHUP that was ignored stays so (nohup). SIGPIPE and
// SIGXFSZ are ignored: the writes that raise them report their errors. One at a time in a process.
// `control` must outlive it.
class SignalControl {
 public:
  explicit SignalControl(RunControl* control);
  ~SignalControl();
  SignalControl(const SignalControl&) = delete;

 private:
  struct sigaction previous_[5];
};

}  // namespace forebay::job
