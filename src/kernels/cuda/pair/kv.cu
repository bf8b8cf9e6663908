// What goes into the KV cache and its digests: rope_kv, rope_rows, store_kv (kernels/attention.h,
// kernels/cut_rows.h), latent_kv, gather_latents, store_expanded (kernels/latent_attention.h).
//
// Bytes: each input and output once. Limit: memory.
#include "kernels/cuda/pair/arithmetic.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kPositions = 32;
constexpr uint32_t kInWindow = 0x80000000u;
constexpr int kWarpsOfRow = kRowThreads / gpu::kWarpLanes;
enum : uint64_t { kKeyDigest = 1, kValueDigest = 2 };

// Where a row's K and V go.
struct Slot {
  uint32_t entry;
  std::byte* block;
  int slot;
};
FB_DEVICE Slot SlotOf(const StepBatch& batch, const KvParams& kv, int32_t row) {
  const int32_t position = batch.positions[row];
  const SequenceRows& sequence = batch.sequences[batch.row_sequence[row]];
  const uint32_t entry =
      batch.block_tables[sequence.table_row * batch.table_stride + position / kPositions];
  const auto index = static_cast<int64_t>(entry & ~kInWindow);
  return {entry,
          (entry & kInWindow) != 0 ? kv.window + index * kv.layer_bytes
                                   : kv.resident + index * kv.block_stride,
          position % kPositions};
}

FB_DEVICE void KeepDigest(const DigestParams& args, const Slot& slot, uint64_t digest) {
  uint64_t& sum = args.digests[(slot.entry & ~kInWindow) * int64_t{kPositions} + slot.slot];
  sum = args.first_layer ? digest : sum + digest;
}

// A head of q or k by one warp: after its norm, rope, the norm behind rope and the scale; fp32.
struct Head {
  const float* x;
  const float* weight;  // of the norm before rope; null: none
  const float* behind;  // of the one behind it; null: without
  const float* cosines;
  const float* sines;  // of the position; null: no rope
  int half;
  float inverse, norm, scale;

  FB_DEVICE float Normed(int j) const {
    return weight != nullptr ? x[j] * inverse * weight[j] : x[j];
  }
  FB_DEVICE float Turned(int j) const {
    if (cosines == nullptr) return Normed(j);
    if (j < half) {
      return gpu::Fma(Normed(j), cosines[j], -(Normed(j + half) * sines[j]));
    }
    return gpu::Fma(Normed(j), cosines[j - half], Normed(j - half) * sines[j - half]);
  }
  FB_DEVICE float operator()(int j) const {
    const float normed = Turned(j) * norm;
    return (behind != nullptr ? normed * behind[j] : normed) * scale;
  }
};

FB_DEVICE Head HeadOf(const RopeParams& args, const float* x, const float* weight, int64_t position,
                      float scale) {
  const int half = args.head_dim / 2;
  const bool turns = args.rope_cos != nullptr;
  Head head{x,
            args.norm_after ? nullptr : weight,
            args.norm_after ? weight : nullptr,
            turns ? args.rope_cos + position * half : nullptr,
            turns ? args.rope_sin + position * half : nullptr,
            half,
            0,
            1,
            scale};
  if (head.weight != nullptr)
    head.inverse = InverseRmsOf([&](int j) { return x[j]; }, args.head_dim, args.norm_eps);
  if (args.norm_after) {
    head.norm = InverseRmsOf([&](int j) { return head.Turned(j); }, args.head_dim, args.norm_eps);
  }
  return head;
}
FB_DEVICE float QueryScale(const RopeParams& args, int64_t position) {
  return args.q_scale != nullptr ? args.q_scale[position] : 1.0f;
}

// Calls put(j, element) for the elements of a head and returns the hash of all; by one warp.
template <typename T, typename At, typename Put>
FB_DEVICE uint64_t PutHashed(int elements, uint64_t key, At at, Put put) {
  constexpr int kPer = kPerWord<T>;
  uint64_t sum = 0;
  for (int word = gpu::Lane(); word * kPer < elements; word += gpu::kWarpLanes) {
    uint64_t bits = 0;
    for (int i = 0; i < kPer && word * kPer + i < elements; ++i) {
      const T value = at(word * kPer + i);
      put(word * kPer + i, value);
      bits |= WordBits(value, i);
    }
    sum += DigestProduct(bits, word);
  }
  return base::Mix64(key + WarpSum(sum));
}

// K (or V) head `head` of a row into its slot; its hash, 0 where another rank has it.
template <typename T, typename At>
FB_DEVICE uint64_t KeepKey(const KvParams& kv, const DigestParams& digest, const Slot& slot,
                           int head, int32_t position, At at) {
  T* const keys = As<T>(slot.block + head * kv.head_bytes);
  const uint64_t hash = PutHashed<T>(
      kv.key_dim,
      DigestKeyOf(kKeyDigest, digest.layer_index, digest.first_kv_head + head, position), at,
      [&](int j, T value) { keys[(j / 2 * kPositions + slot.slot) * 2 + j % 2] = value; });
  return head >= digest.digested_elsewhere ? hash : 0;
}
template <typename T, typename At>
FB_DEVICE uint64_t KeepValue(const KvParams& kv, const DigestParams& digest, const Slot& slot,
                             int head, int32_t position, At at) {
  T* const values = As<T>(slot.block + head * kv.head_bytes) + kv.key_dim * kPositions;
  const uint64_t hash = PutHashed<T>(
      kv.key_dim,
      DigestKeyOf(kValueDigest, digest.layer_index, digest.first_kv_head + head, position), at,
      [&](int j, T value) {
        values[(slot.slot / 2 * kv.key_dim + j) * 2 + slot.slot % 2] = value;
      });
  return head >= digest.digested_elsewhere ? hash : 0;
}

// A warp has each hash in all lanes; a row's sum of them is kept by one thread.
FB_DEVICE void KeepRowDigest(const DigestParams& digest, const Slot& slot, uint64_t hashes,
                             uint64_t* shared) {
  if (digest.digests == nullptr) return;
  const uint64_t sum = BlockSum(gpu::Lane() == 0 ? hashes : 0, shared);
  if (gpu::Tid() == 0) KeepDigest(digest, slot, sum);
}

template <typename T>
FB_DEVICE void RopeKv(const RopeKvParams& args, uint64_t* shared) {
  const int32_t row = gpu::BlockX();
  const RopeParams& rope = args.rope;
  const int head_dim = rope.head_dim, kv_heads = args.kv.kv_heads;
  const int32_t position = args.batch.positions[row];
  const Slot slot = SlotOf(args.batch, args.kv, row);
  const float* const qkv = args.rope.qkv + row * int64_t{rope.heads + 2 * kv_heads} * head_dim;
  uint64_t hashes = 0;
  for (int i = gpu::Warp(); i < rope.heads + 2 * kv_heads; i += kWarpsOfRow) {
    const float* const x = qkv + i * head_dim;
    if (i < rope.heads) {
      const Head head = HeadOf(rope, x, rope.q_norm, position, QueryScale(rope, position));
      T* const q = As<T>(args.q) + (int64_t{row} * rope.heads + i) * head_dim;
      for (int j = gpu::Lane(); j < head_dim; j += gpu::kWarpLanes) q[j] = RoundTo<T>(head(j));
    } else if (i < rope.heads + kv_heads) {
      const Head head = HeadOf(rope, x, rope.k_norm, position, 1.0f);
      hashes += KeepKey<T>(args.kv, args.digest, slot, i - rope.heads, position,
                           [&](int j) { return RoundTo<T>(head(j)); });
    } else {
      hashes += KeepValue<T>(args.kv, args.digest, slot, i - rope.heads - kv_heads, position,
                             [&](int j) { return RoundTo<T>(x[j]); });
    }
  }
  KeepRowDigest(args.digest, slot, hashes, shared);
}

template <typename T>
FB_DEVICE void RopeRows(const RopeRowsParams& args) {
  const int64_t row = gpu::BlockX();
  const RopeParams& rope = args.rope;
  const int head_dim = rope.head_dim;
  const int64_t position = args.positions[row];
  const RopeRowsParams::Reader& reader = args.readers[gpu::BlockY()];
  const float* const x = rope.qkv + row * (rope.heads + 2 * rope.kv_heads) * head_dim;
  const float* const k = x + (rope.heads + reader.first_kv_head) * head_dim;
  T* const q_out = As<T>(reader.out) + row * reader.heads * head_dim;
  T* const kv_out = As<T>(reader.out) +
                    (int64_t{args.num_rows} * reader.heads + row * 2 * reader.kv_heads) * head_dim;
  for (int i = gpu::Warp(); i < reader.heads + 2 * reader.kv_heads; i += kWarpsOfRow) {
    if (i >= reader.heads + reader.kv_heads) {
      const int at = (i - reader.heads - reader.kv_heads) * head_dim;
      const float* const v = k + rope.kv_heads * head_dim;
      for (int j = gpu::Lane(); j < head_dim; j += gpu::kWarpLanes)
        kv_out[reader.kv_heads * head_dim + at + j] = RoundTo<T>(v[at + j]);
      continue;
    }
    const bool query = i < reader.heads;
    const int at = (query ? i : i - reader.heads) * head_dim;
    const Head head = query ? HeadOf(rope, x + reader.first_head * head_dim + at, rope.q_norm,
                                     position, QueryScale(rope, position))
                            : HeadOf(rope, k + at, rope.k_norm, position, 1.0f);
    T* const out = query ? q_out : kv_out;
    for (int j = gpu::Lane(); j < head_dim; j += gpu::kWarpLanes) out[at + j] = RoundTo<T>(head(j));
  }
}

template <typename T>
FB_DEVICE void StoreKv(const StoreKvParams& args, uint64_t* shared) {
  const int32_t row = gpu::BlockX();
  const int kv_heads = args.kv.kv_heads, head_dim = args.kv.key_dim;
  const int32_t position = args.batch.positions[row];
  const Slot slot = SlotOf(args.batch, args.kv, row);
  const T* const rows = As<T>(args.rows) + row * int64_t{2} * kv_heads * head_dim;
  uint64_t hashes = 0;
  for (int i = gpu::Warp(); i < 2 * kv_heads; i += kWarpsOfRow) {
    const auto at = [&](int j) { return rows[i * head_dim + j]; };
    hashes += i < kv_heads ? KeepKey<T>(args.kv, args.digest, slot, i, position, at)
                           : KeepValue<T>(args.kv, args.digest, slot, i - kv_heads, position, at);
  }
  KeepRowDigest(args.digest, slot, hashes, shared);
}

// Element j of a part of `turned` elements after rope, rounded.
template <typename T>
FB_DEVICE T TurnedElement(const LatentKvParams& args, const float* x, int turned, int64_t position,
                          int j) {
  const int half = turned / 2;
  const float* const cosines = args.rope_cos + position * half;
  const float* const sines = args.rope_sin + position * half;
  if (j < half) return RoundTo<T>(gpu::Fma(x[j], cosines[j], -(x[j + half] * sines[j])));
  return RoundTo<T>(gpu::Fma(x[j], cosines[j - half], x[j - half] * sines[j - half]));
}

template <typename T>
FB_DEVICE void LatentKv(const LatentKvParams& args) {
  const int32_t row = gpu::BlockX();
  const KvParams& kv = args.kv;
  const int latent = kv.value_dim, turned = kv.key_dim - latent, width = args.plain + turned;
  const int32_t position = args.batch.positions[row];
  if (gpu::Warp() == 0) {
    const Slot slot = SlotOf(args.batch, kv, row);
    const float* const x = args.projected + int64_t{row} * kv.key_dim;
    const float inverse = InverseRmsOf([&](int j) { return x[j]; }, latent, args.norm_eps);
    const auto key = [&](int j) {
      return j < latent ? RoundTo<T>(x[j] * inverse * args.kv_norm[j])
                        : TurnedElement<T>(args, x + latent, turned, position, j - latent);
    };
    T* const block = As<T>(slot.block);
    const uint64_t hash = PutHashed<T>(
        kv.key_dim, DigestKeyOf(kKeyDigest, args.digest.layer_index, 0, position), key,
        [&](int j, T value) { block[(j / 2 * kPositions + slot.slot) * 2 + j % 2] = value; });
    if (args.digest.digests != nullptr && gpu::Lane() == 0)
      KeepDigest(args.digest, slot, args.digest.digested_elsewhere == 0 ? hash : 0);
  }
  for (int i = gpu::Tid(); i < args.heads * width; i += gpu::Threads()) {
    const int64_t at = int64_t{row} * args.heads + i / width;
    const int j = i % width;
    const float* const query = args.queries + at * width;
    if (j < args.plain) {
      As<T>(args.q)[at * width + j] = RoundTo<T>(query[j]);
      continue;
    }
    const T value = TurnedElement<T>(args, query + args.plain, turned, position, j - args.plain);
    As<T>(args.q)[at * width + j] = value;
    As<T>(args.absorbed)[at * kv.key_dim + latent + j - args.plain] = value;
  }
}

template <typename T>
FB_DEVICE void GatherLatents(const GatherLatentsParams& args) {
  const KvParams& kv = args.kv;
  const uint32_t entry = args.blocks[gpu::BlockX()];
  const auto index = static_cast<int64_t>(entry & ~kInWindow);
  const T* const block = As<T>((entry & kInWindow) != 0 ? kv.window + index * kv.layer_bytes
                                                        : kv.resident + index * kv.block_stride);
  T* const out = As<T>(args.out) + int64_t{gpu::BlockX()} * kPositions * kv.key_dim;
  for (int i = gpu::Tid(); i < kPositions * kv.key_dim; i += gpu::Threads()) {
    const int slot = i / kv.key_dim, j = i % kv.key_dim;
    out[i] = block[(j / 2 * kPositions + slot) * 2 + j % 2];
  }
}

template <typename T>
FB_DEVICE void StoreExpanded(const StoreExpandedParams& args) {
  const KvParams& kv = args.kv;
  const int64_t index = gpu::BlockX(), head = gpu::BlockY();
  const int turned = kv.key_dim - args.plain;
  T* const k = As<T>(kv.resident + (index * kv.kv_heads + head) * kv.head_bytes);
  T* const v = k + kPositions * kv.key_dim;
  for (int i = gpu::Tid(); i < kPositions * kv.key_dim; i += gpu::Threads()) {
    const int64_t slot = i / kv.key_dim, j = i % kv.key_dim, row = index * kPositions + slot;
    const T* const plain = As<T>(args.keys) + (row * kv.kv_heads + head) * args.plain;
    const T* const last = As<T>(args.latents) + (row + 1) * args.latent_dim - turned;
    k[(j / 2 * kPositions + slot) * 2 + j % 2] = j < args.plain ? plain[j] : last[j - args.plain];
  }
  for (int i = gpu::Tid(); i < kPositions * kv.value_dim; i += gpu::Threads()) {
    const int64_t slot = i / kv.value_dim, j = i % kv.value_dim, row = index * kPositions + slot;
    v[(slot / 2 * kv.value_dim + j) * 2 + slot % 2] =
        As<T>(args.values)[(row * kv.kv_heads + head) * kv.value_dim + j];
  }
}

}  // namespace

FB_KERNEL(pair_rope_kv, RopeKvParams, kRowThreads) {
  FB_SHARED(uint64_t, shared);  // a word a warp
  FB_FOR_ELEMENT(args.kv.element, RopeKv, args, shared);
}
FB_KERNEL(pair_rope_rows, RopeRowsParams, kRowThreads) {
  FB_FOR_ELEMENT(args.element, RopeRows, args);
}
FB_KERNEL(pair_store_kv, StoreKvParams, kRowThreads) {
  FB_SHARED(uint64_t, shared);
  FB_FOR_ELEMENT(args.kv.element, StoreKv, args, shared);
}
FB_KERNEL(pair_latent_kv, LatentKvParams, kRowThreads) {
  FB_FOR_ELEMENT(args.kv.element, LatentKv, args);
}
FB_KERNEL(pair_gather_latents, GatherLatentsParams, kRowThreads) {
  FB_FOR_ELEMENT(args.kv.element, GatherLatents, args);
}
FB_KERNEL(pair_store_expanded, StoreExpandedParams, kRowThreads) {
  FB_FOR_ELEMENT(args.kv.element, StoreExpanded, args);
}

}  // namespace forebay::kernels::cuda
