// Attention of classes `amx_*_p1024` on AMX tiles.
#include "kernels/attention.h"
#include "kernels/cpu/amx/attention_loop.h"
#include "kernels/cpu/amx/hardware_tiles.h"
#include "kernels/sets.h"

namespace forebay::kernels::amx {

void Attention(const AttentionArgs& args, const device::WorkerContext& context) {
  if (args.layout.dtype == tensor::DType::kF32) return avx512f::Attention(args, context);
  AttendOnTiles<HardwareTiles>(args, context);
}

}  // namespace forebay::kernels::amx
