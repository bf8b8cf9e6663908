// The id of a result line, which makes the results file a journal: it names the input line and carries the
// fingerprints of everything that can change its answer (docs/formats/results-log.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace forebay::job {

// What a line's answer depends on, one 64-bit hash each, in the order in which the id holds them.
struct Fingerprints {
  uint64_t input = 0;     // the line's bytes (HashLine)
  uint64_t model = 0;     // config and weights
  uint64_t settings = 0;  // template, sampling defaults, every flag that can change an answer
  uint64_t numerics = 0;  // numerics class

  friend bool operator==(const Fingerprints&, const Fingerprints&) = default;
};

struct ResultId {
  int64_t line = 0;  // from 1, as an editor counts
  Fingerprints hash;
};

// Every line of a results file begins with this.
inline constexpr std::string_view kResultIdPrefix = "batch_req_";

// "batch_req_<line>_<input>-<model>-<settings>-<numerics>", each hash 16 lower-case hex digits.
std::string FormatResultId(const ResultId& id);
// The inverse; nothing where `text` is not exactly what FormatResultId writes.
std::optional<ResultId> ParseResultId(std::string_view text);

// Hashes bytes that arrive in pieces; the cuts between pieces do not matter.
class LineHasher {
 public:
  void Update(std::string_view bytes);
  uint64_t Finish() const;

 private:
  uint64_t key_ = 0;
  uint64_t length_ = 0;
  std::array<unsigned char, 8> tail_{};  // length_ % 8 bytes that fill no word yet
};

uint64_t HashLine(std::string_view line);

}  // namespace forebay::job
