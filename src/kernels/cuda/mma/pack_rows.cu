// Activations as linear_small and linear_many read them: rows of x become chunks
// (kernels/packed_form.h), each leaf of K padded with +0 to whole ones. A block has a chunk.
//
// Bytes: x once, and its chunks. Limit: memory.
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/mma/params.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kGranule = 8;  // elements of 16 bytes
struct alignas(16) Granule {
  uint16_t of[kGranule];
};

}  // namespace

FB_KERNEL(mma_pack_rows, PackRowsParams, kPackThreads) {
  const int chunk = gpu::BlockX(), block = gpu::BlockY();
  int leaf = 0;
  while (chunk >= args.chunk_begin[leaf + 1]) ++leaf;
  const int begin = args.leaf_begin[leaf] + (chunk - args.chunk_begin[leaf]) * kChunkSide;
  const int left = args.leaf_begin[leaf + 1] - begin;
  std::byte* const to =
      args.chunks + (int64_t{block} * args.chunk_begin[args.num_leaves] + chunk) * kChunkBytes;
  for (int i = gpu::Tid(); i < kChunkSide * kChunkSide / kGranule; i += kPackThreads) {
    const int row = i / kGranule, k = i % kGranule * kGranule;
    if (block * kChunkSide + row >= args.rows) break;
    const auto* const from = reinterpret_cast<const uint16_t*>(args.x) +
                             (int64_t{block} * kChunkSide + row) * args.x_stride + begin + k;
    Granule granule{};
    if (k + kGranule <= left && reinterpret_cast<uintptr_t>(from) % sizeof(Granule) == 0) {
      granule = *reinterpret_cast<const Granule*>(from);
    } else {
      for (int e = 0; e < kGranule; ++e) granule.of[e] = k + e < left ? from[e] : 0;
    }
    *reinterpret_cast<Granule*>(to + InChunk(row, k)) = granule;
  }
}

}  // namespace forebay::kernels::cuda
