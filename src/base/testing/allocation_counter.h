// For tests of what a parser allocates: include it in one source of a test program, which then
// counts every byte that operator new gives out. All forms are replaced: sanitizers replace each
// one on its own.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace forebay::base {

inline std::atomic<size_t> live_bytes{0}, peak_bytes{0};

// The most that was allocated at once while `run` ran, beyond what was there before.
template <typename Run>
size_t PeakBytes(const Run& run) {
  const size_t before = live_bytes;
  peak_bytes = before;
  run();
  return peak_bytes - before;
}

// What a parser may allocate for an input.
constexpr size_t AllocationLimit(size_t input_bytes) { return 18 * input_bytes + (4 << 20); }

}  // namespace forebay::base

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  using namespace forebay::base;
  void* block = std::malloc(size);
  if (block == nullptr) return nullptr;
  const size_t live = live_bytes += malloc_usable_size(block);
  size_t seen = peak_bytes;
  while (live > seen && !peak_bytes.compare_exchange_weak(seen, live)) {
  }
  return block;
}
void* operator new(size_t size) {
  void* block = operator new(size, std::nothrow);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return operator new(size, std::nothrow);
}
void operator delete(void* block) noexcept {
  if (block != nullptr) forebay::base::live_bytes -= malloc_usable_size(block);
  std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { operator delete(block); }
void operator delete[](void* block) noexcept { operator delete(block); }
void operator delete[](void* block, size_t) noexcept { operator delete(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { operator delete(block); }
