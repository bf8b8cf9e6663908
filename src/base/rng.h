// Counter-based randomness: a value is a pure function of its key, so that no order of work can
// change it.
#pragma once

#include <cstdint>

namespace forebay::base {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit values.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Folds `value` into a running key; order matters.
constexpr uint64_t Combine64(uint64_t key, uint64_t value) { return Mix64(key ^ Mix64(value)); }

// Uniform in [0, 1) with 53 random bits.
constexpr double ToUnitDouble(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// A small sequential generator (SplitMix64) for tests, random weights and seeded interleavings.
class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) : state_(seed) {}
  constexpr uint64_t Next() {
    const uint64_t value = Mix64(state_);
    state_ += 0x9E3779B97F4A7C15ull;
    return value;
  }
  // Uniform in [0, n). REQUIRES: n > 0. (The bias of the modulus is below n / 2^64.)
  constexpr uint64_t Below(uint64_t n) { return Next() % n; }
  constexpr double Uniform() { return ToUnitDouble(Next()); }

 private:
  uint64_t state_;
};

}  // namespace forebay::base
