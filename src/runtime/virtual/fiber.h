// A stack with a guard page, and the switch from one to another. Tells AddressSanitizer and
// ThreadSanitizer about it.
#pragma once

#include <cstddef>
#include <functional>

namespace forebay::runtime {

// All fibers of a group run on one thread, one at a time.
class Fiber {
 public:
  // The thread itself, as the fiber from which others are first entered.
  Fiber();
  // A fiber that runs `body` when first switched to. `body` never returns: it ends in
  // SwitchForever.
  Fiber(size_t stack_bytes, std::function<void()> body);
  // REQUIRES: the fiber is not running. What lives on its stack is not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;

  // Leaves `from`, which is running, and goes on with `to`; returns when somebody switches back.
  static void Switch(Fiber& from, Fiber& to);
  // The same, and `from` never runs again.
  [[noreturn]] static void SwitchForever(Fiber& from, Fiber& to);

  // Gives up a fiber that will never run again with live objects on its stack: leaks it, silently
  // for leak checkers.
  static void Abandon(Fiber* fiber);

 private:
  static void Enter(Fiber* self);
  static void StartSwitch(Fiber& from, Fiber& to, bool forever);
  void FinishSwitch();

  void* top_ = nullptr;  // of the stack, while the fiber is left: its registers lie there
  std::function<void()> body_;
  Fiber* previous_ = nullptr;     // the fiber that switched here
  std::byte* mapping_ = nullptr;  // guard page, then the stack
  size_t mapping_bytes_ = 0;
  const void* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // AddressSanitizer's
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
};

}  // namespace forebay::runtime
