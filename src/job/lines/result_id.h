// The id of a result line, which makes the results file a journal: it names the input line and
// carries the fingerprints of everything that can change its answer (docs/formats/results-log.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace forebay::job {

// What a line's answer depends on, one 64-bit hash each, in the order in which the id holds them.
struct Fingerprints {
  uint64_t input = 0;     // the line's bytes (base::HashBytes)
  uint64_t model = 0;     // config and weights
  uint64_t settings = 0;  // template, sampling defaults, every flag that can change an answer
  uint64_t numerics = 0;  // numerics class
  // Which of the `settings` differ (SettingsHash::marks); 0: unknown.
  uint64_t marks = 0;

  friend bool operator==(const Fingerprints&, const Fingerprints&) = default;
};

struct ResultId {
  int64_t line = 0;  // from 1, as an editor counts
  Fingerprints hash;
};

// Every line of a results file begins with this.
inline constexpr std::string_view kResultIdPrefix = "batch_req_";

// "batch_req_<line>_<input>-<model>-<settings>-<numerics>-<marks>", each 16 lower-case hex digits;
// marks that are unknown are left out.
std::string FormatResultId(const ResultId& id);
// The inverse; nothing where `text` is not exactly what FormatResultId writes.
std::optional<ResultId> ParseResultId(std::string_view text);

}  // namespace forebay::job
