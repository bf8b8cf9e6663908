// What goes into the KV cache and its digests: rope_kv, rope_rows, store_kv (kernels/attention.h,
// kernels/cut_rows.h), latent_kv, gather_latents, store_expanded (kernels/latent_attention.h).
//
// Bytes: each input and output once. Limit: memory.
#include "kernels/cuda/pair/kv_rows.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kWarpsOfRow = kRowThreads / gpu::kWarpLanes;

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
  return {entry, BlockOf(kv, entry), position % kPositions};
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
// What a head of v is multiplied by.
FB_DEVICE float ValueNorm(const RopeParams& args, const float* v) {
  if (!args.v_norm) return 1;
  return InverseRmsOf([&](int j) { return v[j]; }, args.head_dim, args.norm_eps);
}
FB_DEVICE float QueryScale(const RopeParams& args, int64_t position) {
  return args.q_scale != nullptr ? args.q_scale[position] : 1.0f;
}

// The code of an element (kernels/kv_codes.h).
FB_DEVICE uint8_t FP8Of(float x) {
  constexpr float kMost = 448, kLeastNormal = 0x1p-6f;
  if (x != x) return 0x7F;
  const uint32_t sign = gpu::Bits(x) >> 24 & 0x80;
  const float size = gpu::FromBits(gpu::Bits(x) & 0x7FFFFFFFu);
  const float magnitude = size < kMost ? size : kMost;
  const float power = gpu::FromBits(gpu::Bits(magnitude) & 0x7F800000u);
  const float step = gpu::Div(MaxOf(power, kLeastNormal), 8);
  const float rounded = gpu::Nearest(gpu::Div(magnitude, step)) * step;
  const uint32_t code = rounded < kLeastNormal ? static_cast<uint32_t>(rounded * 512)
                                               : (gpu::Bits(rounded) >> 20) - ((127 - 7) << 3);
  return static_cast<uint8_t>(sign | code);
}

// The scale of n elements in int8, by one warp; NaN where one is not finite.
template <typename At>
FB_DEVICE float Int8Scale(int n, At at) {
  float most = 0;
  bool finite = true;
  for (int j = gpu::Lane(); j < n; j += gpu::kWarpLanes) {
    const float size = gpu::FromBits(gpu::Bits(at(j)) & 0x7FFFFFFFu);
    most = MaxOf(size, most);
    finite = finite && size < FB_INFINITY;
  }
  if (gpu::Ballot(!finite) != 0) return gpu::FromBits(0x7FC00000u);
  for (int mask = gpu::kWarpLanes / 2; mask > 0; mask /= 2)
    most = MaxOf(gpu::ShuffleXor(most, mask), most);
  const float scale = gpu::Div(most, 127.0f);
  return scale == 0 ? 1.0f : scale;
}

// A head's K (or V) of a row into its slot: element j of `to` at place_of(j), and its scale, where
// it has one, at `scale_to`. Returns the hash. By one warp.
template <typename T, typename At, typename PlaceOf>
FB_DEVICE uint64_t KeepHead(const KvParams& kv, std::byte* to, float* scale_to, uint64_t key, At at,
                            PlaceOf place_of) {
  const int n = kv.key_dim;
  if (kv.codes == kNoCodes)
    return PutHashed<T>(n, key, at, [&](int j, T value) { As<T>(to)[place_of(j)] = value; });
  const auto value = [&](int j) { return ToFloat(at(j)); };
  const auto put = [&](int j, uint8_t code) { As<uint8_t>(to)[place_of(j)] = code; };
  if (kv.codes == kFP8Codes)
    return PutHashed<uint8_t>(
        n, key, [&](int j) { return FP8Of(value(j)); }, put);
  const float scale = Int8Scale(n, value);
  if (gpu::Lane() == 0) *scale_to = scale;
  const auto code = [&](int j) {
    const float nearest = scale == scale ? gpu::Nearest(gpu::Div(value(j), scale)) : 0.0f;
    return static_cast<uint8_t>(static_cast<int8_t>(nearest));
  };
  return PutHashed<uint8_t>(n, base::Mix64(key + DigestProduct(WordBits(scale, 0), 0)), code, put);
}

// K (or V) head `head` of a row into its slot; its hash, 0 where another rank has it.
template <typename T, typename At>
FB_DEVICE uint64_t KeepKey(const KvParams& kv, const DigestParams& digest, const Slot& slot,
                           int head, int32_t position, At at) {
  std::byte* const part = slot.block + head * kv.head_bytes;
  const uint64_t hash = KeepHead<T>(
      kv, part, ScalesOf(kv, part) + slot.slot,
      DigestKeyOf(kKeyDigest, digest.layer_index, digest.first_kv_head + head, position), at,
      [&](int j) { return KeyAt(kv, slot.slot, j); });
  return head >= digest.digested_elsewhere ? hash : 0;
}
template <typename T, typename At>
FB_DEVICE uint64_t KeepValue(const KvParams& kv, const DigestParams& digest, const Slot& slot,
                             int head, int32_t position, At at) {
  std::byte* const part = slot.block + head * kv.head_bytes;
  const int64_t size = kv.codes == kNoCodes ? sizeof(T) : 1;
  const uint64_t hash = KeepHead<T>(
      kv, part + kv.key_dim * kPositions * size, ScalesOf(kv, part) + kPositions + slot.slot,
      DigestKeyOf(kValueDigest, digest.layer_index, digest.first_kv_head + head, position), at,
      [&](int j) { return ValueAt(kv, slot.slot, j); });
  return head >= digest.digested_elsewhere ? hash : 0;
}

// A warp has each hash in all lanes; a row's sum of them is kept by one thread.
FB_DEVICE void KeepRowDigest(const DigestParams& digest, const Slot& slot, uint64_t hashes,
                             uint64_t* shared) {
  if (digest.digests == nullptr) return;
  const uint64_t sum = BlockSum(gpu::Lane() == 0 ? hashes : 0, shared);
  if (gpu::Tid() == 0) KeepDigest(digest, slot.entry, slot.slot, sum);
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
      const float norm = ValueNorm(rope, x);
      hashes += KeepValue<T>(args.kv, args.digest, slot, i - rope.heads - kv_heads, position,
                             [&](int j) { return RoundTo<T>(x[j] * norm); });
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
      const float* const v = k + rope.kv_heads * head_dim + at;
      const float norm = ValueNorm(rope, v);
      for (int j = gpu::Lane(); j < head_dim; j += gpu::kWarpLanes)
        kv_out[reader.kv_heads * head_dim + at + j] = RoundTo<T>(v[j] * norm);
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
    const uint64_t hash =
        PutHashed<T>(kv.key_dim, DigestKeyOf(kKeyDigest, args.digest.layer_index, 0, position), key,
                     [&](int j, T value) { block[KeyAt(kv, slot.slot, j)] = value; });
    if (args.digest.digests != nullptr && gpu::Lane() == 0)
      KeepDigest(args.digest, slot.entry, slot.slot,
                 args.digest.digested_elsewhere == 0 ? hash : 0);
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
  const T* const block = As<T>(BlockOf(kv, entry));
  T* const out = As<T>(args.out) + int64_t{gpu::BlockX()} * kPositions * kv.key_dim;
  for (int i = gpu::Tid(); i < kPositions * kv.key_dim; i += gpu::Threads()) {
    const int slot = i / kv.key_dim, j = i % kv.key_dim;
    out[i] = block[KeyAt(kv, slot, j)];
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
  gpu::TakeTurn();
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
