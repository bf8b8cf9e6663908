#include "bench/gpu/job_rates.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "choose/create_engine.h"
#include "device/cuda/driver.h"
#include "layout/platform.h"
#include "runtime/real/real_runtime.h"
#include "testing/list_source.h"

namespace forebay::bench {
namespace {

constexpr int kRequests = 64, kPrompt = 128, kOutput = 32;

std::vector<Request> MakeRequests(int64_t vocab) {
  base::Rng rng(5);
  std::vector<Request> requests(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    Request& request = requests[static_cast<size_t>(i)];
    request.id = request.line = i;
    std::vector<int32_t> prompt(kPrompt);
    for (int32_t& token : prompt)
      token = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(vocab)));
    request.prompts = {prompt};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = kOutput;
    request.sampling.ignore_eos = true;
  }
  return requests;
}

}  // namespace

base::Status PrintJobRate(const std::string& model, std::string_view numerics) {
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
  options.limits.max_model_len = 1024;
  options.limits.max_num_seqs = kRequests;
  options.random_weights = true;
  const std::string name = std::filesystem::path(model).filename();
  struct Run {
    bool graphs, profile;
  };
  for (const auto& [graphs, profile] : {Run{true, false}, Run{false, false}, Run{true, true}}) {
    options.machine.cuda_graphs = graphs;
    options.profile = profile;
    FB_ASSIGN_OR_RETURN(const auto engine, choose::CreateEngine(*runtime, options, files, nullptr));
    const double load = seconds();
    const auto results = testing_support::RunAll(*engine, MakeRequests(files.config.vocab_size));
    const double took = seconds();
    for (const RequestResult& result : results) {
      if (!result.error_message.empty()) return {device::kCudaFailed, result.error_message};
    }
    if (!profile) {
      const auto figure = [&](const char* what, double value, const char* unit) {
        fmt::print(
            "{{\"figure\": \"job of class {}, {}, {}\", \"value\": {:.4g}, "
            "\"unit\": \"{}\"}}\n",
            numerics, name, what, value, unit);
      };
      if (!graphs) {
        figure("generated without graphs", kRequests * kOutput / took, "tokens/s");
        continue;
      }
      figure("load", load, "s");
      figure("64 x (128 + 32) tokens", took, "s");
      figure("generated", kRequests * kOutput / took, "tokens/s");
      for (const char* counter : {"kernels_launched", "kernels_in_graphs"}) {
        const auto count = engine->stats().counter(counter);
        figure(counter, static_cast<double>(count.value_or(0)), "kernels");
      }
      continue;
    }
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
