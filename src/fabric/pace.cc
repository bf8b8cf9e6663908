#include "fabric/pace.h"

#include <cmath>

#include "base/check.h"

namespace forebay::fabric {
namespace {

struct HoldArgs {
  runtime::Runtime* runtime;
  runtime::TimeNs time;
};

// Sleeping would take longer than most meetings do.
void Hold(const HoldArgs& args, const device::WorkerContext& context) {
  if (context.worker != 0) return;
  const runtime::TimeNs end = args.runtime->Now() + args.time;
  while (args.runtime->Now() < end) args.runtime->Yield();
}

}  // namespace

void Pace(device::Stream& stream, uint64_t bytes, const LinkPace& pace) {
  FB_CHECK(!pace.runtime->is_virtual(), "a paced link in virtual time, which does not pass");
  const double seconds = static_cast<double>(bytes) / pace.bytes_per_s;
  const HoldArgs args{pace.runtime, std::llround(1e9 * seconds)};
  stream.Enqueue(
      device::MakeOperation<&Hold>({.kind = cost::OpKind::kOther, .label = "pace"}, args));
}

}  // namespace forebay::fabric
