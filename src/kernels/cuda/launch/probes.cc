#include "kernels/cuda/launch/probes.h"

#include "device/cuda/launch_context.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/trial/params.h"

namespace forebay::kernels::cuda {
namespace {

const device::LaunchContext& LaunchOf(const device::WorkerContext& context) {
  return static_cast<const device::LaunchContext&>(context);
}

}  // namespace

void Read(const ReadProbe& args, const device::WorkerContext& context) {
  const device::LaunchContext& launch = LaunchOf(context);
  const ReadTrialParams params{.data = reinterpret_cast<const uint32_t*>(args.data),
                               .words = args.bytes / 16,
                               .sum = reinterpret_cast<uint32_t*>(args.sums)};
  launch.Launch(KernelNamed("trial_read"),
                {.blocks = {launch.multiprocessors * 4, 1, 1}, .threads = 512}, params);
}

void Multiply(const FmaProbe& args, const device::WorkerContext& context) {
  const FmaTrialParams params{.rounds = args.rounds,
                              .factor = 0.999f,
                              .addend = 0.001f,
                              .sums = reinterpret_cast<float*>(args.sums)};
  LaunchOf(context).Launch(KernelNamed("trial_fma"),
                           {.blocks = {args.blocks, 1, 1}, .threads = kFmaThreads}, params);
}

double FlopsOf(const FmaProbe& args) {
  return 2.0 * args.blocks * kFmaThreads * kFmaChains * static_cast<double>(args.rounds);
}

}  // namespace forebay::kernels::cuda
