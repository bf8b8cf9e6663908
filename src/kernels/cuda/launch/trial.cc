#include "kernels/cuda/launch/trial.h"

#include <fmt/core.h>

#include <bit>
#include <cstring>
#include <vector>

#include "device/cuda/launch_context.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/trial/adversary.h"
#include "kernels/cuda/trial/params.h"
#include "kernels/kernel_set.h"
#include "kernels/ref/mma.h"

namespace forebay::kernels::cuda {
namespace {

using tensor::BF16;

constexpr int kDepth = 16;

struct Trial {
  const char* kernel;
  int rows, columns, threads, shared_bytes, blocks;

  size_t outputs() const { return static_cast<size_t>(blocks * rows * columns); }
};
constexpr Trial kTrials[] = {
    {"trial_mma", kMmaTrialRows, kMmaTrialColumns, 32, 0, 32},
    {"trial_wgmma", kWgmmaTrialRows, kWgmmaTrialColumns, 128, 2 * 8192, 2},
};

struct LaunchArgs {
  const Trial* trial;
  StepTrialParams params;
  bool* launched;
};
void LaunchTrial(const LaunchArgs& args, const device::WorkerContext& worker) {
  const auto& context = static_cast<const device::LaunchContext&>(worker);
  const device::CudaKernel& kernel = KernelNamed(args.trial->kernel);
  if (context.architecture != 90 && kernel.least_architecture == 90) return;
  *args.launched = true;
  context.Launch(kernel,
                 {.blocks = {args.trial->blocks, 1, 1},
                  .threads = args.trial->threads,
                  .shared_bytes = args.trial->shared_bytes},
                 args.params);
}

// d of a block, by ref/.
void StepsOfBlock(const Trial& trial, const BF16* a, const BF16* b, const float* c, float* d) {
  std::vector<BF16> pairs(static_cast<size_t>(kDepth * trial.columns));  // as a tile has them
  for (int column = 0; column < trial.columns; ++column) {
    for (int k = 0; k < kDepth; ++k)
      pairs[static_cast<size_t>((k / 2 * trial.columns + column) * 2 + k % 2)] =
          b[column * kDepth + k];
  }
  for (int row = 0; row < trial.rows; ++row, d += trial.columns) {
    std::copy_n(c + row * trial.columns, trial.columns, d);
    ref::AddMmaSteps(MmaOrder::kK16F25, a + row * kDepth, 0, kDepth, pairs.data(), trial.columns,
                     d);
  }
}

base::Status Try(device::Device& device, const Trial& trial) {
  const size_t a_values = static_cast<size_t>(trial.blocks * trial.rows * kDepth),
               b_values = static_cast<size_t>(trial.blocks * trial.columns * kDepth);
  const uint64_t bytes = (a_values + b_values) * sizeof(BF16) + 2 * trial.outputs() * sizeof(float);
  const auto arena = device.NewHostArena(bytes + (4 << 20));
  FB_ASSIGN_OR_RETURN(const device::Region* region,
                      arena->Allocate("trial of tensor cores", bytes + 256));
  device::RegionCutter cutter(*region);
  auto* const a = reinterpret_cast<BF16*>(cutter.Cut(a_values * sizeof(BF16)));
  auto* const b = reinterpret_cast<BF16*>(cutter.Cut(b_values * sizeof(BF16)));
  auto* const c = reinterpret_cast<float*>(cutter.Cut(trial.outputs() * sizeof(float)));
  auto* const d = reinterpret_cast<float*>(cutter.Cut(trial.outputs() * sizeof(float)));
  Adversary adversary(11);
  std::vector<float> expected(trial.outputs());
  for (int block = 0; block < trial.blocks; ++block) {
    const int spread = 1 + block % 4 * 10, outputs = trial.rows * trial.columns;
    BF16* const a_block = a + block * trial.rows * kDepth;
    BF16* const b_block = b + block * trial.columns * kDepth;
    for (int i = 0; i < trial.rows * kDepth; ++i) a_block[i].bits = adversary.BF16(spread);
    for (int i = 0; i < trial.columns * kDepth; ++i) b_block[i].bits = adversary.BF16(spread);
    for (int i = 0; i < outputs; ++i) c[block * outputs + i] = adversary.Sum(spread);
    StepsOfBlock(trial, a_block, b_block, c + block * outputs, expected.data() + block * outputs);
  }
  bool launched = false;
  const LaunchArgs args{&trial,
                        {.a = reinterpret_cast<const uint16_t*>(a),
                         .b = reinterpret_cast<const uint16_t*>(b),
                         .c = c,
                         .d = d},
                        &launched};
  cost::OpDesc desc;
  desc.label = "trial of tensor cores";
  device.compute().Enqueue(device::MakeOperation(desc, args, &LaunchTrial));
  FB_RETURN_IF_ERROR(device.Synchronize(device.compute()));
  for (size_t i = 0; i < expected.size() && launched; ++i) {
    const auto ours = std::bit_cast<uint32_t>(expected[i]), found = std::bit_cast<uint32_t>(d[i]);
    if (ours == found) continue;
    return {
        kNumericsUnavailable,
        fmt::format("--numerics {}: this GPU's tensor cores sum in another order: {} gave {:08x} "
                    "for output {}, {:08x} was expected; expected --numerics pair",
                    NumericsClassOf(MmaOrder::kK16F25), trial.kernel, found, i, ours)};
  }
  return {};
}

}  // namespace

base::Status TryTensorCores(device::Device& device) {
  for (const Trial& trial : kTrials) FB_RETURN_IF_ERROR(Try(device, trial));
  return {};
}

}  // namespace forebay::kernels::cuda
