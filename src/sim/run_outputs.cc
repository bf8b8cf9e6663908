#include "sim/run_outputs.h"

namespace forebay::sim {

base::Result<RunOutputs> RunOutputs::Open(const std::string& steps_path, const std::string& report_path) {
  RunOutputs outputs;
  if (!steps_path.empty()) {
    FB_ASSIGN_OR_RETURN(outputs.log_, StepLog::Open(steps_path));
    outputs.fanout_->Add(outputs.log_.get());
  }
  return outputs;
}

base::Status RunOutputs::Finish(const CountedRun& run) { return log_ ? log_->Close() : base::Status(); }

}  // namespace forebay::sim
