#include "profile/bench.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"
#include "device/copy.h"
#include "runtime/topology.h"
#include "tensor/bf16.h"

namespace forebay::profile {
namespace {

constexpr uint64_t kInputBytes = 64 * base::kMiB;
constexpr uint64_t kOutputBytes = 160 * base::kMiB;
constexpr uint64_t kWorkspaceBytes = 32 * base::kMiB;
// rows of 4096 values that experts pack
constexpr uint64_t kScratchBytes = 5 * base::kMiB;
constexpr double kDispatchSeconds = 1e-7;  // no operation takes less
// that an operation has of the time of itself and of writing its input
constexpr double kLeastPart = 0.1;
constexpr size_t kPattern = 1 << 20;  // random numbers that repeat

struct HoldArgs {
  runtime::Event* go;
};
void Hold(const HoldArgs& args, const device::WorkerContext& context) {
  if (context.worker == 0) args.go->Wait();
}

struct StampArgs {
  const runtime::Runtime* runtime;
  runtime::TimeNs* at;
};
void Stamp(const StampArgs& args, const device::WorkerContext& context) {
  if (context.worker == 0) *args.at = args.runtime->Now();
}

// What else runs on a machine only ever adds to a time, so the faster half of the samples tells
// more.
double LowerQuartile(std::vector<double>* samples) {
  std::ranges::sort(*samples);
  return (*samples)[samples->size() / 4];
}

struct WriteArgs {
  std::byte* data;
  int64_t bytes;
};
// Writes the numbers that are there already. Workers take turns, as they do with the panels of a
// linear's output: who reads rows of it finds most of them in others' caches.
void Write(const WriteArgs& args, const device::WorkerContext& context) {
  constexpr int64_t kPanelBytes = 128;
  for (int64_t panel = context.worker * kPanelBytes; panel < args.bytes;
       panel += context.num_workers * kPanelBytes) {
    for (int64_t i = panel; i < std::min(panel + kPanelBytes, args.bytes); i += 64) {
      auto* word = reinterpret_cast<volatile uint64_t*>(args.data + i);
      *word = *word;
    }
  }
}

struct NoArgs {};
void DoNothing(const NoArgs&, const device::WorkerContext&) {}

device::Operation Nothing() {
  return device::MakeOperation<&DoNothing>({.label = "nothing"}, NoArgs{});
}

}  // namespace

base::Result<std::unique_ptr<Bench>> Bench::Create(runtime::Runtime& runtime,
                                                   const BenchOptions& options) {
  FB_ASSIGN_OR_RETURN(const kernels::KernelSet* kernels, kernels::ChooseKernels(options.isa));
  if (options.threads < 0) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--threads is {}; expected at least 0", options.threads));
  }
  std::unique_ptr<Bench> bench(new Bench(runtime, *kernels, options));
  const runtime::Topology topology = runtime::ReadTopology();
  device::CpuDeviceOptions device_options;
  device_options.num_workers = options.threads ? options.threads : topology.usable_cores;
  if (device_options.num_workers <= static_cast<int>(topology.cores.size())) {
    device_options.cores.assign(topology.cores.begin(),
                                topology.cores.begin() + device_options.num_workers);
  }
  device_options.scratch_bytes = kScratchBytes;
  device_options.memory_bytes = options.data_bytes + kInputBytes + kOutputBytes + kWorkspaceBytes +
                                device_options.num_workers * kScratchBytes + 2 * base::kMiB;
  FB_ASSIGN_OR_RETURN(bench->device_, device::CreateCpuDevice(runtime, device_options));
  device::Arena& arena = bench->device_->arena();
  FB_ASSIGN_OR_RETURN(bench->data_, arena.Allocate("data", options.data_bytes));
  FB_ASSIGN_OR_RETURN(bench->input_, arena.Allocate("input", kInputBytes));
  FB_ASSIGN_OR_RETURN(bench->output_, arena.Allocate("output", kOutputBytes));
  FB_ASSIGN_OR_RETURN(bench->workspace_, arena.Allocate("workspace", kWorkspaceBytes));
  bench->go_ = runtime.NewEvent("go");
  bench->Fill();
  return bench;
}

void Bench::Fill() {
  // A bf16 in the upper half of an fp32 is the same number but for the digits of the lower half.
  auto* numbers = reinterpret_cast<tensor::BF16*>(data_->data);
  base::Rng rng(1);
  for (size_t i = 0; i < kPattern; ++i)
    numbers[i] = tensor::ToBF16(static_cast<float>(rng.Uniform() * 2 - 1));
  constexpr uint64_t kPatternBytes = kPattern * sizeof(tensor::BF16);
  for (uint64_t at = kPatternBytes; at < data_->bytes; at += kPatternBytes) {
    std::memcpy(data_->data + at, data_->data, std::min(kPatternBytes, data_->bytes - at));
  }
  for (const device::Region* region : {input_, output_}) {  // committed before anything is timed
    for (uint64_t at = 0; at < region->bytes; at += data_->bytes)
      std::memcpy(region->data + at, data_->data, std::min(data_->bytes, region->bytes - at));
  }
  std::memset(workspace_->data, 0, workspace_->bytes);
}

double Bench::Run(const EnqueueFn& enqueue, int64_t count) {
  runtime::TimeNs begin = 0, end = 0;
  device::Stream& stream = device_->compute();
  const auto stamp = [&](runtime::TimeNs* at) {
    stream.Enqueue(device::MakeOperation<&Stamp>({.label = "stamp"}, StampArgs{&runtime_, at}));
  };
  // The control task is done enqueueing, and the workers are awake, when the clock starts.
  go_->Reset();
  stream.Enqueue(device::MakeOperation<&Hold>({.label = "hold"}, HoldArgs{go_.get()}));
  for (int i = 0; i < 4; ++i) stream.Enqueue(Nothing());
  stamp(&begin);
  for (int64_t i = 0; i < count; ++i) enqueue(stream, next_++);
  stamp(&end);
  go_->Set();
  (void)device_->Synchronize(stream);
  return runtime::SecondsOf(end - begin);
}

double Bench::SecondsOf(const EnqueueFn& enqueue, double sample_seconds) {
  Run(enqueue, 1);  // caches, page tables, branch predictors
  const double once = std::max(Run(enqueue, 1), 1e-7);
  const auto count = static_cast<int64_t>(std::clamp(sample_seconds / once, 1.0, 4096.0));
  std::vector<double> seconds(quick_ ? 5 : 7);
  for (double& sample : seconds) sample = Run(enqueue, count) / static_cast<double>(count);
  return std::max(LowerQuartile(&seconds), 1e-9);
}

double Bench::SecondsAfterInput(int64_t bytes, const EnqueueFn& enqueue) {
  FB_CHECK(bytes <= static_cast<int64_t>(input_->bytes), "an input of {} bytes", bytes);
  const device::Operation write =
      device::MakeOperation<&Write>({.label = "write"}, WriteArgs{input_->data, bytes});
  double difference = 0;
  // An operation that takes next to nothing beside the writing was measured while the machine
  // changed.
  for (int tries = 0; tries < 5; ++tries) {
    const double both = SecondsOf([&](device::Stream& stream, int64_t i) {
      stream.Enqueue(write);
      enqueue(stream, i);
    });
    difference = both - SecondsOf([&](device::Stream& stream, int64_t) { stream.Enqueue(write); },
                                  quick_ ? 1e-3 : 1.5e-3);
    if (difference > kLeastPart * both) break;
  }
  return std::max(difference, kDispatchSeconds);
}

double Bench::CopySeconds(int64_t bytes, int streams) {
  const double sample_bytes = quick_ ? 16e6 : 64e6;
  const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(sample_bytes) / bytes, 2, 1024);
  const int64_t half = static_cast<int64_t>(data_->bytes) / 2;
  std::vector<double> seconds(quick_ ? 5 : 9);
  for (double& sample : seconds) {
    const runtime::TimeNs begin = runtime_.Now();
    for (int64_t i = 0; i < count; ++i) {
      for (int s = 0; s < streams; ++s) {
        const int64_t at = (next_++ * bytes) % (half - bytes + 1) / 64 * 64;
        device_->copy(static_cast<device::CopyKind>(s))
            .Enqueue(device::MakeCopy("copy", data_->data + half + at, data_->data + at,
                                      static_cast<uint64_t>(bytes), device::CopyUse::kLater));
      }
    }
    for (int s = 0; s < streams; ++s)
      (void)device_->Synchronize(device_->copy(static_cast<device::CopyKind>(s)));
    sample = runtime::SecondsOf(runtime_.Now() - begin) / static_cast<double>(count);
  }
  return LowerQuartile(&seconds);
}

}  // namespace forebay::profile
