// Results files of a made-up job for this folder's tests.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/rng.h"
#include "job/files/results_log.h"

namespace forebay::job {

inline constexpr Fingerprints kJob{0, 0xaaaa, 0xbbbb, 0xcccc};

inline uint64_t InputHash(int64_t line) { return base::Mix64(static_cast<uint64_t>(line)); }

inline ScanExpectation Expect(const std::string& path, size_t num_lines, Fingerprints job = kJob) {
  return {.path = path,
          .num_lines = num_lines,
          .find = [num_lines](int64_t line) -> std::optional<LineKey> {
            if (line < 0 || line >= static_cast<int64_t>(num_lines)) return std::nullopt;
            return LineKey{static_cast<size_t>(line), InputHash(line)};
          },
          .job = job};
}

inline std::string ResultOf(int64_t line, const std::string& text = "x", int status = 200) {
  Fingerprints hash = kJob;
  hash.input = InputHash(line);
  return fmt::format(
      R"({{"id":"{}","custom_id":null,"response":{{"status_code":{},"body":{{"t":"{}"}}}},"error":null}})",
      FormatResultId({line + 1, hash}), status, text);
}

inline base::Result<std::unique_ptr<ResultsLog>> OpenLog(const std::string& path, size_t num_lines,
                                                         Fingerprints job = kJob) {
  return ResultsLog::Open(Expect(path, num_lines, job));
}

}  // namespace forebay::job
