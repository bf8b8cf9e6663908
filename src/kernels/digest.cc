#include "kernels/digest.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"

namespace forebay::kernels {
namespace {

constexpr auto kConstants = [] {
  std::array<uint32_t, kMaxDigestBytes / 4> constants{};
  for (size_t i = 0; i < constants.size(); ++i)
    constants[i] = static_cast<uint32_t>(base::Mix64(i) >> 32);
  return constants;
}();

uint64_t Product(uint64_t word, int64_t i) {
  const uint32_t low = static_cast<uint32_t>(word) + kConstants[2 * i];
  const uint32_t high = static_cast<uint32_t>(word >> 32) + kConstants[2 * i + 1];
  return static_cast<uint64_t>(low) * high;
}

uint64_t Key(uint64_t kind, int64_t a, int64_t b, int64_t c) {
  // no Mix64 of a small number, which a part might cancel
  uint64_t key = base::Mix64(base::Mix64(kind));
  for (const int64_t part : {a, b, c}) key = base::Combine64(key, static_cast<uint64_t>(part));
  return key;
}

}  // namespace

uint64_t DigestHash(const void* data, int64_t bytes, uint64_t key) {
  FB_CHECK(bytes >= 0 && bytes <= kMaxDigestBytes, "digest of {} bytes, at most {}", bytes,
           kMaxDigestBytes);
  const auto* from = static_cast<const char*>(data);
  uint64_t sum = key;
  int64_t i = 0;
  for (; (i + 1) * 8 <= bytes; ++i) {
    uint64_t word;
    std::memcpy(&word, from + i * 8, 8);
    sum += Product(word, i);
  }
  if (i * 8 < bytes) {
    uint64_t word = 0;
    std::memcpy(&word, from + i * 8, static_cast<size_t>(bytes - i * 8));
    sum += Product(word, i);
  }
  return base::Mix64(sum);
}

uint64_t KeyDigestKey(int32_t layer, int32_t head, int32_t position) {
  return Key(1, layer, head, position);
}
uint64_t ValueDigestKey(int32_t layer, int32_t head, int32_t position) {
  return Key(2, layer, head, position);
}
uint64_t StateDigestKey(int32_t layer, int32_t head, int32_t chunk, int64_t positions) {
  return base::Combine64(Key(4, layer, head, chunk), static_cast<uint64_t>(positions));
}
uint64_t LogitsDigestKey(int32_t position, int32_t chunk) { return Key(3, position, chunk, 0); }

}  // namespace forebay::kernels
