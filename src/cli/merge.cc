// forebay merge: the results files of a job's shards as one.
#include <fmt/ranges.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/outcome.h"
#include "job/exit_code.h"
#include "job/files/merge.h"

namespace forebay::cli {
namespace {

constexpr size_t kMostRanges = 20;

std::string Ranges(const std::vector<std::pair<int64_t, int64_t>>& missing) {
  std::vector<std::string> parts;
  for (const auto& [first, last] : missing) {
    if (parts.size() == kMostRanges) break;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  const std::string rest = missing.size() > kMostRanges ? ", ..." : "";
  return fmt::format("{}{}", fmt::join(parts, ", "), rest);
}

int Merge(const job::MergeOptions& options) {
  const auto merged = job::MergeResults(options);
  if (!merged.ok()) return Fail(merged.status());
  const auto say = [&](std::string what) {
    base::Log(base::LogLevel::kInfo, fmt::format("{}: {}", options.output, what));
  };
  say(fmt::format("{} results of {} parts", merged->lines, options.parts.size()));
  if (merged->twice > 0) say(fmt::format("{} lines had two results, equal ones", merged->twice));
  if (merged->torn_bytes > 0)
    say(fmt::format("{} bytes of torn results were left out", merged->torn_bytes));
  if (merged->missing.empty() && (merged->lines > 0 || !options.input.empty())) return 0;
  if (merged->missing.empty()) {
    base::Log(base::LogLevel::kWarning,
              fmt::format("{}: no part has a result, so that the job has not begun, or its input "
                          "has no lines; --input-file tells which",
                          options.output));
    return static_cast<int>(job::ExitCode::kDrained);
  }
  say(
      fmt::format("no results for lines {} (blank lines have none; `forebay run` goes on with the "
                  "merged file)",
                  Ranges(merged->missing)));
  return static_cast<int>(job::ExitCode::kDrained);
}

}  // namespace

void AddMergeCommand(Command app, int* exit_code) {
  auto options = std::make_shared<job::MergeOptions>();
  const Command command = app.add_subcommand(
      "merge", "Join results files of one job (`forebay run --shard`) in the input's order");
  command.add_option("-o,--output-file", options->output, "The merged results").required();
  command.add_option("-i,--input-file", options->input,
                     "The job's input: then every line that has no result is named");
  command.add_option("parts", options->parts, "Results files").required();
  command.callback([options, exit_code] { *exit_code = Merge(*options); });
}

}  // namespace forebay::cli
