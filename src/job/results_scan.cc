#include "job/results_scan.h"

#include <cerrno>
#include <cstring>

#include "base/json.h"

namespace forebay::job {
namespace {

constexpr size_t kReadBytes = 256 << 10;
// A parser that met a larger line is dropped with its buffers.
constexpr size_t kKeepParserBytes = 1 << 20;
constexpr std::string_view kLineBegin = "{\"id\":\"batch_req_";

// Can a write of a result that was cut short have left this?
bool LooksTorn(std::string_view line) {
  const std::string_view written = line.substr(0, line.find('\0'));
  const size_t common = std::min(written.size(), kLineBegin.size());
  return written.substr(0, common) == kLineBegin.substr(0, common);
}

struct ResultLine {
  bool is_json = false;
  std::optional<ResultId> id;  // of a whole result, whose members "custom_id" and "response" are there as well
  bool failed = false;
};

ResultLine ReadResultLine(simdjson::dom::parser& parser, std::string_view text) {
  ResultLine line;
  const auto parsed = base::ParseJson(parser, text);
  line.is_json = parsed.ok();
  if (!parsed.ok() || !text.starts_with(kLineBegin)) return line;
  simdjson::dom::object object, response;
  std::string_view id;
  int64_t status_code;
  if (parsed->get(object) || object["id"].get(id) || object["custom_id"].error() ||
      object["response"].get(response) || response["status_code"].get(status_code)) {
    return line;
  }
  line.id = ParseResultId(id);
  line.failed = status_code >= 400;
  return line;
}

class Scanner {
 public:
  explicit Scanner(const ScanExpectation& expected) : expected_(expected) {
    outcome_.offsets.assign(expected.num_lines, kNoOffset);
  }

  // `line` lacks its LF and begins at `offset`.
  base::Status Take(std::string_view line, uint64_t offset) {
    ++number_;
    const ResultLine result = ReadResultLine(parser_, line);
    if (line.size() > kKeepParserBytes) parser_ = simdjson::dom::parser();
    if (!result.id) {
      if (result.is_json || !LooksTorn(line)) return NotOurs(line);
      if (torn_line_ == 0) torn_line_ = number_;
      return {};
    }
    if (torn_line_ != 0) {
      return Invalid(torn_line_, "is no whole result, but results follow it; delete this line and run again, its "
                                 "request will be answered once more");
    }
    FB_RETURN_IF_ERROR(Record(*result.id, offset));
    outcome_.num_failed += result.failed;
    outcome_.whole_bytes = offset + line.size() + 1;
    return {};
  }

  // What comes after the last LF.
  base::Status TakeRest(std::string_view rest) {
    ++number_;
    return rest.empty() || LooksTorn(rest) ? base::Status() : NotOurs(rest);
  }

  ScanOutcome Finish() { return std::move(outcome_); }

 private:
  base::Status Invalid(int64_t number, const std::string& what) const {
    return base::Status(kResultsInvalid, fmt::format("{}: line {} {}", expected_.path, number, what));
  }
  base::Status NotOurs(std::string_view line) const {
    return Invalid(number_, fmt::format("begins with '{}'; expected a result ({}...): this is no results file of "
                                        "`forebay run`, name another one",
                                        line.substr(0, 20), kLineBegin));
  }

  base::Status Record(const ResultId& id, uint64_t offset) {
    const std::optional<LineKey> key = expected_.find(id.line - 1);
    if (!key) {
      return base::Status(kResultsMismatch,
                          fmt::format("{}: line {} holds the result of input line {}, which this input does not have; "
                                      "give the input of the earlier run, or another results file",
                                      expected_.path, number_, id.line));
    }
    FB_RETURN_IF_ERROR(Compare(id, key->hash));
    uint64_t& known = outcome_.offsets[key->ordinal];
    if (known != kNoOffset) {
      return Invalid(number_, fmt::format("holds a second result for input line {} (the first is at byte {}); delete "
                                          "one of them and run again", id.line, known));
    }
    known = offset;
    ++outcome_.num_done;
    return {};
  }

  base::Status Compare(const ResultId& id, uint64_t input_hash) const {
    std::string changed;
    const auto check = [&](uint64_t found, uint64_t now, std::string_view what) {
      if (found != now) changed += fmt::format("{}{} ({:016x} there, {:016x} now)", changed.empty() ? "" : ", ", what, found, now);
    };
    check(id.hash.input, input_hash, "the input line");
    check(id.hash.model, expected_.job.model, "the model");
    check(id.hash.settings, expected_.job.settings, "the template, sampling defaults or flags (--seed, --max-model-len, --now and the like)");
    check(id.hash.numerics, expected_.job.numerics, "the numerics class");
    if (changed.empty()) return {};
    return base::Status(kResultsMismatch,
                        fmt::format("{}: line {} holds the result of input line {} from another run; what changed: {}. "
                                    "Go on with what the earlier run had, or name another results file",
                                    expected_.path, number_, id.line, changed));
  }

  const ScanExpectation& expected_;
  simdjson::dom::parser parser_;
  ScanOutcome outcome_;
  int64_t number_ = 0;     // of the line at hand, from 1
  int64_t torn_line_ = 0;  // the first that is no whole result
};

}  // namespace

base::Result<ScanOutcome> ScanResults(const ByteSource& source, const ScanExpectation& expected) {
  Scanner scanner(expected);
  std::string buffer;  // begins with the line at hand
  size_t searched = 0;
  uint64_t offset = 0;  // of buffer[0] in the file
  for (;;) {
    const size_t held = buffer.size();
    buffer.resize(held + kReadBytes);
    const int64_t count = source(buffer.data() + held, kReadBytes);
    buffer.resize(held + static_cast<size_t>(std::max<int64_t>(count, 0)));
    if (count < 0) {
      return base::Status(base::kIoError, fmt::format("{}: cannot read the results: {}", expected.path, std::strerror(errno)));
    }
    if (count == 0) break;
    size_t begin = 0;
    for (size_t end; (end = buffer.find('\n', searched)) != std::string::npos; begin = searched = end + 1) {
      FB_RETURN_IF_ERROR(scanner.Take(std::string_view(buffer).substr(begin, end - begin), offset + begin));
    }
    buffer.erase(0, begin);
    offset += begin;
    searched = buffer.size();
    // A file of something else need not have lines that fit in memory.
    if (!LooksTorn(buffer)) break;
  }
  FB_RETURN_IF_ERROR(scanner.TakeRest(buffer));
  return scanner.Finish();
}

}  // namespace forebay::job
