#include "report/run_outputs.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>

#include "report/report.h"

namespace forebay::report {

base::Result<RunOutputs> RunOutputs::Open(const std::string& steps_path,
                                          const std::string& report_path) {
  RunOutputs outputs;
  if (!steps_path.empty()) {
    FB_ASSIGN_OR_RETURN(outputs.log_, StepLog::Open(steps_path));
    outputs.fanout_->Add(outputs.log_.get());
  }
  if (!report_path.empty()) {
    outputs.report_path_ = report_path;
    outputs.report_.reset(std::fopen(report_path.c_str(), "wb"));
    if (!outputs.report_) {
      return base::Status(base::kIoError, fmt::format("{}: cannot open the report: {}", report_path,
                                                      std::strerror(errno)));
    }
    outputs.timeline_ = std::make_unique<Timeline>();
    outputs.fanout_->Add(outputs.timeline_.get());
  }
  return outputs;
}

base::Status RunOutputs::Finish(const trace::CountedRun& run) {
  const base::Status log = log_ ? log_->Close() : base::Status();
  const base::Status report = report_ ? WriteReport(run) : base::Status();
  return log.ok() ? report : log;
}

base::Status RunOutputs::WriteReport(const trace::CountedRun& run) {
  const std::string html = ReportHtml(run, *timeline_);
  const bool written = std::fwrite(html.data(), 1, html.size(), report_.get()) == html.size();
  if (std::fclose(report_.release()) == 0 && written) return {};
  return base::Status(base::kIoError, fmt::format("{}: cannot write the report: {}", report_path_,
                                                  std::strerror(errno)));
}

}  // namespace forebay::report
