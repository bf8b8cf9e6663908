// Why lines failed: for each error code how many, and the first of them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace forebay::job {

inline constexpr base::ErrorCode kAllLinesFailed{"all_lines_failed"};

class FailureTally {
 public:
  struct Failure {
    int64_t count = 0;
    int64_t first_line = 0;  // a line of the input, from 1
    std::string message;     // the first line's, cut to some 200 bytes
  };

  using CodeFailure = std::pair<std::string, Failure>;

  void Add(std::string_view code, int64_t line, std::string_view message);
  void Add(const FailureTally& other);
  // The most frequent code comes first.
  std::vector<CodeFailure> ByCount() const;

 private:
  void Add(std::string_view code, const Failure& added);

  std::map<std::string, Failure, std::less<>> by_code_;
};

// "1,200 x model_not_found, first at line 3: MESSAGE".
std::string FailureText(const FailureTally::CodeFailure& failure);

// kAllLinesFailed where all of a job's lines failed, and it has any: why, the most frequent codes
// first, and then `advice`.
base::Status CheckSomeSucceeded(int64_t lines, int64_t failed,
                                std::span<const FailureTally::CodeFailure> failures,
                                std::string_view advice);

}  // namespace forebay::job
