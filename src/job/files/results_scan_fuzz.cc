// Any bytes as a results file, read in pieces of any size.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "job/files/results_scan.h"

using namespace forebay;

namespace {

base::Result<job::ScanOutcome> Scan(std::string_view content, size_t piece) {
  job::ScanExpectation expected{.path = "out.jsonl", .num_lines = 4, .job = {0, 1, 2, 3}};
  expected.find = [](int64_t line) -> std::optional<job::LineKey> {
    if (line < 0 || line >= 4) return std::nullopt;
    return job::LineKey{static_cast<size_t>(line), 0xab};
  };
  return job::ScanResults(
      [&](char* buffer, size_t size) -> int64_t {
        const size_t count = std::min({size, piece, content.size()});
        std::memcpy(buffer, content.data(), count);
        content.remove_prefix(count);
        return static_cast<int64_t>(count);
      },
      expected);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view content(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto outcome = Scan(content, 1 + data[0]);
  const auto at_once = Scan(content, size);
  FB_CHECK(outcome.ok() == at_once.ok(), "pieces of {} bytes matter", 1 + data[0]);
  if (!outcome.ok()) return 0;
  FB_CHECK(outcome->whole_bytes <= content.size(), "{}", outcome->whole_bytes);
  FB_CHECK(outcome->whole_bytes == 0 || content[outcome->whole_bytes - 1] == '\n', "{}",
           outcome->whole_bytes);
  // What is kept is all there is to it.
  const auto again = Scan(content.substr(0, outcome->whole_bytes), size);
  FB_CHECK(again.ok() && again->offsets == outcome->offsets && again->num_done == outcome->num_done,
           "cutting the tail matters");
  return 0;
}
