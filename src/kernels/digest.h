// Hashes of numbers' bits, for the digests of `--digest`: sums modulo 2^64 that can be formed
// wherever heads and vocabulary lie.
//
//   hash(words; key) = Mix64(key + sum over i of (low(w[i]) + c[2i]) (high(w[i]) + c[2i + 1]))
//
// over 64-bit words (the last filled with zeros), additions of the factors modulo 2^32, with
// constants c from SplitMix64: NH of UMAC (Black et al. 1999), then a finaliser.
#pragma once

#include <cstdint>

namespace forebay::kernels {

inline constexpr int kDigestChunk = 1024;  // vocabulary entries of one hash
inline constexpr int kMaxDigestBytes = kDigestChunk * 4;

// REQUIRES: bytes <= kMaxDigestBytes.
uint64_t DigestHash(const void* data, int64_t bytes, uint64_t key);

// Keys of the hashed values; `head` is logical.
uint64_t KeyDigestKey(int32_t layer, int32_t head, int32_t position);
uint64_t ValueDigestKey(int32_t layer, int32_t head, int32_t position);
// A chunk of kMaxDigestBytes of a head's state behind so many positions.
uint64_t StateDigestKey(int32_t layer, int32_t head, int32_t chunk, int64_t positions);
uint64_t LogitsDigestKey(int32_t position, int32_t chunk);

}  // namespace forebay::kernels
