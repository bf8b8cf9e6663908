// Copies whose extent is in memory (device/copy.h): of items that have rows, of rows in parts.
//
// Bytes: what is copied, read and written once. Limit: memory, or the link to a peer's.
#include "device/cuda/copy_params.h"
#include "kernels/cuda/pair/move.h"

namespace forebay::kernels::cuda {

using device::CopyItemsParams;
using device::GatherRowsParams;

FB_KERNEL(pair_copy_items, CopyItemsParams, device::kCopyThreads) {
  const int item = gpu::BlockX();
  if (args.offsets[item] == args.offsets[item + 1]) return;
  const uint64_t begin = gpu::BlockY() * device::kCopyPieceBytes;
  const uint64_t left = args.item_bytes - begin;
  const uint64_t at = item * args.item_bytes + begin;
  MoveBytes(args.to + at, args.from + at,
            left < device::kCopyPieceBytes ? left : device::kCopyPieceBytes);
}

FB_KERNEL(pair_gather_rows, GatherRowsParams, device::kCopyThreads) {
  const int32_t row = args.offsets[args.borders[0]] + gpu::BlockX();
  int part = 0;
  while (part < args.num_parts && row >= args.offsets[args.borders[part + 1]]) ++part;
  if (part == args.num_parts) return;
  const uint64_t at = row * args.row_bytes;
  MoveBytes(args.to + at, args.parts[part] + at, args.row_bytes);
}

}  // namespace forebay::kernels::cuda
