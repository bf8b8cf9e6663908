// What bench/gpu.sh runs on a machine with a GPU: the tests of the kernels, which CI runs on an
// emulation, on the GPU itself; what the machine is; its limits.
//
//   gpu_check facts     a line of JSON
//   gpu_check limits    a line of JSON a figure
//   gpu_check rates     likewise, of the kernels of class mma_k16f25
//   gpu_check job-rates CLASS MODEL...    likewise, of jobs on random weights in a numerics class
//   gpu_check long-jobs CLASS COUNT LENGTHS MODEL...    likewise, of requests of a file's lengths
//   gpu_check jobs [GoogleTest's flags]   whole jobs on tiny models
//   gpu_check [GoogleTest's flags]        all other tests
//
// `--emulated` as the first word: tests and jobs run on the emulation, without a GPU. Ends with 2
// where no GPU can be used, with 3 where a kernel does not end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "bench/gpu/figures.h"
#include "bench/gpu/gpu.h"
#include "bench/gpu/gpu_heap.h"
#include "bench/gpu/job_rates.h"
#include "device/cuda/testing/driver_under_test.h"

namespace {

constexpr size_t kHeapBytes = size_t{2} << 30;

// Ends the program: the driver's threads and the pinned heap go with the process.
[[noreturn]] void RunTests(const char* filter, int argc, char** argv) {
  testing::GTEST_FLAG(filter) = filter;
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  std::fflush(stdout);
  std::_Exit(failed);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace forebay;
  const auto take = [&](std::string_view word) {
    if (argc < 2 || argv[1] != word) return false;
    std::copy(argv + 2, argv + argc + 1, argv + 1);
    --argc;
    return true;
  };
  const bool emulated = take("--emulated"), jobs = take("jobs");
  const char* const filter = jobs ? "*CudaJobs*" : "-*CudaJobs*";
  if (emulated) RunTests(filter, argc, argv);
  bench::Gpu gpu;
  device::testing::SetRealDriver(&gpu.driver());
  // On memory of the host's own: a kernel that reads it faults.
  if (jobs) RunTests(filter, argc, argv);
  const std::string_view command = argc > 1 ? argv[1] : "";
  const auto check = [](const base::Status& status) {
    if (!status.ok()) bench::Gpu::Exit(status);
  };
  if (command == "facts") {
    bench::PrintFacts(gpu);
  } else if (command == "limits") {
    bench::PrintLimits(gpu);
  } else if (command == "rates") {
    bench::PrintDrawRates(gpu);
    bench::PrintKernelRates(gpu);
  } else if (command == "job-rates") {
    const std::vector<bench::JobLengths> lengths(64, {.prompt = 128, .output = 32});
    for (int i = 3; i < argc; ++i) {
      for (const bench::JobRun run : {bench::JobRun{}, {.graphs = false}, {.profile = true}})
        check(bench::PrintJobRate(argv[i], argv[2], lengths, run));
    }
  } else if (command == "long-jobs" && argc > 4) {
    const auto lengths = bench::ReadJobLengths(argv[4], std::atoi(argv[3]));
    check(lengths.status());
    for (int i = 5; i < argc; ++i) check(bench::PrintJobRate(argv[i], argv[2], *lengths, {}));
  } else {
    void* heap = nullptr;
    gpu.Do(gpu.driver().MemHostAlloc(&heap, kHeapBytes,
                                     device::cu::kHostPortable | device::cu::kHostMapped),
           "pinned memory for the tests");
    bench::UsePinnedHeap(heap, kHeapBytes);
    static bench::GpuLauncher launcher(gpu);
    kernels::cuda::testing::SetLauncher(&launcher);
    RunTests(filter, argc, argv);
  }
  std::fflush(stdout);
  std::_Exit(0);
}
