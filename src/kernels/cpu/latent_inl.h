// What latent attention does row by row, with this file's instruction set; see
// kernels/latent_attention.h.
#pragma once

#include "kernels/cpu/rows_inl.h"
#include "kernels/latent_attention.h"

namespace forebay::kernels {
namespace {

// The latent and the turned key of a block's rows to their slots; adds to their digests.
template <typename T>
FB_INLINE void TransformLatents(const LatentKvArgs& args, const BlockRows<T>& rows,
                                std::byte* scratch) {
  const int latent = args.layout.value_dim, width = args.layout.key_dim;
  T* const keys = reinterpret_cast<T*>(scratch);
  for (int r = 0; r < rows.rows; ++r) {
    const float* x = args.kv + (rows.row + r) * width;
    T* const key = keys + r * width;
    const Vector inverse = Vector::Set(InverseRms(x, latent, args.norm_eps));
    for (int j = 0; j < latent; j += kLanes) {
      const int rest = latent - j;
      StorePart(key + j, LoadPart(x + j, rest) * inverse * LoadPart(args.kv_norm + j, rest), rest);
    }
    TurnHalves(args, x + latent, args.turned() / 2, rows.position + r, key + latent);
    if (args.digests == nullptr) continue;
    uint64_t& sum =
        args.digests[(rows.entry & ~kWindowBit) * int64_t{kBlockTokens} + rows.slot + r];
    const uint64_t digest = DigestHash(key, width * static_cast<int64_t>(sizeof(T)),
                                       KeyDigestKey(args.layer_index, 0, rows.position + r));
    sum = args.first_layer ? digest : sum + digest;
  }
  StoreKeys(keys, rows.rows, rows.slot, width, rows.block);
}

template <typename T>
FB_INLINE void TransformQueries(const LatentKvArgs& args, int64_t row) {
  const int plain = args.plain, turned = args.turned(), width = plain + turned;
  const int64_t key_dim = args.layout.key_dim;
  const int64_t position = args.batch.positions[row];
  for (int64_t head = row * args.heads; head < (row + 1) * args.heads; ++head) {
    const float* const query = args.queries + head * width;
    T* const q = reinterpret_cast<T*>(args.q) + head * width;
    for (int j = 0; j < plain; j += kLanes)
      StorePart(q + j, LoadPart(query + j, plain - j), plain - j);
    TurnHalves(args, query + plain, turned / 2, position, q + plain);
    T* const absorbed = reinterpret_cast<T*>(args.absorbed) + head * key_dim + key_dim - turned;
    __builtin_memcpy(absorbed, q + plain, static_cast<size_t>(turned) * sizeof(T));
  }
}

template <typename T>
void TransformLatentRows(const LatentKvArgs& args, device::Range range, std::byte* scratch) {
  for (int64_t row = range.begin; row < range.end;) {
    const BlockRows<T> rows = RowsOfBlock<T>(args, row, range.end);
    TransformLatents(args, rows, scratch);
    for (int r = 0; r < rows.rows; ++r) TransformQueries<T>(args, row + r);
    row += rows.rows;
  }
}

void TransformAllLatents(const LatentKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.batch.num_rows);
  args.layout.dtype == tensor::DType::kF32 ? TransformLatentRows<float>(args, rows, context.scratch)
                                           : TransformLatentRows<BF16>(args, rows, context.scratch);
}

}  // namespace
}  // namespace forebay::kernels
