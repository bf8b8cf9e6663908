#include "kernels/cuda/launch/latent.h"

#include <algorithm>

#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/registry.h"

namespace forebay::kernels::cuda {

bool LaunchLatentAttention(const AttentionArgs& args, const AttentionParams& plain,
                           const device::LaunchContext& context) {
  const KvLayout& layout = args.layout;
  const auto most_blocks = static_cast<int64_t>(context.scratch_bytes) / kLatentPartsBytes;
  if (context.architecture != 90 || layout.form != PackedForm::kCuda || !layout.values_in_keys ||
      layout.key_dim != kLatentKeys || layout.value_dim != kLatentValues || args.score_cap > 0 ||
      args.sinks != nullptr || args.reach.window > 0 || args.reach.chunk > 0 || most_blocks == 0)
    return false;
  const int groups = (args.heads + kLatentHeads - 1) / kLatentHeads;
  const LatentParams params{
      .of = plain, .units = args.batch.num_rows * groups, .parts = context.scratch};
  const int64_t blocks = std::min<int64_t>({context.multiprocessors, params.units, most_blocks});
  static const device::CudaKernel& kernel = KernelNamed("mma_latent_512");
  context.Launch(kernel,
                 {.blocks = {static_cast<int>(blocks), 1, 1},
                  .threads = kLatentThreads,
                  .shared_bytes = kLatentSharedBytes},
                 params);
  return true;
}

}  // namespace forebay::kernels::cuda
