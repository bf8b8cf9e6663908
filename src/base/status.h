// Errors that the world causes: files, prompts, memory, peers. Our own bugs are FB_CHECK (check.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace forebay::base {

// A stable name of one kind of error, e.g. "gguf_truncated". Each folder declares its own constants
// beside the code that raises them; docs/errors.md lists all of them (tools/tidy.py checks that).
struct ErrorCode {
  const char* name;
  friend bool operator==(ErrorCode a, ErrorCode b) { return std::string_view(a.name) == b.name; }
};

inline constexpr ErrorCode kOkCode{"ok"};
inline constexpr ErrorCode kInvalidArgument{"invalid_argument"};
inline constexpr ErrorCode kIoError{"io_error"};
inline constexpr ErrorCode kOutOfMemory{"out_of_memory"};
inline constexpr ErrorCode kJsonInvalid{"json_invalid"};

// Ok, or a code and a message. The message names the thing, what was found, what was expected and,
// where it helps, what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {
    FB_CHECK(!(code == kOkCode), "an error needs an error code");
  }
  static Status Ok() { return {}; }

  bool ok() const { return code_ == kOkCode; }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "message [code]", as the user sees it.
  std::string ToString() const { return ok() ? "ok" : message_ + " [" + code_.name + "]"; }
  // The same error with `context` and ": " before its message (say, a file's name).
  Status WithContext(std::string_view context) const {
    return ok() ? *this : Status(code_, std::string(context) + ": " + message_);
  }

 private:
  ErrorCode code_ = kOkCode;
  std::string message_;
};

// A value, or the error that kept us from it. REQUIRES: a Status put in is not ok.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {
    FB_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok().
  T& value() & {
    Require();
    return *value_;
  }
  const T& value() const& {
    Require();
    return *value_;
  }
  T&& value() && {
    Require();
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void Require() const { FB_CHECK(ok(), "value() of an error: {}", status_.ToString()); }
  std::optional<T> value_;
  Status status_;
};

}  // namespace forebay::base

#define FB_CONCAT_INNER(a, b) a##b
#define FB_CONCAT(a, b) FB_CONCAT_INNER(a, b)

// Returns the Status of `expr` from the enclosing function unless it is ok.
#define FB_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                 \
    if (::forebay::base::Status fb_status = (expr); !fb_status.ok()) return fb_status; \
  } while (false)

// FB_ASSIGN_OR_RETURN(auto x, ReadX());  declares x, or returns the error.
#define FB_ASSIGN_OR_RETURN(decl, expr) \
  FB_ASSIGN_OR_RETURN_INNER(FB_CONCAT(fb_result_, __LINE__), decl, expr)
#define FB_ASSIGN_OR_RETURN_INNER(tmp, decl, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.status();              \
  decl = std::move(tmp).value()
