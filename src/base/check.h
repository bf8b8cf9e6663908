// FB_CHECK: our own invariants, on in release. A user's input must never reach a failing one.
#pragma once

#include <fmt/core.h>

#include <string>

namespace forebay::base {

// Prints "file:line: CHECK(condition): message" on stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

}  // namespace forebay::base

// FB_CHECK(x > 0, "x is {}", x): aborts with the message unless the condition holds.
#define FB_CHECK(condition, ...)                                                              \
  do {                                                                                        \
    if (!(condition)) [[unlikely]]                                                            \
      ::forebay::base::CheckFailed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
