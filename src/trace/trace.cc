#include "trace/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include "job/traffic/arrivals.h"
#include "trace/synthetic_trace.h"

namespace forebay::trace {
namespace {

// A time of a clock is before the year 2071.
constexpr double kLatestTime = 3.2e9;
// Spreadsheets write it.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

enum Column : size_t { kArrival, kService, kDeadline, kPrompt, kOutput, kNumColumns };

struct ColumnNames {
  std::string_view what;
  std::array<std::string_view, 4> names;  // as published traces have them
};
constexpr ColumnNames kColumns[kNumColumns] = {
    {"the arrival", {"arrived_at", "arrival", "arrival_seconds", "TIMESTAMP"}},
    {"the service", {"service"}},
    {"the deadline", {"deadline"}},
    {"the prompt's length", {"num_prefill_tokens", "prompt_tokens", "prompt", "ContextTokens"}},
    {"the output's length", {"num_decode_tokens", "output_tokens", "output", "GeneratedTokens"}},
};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// Seconds, or a date and time, "2023-11-16 18:17:03.9799600", since 1970.
std::optional<double> ParseTime(std::string_view text) {
  int fields[5];
  constexpr std::string_view kBehind = "-- ::";
  const char* at = text.data();
  const char* const last = at + text.size();
  double seconds = 0;
  if (const auto [end, error] = std::from_chars(at, last, seconds);
      error == std::errc() && end == last)
    return seconds;
  for (size_t i = 0; i < kBehind.size(); ++i) {
    const auto [end, error] = std::from_chars(at, last, fields[i]);
    if (error != std::errc() || end == last || *end != kBehind[i] || fields[i] < 0 ||
        fields[i] > 9999)
      return std::nullopt;
    at = end + 1;
  }
  const auto [end, error] = std::from_chars(at, last, seconds);
  if (error != std::errc() || end != last) return std::nullopt;
  // Days since 1970 of a Gregorian date whose year begins in March.
  const int64_t month = fields[1] - 3, year = fields[0] + (month < 0 ? -1 : 0);
  const int64_t days = 365 * year + year / 4 - year / 100 + year / 400 +
                       (153 * (month < 0 ? month + 12 : month) + 2) / 5 + fields[2] - 719469;
  return static_cast<double>(days * 86400 + fields[3] * 3600 + fields[4] * 60) + seconds;
}

// One pass over a file, a line at a time.
class TraceReader {
 public:
  TraceReader(const std::string& path, const TraceOptions& options)
      : path_(path), options_(options) {}

  base::Result<LengthTrace> Read(std::istream& file) {
    LengthTrace trace{.name = path_};
    std::string line;
    while (NextLine(file, &line)) {
      if (line_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
      if (Trim(line).empty()) continue;
      FB_RETURN_IF_ERROR(Split(line));
      if (!has_header_) {
        FB_RETURN_IF_ERROR(ReadHeader());
        continue;
      }
      FB_ASSIGN_OR_RETURN(const TraceRow row, ReadRow());
      if (!trace.rows.empty() && row.arrival_seconds < trace.rows.back().arrival_seconds)
        return Unordered();
      trace.rows.push_back(row);
      if (static_cast<int64_t>(trace.rows.size()) == options_.max_rows) break;
    }
    if (file.bad())
      return base::Status(base::kIoError, fmt::format("{}: cannot read the trace: {}", path_,
                                                      std::strerror(errno)));
    if (trace.rows.empty())
      return base::Status(kTraceInvalid,
                          fmt::format("{}: no rows; expected a header and a row a request", path_));
    return trace;
  }

 private:
  static constexpr size_t kMostFields = 64, kLongestLine = 1 << 16;

  bool NextLine(std::istream& file, std::string* line) {
    ++line_;
    return static_cast<bool>(std::getline(file, *line));
  }

  base::Status Invalid(std::string_view why) const {
    return base::Status(kTraceInvalid, fmt::format("{}: line {}: {}", path_, line_, why));
  }

  base::Status Unordered() const {
    return Invalid(fmt::format(
        "column {}: {} comes after a later arrival; expected rows in the order of arrival",
        kColumns[kArrival].names[name_[kArrival]], fields_[index_[kArrival]]));
  }

  base::Status Split(std::string_view line) {
    num_fields_ = 0;
    if (line.size() > kLongestLine)
      return Invalid(fmt::format("{} bytes; expected at most {}", line.size(), kLongestLine));
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find(',', begin), line.size());
      if (num_fields_ == kMostFields)
        return Invalid(fmt::format("more than {} columns", kMostFields));
      fields_[num_fields_++] = Trim(line.substr(begin, end - begin));
      begin = end + 1;
    }
    return {};
  }

  base::Status ReadHeader() {
    has_header_ = true;
    num_columns_ = num_fields_;
    for (size_t column = 0; column < kNumColumns; ++column) {
      index_[column] = kMostFields;
      for (size_t field = 0; field < num_fields_; ++field) {
        const auto& names = kColumns[column].names;
        const auto found = std::ranges::find(names, fields_[field]);
        if (found == names.end() || found->empty()) continue;
        if (index_[column] != kMostFields) {
          return Invalid(fmt::format("columns {} and {} both give {}", names[name_[column]], *found,
                                     kColumns[column].what));
        }
        index_[column] = field;
        name_[column] = static_cast<size_t>(found - names.begin());
      }
      if (index_[column] == kMostFields && column >= kPrompt) {
        const auto& names = kColumns[column].names;
        return Invalid(fmt::format("no column gives {}; expected a header with {}, {}, {} or {}",
                                   kColumns[column].what, names[0], names[1], names[2], names[3]));
      }
    }
    return {};
  }

  base::Result<TraceRow> ReadRow() {
    if (num_fields_ != num_columns_)
      return Invalid(
          fmt::format("{} columns; expected {} as in the header", num_fields_, num_columns_));
    TraceRow row;
    FB_ASSIGN_OR_RETURN(row.prompt_tokens, Length(kPrompt));
    FB_ASSIGN_OR_RETURN(row.output_tokens, Length(kOutput));
    FB_RETURN_IF_ERROR(ReadService(&row));
    if (index_[kArrival] == kMostFields) return row;
    const std::string_view text = fields_[index_[kArrival]];
    const auto seconds = ParseTime(text);
    if (!seconds || !(*seconds >= 0 && *seconds <= kLatestTime)) {
      return Invalid(fmt::format(
          "column {}: \"{}\" is no time; expected seconds from 0 on, or YYYY-MM-DD HH:MM:SS",
          kColumns[kArrival].names[name_[kArrival]], text));
    }
    // A clock's times count from the first.
    if (!origin_) origin_ = text.find(':') == std::string_view::npos ? 0 : *seconds;
    row.arrival_seconds = *seconds - *origin_;
    return row;
  }

  base::Status ReadService(TraceRow* row) const {
    if (index_[kService] != kMostFields) {
      const std::string_view text = fields_[index_[kService]];
      if (text != "batch" && text != "interactive") {
        return Invalid(fmt::format(
            "column service: \"{}\" is no service; expected batch or interactive", text));
      }
      if (text == "interactive") row->service = Service::kInteractive;
    }
    if (index_[kDeadline] == kMostFields || fields_[index_[kDeadline]].empty()) return {};
    const std::string_view text = fields_[index_[kDeadline]];
    double seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0)) {
      return Invalid(fmt::format(
          "column deadline: \"{}\" is no time; expected seconds from the run's begin, or nothing",
          text));
    }
    row->deadline_seconds = seconds;
    return {};
  }

  base::Result<int32_t> Length(Column column) const {
    const std::string_view text = fields_[index_[column]];
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= 1 &&
        value <= kMostTraceTokens) {
      return static_cast<int32_t>(value);
    }
    return Invalid(
        fmt::format("column {}: \"{}\" is no length; expected a whole number from 1 to {}",
                    kColumns[column].names[name_[column]], text, kMostTraceTokens));
  }

  const std::string& path_;
  const TraceOptions options_;
  int64_t line_ = 0;
  bool has_header_ = false;
  std::array<std::string_view, kMostFields> fields_;  // the fields of the line at hand
  size_t num_fields_ = 0, num_columns_ = 0;
  size_t index_[kNumColumns] = {};  // which field it is; kMostFields: there is none
  size_t name_[kNumColumns] = {};   // which of its names it has
  std::optional<double> origin_;
};

// Multiplies arrivals; errors where the last one is beyond what the clock counts.
base::Result<LengthTrace> Scale(LengthTrace trace, double time_scale) {
  for (TraceRow& row : trace.rows) {
    row.arrival_seconds *= time_scale;
    if (std::isfinite(row.deadline_seconds)) row.deadline_seconds *= time_scale;
  }
  const double last = trace.rows.back().arrival_seconds;
  if (last <= job::kLatestArrival) return trace;
  return base::Status(kTraceInvalid,
                      fmt::format("{}: the last arrival is after {:g} s; expected at most {:g} s",
                                  trace.name, last, job::kLatestArrival));
}

}  // namespace

bool LengthTrace::has(Service service) const {
  return std::ranges::any_of(rows, [&](const TraceRow& row) { return row.service == service; });
}

bool LengthTrace::has_deadlines() const {
  return std::ranges::any_of(
      rows, [](const TraceRow& row) { return std::isfinite(row.deadline_seconds); });
}

LengthTrace LengthTrace::Take(Service service) {
  LengthTrace taken = *this;
  std::erase_if(taken.rows, [&](const TraceRow& row) { return row.service != service; });
  std::erase_if(rows, [&](const TraceRow& row) { return row.service == service; });
  return taken;
}

base::Result<LengthTrace> ParseTrace(std::istream& text, const std::string& name,
                                     const TraceOptions& options) {
  FB_ASSIGN_OR_RETURN(LengthTrace trace, TraceReader(name, options).Read(text));
  return Scale(std::move(trace), options.time_scale);
}

base::Result<LengthTrace> ReadTrace(const std::string& spec, const TraceOptions& options) {
  if (!(options.time_scale >= 0 && options.time_scale <= 1e9)) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--trace-scale is {}; expected 0 to 1e9", options.time_scale));
  }
  if (options.max_rows < 0) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--trace-rows is {}; expected at least 0", options.max_rows));
  }
  if (!spec.starts_with(kSyntheticPrefix)) {
    std::ifstream file(spec);
    if (!file)
      return base::Status(base::kIoError,
                          fmt::format("{}: cannot open the trace: {}", spec, std::strerror(errno)));
    return ParseTrace(file, spec, options);
  }
  FB_ASSIGN_OR_RETURN(LengthTrace trace, MakeSyntheticTrace(spec));
  if (options.max_rows > 0 && options.max_rows < static_cast<int64_t>(trace.rows.size())) {
    trace.rows.resize(static_cast<size_t>(options.max_rows));
  }
  return Scale(std::move(trace), options.time_scale);
}

}  // namespace forebay::trace
