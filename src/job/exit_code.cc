#include "job/exit_code.h"

#include <algorithm>
#include <utility>

#include "choose/printed_plan.h"
#include "choose/stream_choice.h"
#include "cost/profile.h"
#include "job/files/merge.h"
#include "job/files/output_check.h"
#include "job/files/results_log.h"
#include "job/job.h"
#include "job/lines/job_defaults.h"
#include "kernels/kernel_set.h"
#include "kv/tier/block_file.h"
#include "layout/job_plan.h"
#include "layout/memory_plan.h"
#include "layout/options.h"
#include "layout/plan_checks.h"
#include "layout/shift_plan.h"
#include "schedule/policy.h"
#include "share/ship_plan.h"
#include "weights/book/pool_schedule.h"

namespace forebay::job {
namespace {

// Errors of what flags say, alone, together or of the model.
constexpr base::ErrorCode kOfFlags[] = {
    base::kInvalidArgument,     kDefaultsInvalid,         kOutputTaken,
    cost::kProfileUnknown,      kernels::kIsaUnavailable, kernels::kNumericsUnavailable,
    kv::kKvFileInvalid,         layout::kCannotRoute,     choose::kCannotStream,
    layout::kDevicesInvalid,    layout::kKvCacheDtype,    layout::kKvFileSize,
    layout::kLayoutDevices,     layout::kLayoutInvalid,   layout::kLayoutPool,
    layout::kMaxModelLen,       choose::kNotOfAMachine,   layout::kOffloadingSize,
    layout::kQuantization,      layout::kRolesInvalid,    layout::kShiftInvalid,
    model::kLayoutExperts,      model::kRoutingInvalid,   model::kShardHeads,
    model::kShardLayers,        model::kShardLeaves,      schedule::kUnknownPolicy,
    share::kCannotShip,         weights::kCannotPlace,    weights::kTooFewSlots,
    weights::kUnknownPlacement,
};

}  // namespace

std::string_view Name(ExitCode code) {
  switch (code) {
    case ExitCode::kComplete: return "complete";
    case ExitCode::kDrained: return "drained";
    case ExitCode::kAborted: return "aborted";
    case ExitCode::kStalled: return "stalled";
    case ExitCode::kAllFailed: return "all_failed";
    default: return "failed";
  }
}

ExitCode ExitCodeOf(RunEnd end) {
  switch (end) {
    case RunEnd::kComplete: return ExitCode::kComplete;
    case RunEnd::kDrained: return ExitCode::kDrained;
    case RunEnd::kAborted: return ExitCode::kAborted;
    case RunEnd::kStalled: return ExitCode::kStalled;
    case RunEnd::kSinkFailed: break;
  }
  return ExitCode::kError;
}

ExitCode ExitCodeOf(const base::Status& status) {
  constexpr std::pair<base::ErrorCode, ExitCode> kCodes[] = {
      {base::kOkCode, ExitCode::kComplete},
      {kInputUnreadable, ExitCode::kBadInput},
      {kInputChanged, ExitCode::kBadInput},
      {kBadLines, ExitCode::kBadInput},
      {kResultsIo, ExitCode::kResultsIo},
      {kResultsReplaced, ExitCode::kResultsIo},
      {kResultsLocked, ExitCode::kResultsLocked},
      {kResultsInvalid, ExitCode::kResultsMismatch},
      {kResultsMismatch, ExitCode::kResultsMismatch},
      {kResultsDiffer, ExitCode::kResultsMismatch},
      {kStalled, ExitCode::kStalled},
      {kAllLinesFailed, ExitCode::kAllFailed},
  };
  for (const auto& [code, exit_code] : kCodes) {
    if (status.code() == code) return exit_code;
  }
  if (std::ranges::count(kOfFlags, status.code()) > 0) return ExitCode::kUsage;
  return ExitCode::kError;
}

}  // namespace forebay::job
