// Linear layers of bf16 on AMX tiles.
#include "kernels/cpu/amx/hardware_tiles.h"
#include "kernels/expand.h"

namespace forebay::kernels {
namespace {
constexpr ExpandFunction kExpand = &avx512bf16::Expand;  // which every machine with tiles has
}  // namespace
}  // namespace forebay::kernels

#include "kernels/cpu/amx/tile_loop.h"

namespace forebay::kernels {
namespace amx {

void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  if (IsInt8(args.weight)) return avx512bf16::Linear(args, context);
  if (args.weight.dtype != tensor::DType::kBF16) return avx512f::Linear(args, context);
  RunTileLinear<HardwareTiles>(args, context);
}

void Experts(const ExpertsArgs& args, const device::WorkerContext& context) {
  if (IsInt8(args.weight)) return avx512bf16::Experts(args, context);
  if (args.weight.dtype != tensor::DType::kBF16) return avx512f::Experts(args, context);
  RunTileExperts<HardwareTiles>(args, context);
}

}  // namespace amx
}  // namespace forebay::kernels
