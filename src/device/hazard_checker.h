// Watches the operations that run at the same time and the ranges they touch.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/operation.h"

namespace forebay::device {

inline constexpr base::ErrorCode kHazard{"device_hazard"};

// Shared by the streams of all ranks of a test; addresses are unique across ranks. Two operations
// conflict if both are active at once and touch the same bytes, at least one of them writing.
// Thread-safe.
class HazardChecker {
 public:
  // An operation of `stream` ("rank 0 compute") becomes active; the result is for End.
  int64_t Begin(std::string_view stream, const Operation& operation);
  void End(int64_t token);

  // kHazard for the first conflict, naming both operations and the number of bytes that they share.
  base::Status status() const;
  int64_t num_conflicts() const;
  int64_t num_operations() const;  // that have begun

 private:
  struct Active {
    int64_t token;
    std::string name;
    std::vector<Access> accesses;  // first those that write
    size_t num_writes = 0;
  };

  void Compare(const Active& a, const Active& b);

  mutable std::mutex mutex_;
  std::vector<Active> active_;
  int64_t next_token_ = 0;
  int64_t num_conflicts_ = 0;
  base::Status first_conflict_;
};

}  // namespace forebay::device
