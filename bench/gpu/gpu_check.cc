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
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"
#include "bench/gpu/gpu_heap.h"
#include "bench/gpu/job_rates.h"
#include "device/cuda/driver.h"
#include "device/cuda/modules.h"
#include "device/cuda/testing/driver_under_test.h"
#include "device/lone_worker.h"
#include "kernels/cuda/launch/experts.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/trial/params.h"
#include "kernels/draw.h"
#include "kernels/linear.h"

namespace forebay::bench {
namespace {

namespace cu = device::cu;
using device::CudaKernel;
using device::LaunchShape;
using Clock = std::chrono::steady_clock;

constexpr size_t kHeapBytes = size_t{2} << 30;
constexpr double kLongestKernel = 20;  // seconds

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The first GPU, a stream, and errors that end the program.
class Gpu {
 public:
  Gpu() {
    base::Result<const device::Driver*> opened = device::OpenDriver();
    if (!opened.ok()) Exit(opened.status());
    driver_ = *opened;
    Do(driver_->DeviceGet(&device_, 0), "cuDeviceGet");
    Do(driver_->DevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
    Do(driver_->CtxSetCurrent(context_), "cuCtxSetCurrent");
    Do(driver_->StreamCreateWithPriority(&stream, cu::kStreamNonBlocking, 0), "a stream");
    architecture_ = Attribute(cu::Attribute::kMajor) * 10 + Attribute(cu::Attribute::kMinor);
    modules_ = std::make_unique<device::CudaModules>(*driver_, architecture_);
  }

  static constexpr size_t kScratchBytes = size_t{64} << 20;
  // Of kernels' launches.
  std::byte* scratch() {
    if (scratch_ == 0) Do(driver_->MemAlloc(&scratch_, kScratchBytes), "cuMemAlloc");
    return reinterpret_cast<std::byte*>(scratch_);
  }
  const device::Driver& driver() const { return *driver_; }
  int architecture() const { return architecture_; }
  cu::Device device() const { return device_; }
  int Attribute(cu::Attribute attribute) const {
    int value = 0;
    Do(driver_->DeviceGetAttribute(&value, attribute, device_), "cuDeviceGetAttribute");
    return value;
  }
  void Do(cu::Result result, const char* what) const {
    if (result != cu::kSuccess) Exit(driver_->Check(result, what));
  }
  base::Status Launch(const CudaKernel& kernel, const LaunchShape& shape, const void* params) {
    return modules_->Launch(kernel, shape, params, stream);
  }
  template <typename Params>
  void Launch(std::string_view name, const LaunchShape& shape, const Params& params) {
    const base::Status status = Launch(kernels::cuda::KernelNamed(name), shape, &params);
    if (!status.ok()) Exit(status);
  }
  // Waits for the stream; a kernel that hangs ends the program.
  base::Status Wait() {
    const Clock::time_point start = Clock::now();
    for (;;) {
      const cu::Result result = driver_->StreamQuery(stream);
      if (result != cu::kNotReady) return driver_->Check(result, "waiting for a kernel");
      if (SecondsSince(start) > kLongestKernel) {
        fmt::print("a kernel has not ended in {} s\n", kLongestKernel);
        std::fflush(stdout);
        std::_Exit(3);
      }
    }
  }
  [[noreturn]] static void Exit(const base::Status& status) {
    fmt::print("{}\n", status.ToString());
    std::fflush(stdout);
    std::_Exit(2);
  }

  cu::Stream stream = nullptr;

 private:
  const device::Driver* driver_ = nullptr;
  cu::Device device_ = 0;
  cu::Context context_ = nullptr;
  cu::DevicePtr scratch_ = 0;
  int architecture_ = 0;
  std::unique_ptr<device::CudaModules> modules_;
};

class GpuLaunch final : public device::LaunchContext {
 public:
  explicit GpuLaunch(Gpu& gpu) : gpu_(gpu) {
    architecture = gpu.architecture();
    multiprocessors = gpu.Attribute(cu::Attribute::kMultiprocessors);
    kernels = kernels::cuda::Kernels();
    scratch = gpu.scratch();
    scratch_bytes = Gpu::kScratchBytes;
  }
  void LaunchBytes(const CudaKernel& kernel, const LaunchShape& shape, const void* params,
                   size_t /*bytes*/) const override {
    if (std::ranges::any_of(shape.blocks, [](int blocks) { return blocks == 0; })) return;
    const base::Status status = gpu_.Launch(kernel, shape, params);
    if (status_.ok()) status_ = status;
  }
  void RunOnHost(device::Operation::RunFn run, const void* args, size_t /*bytes*/) const override {
    const base::Status status = gpu_.Wait();
    if (status_.ok()) status_ = status;
    run(args, device::LoneWorker());
  }
  const base::Status& status() const { return status_; }

 private:
  Gpu& gpu_;
  mutable base::Status status_;
};

class GpuLauncher final : public kernels::cuda::testing::Launcher {
 public:
  explicit GpuLauncher(Gpu& gpu) : gpu_(gpu) {}
  int launches() const override { return 10; }
  bool fast() const override { return true; }
  base::Status Run(int /*launch*/,
                   const std::function<void(const device::LaunchContext&)>& enqueue) override {
    const GpuLaunch context(gpu_);
    enqueue(context);
    const base::Status ended = gpu_.Wait();
    return context.status().ok() ? ended : context.status();
  }

 private:
  Gpu& gpu_;
};

void PrintFacts(Gpu& gpu) {
  char name[256] = "";
  size_t free = 0, total = 0;
  int version = 0;
  gpu.Do(gpu.driver().DeviceGetName(name, sizeof name, gpu.device()), "cuDeviceGetName");
  gpu.Do(gpu.driver().MemGetInfo(&free, &total), "cuMemGetInfo");
  gpu.Do(gpu.driver().DriverGetVersion(&version), "cuDriverGetVersion");
  fmt::print(
      "{{\"gpu\": \"{}\", \"compute_capability\": {}.{}, \"multiprocessors\": {}, \"memory\": {}, "
      "\"free\": {}, \"l2\": {}, \"shared_a_block\": {}, \"driver_cuda\": {}, \"images\": {}}}\n",
      name, gpu.architecture() / 10, gpu.architecture() % 10,
      gpu.Attribute(cu::Attribute::kMultiprocessors), total, free,
      gpu.Attribute(cu::Attribute::kL2Bytes), gpu.Attribute(cu::Attribute::kSharedPerBlock),
      version, kernels::cuda::HasImages());
}

// Median seconds of `body` on the stream, between two events, after a first run that does not
// count.
double OnStream(Gpu& gpu, const std::function<void()>& body, int rounds = 7) {
  const device::Driver& driver = gpu.driver();
  cu::Event begin, end;
  gpu.Do(driver.EventCreate(&begin, cu::kEventDefault), "an event");
  gpu.Do(driver.EventCreate(&end, cu::kEventDefault), "an event");
  std::vector<float> times;
  for (int round = -1; round < rounds; ++round) {
    gpu.Do(driver.EventRecord(begin, gpu.stream), "cuEventRecord");
    body();
    gpu.Do(driver.EventRecord(end, gpu.stream), "cuEventRecord");
    const base::Status status = gpu.Wait();
    if (!status.ok()) Gpu::Exit(status);
    float milliseconds = 0;
    gpu.Do(driver.EventElapsedTime(&milliseconds, begin, end), "cuEventElapsedTime");
    if (round >= 0) times.push_back(milliseconds);
  }
  std::ranges::sort(times);
  gpu.Do(driver.EventDestroy(begin), "cuEventDestroy");
  gpu.Do(driver.EventDestroy(end), "cuEventDestroy");
  return 1e-3 * times[times.size() / 2];
}

void PrintFigure(std::string_view name, double value, std::string_view unit) {
  fmt::print("{{\"figure\": \"{}\", \"value\": {:.4g}, \"unit\": \"{}\"}}\n", name, value, unit);
  std::fflush(stdout);
}

void PrintLimits(Gpu& gpu) {
  const device::Driver& driver = gpu.driver();
  constexpr size_t kBytes = size_t{2} << 30;
  cu::DevicePtr from = 0, to = 0;
  gpu.Do(driver.MemAlloc(&from, kBytes), "cuMemAlloc");
  gpu.Do(driver.MemAlloc(&to, kBytes), "cuMemAlloc");
  // No zeros: they may be read and moved faster than data.
  gpu.Do(driver.MemsetD8Async(from, 0x5A, kBytes, gpu.stream), "cuMemsetD8Async");
  gpu.Do(driver.MemsetD8Async(to, 0x33, kBytes, gpu.stream), "cuMemsetD8Async");
  const kernels::cuda::ReadTrialParams read{reinterpret_cast<const uint32_t*>(from),
                                            static_cast<int64_t>(kBytes / 16),
                                            reinterpret_cast<uint32_t*>(to)};
  const LaunchShape readers{.blocks = {gpu.Attribute(cu::Attribute::kMultiprocessors) * 4, 1, 1},
                            .threads = 512};
  PrintFigure("read",
              kBytes / OnStream(gpu, [&] { gpu.Launch("trial_read", readers, read); }) * 1e-9,
              "GB/s");
  const auto copy = [&](cu::DevicePtr target, cu::DevicePtr source, size_t bytes) {
    return [&gpu, &driver, target, source, bytes] {
      gpu.Do(driver.MemcpyAsync(target, source, bytes, gpu.stream), "cuMemcpyAsync");
    };
  };
  PrintFigure("copy 256 MiB on the device", 0x1p28 / OnStream(gpu, copy(to, from, 1 << 28)) * 1e-9,
              "GB/s moved");
  PrintFigure("copy 8 MiB on the device", 0x1p23 / OnStream(gpu, copy(to, from, 1 << 23)) * 1e-9,
              "GB/s moved");
  void* pinned = nullptr;
  constexpr size_t kPinned = size_t{256} << 20;
  const Clock::time_point start = Clock::now();
  gpu.Do(driver.MemHostAlloc(&pinned, kPinned, cu::kHostPortable | cu::kHostMapped),
         "cuMemHostAlloc");
  PrintFigure("pin 256 MiB", SecondsSince(start) * 1e3, "ms");
  const auto host = reinterpret_cast<cu::DevicePtr>(pinned);
  for (const size_t bytes : {size_t{1} << 20, size_t{8} << 20, kPinned}) {
    PrintFigure(fmt::format("host to device, {} MiB", bytes >> 20),
                static_cast<double>(bytes) / OnStream(gpu, copy(to, host, bytes)) * 1e-9, "GB/s");
    PrintFigure(fmt::format("device to host, {} MiB", bytes >> 20),
                static_cast<double>(bytes) / OnStream(gpu, copy(host, from, bytes)) * 1e-9, "GB/s");
  }
  constexpr int kLaunches = 1000;
  const LaunchShape one{.threads = 32};
  const auto microseconds = [](double seconds, int n) { return seconds / n * 1e6; };
  PrintFigure("launch",
              microseconds(OnStream(gpu,
                                    [&] {
                                      for (int i = 0; i < kLaunches; ++i)
                                        gpu.Launch("trial_nothing", one, read);
                                    }),
                           kLaunches),
              "us");
  const auto round_trip = [&](const std::function<void()>& body) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kLaunches; ++i) body();
    return microseconds(SecondsSince(begin), kLaunches);
  };
  PrintFigure("launch and wait", round_trip([&] {
                gpu.Launch("trial_nothing", one, read);
                (void)gpu.Wait();
              }),
              "us");
  PrintFigure("write of a value, and wait", round_trip([&] {
                gpu.Do(driver.StreamWriteValue64(gpu.stream, host, 1, cu::kWriteDefault),
                       "cuStreamWriteValue64");
                (void)gpu.Wait();
              }),
              "us");
  PrintFigure("wait for a value that is there", round_trip([&] {
                gpu.Do(driver.StreamWaitValue64(gpu.stream, host, 0, cu::kWaitGreaterOrEqual),
                       "cuStreamWaitValue64");
                (void)gpu.Wait();
              }),
              "us");
}

// Rates of the kernels of class mma_k16f25 on random values, launched one after the other without a
// graph: below some 5 us a kernel is bound by its launch.
class Rates {
 public:
  explicit Rates(Gpu& gpu)
      : gpu_(gpu), multiprocessors_(gpu.Attribute(cu::Attribute::kMultiprocessors)) {
    for (cu::DevicePtr* region : {&pool_, &in_, &out_}) {
      const size_t bytes = region == &pool_ ? kPoolBytes : kRowBytes;
      gpu.Do(gpu.driver().MemAlloc(region, bytes), "cuMemAlloc");
      Fill(*region, bytes);
    }
    gpu.Do(gpu.driver().MemAlloc(&lists_, kListBytes), "cuMemAlloc");
    void* host = nullptr;
    gpu.Do(gpu.driver().MemHostAlloc(&host, kListBytes, cu::kHostPortable), "cuMemHostAlloc");
    host_lists_ = static_cast<std::byte*>(host);
  }

  // `columns`: of the weight. A gate writes half of them, in chunks.
  void Linear(std::string_view name, int rows, int columns, int k, int leaves,
              kernels::LinearOutput output = kernels::LinearOutput::kRounded) {
    const double seconds = LinearSeconds(rows, columns, k, leaves, output);
    const std::string what = fmt::format("linear {}, {} rows", name, rows);
    PrintFigure(what, seconds * 1e6, "us");
    if (rows <= 64) {
      PrintFigure(what, 2.0 * columns * k / seconds * 1e-9, "GB/s");
    } else {
      PrintFigure(what, 2.0 * rows * columns * k / seconds * 1e-12, "TFLOP/s");
    }
  }

  // A layer's 128 experts, matrices of [columns, k], for `tokens` rows that choose 8 of them: all
  // experts alike, and as they are drawn. Beside a dense layer with as many rows as an expert has
  // and the columns of all. REQUIRES: a row for each expert.
  void Experts(std::string_view name, int tokens, int columns, int k,
               kernels::LinearOutput output) {
    const double dense =
        LinearSeconds(tokens * kChosen / kExperts, columns * kExperts, k, 1, output);
    for (const bool drawn : {false, true}) {
      const double seconds = ExpertsSeconds(tokens, columns, k, output, drawn);
      const std::string what =
          fmt::format("experts {}, {} rows of 8{}", name, tokens, drawn ? ", drawn" : "");
      PrintFigure(what, seconds * 1e6, "us");
      PrintFigure(what, 2.0 * tokens * kChosen * columns * k / seconds * 1e-12, "TFLOP/s");
      PrintFigure(what + ", of a dense layer", dense / seconds, "ratio");
    }
  }

  // What layers do whose x does not lie in chunks.
  void Pack(int rows, int k) {
    const kernels::cuda::PackRowsParams params{.x = At(in_),
                                               .chunks = At(out_),
                                               .x_stride = k,
                                               .rows = rows,
                                               .num_leaves = 1,
                                               .leaf_begin = {0, k},
                                               .chunk_begin = {0, k / 64}};
    const LaunchShape shape{.blocks = {k / 64, (rows + 63) / 64, 1},
                            .threads = kernels::cuda::kPackThreads};
    PrintFigure(fmt::format("rows to chunks, {} x {}", rows, k),
                Seconds([&](int) { gpu_.Launch("mma_pack_rows", shape, params); }) * 1e6, "us");
  }

  // 32 query heads, 8 of KV, head_dim 128.
  void Decode(int sequences, int context) {
    used_ = 0;
    std::vector<kernels::cuda::DecodeRow> rows;
    for (int i = 0; i < sequences; ++i)
      rows.push_back({.row = i, .table_row = i, .first = 0, .last = context - 1});
    const auto units = kernels::cuda::ListDecodeUnits(rows, kKvHeads);
    kernels::cuda::DecodeParams params{
        .kv = Kv(sequences, context),
        .units = List(units),
        .num_units = List(std::vector<int32_t>{static_cast<int32_t>(units.size())}),
        .group = kHeads / kKvHeads,
        .row_heads = kHeads,
        .scale = 0.088f,
        .q = At(in_),
        .out = At(out_),
        .partials = reinterpret_cast<float*>(At(out_) + kRowBytes / 2),
        .counts = List(std::vector<int32_t>(units.size()))};
    const auto plan = kernels::cuda::PlanDecode(multiprocessors_, kHeadDim, kHeads / kKvHeads,
                                                static_cast<int>(units.size()));
    const double seconds = Seconds([&](int) { gpu_.Launch(plan.kernel, plan.shape, params); });
    const std::string what = fmt::format("decode attention, {} x {}", sequences, context);
    PrintFigure(what, seconds * 1e6, "us");
    PrintFigure(what, 4.0 * sequences * context * kKvHeads * kHeadDim / seconds * 1e-9, "GB/s");
  }

  // Absorbed latent attention of 128 heads.
  void Latents(int sequences, int context) {
    namespace cuda = kernels::cuda;
    used_ = 0;
    constexpr int kHeadsOfRow = 128, kGroups = kHeadsOfRow / cuda::kLatentHeads;
    std::vector<kernels::SequenceRows> rows;
    for (int i = 0; i < sequences; ++i) rows.push_back({i, 1, context - 1, i});
    const int64_t stride = int64_t{32} * cuda::kLatentKeys * 2;
    const cuda::MmaKvParams kv = Kv(sequences, context, stride);
    cuda::LatentParams params{.of = {.q = At(in_),
                                     .out = At(out_),
                                     .heads = kHeadsOfRow,
                                     .row_heads = kHeadsOfRow,
                                     .scale = 0.072f},
                              .units = sequences * kGroups,
                              .parts = At(out_) + kRowBytes / 2};
    params.of.batch.num_rows = params.of.batch.num_sequences = sequences;
    params.of.batch.sequences = List(rows);
    params.of.batch.block_tables = const_cast<uint32_t*>(kv.block_tables);
    params.of.batch.table_stride = kv.table_stride;
    params.of.kv.resident = At(pool_);
    params.of.kv.block_stride = params.of.kv.layer_bytes = stride;
    const LaunchShape shape{.blocks = {std::min(multiprocessors_, params.units), 1, 1},
                            .threads = cuda::kLatentThreads,
                            .shared_bytes = cuda::kLatentSharedBytes};
    const double seconds = Seconds([&](int) { gpu_.Launch("mma_latent_512", shape, params); });
    const std::string what = fmt::format("latent attention, {} x {}", sequences, context);
    PrintFigure(what, seconds * 1e6, "us");
    PrintFigure(what,
                2.0 * sequences * context * kHeadsOfRow *
                    (cuda::kLatentKeys + cuda::kLatentValues) / seconds * 1e-12,
                "TFLOP/s");
  }

  void Prefill(int prompts, int rows) {
    used_ = 0;
    std::vector<kernels::SequenceRows> sequences;
    for (int i = 0; i < prompts; ++i) sequences.push_back({i * rows, rows, 0, i});
    const auto tiles = kernels::cuda::ListPrefillTiles(sequences);
    const kernels::cuda::PrefillParams params{
        .kv = Kv(prompts, rows),
        .tiles = List(tiles),
        .num_tiles = List(std::vector<int32_t>{static_cast<int32_t>(tiles.size())}),
        .heads = kHeads,
        .row_heads = kHeads,
        .scale = 0.088f,
        .q = At(in_),
        .out = At(out_)};
    const auto plan =
        kernels::cuda::PlanPrefill(multiprocessors_, static_cast<int>(tiles.size()), kHeads);
    const double seconds = Seconds([&](int) { gpu_.Launch(plan.kernel, plan.shape, params); });
    const double seen = 0.5 * rows * (rows + 1.0);
    PrintFigure(fmt::format("prefill attention, {} x {}", prompts, rows),
                4.0 * prompts * kHeads * kHeadDim * seen / seconds * 1e-12, "TFLOP/s");
  }

 private:
  static constexpr size_t kPoolBytes = size_t{2} << 30, kRowBytes = size_t{512} << 20,
                          kListBytes = size_t{8} << 20;
  static constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128;
  static constexpr int kExperts = 128, kChosen = 8;

  static std::byte* At(cu::DevicePtr memory) { return reinterpret_cast<std::byte*>(memory); }

  // A launch of a linear layer, of several whose weights take turns.
  double LinearSeconds(int rows, int columns, int k, int leaves, kernels::LinearOutput output) {
    const int64_t panels = columns / 64, of_leaf = k / 64 / leaves;
    const size_t bytes = static_cast<size_t>(columns) * static_cast<size_t>(k) * 2;
    const size_t weights = std::clamp<size_t>(kPoolBytes / bytes, 1, 16);
    used_ = 0;
    std::vector<const std::byte* const*> tiles;
    for (size_t i = 0; i < weights; ++i) {
      std::vector<const std::byte*> pointers;
      for (int64_t tile = 0; tile < leaves * panels; ++tile)
        pointers.push_back(At(pool_) + i * bytes + tile * of_leaf * kernels::kChunkBytes);
      tiles.push_back(List(pointers));
    }
    std::vector<kernels::PanelColumns> places;
    const bool gated = kernels::IsGated(output);
    const int width = gated ? 32 : 64;
    for (int32_t panel = 0; panel < panels; ++panel) places.push_back({panel * width, width});
    const kernels::cuda::LinearOutputs to{
        .y = At(out_),
        .y_stride = gated ? columns / 2 : columns,
        .form = gated ? kernels::RowForm::kChunks : kernels::RowForm::kRows,
        .panels = reinterpret_cast<const int32_t*>(List(places)),
        .output = static_cast<int32_t>(output),
        .rows = rows};
    const auto run = [&](auto params, auto plan_of) {
      params.x = At(in_);
      params.to = to;
      params.num_panels = static_cast<int32_t>(panels);
      params.num_leaves = leaves;
      for (int leaf = 0; leaf <= leaves; ++leaf)
        params.leaf_begin[leaf] = static_cast<int32_t>(leaf * of_leaf);
      const kernels::cuda::KernelPlan plan = plan_of(multiprocessors_, &params);
      return Seconds([&](int i) {
        params.tiles = tiles[static_cast<size_t>(i) % weights];
        gpu_.Launch(plan.kernel, plan.shape, params);
      });
    };
    return rows <= 64 ? run(kernels::cuda::SmallLinearParams{}, kernels::cuda::PlanSmallLinear)
                      : run(kernels::cuda::ManyLinearParams{.x_chunks = k / 64,
                                                            .row_blocks = (rows + 63) / 64},
                            kernels::cuda::PlanManyLinear);
  }

  double ExpertsSeconds(int tokens, int columns, int k, kernels::LinearOutput output, bool drawn) {
    used_ = 0;
    const int slots = tokens * kChosen, panels = columns / 64;
    std::vector<std::vector<int32_t>> rows_of(kExperts);
    base::Rng rng(5);
    for (int token = 0; token < tokens; ++token) {
      std::vector<int> experts(kExperts);
      std::iota(experts.begin(), experts.end(), drawn ? 0 : token * kChosen);
      for (int i = 0; i < kChosen; ++i) {
        if (drawn)
          std::swap(experts[i], experts[i + rng.Below(static_cast<uint64_t>(kExperts - i))]);
        rows_of[static_cast<size_t>(experts[i] % kExperts)].push_back(token);
      }
    }
    std::vector<int32_t> offsets = {0}, x_rows;
    std::vector<const std::byte*> runs;
    const int64_t tile_bytes = int64_t{k} / 64 * kernels::kChunkBytes;
    for (int expert = 0; expert < kExperts; ++expert) {
      const std::vector<int32_t>& rows = rows_of[static_cast<size_t>(expert)];
      x_rows.insert(x_rows.end(), rows.begin(), rows.end());
      offsets.push_back(static_cast<int32_t>(x_rows.size()));
      runs.push_back(At(pool_) + expert * panels * tile_bytes);
    }
    const bool gated = kernels::IsGated(output);
    std::vector<kernels::PanelColumns> places;
    for (int panel = 0; panel < panels; ++panel)
      places.push_back({panel * (gated ? 32 : 64), gated ? 32 : 64});
    const kernels::cuda::ExpertsParams params{
        .runs = List(runs),
        .tile_bytes = tile_bytes,
        .offsets = List(offsets),
        .x = At(in_),
        .x_rows = gated ? List(x_rows) : nullptr,
        .x_granules = k / 8,
        .to = {.y = At(out_),
               .y_stride = gated ? columns / 2 : columns,
               .panels = reinterpret_cast<const int32_t*>(List(places)),
               .output = static_cast<int32_t>(output)},
        .num_experts = kExperts,
        .num_panels = panels,
        .k = k};
    const auto run = [&](const kernels::cuda::KernelPlan& plan, const auto& of_kernel) {
      return Seconds([&](int) { gpu_.Launch(plan.kernel, plan.shape, of_kernel); });
    };
    if (slots > kernels::cuda::kFewExpertRows * kExperts)
      return run(kernels::cuda::PlanManyExperts(multiprocessors_, slots, params), params);
    kernels::cuda::SmallExpertsParams small{.of = params};
    return run(kernels::cuda::PlanSmallExperts(multiprocessors_, slots, &small), small);
  }

  // bf16 of both signs, in [2^-5, 2^-4).
  void Fill(cu::DevicePtr memory, size_t bytes) {
    constexpr size_t kPiece = size_t{4} << 20;
    void* host = nullptr;
    gpu_.Do(gpu_.driver().MemHostAlloc(&host, kPiece, cu::kHostPortable), "cuMemHostAlloc");
    base::Rng rng(7);
    for (size_t i = 0; i < kPiece / 2; ++i)
      static_cast<uint16_t*>(host)[i] = static_cast<uint16_t>((rng.Next() & 0x807Fu) | 0x3D00u);
    for (size_t at = 0; at < bytes; at += kPiece) {
      gpu_.Do(gpu_.driver().MemcpyAsync(memory + at, reinterpret_cast<cu::DevicePtr>(host), kPiece,
                                        gpu_.stream),
              "cuMemcpyAsync");
    }
    (void)gpu_.Wait();
  }

  // A list's copy in the GPU's memory.
  template <typename T>
  T* List(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T), at = used_;
    used_ += (bytes + 255) / 256 * 256;
    FB_CHECK(used_ <= kListBytes, "lists of {} bytes", used_);
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), bytes, host_lists_ + at);
    gpu_.Do(gpu_.driver().MemcpyAsync(
                lists_ + at, reinterpret_cast<cu::DevicePtr>(host_lists_ + at), bytes, gpu_.stream),
            "cuMemcpyAsync");
    return reinterpret_cast<T*>(At(lists_ + at));
  }

  // Sequences of blocks that are far apart in the pool.
  kernels::cuda::MmaKvParams Kv(int sequences, int context,
                                int64_t stride = int64_t{kKvHeads} * 2 *
                                                 kernels::HeadHalfBytes(kHeadDim)) {
    const int of_sequence = (context + 31) / 32;
    const auto blocks = static_cast<uint32_t>(static_cast<int64_t>(kPoolBytes) / stride);
    std::vector<uint32_t> table(static_cast<size_t>(sequences) * static_cast<size_t>(of_sequence));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint32_t>(i * 7919 % blocks);
    return {.block_tables = List(table),
            .table_stride = of_sequence,
            .resident = At(pool_),
            .window = nullptr,
            .block_stride = stride,
            .layer_bytes = stride,
            .kv_heads = kKvHeads};
  }

  // A launch of many.
  double Seconds(const std::function<void(int)>& launch) {
    const double once = OnStream(
        gpu_, [&] { launch(0); }, 1);
    const int launches = static_cast<int>(std::clamp(4e-3 / once, 1.0, 200.0));
    return OnStream(
               gpu_,
               [&] {
                 for (int i = 0; i < launches; ++i) launch(i);
               },
               3) /
           launches;
  }

  Gpu& gpu_;
  const int multiprocessors_;
  cu::DevicePtr pool_ = 0, in_ = 0, out_ = 0, lists_ = 0;
  std::byte* host_lists_ = nullptr;
  size_t used_ = 0;
};

// Draws from 64 rows of Qwen3's vocabulary: logits about normal, and 40 tokens far above where the
// row is peaked.
void PrintDrawRates(Gpu& gpu) {
  constexpr int kRows = 64, kVocab = 151936, kLikely = 40;
  constexpr size_t kRowBytes = kVocab * sizeof(float);
  cu::DevicePtr logits = 0, drawn = 0;
  void* pinned = nullptr;
  gpu.Do(gpu.driver().MemAlloc(&logits, kRows * kRowBytes), "cuMemAlloc");
  gpu.Do(gpu.driver().MemAlloc(&drawn, 2 * kRows * sizeof(int32_t)), "cuMemAlloc");
  gpu.Do(gpu.driver().MemHostAlloc(&pinned, kRows * sizeof(kernels::DrawRow), cu::kHostPortable),
         "cuMemHostAlloc");
  auto* const rows = static_cast<kernels::DrawRow*>(pinned);
  auto* const tokens = reinterpret_cast<int32_t*>(drawn);
  const GpuLaunch context(gpu);
  for (const bool peaked : {true, false}) {
    std::vector<float> row(kVocab);
    base::Rng rng(3);
    for (float& x : row) {
      double sum = 0;
      for (int i = 0; i < 12; ++i) sum += rng.Uniform();
      x = static_cast<float>(sum - 6);
    }
    for (int i = 0; peaked && i < kLikely; ++i)
      row[rng.Below(kVocab)] = 14 + 4 * static_cast<float>(rng.Uniform());
    for (size_t i = 0; i < kRows; ++i) {
      gpu.Do(gpu.driver().MemcpyAsync(logits + i * kRowBytes,
                                      reinterpret_cast<cu::DevicePtr>(row.data()), kRowBytes,
                                      gpu.stream),
             "cuMemcpyAsync");
    }
    if (const base::Status status = gpu.Wait(); !status.ok()) Gpu::Exit(status);
    const auto print = [&](const char* what, const kernels::DrawRow& draw) {
      for (int i = 0; i < kRows; ++i) {
        rows[i] = draw;
        rows[i].unit = (i + 0.5) / kRows;
        rows[i].row = rows[i].sequence = i;
      }
      const kernels::DrawRowsArgs args{.logits = reinterpret_cast<const float*>(logits),
                                       .stride = kVocab,
                                       .vocab = kVocab,
                                       .num_draws = kRows,
                                       .weighed_draws = draw.temperature > 0 ? kRows : 0,
                                       .draws = rows,
                                       .drawn = tokens,
                                       .sampled = tokens + kRows};
      const double seconds =
          OnStream(gpu, [&] { kernels::cuda::PairKernels().draw_rows(args, context); });
      PrintFigure(
          fmt::format("draws of 64 {} rows of {}: {}", peaked ? "peaked" : "flat", kVocab, what),
          seconds * 1e6, "us");
    };
    print("greedy", {});
    print("temperature", {.temperature = 1});
    print("min_p", {.temperature = 1, .min_p = 0.05f});
    print("top_k", {.temperature = 1, .top_k = 20});
    print("top_k and top_p", {.temperature = 1, .top_p = 0.95f, .top_k = 20});
    print("top_p", {.temperature = 1, .top_p = 0.95f});
  }
}

void PrintRates(Gpu& gpu) {
  PrintDrawRates(gpu);
  Rates rates(gpu);
  for (const int rows : {1, 16, 64, 256, 1024, 4096}) {
    const int leaves = 8;
    rates.Linear("8B qkv (6144 x 4096)", rows, 6144, 4096, 1);
    rates.Linear("8B o (4096 x 4096, 8 leaves)", rows, 4096, 4096, leaves);
    rates.Linear("8B gate and up (28672 x 4096)", rows, 28672, 4096, 1);
    rates.Linear("8B down (4096 x 14336, 8 leaves)", rows, 4096, 14336, leaves);
  }
  for (const int rows : {64, 1024, 4096}) {
    using kernels::LinearOutput;
    rates.Linear("8B qkv, fp32", rows, 6144, 4096, 1, LinearOutput::kF32);
    rates.Linear("8B o, 8 leaves, added", rows, 4096, 4096, 8, LinearOutput::kResidual);
    rates.Linear("8B gate and up, silu", rows, 28672, 4096, 1, LinearOutput::kSiluMul);
    rates.Linear("8B down, 8 leaves, added", rows, 4096, 14336, 8, LinearOutput::kResidual);
    rates.Pack(rows, 4096);
    rates.Pack(rows, 14336);
  }
  rates.Linear("0.6B o (1024 x 2048, 8 leaves)", 1, 1024, 2048, 8);
  rates.Linear("8192 x 8192", 8192, 8192, 8192, 1);
  for (const int tokens : {16, 64, 512, 4096}) {
    rates.Experts("30B-A3B gate and up (1536 x 2048)", tokens, 1536, 2048,
                  kernels::LinearOutput::kSiluMul);
    rates.Experts("30B-A3B down (2048 x 768)", tokens, 2048, 768, kernels::LinearOutput::kRounded);
  }
  for (const int sequences : {1, 16, 64, 256}) rates.Decode(sequences, 1024);
  rates.Decode(32, 8192);
  for (const auto& [sequences, context] :
       {std::pair(16, 4096), std::pair(64, 1024), std::pair(66, 4096)})
    rates.Latents(sequences, context);
  for (const auto& [prompts, rows] :
       {std::pair(16, 256), std::pair(8, 512), std::pair(4, 1024), std::pair(4, 2048),
        std::pair(1, 4096), std::pair(2, 8192), std::pair(1, 32768)}) {
    rates.Prefill(prompts, rows);
  }
}

}  // namespace
}  // namespace forebay::bench

namespace {

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
    bench::PrintRates(gpu);
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
    gpu.Do(gpu.driver().MemHostAlloc(&heap, bench::kHeapBytes,
                                     device::cu::kHostPortable | device::cu::kHostMapped),
           "pinned memory for the tests");
    bench::UsePinnedHeap(heap, bench::kHeapBytes);
    static bench::GpuLauncher launcher(gpu);
    kernels::cuda::testing::SetLauncher(&launcher);
    RunTests(filter, argc, argv);
  }
  std::fflush(stdout);
  std::_Exit(0);
}
