// Bump memory for all that one parse or one render makes. Nothing is freed before the arena is, so
// values are plain 16-byte words that may point anywhere in it, into each other and in cycles.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "text/jinja/errors.h"

namespace forebay::text::jinja {

class Arena {
 public:
  // Taking more than `limit_bytes` from the heap fails with kTemplateLimit.
  explicit Arena(size_t limit_bytes) : limit_(limit_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // 8-byte aligned, uninitialised.
  void* Allocate(size_t bytes) {
    bytes = (bytes + 7) & ~size_t{7};
    if (bytes > left_) [[unlikely]]
      return AllocateSlow(bytes);
    void* result = next_;
    next_ += bytes;
    left_ -= bytes;
    return result;
  }

  // `count` value-initialised objects that need no destructor.
  template <typename T>
  std::span<T> NewArray(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    T* items = static_cast<T*>(Allocate(count * sizeof(T)));
    std::uninitialized_value_construct_n(items, count);
    return {items, count};
  }

  template <typename T>
  T* New(T value = {}) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    return new (Allocate(sizeof(T))) T(value);
  }

  template <typename T>
  std::span<const T> CopyArray(std::span<const T> items) {
    T* copy = static_cast<T*>(Allocate(items.size_bytes()));
    if (!items.empty()) std::memcpy(static_cast<void*>(copy), items.data(), items.size_bytes());
    return {copy, items.size()};
  }

  std::string_view Copy(std::string_view text) {
    const auto copy = CopyArray(std::span<const char>(text));
    return {copy.data(), copy.size()};
  }

  // Counts memory that is held elsewhere on this arena's account.
  void Charge(size_t bytes) {
    if (bytes > limit_ - used_) {
      Fail(kTemplateLimit, "the template or its input needs too much memory: more than " +
                               std::to_string(limit_) + " bytes");
    }
    used_ += bytes;
  }
  size_t used() const { return used_; }

 private:
  static constexpr size_t kFirstChunk = 4096, kLastChunk = 256 * 1024;

  void* AllocateSlow(size_t bytes) {
    const size_t chunk = bytes > chunk_ / 2 ? bytes : chunk_;
    Charge(chunk);
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(chunk));
    std::byte* start = chunks_.back().get();
    if (chunk == bytes) return start;
    chunk_ = std::min(2 * chunk_, kLastChunk);
    next_ = start + bytes;
    left_ = chunk - bytes;
    return start;
  }

  size_t limit_;
  size_t used_ = 0;
  size_t chunk_ = kFirstChunk;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
};

}  // namespace forebay::text::jinja
