#include "job/traffic/arrivals.h"

#include <fmt/core.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/normal.h"

namespace forebay::job {
namespace {

constexpr std::string_view kBursts = "bursts:";  // ArrivalOptions::file
constexpr double kInfinity = std::numeric_limits<double>::infinity();

base::Status Invalid(std::string message) { return {kArrivalsInvalid, std::move(message)}; }

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

// Requests come at this rate for so long.
struct Stretch {
  double seconds, rate;
};

// A gamma variable of mean `shape`: Marsaglia and Tsang, "A simple method for generating gamma
// variables" (2000).
double Gamma(double shape, base::Rng& rng) {
  if (shape < 1) return Gamma(shape + 1, rng) * std::pow(1 - rng.Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = base::Normal(rng), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - rng.Uniform()) < x * x / 2 + d - d * v + d * std::log(v))
      return d * v;
  }
}

// Gaps of mean 1, whose sum is made their count as in `vllm bench serve`: [count] ascending, the
// last one is the count.
std::vector<double> UnitArrivals(double burstiness, int64_t count, uint64_t seed) {
  base::Rng rng(base::Mix64(seed));
  std::vector<double> times(static_cast<size_t>(count));
  double sum = 0;
  for (double& time : times) time = sum += burstiness == kInfinity ? 1 : Gamma(burstiness, rng);
  for (double& time : times) time *= static_cast<double>(count) / sum;
  return times;
}

// From numbers of requests to the seconds in which these have come. The last stretch has no end.
void FollowRates(const std::vector<Stretch>& stretches, std::vector<double>* times) {
  size_t index = 0;
  double begin = 0, requests = 0;  // of the stretch, and before it
  for (double& time : *times) {
    while (index + 1 < stretches.size() &&
           time - requests > stretches[index].seconds * stretches[index].rate) {
      requests += stretches[index].seconds * stretches[index].rate;
      begin += stretches[index].seconds;
      ++index;
    }
    time = begin + (time - requests) / stretches[index].rate;
  }
}

// "bursts:rate=2,bursts=4,burst_rate=60,burst_seconds=10": a steady stream in which so many bursts
// lie evenly.
base::Result<std::vector<Stretch>> ParseBursts(const std::string& spec, int64_t count) {
  double rate = 0, bursts = 0, burst_rate = 0, burst_seconds = 0;
  const std::pair<std::string_view, double*> fields[] = {{"rate", &rate},
                                                         {"bursts", &bursts},
                                                         {"burst_rate", &burst_rate},
                                                         {"burst_seconds", &burst_seconds}};
  for (std::string_view text = std::string_view(spec).substr(kBursts.size()); !text.empty();) {
    const std::string_view field = text.substr(0, text.find(','));
    text.remove_prefix(std::min(field.size() + 1, text.size()));
    const size_t equals = std::min(field.find('='), field.size());
    const auto value = ParseNumber(field.substr(std::min(equals + 1, field.size())));
    double* found = nullptr;
    for (const auto& [name, number] : fields) {
      if (name == field.substr(0, equals)) found = number;
    }
    if (found == nullptr || !value || *value <= 0) {
      return Invalid(
          fmt::format("--arrivals {}: \"{}\"; expected rate, bursts, burst_rate and "
                      "burst_seconds, each = a number above 0",
                      spec, field));
    }
    *found = *value;
  }
  for (const auto& [name, number] : fields) {
    if (*number == 0) return Invalid(fmt::format("--arrivals {}: {} is missing", spec, name));
  }
  if (bursts != std::floor(bursts) || bursts > 1e6)
    return Invalid(
        fmt::format("--arrivals {}: bursts is {}; expected a whole number", spec, bursts));
  const double in_bursts = bursts * burst_seconds * burst_rate,
               between = static_cast<double>(count) - in_bursts;
  if (between <= 0) {
    return Invalid(
        fmt::format("--arrivals {}: {} requests come in its bursts, the job has {}; "
                    "expected more than that",
                    spec, in_bursts, count));
  }
  // Half a gap before the first burst and after the last.
  const double gap = between / rate / bursts;
  std::vector<Stretch> stretches;
  for (int burst = 0; burst < static_cast<int>(bursts); ++burst) {
    stretches.push_back({burst == 0 ? gap / 2 : gap, rate});
    stretches.push_back({burst_seconds, burst_rate});
  }
  stretches.push_back({gap / 2, rate});
  return stretches;
}

base::Result<std::vector<double>> ReadTimes(const std::string& path, int64_t count) {
  std::ifstream file(path);
  if (!file) {
    return base::Status(base::kIoError, fmt::format("{}: cannot open the arrivals: {}", path,
                                                    std::strerror(errno)));
  }
  std::vector<double> times;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    const auto time = ParseNumber(line);
    if (!time || *time < 0) {
      return Invalid(fmt::format("{}: line {}: \"{}\"; expected the seconds since the run's begin",
                                 path, number, line.substr(0, 40)));
    }
    if (!times.empty() && *time < times.back()) {
      return Invalid(fmt::format("{}: line {}: {} comes after {}; expected ascending times", path,
                                 number, *time, times.back()));
    }
    times.push_back(*time);
  }
  if (!file.eof()) {
    return base::Status(base::kIoError, fmt::format("{}: cannot read the arrivals: {}", path,
                                                    std::strerror(errno)));
  }
  const auto found = static_cast<int64_t>(times.size());
  if (found < count) {
    return Invalid(fmt::format("{}: {} arrivals of a job of {} requests; expected one each", path,
                               found, count));
  }
  times.resize(static_cast<size_t>(count));
  return times;
}

base::Status CheckNumbers(const ArrivalOptions& options) {
  const auto refuse = [](std::string message) {
    return base::Status(base::kInvalidArgument, std::move(message));
  };
  const std::pair<const char*, double> positive[] = {{"--request-rate", options.request_rate},
                                                     {"--burstiness", options.burstiness}};
  for (const auto& [flag, value] : positive) {
    if (!(value > 0)) return refuse(fmt::format("{} is {}; expected more than 0", flag, value));
  }
  if (options.max_concurrency < 0) {
    return refuse(
        fmt::format("--max-concurrency is {}; expected at least 1", options.max_concurrency));
  }
  if (!options.source.empty() && options.request_rate < kInfinity) {
    return refuse(
        fmt::format("--request-rate {} and --arrivals {} are both given; expected one of "
                    "them",
                    options.request_rate, options.source));
  }
  if (options.burstiness != 1 && options.request_rate == kInfinity) {
    return refuse(
        fmt::format("--burstiness {} without --request-rate; expected both", options.burstiness));
  }
  return {};
}

}  // namespace

base::Result<Arrivals> PlanArrivals(const ArrivalOptions& options, int64_t count, uint64_t seed) {
  FB_RETURN_IF_ERROR(CheckNumbers(options));
  Arrivals arrivals{.max_concurrency = options.max_concurrency};
  if (!options.timed()) return arrivals;
  std::vector<Stretch> stretches = {{0, options.request_rate}};
  if (!options.file().empty()) {
    auto times = ReadTimes(options.file(), count);
    if (!times.ok()) return times.status().WithContext("--arrivals");
    arrivals.seconds = *std::move(times);
  } else {
    if (!options.source.empty()) {
      FB_ASSIGN_OR_RETURN(stretches, ParseBursts(options.source, count));
    }
    arrivals.seconds = UnitArrivals(options.burstiness, count, seed);
    FollowRates(stretches, &arrivals.seconds);
  }
  // Gaps of a tiny burstiness are all 0, and their sum is made nothing.
  if (count == 0 || arrivals.seconds.back() <= kLatestArrival) return arrivals;
  return Invalid(fmt::format("{}: the last of {} arrivals is after {:g} s; expected at most {:g} s",
                             options.source.empty()
                                 ? fmt::format("--request-rate {}, --burstiness {}",
                                               options.request_rate, options.burstiness)
                                 : "--arrivals " + options.source,
                             count, arrivals.seconds.back(), kLatestArrival));
}

}  // namespace forebay::job
