#include "runtime/virtual/fiber.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define FB_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define FB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FB_ASAN 1
#elif __has_feature(thread_sanitizer)
#define FB_TSAN 1
#endif
#endif

#ifdef FB_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#ifdef FB_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace forebay::runtime {

Fiber::Fiber() {
#ifdef FB_TSAN
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(size_t stack_bytes, std::function<void()> body) : body_(std::move(body)) {
  const size_t page = sysconf(_SC_PAGESIZE);
  mapping_bytes_ = stack_bytes + page;
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  FB_CHECK(mapping != MAP_FAILED, "a fiber's stack of {} bytes: {}", stack_bytes, strerror(errno));
  mapping_ = static_cast<std::byte*>(mapping);
  FB_CHECK(mprotect(mapping_, page, PROT_NONE) == 0, "a fiber's guard page: {}", strerror(errno));
  stack_ = mapping_ + page;
  stack_bytes_ = stack_bytes;

  FB_CHECK(getcontext(&context_) == 0, "getcontext: {}", strerror(errno));
  context_.uc_stack.ss_sp = mapping_ + page;
  context_.uc_stack.ss_size = stack_bytes;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);  // makecontext passes ints
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::Enter), 2,
              static_cast<unsigned>(self), static_cast<unsigned>(self >> 32));
#ifdef FB_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#ifdef FB_TSAN
  __tsan_destroy_fiber(tsan_fiber_);
#endif
#ifdef FB_ASAN
  __asan_unpoison_memory_region(mapping_,
                                mapping_bytes_);  // frames that never returned are poisoned
#endif
  munmap(mapping_, mapping_bytes_);
}

void Fiber::Enter(unsigned low, unsigned high) {
  auto* self = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low);
  self->FinishSwitch();
  self->body_();
  FB_CHECK(false, "a fiber's body returned");
}

void Fiber::StartSwitch(Fiber& from, Fiber& to, bool forever) {
  to.previous_ = &from;
#ifdef FB_ASAN
  __sanitizer_start_switch_fiber(forever ? nullptr : &from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
#ifdef FB_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#endif
}

// The first switch away from the thread's own stack is how its bounds become known.
void Fiber::FinishSwitch() {
#ifdef FB_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &previous_->stack_, &previous_->stack_bytes_);
#endif
}

void Fiber::Switch(Fiber& from, Fiber& to) {
  StartSwitch(from, to, false);
  swapcontext(&from.context_, &to.context_);
  from.FinishSwitch();
}

void Fiber::SwitchForever(Fiber& from, Fiber& to) {
  StartSwitch(from, to, true);
  setcontext(&to.context_);
  FB_CHECK(false, "setcontext: {}", strerror(errno));
  __builtin_unreachable();
}

void Fiber::Abandon(Fiber* fiber) {
#ifdef FB_ASAN
  __lsan_ignore_object(fiber);
  __lsan_register_root_region(fiber->stack_, fiber->stack_bytes_);
#endif
}

}  // namespace forebay::runtime
