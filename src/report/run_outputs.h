// What a run writes besides its results: the step log and the report.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "forebay/engine.h"
#include "report/step_log.h"
#include "report/timeline.h"
#include "trace/simulation.h"

namespace forebay::report {

class RunOutputs {
 public:
  // Empty paths: not wanted. Both files are opened, and emptied, now: a wrong path is known before
  // the run.
  static base::Result<RunOutputs> Open(const std::string& steps_path,
                                       const std::string& report_path);

  // Null: nothing is wanted.
  StepObserver* observer() { return fanout_->empty() ? nullptr : fanout_.get(); }
  // Writes what is left, once the run is over. Errors: kIoError.
  base::Status Finish(const trace::CountedRun& run);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  base::Status WriteReport(const trace::CountedRun& run);

  std::unique_ptr<StepLog> log_;
  std::unique_ptr<Timeline> timeline_;
  std::string report_path_;
  std::unique_ptr<std::FILE, CloseFile> report_;
  std::unique_ptr<StepFanout> fanout_ = std::make_unique<StepFanout>();
};

}  // namespace forebay::report
