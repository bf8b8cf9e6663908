#include "base/hash.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"

namespace forebay::base {
namespace {

uint64_t LoadWord(const void* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

}  // namespace

void Hasher::Update(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t filled = length_ % tail_.size();
    if (filled == 0 && bytes.size() >= tail_.size()) {
      const size_t whole = bytes.size() / tail_.size() * tail_.size();
      for (size_t i = 0; i < whole; i += tail_.size())
        key_ = Combine64(key_, LoadWord(bytes.data() + i));
      length_ += whole;
      bytes.remove_prefix(whole);
      continue;
    }
    const size_t taken = std::min(bytes.size(), tail_.size() - filled);
    std::memcpy(tail_.data() + filled, bytes.data(), taken);
    length_ += taken;
    bytes.remove_prefix(taken);
    if (length_ % tail_.size() == 0) key_ = Combine64(key_, LoadWord(tail_.data()));
  }
}

uint64_t Hasher::Finish() const {
  std::array<unsigned char, 8> rest{};
  std::memcpy(rest.data(), tail_.data(), length_ % tail_.size());
  return Combine64(Combine64(key_, LoadWord(rest.data())), length_);
}

uint64_t HashBytes(std::string_view bytes, uint64_t seed) {
  Hasher hasher(seed);
  hasher.Update(bytes);
  return hasher.Finish();
}

}  // namespace forebay::base
