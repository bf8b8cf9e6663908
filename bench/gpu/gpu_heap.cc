#include "bench/gpu/gpu_heap.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

namespace forebay::bench {
namespace {

// Blocks of powers of two, each behind a line of its own that says which; freed ones wait in a list
// of their size.
constexpr size_t kHeader = 64;
struct Free {
  Free* next;
};
struct Heap {
  std::mutex mutex;
  std::byte *begin = nullptr, *end = nullptr, *next = nullptr;
  std::array<Free*, 64> free{};
  bool ended = false;
};
Heap& TheHeap() {
  static Heap heap;
  return heap;
}

// A kernel faults at memory of another kind, and its test would seem to be wrong.
void WarnOfEnd(Heap& heap, size_t size) {
  if (heap.ended) return;
  heap.ended = true;
  std::printf("The pinned heap has no room for %zu bytes: kernels will fault at what follows.\n",
              size);
}

void* Allocate(size_t bytes, size_t alignment) {
  Heap& heap = TheHeap();
  if (heap.begin != nullptr && alignment <= kHeader) {
    const std::lock_guard lock(heap.mutex);
    const auto log = static_cast<size_t>(std::bit_width(bytes + kHeader - 1));
    const size_t size = size_t{1} << (log < 7 ? 7 : log);
    Free*& list = heap.free[static_cast<size_t>(std::countr_zero(size))];
    std::byte* block = reinterpret_cast<std::byte*>(list);
    if (block != nullptr) {
      list = list->next;
    } else if (static_cast<size_t>(heap.end - heap.next) >= size) {
      block = heap.next;
      heap.next += size;
    }
    if (block != nullptr) {
      *reinterpret_cast<size_t*>(block) = size;
      return block + kHeader;
    }
    WarnOfEnd(heap, size);
  }
  const size_t aligned = alignment < 16 ? 16 : alignment;
  void* const data = std::aligned_alloc(aligned, (bytes + aligned) / aligned * aligned);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void Release(void* data) {
  Heap& heap = TheHeap();
  auto* const at = static_cast<std::byte*>(data);
  if (at < heap.begin || at >= heap.end || heap.begin == nullptr) return std::free(data);
  const std::lock_guard lock(heap.mutex);
  std::byte* const block = at - kHeader;
  Free*& list = heap.free[static_cast<size_t>(std::countr_zero(*reinterpret_cast<size_t*>(block)))];
  auto* const freed = reinterpret_cast<Free*>(block);
  freed->next = list;
  list = freed;
}

}  // namespace

void UsePinnedHeap(void* data, size_t bytes) {
  Heap& heap = TheHeap();
  const std::lock_guard lock(heap.mutex);
  heap.begin = heap.next = static_cast<std::byte*>(data);
  heap.end = heap.begin + bytes;
}

}  // namespace forebay::bench

void* operator new(size_t bytes) { return forebay::bench::Allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return forebay::bench::Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { forebay::bench::Release(data); }
void operator delete(void* data, size_t) noexcept { forebay::bench::Release(data); }
void operator delete(void* data, std::align_val_t) noexcept { forebay::bench::Release(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept {
  forebay::bench::Release(data);
}
