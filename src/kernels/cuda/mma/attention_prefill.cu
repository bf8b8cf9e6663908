// Attention of many rows a sequence (prefill.h) over KV of bf16.
#include "kernels/cuda/mma/prefill.h"

namespace forebay::kernels::cuda {

FB_KERNEL(mma_prefill_128, PrefillParams, kPrefillThreads) { prefill::Prefill<false>(args); }

}  // namespace forebay::kernels::cuda
