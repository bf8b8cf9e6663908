#include "trace/synthetic_trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/normal.h"

namespace forebay::trace {
namespace {

constexpr int64_t kMostRows = 100'000'000;
constexpr double kLeastRate = 1e-9;

base::Status Invalid(std::string_view spec, std::string_view why) {
  return base::Status(kTraceInvalid, fmt::format("--trace \"{}\": {}", spec, why));
}

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

enum class Shape : uint8_t { kConstant, kUniform, kNormal, kLognormal, kZipf };

struct Kind {
  std::string_view name;
  Shape shape;
  std::string_view usage;
};
constexpr Kind kKinds[] = {
    {"uniform", Shape::kUniform, "uniform(LOWEST,HIGHEST)"},
    {"normal", Shape::kNormal, "normal(MEAN,DEVIATION)"},
    {"lognormal", Shape::kLognormal, "lognormal(MEAN,DEVIATION), of the logarithm"},
    {"zipf", Shape::kZipf, "zipf(EXPONENT above 1,LONGEST)"},
};

// Lengths are rounded and kept within 1 and kMostTraceTokens.
struct Distribution {
  Shape shape = Shape::kConstant;
  double a = 1, b = 0;

  double Draw(base::Rng& rng) const;
};

double Distribution::Draw(base::Rng& rng) const {
  switch (shape) {
    case Shape::kConstant: return a;
    case Shape::kUniform: return std::floor(a + (b - a + 1) * rng.Uniform());
    case Shape::kNormal: return a + b * base::Normal(rng);
    case Shape::kLognormal: return std::exp(a + b * base::Normal(rng));
    case Shape::kZipf: {
      // The continuous power law x^-a on [1, b], by the inverse of its distribution.
      const double power = 1 - a;
      return std::pow(1 + rng.Uniform() * (std::pow(b, power) - 1), 1 / power);
    }
  }
  return a;
}

int32_t DrawLength(const Distribution& distribution, base::Rng& rng) {
  return static_cast<int32_t>(
      std::clamp<double>(std::round(distribution.Draw(rng)), 1, kMostTraceTokens));
}

bool IsUsable(const Distribution& distribution) {
  const double a = distribution.a, b = distribution.b, most = kMostTraceTokens;
  switch (distribution.shape) {
    case Shape::kConstant: return a >= 1 && a <= most && a == std::floor(a);
    case Shape::kUniform: return a >= 1 && b >= a && b <= most;
    case Shape::kNormal: return a >= 1 && a <= most && b >= 0;
    case Shape::kLognormal: return a >= 0 && a <= std::log(most) && b >= 0;
    case Shape::kZipf: return a > 1 && b >= 1 && b <= most;
  }
  return false;
}

std::optional<Distribution> ParseDistribution(std::string_view text) {
  if (const auto constant = ParseNumber(text)) return Distribution{Shape::kConstant, *constant, 0};
  const size_t open = text.find('('), comma = text.find(',');
  if (comma == std::string_view::npos || open > comma || !text.ends_with(')')) return std::nullopt;
  const auto a = ParseNumber(text.substr(open + 1, comma - open - 1));
  const auto b = ParseNumber(text.substr(comma + 1, text.size() - comma - 2));
  for (const Kind& kind : kKinds) {
    if (kind.name == text.substr(0, open) && a && b) return Distribution{kind.shape, *a, *b};
  }
  return std::nullopt;
}

// "a=1,b=f(2,3)" -> (a, 1), (b, f(2,3)).
std::vector<std::pair<std::string_view, std::string_view>> SplitFields(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> fields;
  while (!text.empty()) {
    size_t end = 0;
    for (int depth = 0; end < text.size() && (depth > 0 || text[end] != ','); ++end) {
      depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
    }
    const std::string_view field = text.substr(0, end);
    const size_t equals = std::min(field.find('='), field.size());
    fields.emplace_back(field.substr(0, equals), field.substr(std::min(equals + 1, field.size())));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return fields;
}

struct Numbers {
  double rows = 1000, rate = 0, seed = 0, shared = 0, choices = 1, bound = 0, deadline = 0;
  Service service = Service::kBatch;
  Distribution prompt{Shape::kConstant, 512}, output{Shape::kConstant, 128};
};

base::Status ParseField(std::string_view spec, std::string_view name, std::string_view value,
                        Numbers* numbers) {
  struct Field {
    std::string_view name;
    double* value;
    double least, most;
  };
  const Field fields[] = {
      {"n", &numbers->rows, 1, kMostRows},     {"rate", &numbers->rate, 0, 1e9},
      {"seed", &numbers->seed, 0, 0x1p53},     {"shared", &numbers->shared, 0, kMostTraceTokens},
      {"choices", &numbers->choices, 1, 1024}, {"bound", &numbers->bound, 0, 1e6},
      {"deadline", &numbers->deadline, 0, 1e9}};
  if (name == "service") {
    if (value != "batch" && value != "interactive") {
      return Invalid(spec, fmt::format("service is \"{}\"; expected batch or interactive", value));
    }
    if (value == "interactive") numbers->service = Service::kInteractive;
    return {};
  }
  if (name == "prompt" || name == "output") {
    const auto distribution = ParseDistribution(value);
    if (!distribution || !IsUsable(*distribution)) {
      std::string expected = fmt::format("a whole number from 1 to {}", kMostTraceTokens);
      for (const Kind& kind : kKinds) expected += fmt::format(", {}", kind.usage);
      return Invalid(spec, fmt::format("{} is \"{}\"; expected {}", name, value, expected));
    }
    (name == "prompt" ? numbers->prompt : numbers->output) = *distribution;
    return {};
  }
  for (const Field& field : fields) {
    if (field.name != name) continue;
    const auto number = ParseNumber(value);
    const bool parts = name == "rate" || name == "bound" || name == "deadline";
    const bool whole = number && (parts || *number == std::floor(*number));
    if (!whole || *number < field.least || *number > field.most) {
      return Invalid(
          spec, fmt::format("{} is \"{}\"; expected a {}number from {:.0f} to {:.0f}", name, value,
                            parts ? "" : "whole ", field.least, field.most));
    }
    *field.value = *number;
    return {};
  }
  return Invalid(spec, fmt::format("\"{}\" is unknown; expected n, prompt, output, rate, seed, "
                                   "shared, choices, bound, service or "
                                   "deadline",
                                   name));
}

}  // namespace

base::Result<LengthTrace> MakeSyntheticTrace(std::string_view spec) {
  Numbers numbers;
  for (const auto& [name, value] : SplitFields(spec.substr(kSyntheticPrefix.size()))) {
    FB_RETURN_IF_ERROR(ParseField(spec, name, value, &numbers));
  }
  LengthTrace trace{.name = std::string(spec),
                    .shared_prefix_tokens = static_cast<int32_t>(numbers.shared),
                    .choices = static_cast<int32_t>(numbers.choices),
                    .bound = numbers.bound};
  trace.rows.reserve(static_cast<size_t>(numbers.rows));
  base::Rng rng(base::Mix64(static_cast<uint64_t>(numbers.seed)));
  double time = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(numbers.rows); ++i) {
    const int32_t prompt = DrawLength(numbers.prompt, rng);
    const int32_t output = DrawLength(numbers.output, rng);
    trace.rows.push_back({.arrival_seconds = time,
                          .prompt_tokens = prompt,
                          .output_tokens = output,
                          .service = numbers.service,
                          .deadline_seconds = numbers.deadline > 0
                                                  ? numbers.deadline
                                                  : std::numeric_limits<double>::infinity()});
    // A Poisson process.
    if (numbers.rate > 0) time -= std::log(1 - rng.Uniform()) / std::max(numbers.rate, kLeastRate);
  }
  return trace;
}

}  // namespace forebay::trace
