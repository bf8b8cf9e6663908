#include "kernels/latent_attention.h"

#include "kernels/digest.h"
#include "kernels/ref/row.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

// Rope on halves, rounded.
template <typename T>
void Turn(const LatentKvArgs& args, const float* x, int64_t position, T* out) {
  const int half = args.turned() / 2;
  for (int j = 0; j < half; ++j) {
    const float cosine = args.rope_cos[position * half + j],
                sine = args.rope_sin[position * half + j];
    out[j] = tensor::RoundTo<T>(std::fma(x[j], cosine, -(x[j + half] * sine)));
    out[j + half] = tensor::RoundTo<T>(std::fma(x[j + half], cosine, x[j] * sine));
  }
}

template <typename T>
void TransformRow(const LatentKvArgs& args, int64_t row) {
  const KvLayout& layout = args.layout;
  const int latent = layout.value_dim, turned = args.turned(), width = args.plain + turned;
  const int32_t position = args.batch.positions[row];
  const SequenceRows& sequence = args.batch.sequences[args.batch.row_sequence[row]];
  const uint32_t entry =
      args.batch
          .block_tables[sequence.table_row * args.batch.table_stride + position / kBlockTokens];
  const int slot = position % kBlockTokens;
  const float* x = args.kv + row * layout.key_dim;
  T key[kMaxKeyDim];
  const float inverse = InverseRms([x](int64_t j) { return x[j]; }, latent, args.norm_eps);
  for (int j = 0; j < latent; ++j) key[j] = tensor::RoundTo<T>(x[j] * inverse * args.kv_norm[j]);
  Turn(args, x + latent, position, key + latent);
  T* block = reinterpret_cast<T*>(args.layer.Block(entry, layout));
  for (int j = 0; j < layout.key_dim; ++j)
    block[(j / 2 * kBlockTokens + slot) * 2 + j % 2] = key[j];
  if (args.digests) {
    uint64_t digest = 0;
    if (args.digested_elsewhere == 0) {
      digest = DigestHash(key, layout.key_dim * static_cast<int64_t>(sizeof(T)),
                          KeyDigestKey(args.layer_index, 0, position));
    }
    KeepDigest(args, entry, slot, digest);
  }
  for (int32_t head = 0; head < args.heads; ++head) {
    const int64_t at = row * args.heads + head;
    const float* query = args.queries + at * width;
    T* q = reinterpret_cast<T*>(args.q) + at * width;
    for (int j = 0; j < args.plain; ++j) q[j] = tensor::RoundTo<T>(query[j]);
    Turn(args, query + args.plain, position, q + args.plain);
    T* absorbed = reinterpret_cast<T*>(args.absorbed) + at * layout.key_dim + latent;
    for (int j = 0; j < turned; ++j) absorbed[j] = q[args.plain + j];
  }
}

template <typename T>
void GatherBlock(const GatherLatentsArgs& args, int64_t index) {
  const int64_t width = args.layout.key_dim;
  const T* block = reinterpret_cast<const T*>(args.layer.Block(args.blocks[index], args.layout));
  T* out = reinterpret_cast<T*>(args.out) + index * kBlockTokens * width;
  for (int64_t slot = 0; slot < kBlockTokens; ++slot) {
    for (int64_t j = 0; j < width; ++j)
      out[slot * width + j] = block[(j / 2 * kBlockTokens + slot) * 2 + j % 2];
  }
}

// A head of a position of a block.
template <typename T>
void StorePosition(const StoreExpandedArgs& args, int64_t index, int64_t head, int64_t slot) {
  const KvLayout& layout = args.layout;
  const int64_t row = index * kBlockTokens + slot, at = row * layout.kv_heads + head;
  T* const k =
      reinterpret_cast<T*>(args.blocks) + (index * layout.kv_heads + head) * layout.HeadElements();
  T* const v = k + int64_t{kBlockTokens} * layout.key_dim;
  const T* const plain = reinterpret_cast<const T*>(args.keys) + at * args.plain;
  const T* const turned =
      reinterpret_cast<const T*>(args.latents) + (row + 1) * args.latent_dim - args.turned();
  const T* const values = reinterpret_cast<const T*>(args.values) + at * layout.value_dim;
  for (int64_t j = 0; j < layout.key_dim; ++j)
    k[(j / 2 * kBlockTokens + slot) * 2 + j % 2] =
        j < args.plain ? plain[j] : turned[j - args.plain];
  for (int64_t j = 0; j < layout.value_dim; ++j)
    v[(slot / 2 * layout.value_dim + j) * 2 + slot % 2] = values[j];
}

}  // namespace

void GatherLatents(const GatherLatentsArgs& args, const device::WorkerContext& context) {
  const device::Range blocks = StaticPart(context, args.num_blocks);
  for (int64_t index = blocks.begin; index < blocks.end; ++index) {
    args.layout.dtype == tensor::DType::kF32 ? GatherBlock<float>(args, index)
                                             : GatherBlock<tensor::BF16>(args, index);
  }
}

void StoreExpanded(const StoreExpandedArgs& args, const device::WorkerContext& context) {
  const device::Range blocks = StaticPart(context, args.num_blocks);
  for (int64_t index = blocks.begin; index < blocks.end; ++index) {
    for (int64_t at = 0; at < args.layout.kv_heads * int64_t{kBlockTokens}; ++at) {
      const int64_t head = at / kBlockTokens, slot = at % kBlockTokens;
      args.layout.dtype == tensor::DType::kF32
          ? StorePosition<float>(args, index, head, slot)
          : StorePosition<tensor::BF16>(args, index, head, slot);
    }
  }
}

void LatentKv(const LatentKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.batch.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.layout.dtype == tensor::DType::kF32 ? TransformRow<float>(args, row)
                                             : TransformRow<tensor::BF16>(args, row);
  }
}

}  // namespace forebay::kernels::ref
