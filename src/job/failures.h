// Why lines failed: for each error code how many, and the first of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forebay::job {

class FailureTally {
 public:
  struct Failure {
    int64_t count = 0;
    int64_t first_line = 0;  // a line of the input, from 1
    std::string message;     // the first line's, cut to some 200 bytes
  };

  void Add(std::string_view code, int64_t line, std::string_view message);
  // The most frequent code comes first.
  std::vector<std::pair<std::string, Failure>> ByCount() const;

 private:
  std::map<std::string, Failure, std::less<>> by_code_;
};

}  // namespace forebay::job
