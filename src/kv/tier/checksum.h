// Whether a disk gives back what was written: for faults, not against adversaries.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/hash.h"
#include "base/rng.h"

namespace forebay::kv {

// Four chains side by side, each of every fourth word, in steps of XXH64: as fast as memory is
// read, where one chain waits for its products (base::HashBytes). A step is one-to-one in its word,
// so that bytes that differ in one word always differ in their sum.
inline uint64_t Checksum(std::span<const std::byte> bytes) {
  constexpr uint64_t kOfWord = 0xC2B2AE3D27D4EB4Full, kOfChain = 0x9E3779B185EBCA87ull;  // XXH64's
  std::array<uint64_t, 4> chains{1, 2, 3, 4}, words;
  for (; bytes.size() >= sizeof(words); bytes = bytes.subspan(sizeof(words))) {
    std::memcpy(words.data(), bytes.data(), sizeof(words));
    for (size_t i = 0; i < chains.size(); ++i)
      chains[i] = std::rotl(chains[i] + words[i] * kOfWord, 31) * kOfChain;
  }
  uint64_t sum = 0;
  for (const uint64_t chain : chains) sum = base::Combine64(sum, chain);
  return base::HashBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, sum);
}

}  // namespace forebay::kv
