// What a running job does by the clock: commits of the results, progress, the end of the grace
// time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/status.h"
#include "forebay/engine.h"
#include "job/files/results_log.h"
#include "job/progress.h"
#include "runtime/runtime.h"

namespace forebay::job {

// A task from construction to Stop.
class Ticker {
 public:
  struct Parts {
    runtime::Runtime& runtime;
    ResultsLog& log;
    RunControl& control;
    runtime::Event& wake;  // set where a commit is due before its time
    ProgressDisplay& display;
    std::function<ProgressView()> view;
    double grace_seconds;
  };
  explicit Ticker(Parts parts);
  ~Ticker();

  // Ends the task; what was appended so far is not yet committed.
  void Stop();
  // Did a drain outlast its grace time, so that the run was aborted?
  bool grace_is_over() const { return grace_is_over_; }

 private:
  void Run();
  // A failed commit latches in the log; the run is to end.
  void Commit();
  void WatchDrain(runtime::TimeNs now);

  const Parts parts_;
  runtime::TimeNs drain_began_ = -1;
  std::atomic<bool> stop_{false}, grace_is_over_{false};
  std::unique_ptr<runtime::Task> task_;
};

}  // namespace forebay::job
