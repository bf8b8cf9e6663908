#include "bench/gpu/job_rates.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "base/rng.h"
#include "choose/create_engine.h"
#include "device/cuda/driver.h"
#include "layout/platform.h"
#include "runtime/real/real_runtime.h"
#include "testing/list_source.h"

namespace forebay::bench {
namespace {

std::vector<Request> MakeRequests(const std::vector<JobLengths>& lengths, int64_t vocab) {
  base::Rng rng(5);
  std::vector<Request> requests(lengths.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = request.line = static_cast<int64_t>(i);
    std::vector<int32_t> prompt(static_cast<size_t>(lengths[i].prompt));
    for (int32_t& token : prompt)
      token = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(vocab)));
    request.prompts = {prompt};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = lengths[i].output;
    request.sampling.ignore_eos = true;
  }
  return requests;
}

}  // namespace

base::Result<std::vector<JobLengths>> ReadJobLengths(const std::string& path, int count) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the names of its columns
  std::vector<JobLengths> lengths;
  while (static_cast<int>(lengths.size()) < count && std::getline(file, line)) {
    JobLengths& of = lengths.emplace_back();
    char comma = 0;
    if (!(std::istringstream(line) >> of.prompt >> comma >> of.output)) {
      return base::Status(base::kInvalidArgument,
                          fmt::format("{}: '{}'; expected PROMPT,OUTPUT", path, line));
    }
  }
  if (static_cast<int>(lengths.size()) < count) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("{} has {} lengths; expected {}", path, lengths.size(), count));
  }
  return lengths;
}

base::Status PrintJobRate(const std::string& model, std::string_view numerics,
                          const std::vector<JobLengths>& lengths, JobRun run) {
  const auto runtime = runtime::CreateRealRuntime();
  runtime::TimeNs last = runtime->Now();
  const auto seconds = [&] {
    const runtime::TimeNs before = std::exchange(last, runtime->Now());
    return runtime::SecondsOf(last - before);
  };
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(model, true, 1));
  layout::EngineOptions options;
  FB_ASSIGN_OR_RETURN(options.machine.devices, layout::ParseDevices("cuda"));
  FB_ASSIGN_OR_RETURN(options.machine.kernels,
                      options.machine.devices.platform->Kernels("auto", numerics));
  int64_t longest = 0, output = 0, prompt = 0;
  for (const JobLengths& of : lengths) {
    longest = std::max<int64_t>(longest, of.prompt + of.output);
    output += of.output;
    prompt += of.prompt;
  }
  options.limits.max_model_len = longest;
  options.limits.max_num_seqs = std::min<int64_t>(1024, static_cast<int64_t>(lengths.size()));
  options.random_weights = true;
  options.machine.cuda_graphs = run.graphs;
  options.profile = run.profile;
  FB_ASSIGN_OR_RETURN(const auto engine, choose::CreateEngine(*runtime, options, files, nullptr));
  const double load = seconds();
  const auto results =
      testing_support::RunAll(*engine, MakeRequests(lengths, files.config.vocab_size));
  const double took = seconds();
  for (const RequestResult& result : results) {
    if (!result.error_message.empty()) return {device::kCudaFailed, result.error_message};
  }
  const std::string name = std::filesystem::path(model).filename();
  if (!run.profile) {
    const EngineStats stats = engine->stats();
    const auto figure = [&](const char* what, double value, const char* unit) {
      fmt::print(
          "{{\"figure\": \"{} x ({} + {}), class {}, {}, {}\", \"value\": {:.4g}, "
          "\"unit\": \"{}\"}}\n",
          lengths.size(), prompt / std::ssize(lengths), output / std::ssize(lengths), numerics,
          name, what, value, unit);
    };
    if (!run.graphs) {
      figure("generated without graphs", static_cast<double>(output) / took, "tokens/s");
      return {};
    }
    figure("load", load, "s");
    figure("job", took, "s");
    figure("generated", static_cast<double>(output) / took, "tokens/s");
    figure("a step", 1e3 * took / static_cast<double>(stats.steps), "ms");
    figure("between steps", 1e3 * (took - stats.step_seconds) / static_cast<double>(stats.steps),
           "ms");
    for (const char* counter : {"kernels_launched", "kernels_in_graphs", "rows_drawn_by_kernels"})
      figure(counter, static_cast<double>(stats.counter(counter).value_or(0)), "");
  } else {
    std::vector<device::OpProfile> operations = engine->Profile();
    std::ranges::sort(operations, std::greater(), &device::OpProfile::seconds);
    for (const device::OpProfile& operation : operations) {
      fmt::print(
          "{{\"operation\": \"{}\", \"model\": \"{}\", \"class\": \"{}\", \"calls\": {}, "
          "\"seconds\": {:.4g}}}\n",
          operation.label, name, numerics, operation.calls, operation.seconds);
    }
  }
  std::fflush(stdout);
  return {};
}

}  // namespace forebay::bench
