// A 64-bit hash of bytes, the same on every machine: for fingerprints, not against adversaries.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace forebay::base {

// Hashes bytes that arrive in pieces; the cuts between pieces do not matter.
class Hasher {
 public:
  explicit Hasher(uint64_t seed = 0) : key_(seed) {}
  void Update(std::string_view bytes);
  uint64_t Finish() const;

 private:
  uint64_t key_;
  uint64_t length_ = 0;
  std::array<unsigned char, 8> tail_{};  // length_ % 8 bytes that fill no word yet
};

uint64_t HashBytes(std::string_view bytes, uint64_t seed = 0);

}  // namespace forebay::base
