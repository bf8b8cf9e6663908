#include "cli/flag_spelling.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "job/lines/parameters.h"

namespace forebay::cli {
namespace {

constexpr std::pair<std::string_view, std::string_view> kShortNames[] = {
    {"-tp", "--tensor-parallel-size"},
    {"-pp", "--pipeline-parallel-size"},
    {"-dp", "--data-parallel-size"},
};

// vLLM's flags that have no counterpart, or another one.
constexpr std::pair<std::string_view, std::string_view> kForeignFlags[] = {
    {"--block-size", "blocks of KV cache hold 32 tokens"},
    {"--cpu-offload-gb", "weights stay on their device; see --layout"},
    {"--disable-log-requests", "requests are not logged; see --quiet"},
    {"--disable-log-stats", "see --quiet"},
    {"--enable-chunked-prefill", "long prompts are always computed in chunks"},
    {"--enforce-eager", "there are no captured graphs, so there is nothing to switch off"},
    {"--hf-overrides", "edit config.json instead"},
    {"--load-format", "the format is seen from the files"},
    {"--max-seq-len-to-capture", "there are no captured graphs"},
    {"--revision", "nothing is downloaded; -m names a folder or a file"},
    {"--swap-space", "see --kv-offloading-size, memory of the host for KV of preempted requests"},
    {"--tokenizer", "the tokenizer is the model's; put its files into the model's folder"},
    {"--tokenizer-mode", "the tokenizer is seen from the files"},
    {"--trust-remote-code", "no code of a model is run"},
};

// How many insertions, deletions and replacements of a character lead from `a` to `b`.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t k = 0; k < b.size(); ++k) {
      const size_t replaced = diagonal + (a[i] != b[k]);
      diagonal = std::exchange(row[k + 1], std::min({replaced, row[k] + 1, row[k + 1] + 1}));
    }
  }
  return row.back();
}

// The flag that is spelled most like `flag`; "" where none is near.
std::string NearestFlag(std::span<const std::string> flags, std::string_view flag) {
  size_t least = std::min<size_t>(4, flag.size() / 3 + 1);
  std::string nearest;
  for (const std::string& name : flags) {
    const size_t distance = EditDistance(flag, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

}  // namespace

std::vector<std::string> NormalArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    for (const auto& [name, ours] : kShortNames) {
      if (argument == name) argument = ours;
    }
    if (!argument.starts_with("--")) continue;
    const auto end = argument.begin() +
                     static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
    std::replace(argument.begin(), end, '_', '-');
  }
  return arguments;
}

std::string HintFor(std::span<const std::string> flags, std::string_view argument) {
  const std::string_view flag = argument.substr(0, argument.find('='));
  for (const auto& [name, hint] : kForeignFlags) {
    if (flag == name) return std::string(hint);
  }
  std::string parameter(flag.substr(std::min<size_t>(flag.size(), 2)));
  std::ranges::replace(parameter, '-', '_');
  const auto& table = job::Parameters();
  if (std::ranges::find(table, parameter, &job::Parameter::name) != table.end())
    return fmt::format(
        "it is a parameter of requests: write it into the lines, or for all of them --defaults "
        "'{{\"{}\": ...}}'",
        parameter);
  const std::string nearest = NearestFlag(flags, flag);
  return nearest.empty() ? "" : fmt::format("did you mean {}?", nearest);
}

}  // namespace forebay::cli
