#include "profile/bench.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"
#include "device/copy.h"
#include "tensor/bf16.h"

namespace forebay::profile {
namespace {

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

// An operation on memory of the host.
template <auto kFunction, typename Args>
device::Operation OnHost(const char* label, const Args& args) {
  device::Operation operation = device::MakeOperation<kFunction>({.label = label}, args);
  operation.on_host = true;
  return operation;
}

}  // namespace

base::Result<std::unique_ptr<Bench>> Bench::Create(runtime::Runtime& runtime,
                                                   const Subject& subject) {
  std::unique_ptr<Bench> bench(new Bench(runtime, subject));
  const Grid& grid = subject.grid();
  const uint64_t bytes = grid.data_bytes + grid.input_bytes + grid.output_bytes +
                         grid.workspace_bytes + grid.table_bytes + 2 * base::kMiB;
  FB_ASSIGN_OR_RETURN(bench->device_, subject.MakeDevice(runtime, bytes));
  device::Arena& arena = bench->device_->arena();
  FB_ASSIGN_OR_RETURN(bench->data_, arena.Allocate("data", grid.data_bytes));
  FB_ASSIGN_OR_RETURN(bench->input_, arena.Allocate("input", grid.input_bytes));
  FB_ASSIGN_OR_RETURN(bench->output_, arena.Allocate("output", grid.output_bytes));
  FB_ASSIGN_OR_RETURN(bench->workspace_, arena.Allocate("workspace", grid.workspace_bytes));
  FB_ASSIGN_OR_RETURN(bench->tables_,
                      arena.Allocate("tables", grid.table_bytes, device::MemoryUse::kControl));
  if (!bench->device_->host_reaches_data()) {
    bench->host_arena_ = bench->device_->NewHostArena(grid.host_bytes);
    FB_ASSIGN_OR_RETURN(bench->host_, bench->host_arena_->Allocate("host", grid.host_bytes));
  }
  FB_RETURN_IF_ERROR(bench->Fill());
  double gap = bench->Run({}, 0);
  for (int i = 0; i < 8; ++i) gap = std::min(gap, bench->Run({}, 0));
  bench->gap_ = gap;
  return bench;
}

base::Status Bench::Fill() {
  // A bf16 in the upper half of an fp32 is the same number but for the digits of the lower half.
  std::vector<tensor::BF16> pattern(kPattern);
  base::Rng rng(1);
  for (tensor::BF16& number : pattern)
    number = tensor::ToBF16(static_cast<float>(rng.Uniform() * 2 - 1));
  const uint64_t bytes = pattern.size() * sizeof(tensor::BF16);
  device::Stream& stream = device_->compute();
  // Committed before anything is timed.
  for (const device::Region* region : {data_, input_, output_}) {
    FB_RETURN_IF_ERROR(
        device_->Write(region->data, pattern.data(), std::min(bytes, region->bytes)));
    for (uint64_t at = bytes; at < region->bytes; at += bytes) {
      stream.Enqueue(device::MakeCopy("fill", region->data + at, region->data,
                                      std::min(bytes, region->bytes - at)));
    }
  }
  for (uint64_t at = 0; host_ != nullptr && at < host_->bytes; at += bytes)
    std::memcpy(host_->data + at, pattern.data(), std::min(bytes, host_->bytes - at));
  const std::vector<std::byte> zeros(bytes);
  for (uint64_t at = 0; at < workspace_->bytes; at += bytes) {
    FB_RETURN_IF_ERROR(device_->Write(workspace_->data + at, zeros.data(),
                                      std::min(bytes, workspace_->bytes - at)));
  }
  return device_->Synchronize(stream);
}

void* Bench::PlaceBytes(const void* table, size_t bytes) {
  std::byte* const place = cutter_->Cut(bytes);
  std::memcpy(place, table, bytes);
  device_->compute().SendControl(place, bytes);
  return place;
}

int64_t Bench::Pieces(int64_t bytes) const {
  const int64_t pieces = static_cast<int64_t>(data_->bytes) / bytes;
  FB_CHECK(pieces > 0, "{} bytes of data are less than a piece of {}", data_->bytes, bytes);
  return pieces;
}

void Bench::ClearTables() { cutter_.emplace(*tables_); }

void Bench::Synchronize(device::Stream& stream) {
  base::Status status = device_->Synchronize(stream);
  if (fault_.ok()) fault_ = std::move(status);
}

double Bench::Run(const EnqueueFn& enqueue, int64_t count) {
  runtime::TimeNs begin = 0, end = 0;
  device::Stream& stream = device_->compute();
  for (int i = 0; i < beside_.count; ++i) EnqueueCopy(beside_.path, beside_.bytes, i);
  // A GPU's caches are small beside a run, and the same launches come again, as in steps of
  // decoding.
  if (!subject_.on_cores()) next_ = 0;
  // The control task is done enqueueing, and the workers are awake, when the clock starts.
  if (subject_.on_cores()) {
    go_->Reset();
    stream.Enqueue(OnHost<&Hold>("hold", HoldArgs{go_.get()}));
    for (int i = 0; i < 4; ++i) stream.Enqueue(OnHost<&DoNothing>("nothing", NoArgs{}));
  }
  stream.Enqueue(OnHost<&Stamp>("stamp", StampArgs{&runtime_, &begin}));
  for (int64_t i = 0; i < count; ++i) enqueue(stream, next_++);
  stream.Enqueue(OnHost<&Stamp>("stamp", StampArgs{&runtime_, &end}));
  go_->Set();
  Synchronize(stream);
  if (beside_.count > 0) Synchronize(device_->copy(beside_.path.stream));
  return runtime::SecondsOf(end - begin) - gap_;
}

double Bench::SecondsOf(const EnqueueFn& enqueue, double sample_seconds) {
  Run(enqueue, 1);  // caches, page tables, branch predictors
  const double once = std::max(Run(enqueue, 1), 1e-7);
  const auto count = static_cast<int64_t>(std::clamp(sample_seconds / once, 1.0, 4096.0));
  std::vector<double> seconds(static_cast<size_t>(grid().samples));
  for (double& sample : seconds) sample = Run(enqueue, count) / static_cast<double>(count);
  return std::max(LowerQuartile(&seconds), 1e-9);
}

double Bench::SecondsAfterInput(int64_t bytes, const EnqueueFn& enqueue) {
  FB_CHECK(bytes <= static_cast<int64_t>(input_->bytes), "an input of {} bytes", bytes);
  if (!subject_.on_cores()) return SecondsOf(enqueue);
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
                                  grid().write_seconds);
    if (difference > kLeastPart * both) break;
  }
  return std::max(difference, kDispatchSeconds);
}

void Bench::EnqueueCopy(const CopyPath& path, int64_t bytes, int64_t i) {
  // A half of `data`, or the host's memory.
  const uint64_t half = data_->bytes / 2;
  const auto place = [&](bool on_host, uint64_t first) {
    const uint64_t room = (on_host ? host_->bytes : half) - static_cast<uint64_t>(bytes);
    const uint64_t at = static_cast<uint64_t>(i * bytes) % (room + 1) / 64 * 64;
    return on_host ? host_->data + at : data_->data + first + at;
  };
  std::byte* const to = place(path.to_host, half);
  const std::byte* const from = place(path.from_host, 0);
  device_->copy(path.stream)
      .Enqueue(device::MakeCopy("copy", to, from, static_cast<uint64_t>(bytes),
                                device::CopyUse::kLater));
}

double Bench::CopySeconds(std::span<const CopyPath> paths, int64_t bytes) {
  const int64_t count =
      std::clamp<int64_t>(static_cast<int64_t>(grid().copy_bytes) / bytes, 2, 1024);
  std::vector<double> seconds(static_cast<size_t>(grid().copy_samples));
  for (double& sample : seconds) {
    const runtime::TimeNs begin = runtime_.Now();
    for (int64_t i = 0; i < count; ++i) {
      for (const CopyPath& path : paths) EnqueueCopy(path, bytes, next_++);
    }
    for (const CopyPath& path : paths) Synchronize(device_->copy(path.stream));
    sample = runtime::SecondsOf(runtime_.Now() - begin) / static_cast<double>(count);
  }
  return LowerQuartile(&seconds);
}

void Bench::CopyBeside(const CopyPath& path, int64_t bytes, int count) {
  beside_ = {path, bytes, count};
}

}  // namespace forebay::profile
