#include "job/files/results_scan.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "job/files/log_io.h"
#include "job/files/settings.h"

namespace forebay::job {
namespace {

constexpr size_t kScanBytes = 256 << 10;
// A parser that met a larger line is dropped with its buffers.
constexpr size_t kLongResultBytes = 1 << 20;
constexpr std::string_view kLineBegin = "{\"id\":\"batch_req_";

// Can a write of a result that was cut short have left this?
bool LooksTorn(std::string_view line) {
  const std::string_view written = line.substr(0, line.find('\0'));
  const size_t common = std::min(written.size(), kLineBegin.size());
  return written.substr(0, common) == kLineBegin.substr(0, common);
}

struct ResultLine {
  bool is_json = false;
  // The id of a whole result, whose members "custom_id" and "response" are there as well.
  std::optional<ResultId> id;
  bool failed = false;
  std::string error_code, error_message;  // a failed one's
  schedule::EarlierAnswer answer;         // another one's
};

// The error of a failed result's body; what is not there stays empty.
void ReadError(simdjson::dom::object response, ResultLine* line) {
  simdjson::dom::object error;
  std::string_view text;
  if (response["body"]["error"].get(error)) return;
  if (!error["code"].get(text)) line->error_code = text;
  if (!error["message"].get(text)) line->error_message = text;
}

// What the usage says; nothing where there is none.
void ReadAnswer(simdjson::dom::object response, ResultLine* line) {
  simdjson::dom::object usage;
  simdjson::dom::array choices;
  int64_t prompt, output;
  if (response["body"]["usage"].get(usage) || response["body"]["choices"].get(choices) ||
      usage["prompt_tokens"].get(prompt) || usage["completion_tokens"].get(output)) {
    return;
  }
  const auto count = static_cast<int64_t>(std::max<size_t>(1, choices.size()));
  line->answer = {static_cast<int32_t>(prompt), static_cast<int32_t>(output / count)};
}

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
  line.failed ? ReadError(response, &line) : ReadAnswer(response, &line);
  return line;
}

base::Status Invalid(const std::string& path, int64_t number, const std::string& what) {
  return base::Status(kResultsInvalid, fmt::format("{}: line {} {}", path, number, what));
}

// Splits what a results file holds into whole results, holes and a torn tail.
class Walker {
 public:
  Walker(const std::string& path, const TakeResult& take) : path_(path), take_(take) {}

  // `line` lacks its LF and begins at `offset`.
  base::Status TakeLine(std::string_view line, uint64_t offset) {
    ++number_;
    // A crash of the machine can leave a hole of NULs where a write was not yet on the disk; a
    // whole result may stand behind it on the same line.
    const size_t skipped = SkipHole(line, offset);
    line.remove_prefix(skipped);
    offset += skipped;
    const bool damaged = std::exchange(in_hole_, false);
    const uint64_t end = offset + line.size() + 1;
    const ResultLine result = ReadResultLine(parser_, line);
    // It keeps buffers for the longest line that it saw.
    if (line.size() > kLongResultBytes) parser_ = simdjson::dom::parser();
    if (!result.id) {
      if (damaged) return DropHole(offset, end);
      if (result.is_json || !LooksTorn(line)) return NotOurs(line);
      if (torn_line_ == 0) torn_line_ = number_;
      return {};
    }
    // A write that was cut short is the last of its run, and the next run cuts it off: in the midst
    // of results somebody else has edited.
    if (torn_line_ != 0) {
      return Invalid(
          path_, torn_line_,
          "is no whole result, but results follow it; delete this line and run again, its "
          "request will be answered once more");
    }
    FB_RETURN_IF_ERROR(take_({.id = *result.id,
                              .failed = result.failed,
                              .error_code = result.error_code,
                              .error_message = result.error_message,
                              .answer = result.answer,
                              .text = line,
                              .place = {offset, end},
                              .number = number_}));
    walked_.whole_bytes = end;
    return {};
  }

  // How many bytes at the begin of `text`, which begins at `offset` and is a line or a part of one,
  // are a hole or a result that runs into one: all up to the last NUL. A result holds no NUL, so
  // what follows may be a whole one.
  size_t SkipHole(std::string_view text, uint64_t offset) {
    const size_t nul = text.rfind('\0');
    if (nul == std::string_view::npos || !(in_hole_ || LooksTorn(text))) return 0;
    in_hole_ = true;
    static_cast<void>(DropHole(offset, offset + nul + 1));
    return nul + 1;
  }

  // May `text`, a line's begin, go on as one of ours?
  bool MayBeOurs(std::string_view text) const { return in_hole_ || LooksTorn(text); }

  // What comes after the last LF.
  base::Status TakeRest(std::string_view rest) {
    ++number_;
    return rest.empty() || MayBeOurs(rest) ? base::Status() : NotOurs(rest);
  }

  Walked Finish() {
    // Holes behind the last whole line are part of the torn tail.
    auto& holes = walked_.holes;
    while (!holes.empty() && holes.back().begin >= walked_.whole_bytes) holes.pop_back();
    return std::move(walked_);
  }

 private:
  base::Status NotOurs(std::string_view line) const {
    return Invalid(
        path_, number_,
        fmt::format("begins with '{}'; expected a result ({}...): this is no results file of "
                    "`forebay run`, name another one",
                    line.substr(0, 20), kLineBegin));
  }

  base::Status DropHole(uint64_t begin, uint64_t end) {
    auto& holes = walked_.holes;
    if (!holes.empty() && holes.back().end == begin) {
      holes.back().end = end;
    } else {
      holes.push_back({begin, end});
    }
    return {};
  }

  const std::string& path_;
  const TakeResult& take_;
  simdjson::dom::parser parser_;
  Walked walked_;
  int64_t number_ = 0;     // the line at hand, from 1
  int64_t torn_line_ = 0;  // the first that is no whole result
  bool in_hole_ = false;   // the line at hand began with what was skipped
};

// Compares results with what this run would make.
class Scanner {
 public:
  explicit Scanner(const ScanExpectation& expected) : expected_(expected) {
    outcome_.offsets.assign(expected.num_lines, kNoOffset);
  }

  // One that the file holds whole.
  base::Status Take(const FoundResult& result) {
    const ResultId& id = result.id;
    const std::optional<LineKey> key = expected_.find(id.line - 1);
    if (!key) {
      return base::Status(
          kResultsMismatch,
          fmt::format(
              "{}: line {} holds the result of input line {}, which this input does not have; "
              "give the input and the --shard of the earlier run, or another results file",
              expected_.path, result.number, id.line));
    }
    // A line that failed may be mended.
    const bool retried = result.failed && (expected_.retry_failed || id.hash.input != key->hash);
    // Its own input may differ; model, settings and numerics must not: they are those of all
    // results that stay.
    FB_RETURN_IF_ERROR(Compare(result, retried ? id.hash.input : key->hash));
    if (retried) {
      outcome_.dropped.push_back(result.place);
      ++outcome_.num_retried;
      return {};
    }
    uint64_t& known = outcome_.offsets[key->ordinal];
    if (known != kNoOffset) {
      return Invalid(
          expected_.path, result.number,
          fmt::format("holds a second result for input line {} (the first is at byte {}); delete "
                      "one of them and run again",
                      id.line, known));
    }
    known = result.place.begin;
    ++outcome_.num_done;
    outcome_.num_failed += result.failed;
    if (result.failed) outcome_.failures.Add(result.error_code, id.line, result.error_message);
    if (result.answer.output_tokens > 0) outcome_.answers.push_back(result.answer);
    return {};
  }

  ScanOutcome Finish(const Walked& walked) {
    outcome_.whole_bytes = walked.whole_bytes;
    for (const Piece& hole : walked.holes) outcome_.hole_bytes += hole.end - hole.begin;
    auto& dropped = outcome_.dropped;
    dropped.insert(dropped.end(), walked.holes.begin(), walked.holes.end());
    std::ranges::sort(dropped, {}, &Piece::begin);
    return std::move(outcome_);
  }

 private:
  base::Status Compare(const FoundResult& result, uint64_t input_hash) const {
    const ResultId& id = result.id;
    std::string changed;
    const auto add = [&](std::string_view what, std::string_view found, std::string_view now) {
      changed +=
          fmt::format("{}{} ({} there, {} now)", changed.empty() ? "" : ", ", what, found, now);
    };
    const auto check = [&](uint64_t found, uint64_t now, std::string_view what) {
      if (found != now) add(what, fmt::format("{:016x}", found), fmt::format("{:016x}", now));
    };
    check(id.hash.input, input_hash, "the input line");
    check(id.hash.model, expected_.job.model, "the model");
    check(id.hash.settings, expected_.job.settings,
          NameDifferences(id.hash.marks, expected_.job.marks));
    const std::string_view there = SystemFingerprintOf(result.text),
                           now = expected_.system_fingerprint;
    if (there.empty() || now.empty()) {
      check(id.hash.numerics, expected_.job.numerics, "the numerics class");
    } else if (id.hash.numerics != expected_.job.numerics) {
      add("the numerics class", there, now);
    }
    if (changed.empty()) return {};
    return base::Status(
        kResultsMismatch,
        fmt::format(
            "{}: line {} holds the result of input line {} from another run; what changed: {}. "
            "Go on with what the earlier run had, or name another results file",
            expected_.path, result.number, id.line, changed));
  }

  const ScanExpectation& expected_;
  ScanOutcome outcome_;
};

}  // namespace

std::string_view SystemFingerprintOf(std::string_view result) {
  constexpr std::string_view kKey = "\"system_fingerprint\":\"";
  // It stands behind all that a request or a model could have written.
  const size_t key = result.rfind(kKey);
  if (key == std::string_view::npos) return {};
  const std::string_view rest = result.substr(key + kKey.size());
  return rest.substr(0, rest.find('"'));
}

std::optional<FoundResult> ReadResult(simdjson::dom::parser& parser, std::string_view text) {
  if (text.find_first_of(std::string_view("\n\0", 2)) != std::string_view::npos)
    return std::nullopt;
  ResultLine line = ReadResultLine(parser, text);
  if (!line.id) return std::nullopt;
  return FoundResult{.id = *line.id,
                     .failed = line.failed,
                     .error_code = std::move(line.error_code),
                     .error_message = std::move(line.error_message),
                     .answer = line.answer,
                     .text = text};
}

base::Result<Walked> WalkResults(const ByteSource& source, const std::string& path,
                                 const TakeResult& take) {
  Walker walker(path, take);
  std::string buffer;  // begins with the line at hand
  size_t searched = 0;
  uint64_t offset = 0;  // where buffer[0] is in the file
  for (;;) {
    const size_t held = buffer.size();
    buffer.resize(held + kScanBytes);
    const int64_t count = source(buffer.data() + held, kScanBytes);
    buffer.resize(held + static_cast<size_t>(std::max<int64_t>(count, 0)));
    if (count < 0) {
      return base::Status(
          kResultsIo, fmt::format("{}: cannot read the results: {}", path, std::strerror(errno)));
    }
    if (count == 0) break;
    size_t begin = 0;
    for (size_t end; (end = buffer.find('\n', searched)) != std::string::npos;
         begin = searched = end + 1) {
      FB_RETURN_IF_ERROR(
          walker.TakeLine(std::string_view(buffer).substr(begin, end - begin), offset + begin));
    }
    buffer.erase(0, begin);
    offset += begin;
    // Neither a hole nor a file of something else need have lines that fit in memory.
    const size_t skipped = walker.SkipHole(buffer, offset);
    buffer.erase(0, skipped);
    offset += skipped;
    searched = buffer.size();
    // What begins otherwise is none of our lines: its end need not be looked for, however far it
    // is.
    if (!walker.MayBeOurs(buffer)) break;
  }
  FB_RETURN_IF_ERROR(walker.TakeRest(buffer));
  return walker.Finish();
}

base::Result<ScanOutcome> ScanResults(const ByteSource& source, const ScanExpectation& expected) {
  Scanner scanner(expected);
  FB_ASSIGN_OR_RETURN(const Walked walked,
                      WalkResults(source, expected.path,
                                  [&](const FoundResult& found) { return scanner.Take(found); }));
  return scanner.Finish(walked);
}

}  // namespace forebay::job
