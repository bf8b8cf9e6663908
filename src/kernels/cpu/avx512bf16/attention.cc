#include "kernels/cpu/attention_inl.h"
#include "kernels/sets.h"

namespace forebay::kernels::avx512bf16 {

void Attention(const AttentionArgs& args, const device::WorkerContext& context) {
  AttendItems(args, context);
}

}  // namespace forebay::kernels::avx512bf16
