#include "runtime/virtual/fiber.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <cstdint>
#include <cstring>
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

// Saves what a call preserves, the floating-point control words too, on this stack, and takes it
// from the other. swapcontext does so with two calls of the system for the mask of signals, which
// no fiber changes.
extern "C" void fb_switch_stacks(void** from, void* to);
extern "C" void fb_enter_fiber();
asm(R"(
.text
.p2align 4
.globl fb_switch_stacks
.hidden fb_switch_stacks
.type fb_switch_stacks, @function
fb_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fb_switch_stacks, . - fb_switch_stacks
.globl fb_enter_fiber
.hidden fb_enter_fiber
.type fb_enter_fiber, @function
fb_enter_fiber:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size fb_enter_fiber, . - fb_enter_fiber
)");

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

  // As if it had been left by fb_switch_stacks, which was called from nowhere and returns to
  // fb_enter_fiber.
  auto* top = reinterpret_cast<uint64_t*>(mapping_ + mapping_bytes_);
  *--top = 0;
  *--top = 0;
  *--top = reinterpret_cast<uintptr_t>(&fb_enter_fiber);
  *--top = 0;                                           // rbp
  *--top = reinterpret_cast<uintptr_t>(this);           // rbx
  *--top = reinterpret_cast<uintptr_t>(&Fiber::Enter);  // r12
  for (int saved = 0; saved < 3; ++saved) *--top = 0;   // r13 to r15
  uint32_t control[2] = {_mm_getcsr(), 0};
  asm volatile("fnstcw %0" : "=m"(control[1]));
  std::memcpy(--top, control, sizeof control);
  top_ = top;
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

void Fiber::Enter(Fiber* self) {
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
  fb_switch_stacks(&from.top_, to.top_);
  from.FinishSwitch();
}

void Fiber::SwitchForever(Fiber& from, Fiber& to) {
  StartSwitch(from, to, true);
  fb_switch_stacks(&from.top_, to.top_);
  FB_CHECK(false, "a fiber that was left for ever goes on");
  __builtin_unreachable();
}

void Fiber::Abandon(Fiber* fiber) {
#ifdef FB_ASAN
  __lsan_ignore_object(fiber);
  __lsan_register_root_region(fiber->stack_, fiber->stack_bytes_);
#endif
}

}  // namespace forebay::runtime
