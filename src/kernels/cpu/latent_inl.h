// What latent attention does row by row, with this file's instruction set; see
// kernels/latent_attention.h.
#pragma once

#include "kernels/cpu/rows_inl.h"
#include "kernels/latent_attention.h"

namespace forebay::kernels {
namespace {

// The latent and the turned key of a block's rows to their slots; adds to their digests.
template <typename T>
FB_INLINE void TransformLatents(const LatentKvArgs& args, const BlockRows& rows,
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
    uint64_t digest = 0;
    if (args.digested_elsewhere == 0) {
      digest = DigestHash(key, width * static_cast<int64_t>(sizeof(T)),
                          KeyDigestKey(args.layer_index, 0, rows.position + r));
    }
    KeepDigest(args, rows.entry, rows.slot + r, digest);
  }
  StoreKeys(keys, rows.rows, rows.slot, width, reinterpret_cast<T*>(rows.block));
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
    const BlockRows rows = RowsOfBlock<T>(args, row, range.end);
    TransformLatents<T>(args, rows, scratch);
    for (int r = 0; r < rows.rows; ++r) TransformQueries<T>(args, row + r);
    row += rows.rows;
  }
}

void TransformAllLatents(const LatentKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.batch.num_rows);
  args.layout.dtype == tensor::DType::kF32 ? TransformLatentRows<float>(args, rows, context.scratch)
                                           : TransformLatentRows<BF16>(args, rows, context.scratch);
}

// The key of StoreKeys as rows [kBlockTokens, width].
template <typename T>
FB_INLINE void LoadKeys(const T* keys, int width, T* rows) {
  int j = 0;
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(BF16)) {
    for (; j + 2 * kLanes <= width; j += 2 * kLanes) {
      for (int slot = 0; slot < kBlockTokens; slot += kLanes) {
        TransposePairs(keys + (j / 2 * kBlockTokens + slot) * 2, 2 * kBlockTokens, kLanes,
                       rows + slot * width + j, width);
      }
    }
  }
#endif
  for (; j < width; j += 2) {
    for (int slot = 0; slot < kBlockTokens; ++slot) {
      __builtin_memcpy(rows + slot * width + j, keys + (j / 2 * kBlockTokens + slot) * 2,
                       2 * sizeof(T));
    }
  }
}

template <typename T>
void GatherBlocks(const GatherLatentsArgs& args, device::Range blocks) {
  const int64_t width = args.layout.key_dim;
  for (int64_t i = blocks.begin; i < blocks.end; ++i) {
    LoadKeys(reinterpret_cast<const T*>(LayerPart<T>(args.layer, args.layout, args.blocks[i])),
             args.layout.key_dim, reinterpret_cast<T*>(args.out) + i * kBlockTokens * width);
  }
}

void GatherAllLatents(const GatherLatentsArgs& args, const device::WorkerContext& context) {
  const device::Range blocks = OwnRows(context, args.num_blocks);
  args.layout.dtype == tensor::DType::kF32 ? GatherBlocks<float>(args, blocks)
                                           : GatherBlocks<BF16>(args, blocks);
}

// Head `item` % heads of block `item` / heads.
template <typename T>
FB_INLINE void StoreHead(const StoreExpandedArgs& args, int64_t item, std::byte* scratch) {
  const int64_t heads = args.layout.kv_heads;
  const int key_dim = args.layout.key_dim, value_dim = args.layout.value_dim, plain = args.plain,
            turned = args.turned();
  T* const k = reinterpret_cast<T*>(scratch);
  T* const v = k + kBlockTokens * key_dim;
  for (int r = 0; r < kBlockTokens; ++r) {
    const int64_t row = item / heads * kBlockTokens + r, at = row * heads + item % heads;
    __builtin_memcpy(k + r * key_dim, reinterpret_cast<const T*>(args.keys) + at * plain,
                     plain * sizeof(T));
    __builtin_memcpy(
        k + r * key_dim + plain,
        reinterpret_cast<const T*>(args.latents) + (row + 1) * args.latent_dim - turned,
        turned * sizeof(T));
    __builtin_memcpy(v + r * value_dim, reinterpret_cast<const T*>(args.values) + at * value_dim,
                     value_dim * sizeof(T));
  }
  T* const keys = reinterpret_cast<T*>(args.blocks) + item * args.layout.HeadElements();
  StoreKeys(k, kBlockTokens, 0, key_dim, keys);
  StoreValues(v, kBlockTokens, 0, value_dim, keys + kBlockTokens * key_dim);
}

void StoreAllExpanded(const StoreExpandedArgs& args, const device::WorkerContext& context) {
  const device::Range items = OwnRows(context, int64_t{args.num_blocks} * args.layout.kv_heads);
  for (int64_t item = items.begin; item < items.end; ++item) {
    args.layout.dtype == tensor::DType::kF32 ? StoreHead<float>(args, item, context.scratch)
                                             : StoreHead<BF16>(args, item, context.scratch);
  }
}

}  // namespace
}  // namespace forebay::kernels
