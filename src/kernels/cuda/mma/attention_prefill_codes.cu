// Attention of many rows a sequence (prefill.h) over KV in one byte. Never run on a GPU.
#include "kernels/cuda/mma/prefill.h"

namespace forebay::kernels::cuda {

FB_KERNEL(mma_prefill_codes_128, PrefillParams, kPrefillThreads) { prefill::Prefill<true>(args); }

}  // namespace forebay::kernels::cuda
