#include "device/cuda/stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "device/copy.h"
#include "device/lone_worker.h"
#include "runtime/flush_denormals.h"

namespace forebay::device {
namespace {

void CopyOnHost(const void* raw, const WorkerContext&) {
  const auto& rows = *static_cast<const CopiedRows*>(raw);
  for (int64_t row = 0; row < rows.rows; ++row) {
    const auto at = static_cast<uint64_t>(row);
    std::memcpy(static_cast<std::byte*>(rows.destination) + at * rows.destination_stride,
                static_cast<const std::byte*>(rows.source) + at * rows.source_stride,
                rows.row_bytes);
  }
}

}  // namespace

// What an operation's function launches with.
class CudaStreamContext final : public LaunchContext {
 public:
  explicit CudaStreamContext(CudaStream& stream) : stream_(stream) {
    ticket = &tickets_;
    architecture = stream.options_.architecture;
    multiprocessors = stream.options_.multiprocessors;
    kernels = stream.options_.kernels;
    scratch = stream.options_.scratch;
    scratch_bytes = stream.options_.scratch_bytes;
  }
  void LaunchBytes(const CudaKernel& kernel, const LaunchShape& shape, const void* params,
                   size_t bytes) const override {
    if (std::ranges::any_of(shape.blocks, [](int blocks) { return blocks == 0; })) return;
    stream_.Latch(stream_.launches_.Add(kernel, shape, params, bytes));
  }
  void FetchControl(void* data, uint64_t bytes) const override {
    stream_.Copy({data, stream_.arena_.OnDevice(data), bytes}, "control memory");
  }
  void RunOnHost(Operation::RunFn run, const void* args, size_t bytes) const override {
    stream_.RunOnHost(run, args, bytes);
  }

 private:
  const void* AddressOnDevice(const void* address) const override {
    return stream_.arena_.OnDevice(address);
  }

  CudaStream& stream_;
  std::atomic<int64_t> tickets_{0};
};

CudaStream::CudaStream(const Driver& driver, CudaModules& modules, const CudaArena& arena,
                       cu::Stream stream, CudaStreamOptions options)
    : driver_(driver),
      arena_(arena),
      stream_(stream),
      options_(std::move(options)),
      launches_(driver, modules, stream, *options_.graphs) {}

CudaStream::~CudaStream() {
  for (const Timed& timed : timed_) {
    driver_.EventDestroy(timed.begin);
    driver_.EventDestroy(timed.end);
  }
  driver_.StreamDestroy(stream_);
}

void CudaStream::Latch(base::Status status) {
  if (status.ok()) return;
  std::string labels;
  for (size_t i = enqueued_ - std::min(enqueued_, kKeptLabels); i < enqueued_; ++i)
    labels += fmt::format("{}{}", labels.empty() ? "" : ", ", labels_[i % kKeptLabels]);
  const std::lock_guard lock(mutex_);
  if (!fault_.ok()) return;
  fault_ =
      base::Status(status.code(), fmt::format("{}: {}; its last operations: {}", options_.name,
                                              status.message(), labels.empty() ? "none" : labels));
}

bool CudaStream::OnHost(const void* data) const {
  unsigned type = 0;
  return driver_.PointerGetAttribute(&type, cu::PointerAttribute::kMemoryType,
                                     reinterpret_cast<cu::DevicePtr>(data)) == cu::kSuccess &&
         type == static_cast<unsigned>(cu::MemoryType::kHost);
}

void CudaStream::Copy(const CopiedRows& rows, const char* label) {
  Flush();
  // The driver makes a copy from host to host while the call waits for the stream.
  if (OnHost(rows.destination) && OnHost(rows.source))
    return RunOnHost(&CopyOnHost, &rows, sizeof rows);
  const auto to = reinterpret_cast<cu::DevicePtr>(rows.destination),
             from = reinterpret_cast<cu::DevicePtr>(rows.source);
  const auto count = static_cast<size_t>(rows.rows);
  const bool packed = rows.rows == 1 || (rows.destination_stride == rows.row_bytes &&
                                         rows.source_stride == rows.row_bytes);
  if (packed) {
    const size_t bytes = count * rows.row_bytes;
    Latch(driver_.Check(driver_.MemcpyAsync(to, from, bytes, stream_),
                        fmt::format("copying {} bytes for '{}'", bytes, label)));
    return;
  }
  cu::Copy2D copy{};
  copy.source_type = copy.destination_type = cu::MemoryType::kUnified;
  copy.source = from;
  copy.source_pitch = rows.source_stride;
  copy.destination = to;
  copy.destination_pitch = rows.destination_stride;
  copy.width = rows.row_bytes;
  copy.height = count;
  Latch(driver_.Check(
      driver_.Memcpy2DAsync(&copy, stream_),
      fmt::format("copying {} rows of {} bytes for '{}'", rows.rows, rows.row_bytes, label)));
}

void CudaStream::RunOnHost(Operation::RunFn run, const void* args, size_t bytes) {
  Flush();
  while (!host_calls_.empty() && host_calls_.front()->done) host_calls_.pop_front();
  HostCall* const call = host_calls_.emplace_back(std::make_unique<HostCall>()).get();
  call->run = run;
  std::memcpy(call->args.data(), args, bytes);
  const auto entry = [](void* data) {
    auto* const called = static_cast<HostCall*>(data);
    runtime::SetFlushDenormals(true);  // as workers do
    called->run(called->args.data(), LoneWorker());
    called->done = true;
  };
  Latch(driver_.Check(driver_.LaunchHostFunc(stream_, entry, call), "a call of the host"));
}

void CudaStream::Run(const Operation& operation) {
  if (!operation.plain) {
    operation.run(operation.args.data(), CudaStreamContext(*this));
  } else if (operation.launch != nullptr) {
    operation.launch(operation.args.data(), CudaStreamContext(*this));
  } else if (operation.copies != nullptr) {
    copies_.clear();
    operation.copies(operation.args.data(), &copies_);
    for (const CopiedRows& rows : copies_) Copy(rows, operation.desc.label);
  } else if (operation.on_host) {
    RunOnHost(operation.run, operation.args.data(), operation.args.size());
  } else {
    Latch({kCudaFailed,
           fmt::format("operation '{}' has no form that runs on a GPU", operation.desc.label)});
  }
}

void CudaStream::Settle(const char* label) {
  // A stream that waits for others would wait for what the task has yet to enqueue.
  if (!awaited_.empty() || !before_.empty()) return;
  cu::Result result = cu::kNotReady;
  while (result == cu::kNotReady) result = driver_.StreamQuery(stream_);
  Latch(driver_.Check(result, fmt::format("operation '{}' in layer {}", label, layer_)));
}

void CudaStream::Enqueue(const Operation& operation) {
  FB_CHECK(operation.run != nullptr, "operation '{}' has no code", operation.desc.label);
  Enter();
  labels_[enqueued_++ % kKeptLabels] = operation.desc.label;
  Timed timed;
  if (options_.profile) {
    const cost::OpDesc& desc = operation.desc;
    timed.call = {.label = desc.label,
                  .kind = desc.kind,
                  .calls = 1,
                  .flops = desc.flops,
                  .read_bytes = desc.read_bytes};
    Latch(driver_.Check(driver_.EventCreate(&timed.begin, cu::kEventDefault), "an event"));
    Latch(driver_.Check(driver_.EventCreate(&timed.end, cu::kEventDefault), "an event"));
    Latch(driver_.Check(driver_.EventRecord(timed.begin, stream_), "recording an event"));
  }
  Run(operation);
  if (options_.debug_sync) Settle(operation.desc.label);
  if (!options_.profile) return;
  Latch(driver_.Check(driver_.EventRecord(timed.end, stream_), "recording an event"));
  const std::lock_guard lock(mutex_);
  timed_.push_back(timed);
  TakeTimes();
}

void CudaStream::SendControl(const void* data, uint64_t bytes) {
  void* const device = const_cast<void*>(arena_.OnDevice(data));
  FB_CHECK(device != data, "{}: {} bytes to send are no control memory", options_.name, bytes);
  Enqueue(MakeCopy("control to device", device, data, bytes));
}

void CudaStream::FetchControl(void* data, uint64_t bytes) {
  const void* const device = arena_.OnDevice(data);
  FB_CHECK(device != data, "{}: {} bytes to fetch are no control memory", options_.name, bytes);
  Enqueue(MakeCopy("control to host", data, device, bytes));
}

void CudaStream::Record(DeviceEvent& event) {
  auto& point = static_cast<CudaEvent&>(event);
  point.stream = this;
  Enter();
  Flush();
  Latch(driver_.Check(driver_.EventRecord(point.event, stream_), "recording an event"));
}

void CudaStream::Wait(const DeviceEvent& event) {
  const auto& point = static_cast<const CudaEvent&>(event);
  // An event that was never recorded holds nobody; one of this stream comes in order anyway.
  if (point.stream == nullptr || point.stream == this) return;
  before_.insert(point.stream);
  Enter();
  Flush();
  Latch(driver_.Check(driver_.StreamWaitEvent(stream_, point.event, 0), "waiting for an event"));
}

void CudaStream::Post(Counter& counter, uint64_t value) {
  auto& word = static_cast<CudaCounter&>(counter);
  Enter();
  *options_.graphs = false;
  Flush();
  // What was to come before may never have come: who waits for it dies of the same.
  if (const base::Status why = fault(); !why.ok()) return word.Abort(why);
  Latch(driver_.Check(driver_.StreamWriteValue64(stream_, word.address(), value, cu::kWriteDefault),
                      fmt::format("posting to '{}'", word.name())));
}

void CudaStream::Await(Counter& counter, uint64_t value) {
  auto& word = static_cast<CudaCounter&>(counter);
  awaited_.insert(&word);
  Enter();
  *options_.graphs = false;
  Flush();
  Latch(driver_.Check(
      driver_.StreamWaitValue64(stream_, word.address(), value, cu::kWaitGreaterOrEqual),
      fmt::format("waiting for '{}'", word.name())));
}

bool CudaStream::Idle() {
  Flush();
  // A stream may have written to a counter behind its Abort.
  for (CudaCounter* counter : awaited_) {
    if (!counter->fault().ok()) counter->PassAgain();
  }
  const cu::Result result = driver_.StreamQuery(stream_);
  if (result == cu::kNotReady) return false;
  Latch(driver_.Check(result, "running what was enqueued"));
  launches_.DestroyDropped();
  return true;
}

void CudaStream::TakeTimes() {
  for (; !timed_.empty() && driver_.EventQuery(timed_.front().end) != cu::kNotReady;
       timed_.pop_front()) {
    Timed& timed = timed_.front();
    float milliseconds = 0;
    driver_.EventElapsedTime(&milliseconds, timed.begin, timed.end);
    timed.call.seconds = 1e-3 * milliseconds;
    AddCalls(timed.call, &profile_);
    driver_.EventDestroy(timed.begin);
    driver_.EventDestroy(timed.end);
  }
}

bool CudaStream::Reached(cu::Event event) {
  const cu::Result result = driver_.EventQuery(event);
  // A stream that waits for an aborted counter is let through.
  if (result == cu::kNotReady) return Idle();
  Latch(driver_.Check(result, "running what was enqueued"));
  return true;
}

base::Status CudaStream::Death() const {
  for (const CudaCounter* counter : awaited_) FB_RETURN_IF_ERROR(counter->fault());
  for (const CudaStream* stream : before_) {
    const std::lock_guard lock(stream->mutex_);
    FB_RETURN_IF_ERROR(stream->fault_);
  }
  return base::Status::Ok();
}

base::Status CudaStream::TakeFault() {
  const base::Status death = Death();
  awaited_.clear();
  before_.clear();
  const std::lock_guard lock(mutex_);
  if (!death.ok() && !dead_) {
    dead_ = true;
    fault_ = death;
  }
  return dead_ ? fault_ : std::exchange(fault_, base::Status::Ok());
}

base::Status CudaStream::fault() const {
  const base::Status death = Death();
  const std::lock_guard lock(mutex_);
  return !death.ok() && !dead_ ? death : fault_;
}

std::vector<OpProfile> CudaStream::profile() {
  const std::lock_guard lock(mutex_);
  TakeTimes();
  return profile_;
}

}  // namespace forebay::device
