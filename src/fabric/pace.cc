#include "fabric/pace.h"

#include <cmath>

#include "base/check.h"

namespace forebay::fabric {
namespace {

struct HoldArgs {
  runtime::Runtime* runtime;
  runtime::TimeNs time;
};

void Sleep(const HoldArgs& args, const device::WorkerContext& context) {
  if (context.worker == 0) args.runtime->Sleep(args.time);
}

// Sleeping would take longer than most meetings do.
void Spin(const HoldArgs& args, const device::WorkerContext& context) {
  if (context.worker != 0) return;
  const runtime::TimeNs end = args.runtime->Now() + args.time;
  while (args.runtime->Now() < end) args.runtime->Yield();
}

}  // namespace

runtime::TimeNs TimeOf(uint64_t bytes, const LinkPace& pace) {
  if (pace.bytes_per_s == 0) return 0;
  return std::llround(1e9 * static_cast<double>(bytes) / pace.bytes_per_s);
}

void Hold(device::Stream& stream, runtime::Runtime& runtime, runtime::TimeNs time,
          const char* label) {
  stream.Enqueue(device::MakeOperation<&Sleep>({.kind = cost::OpKind::kOther, .label = label},
                                               HoldArgs{&runtime, time}));
}

void Pace(device::Stream& stream, uint64_t bytes, const LinkPace& pace) {
  FB_CHECK(!pace.runtime->is_virtual(), "a paced link in virtual time, which does not pass");
  const HoldArgs args{pace.runtime, TimeOf(bytes, pace)};
  stream.Enqueue(
      device::MakeOperation<&Spin>({.kind = cost::OpKind::kOther, .label = "pace"}, args));
}

}  // namespace forebay::fabric
