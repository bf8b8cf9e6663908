#include "device/cuda/cuda_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "device/cuda/arena.h"
#include "device/cuda/stream.h"

namespace forebay::device {
namespace {

constexpr int kLeastCapability = 80;  // compute capability, tenfold
// The compute stream comes first where kernels of several are ready.
constexpr int kComputePriority = -1, kCopyPriority = 0;
// How a task waits: it looks again at once, and after a while sleeps in between.
constexpr runtime::TimeNs kLooking = 50'000, kSleep = 10'000;

// Of Write and Read, pinned.
constexpr uint64_t kStagingBytes = 8 << 20;

class CudaDevice final : public Device {
 public:
  CudaDevice(runtime::Runtime& runtime, SharedContext context, const CudaDeviceOptions& options,
             int architecture, int multiprocessors)
      : runtime_(runtime),
        context_(std::move(context)),
        driver_(context_->driver()),
        options_(options),
        architecture_(architecture),
        multiprocessors_(multiprocessors),
        graphs_(options.graphs && !options.profile && !options.debug_sync),
        modules_(std::make_unique<CudaModules>(driver_, architecture)),
        arena_(std::make_unique<CudaArena>(context_, options.rank, options.memory_bytes, false)) {}

  ~CudaDevice() override {
    Enter();
    for (const auto& stream : streams_) {
      if (stream != nullptr) (void)Synchronize(*stream);
    }
    for (auto& stream : streams_) stream.reset();
    if (staging_stream_ != nullptr) driver_.StreamDestroy(staging_stream_);
    if (staging_ != nullptr) driver_.MemFreeHost(staging_);
    modules_.reset();
    arena_.reset();
  }

  // Loads its kernels and makes the streams that every rank has. Errors: kCudaFailed.
  base::Status Start() {
    FB_RETURN_IF_ERROR(modules_->Load(options_.kernels));
    if (options_.scratch_bytes > 0) {
      FB_ASSIGN_OR_RETURN(
          scratch_, arena_->Allocate("kernels' scratch", options_.scratch_bytes, MemoryUse::kData));
    }
    FB_RETURN_IF_ERROR(MakeStream(0));
    FB_RETURN_IF_ERROR(driver_.Check(
        driver_.StreamCreateWithPriority(&staging_stream_, cu::kStreamNonBlocking, kCopyPriority),
        "a stream"));
    return driver_.Check(driver_.MemHostAlloc(&staging_, kStagingBytes, cu::kHostPortable),
                         "pinned memory for copies of the host");
  }

  int rank() const override { return options_.rank; }
  Arena& arena() override {
    Enter();
    return *arena_;
  }
  std::unique_ptr<Arena> NewHostArena(uint64_t budget) override {
    Enter();
    return std::make_unique<CudaArena>(context_, options_.rank, budget, true);
  }
  Stream& compute() override {
    Enter();
    return *streams_[0];
  }
  // A stream that waits holds up those that share its connection, and a GPU has 32: there are none
  // without use.
  Stream& copy(CopyKind kind) override {
    Enter();
    const size_t index = 1 + static_cast<size_t>(kind);
    if (streams_[index] == nullptr) {
      const base::Status made = MakeStream(index);
      FB_CHECK(made.ok(), "{}", made.ToString());
    }
    return *streams_[index];
  }
  std::unique_ptr<DeviceEvent> NewEvent() override {
    Enter();
    cu::Event event = nullptr;
    FB_CHECK(driver_.EventCreate(&event, cu::kEventDisableTiming) == cu::kSuccess,
             "rank {}: the driver gives no event", options_.rank);
    return std::make_unique<CudaEvent>(context_, event);
  }
  int num_workers() const override { return 1; }
  bool host_reaches_data() const override { return false; }
  base::Status Write(void* to, const void* from, uint64_t bytes) override {
    return Stage(bytes, "writing", [&](uint64_t at, uint64_t piece) {
      std::memcpy(staging_, static_cast<const std::byte*>(from) + at, piece);
      return StagedCopy(static_cast<std::byte*>(to) + at, staging_, piece);
    });
  }
  base::Status Read(void* to, const void* from, uint64_t bytes) override {
    return Stage(bytes, "reading", [&](uint64_t at, uint64_t piece) {
      const cu::Result copied =
          StagedCopy(staging_, static_cast<const std::byte*>(from) + at, piece);
      std::memcpy(static_cast<std::byte*>(to) + at, staging_, piece);
      return copied;
    });
  }
  base::Status Synchronize(Stream& stream) override {
    auto& waited = static_cast<CudaStream&>(stream);
    WaitUntil([&] { return waited.Idle(); }, runtime::kForever);
    return waited.TakeFault();
  }
  base::Status FaultOf(const Stream& stream) const override {
    return static_cast<const CudaStream&>(stream).fault();
  }
  bool WaitFor(const DeviceEvent& event, runtime::TimeNs timeout) override {
    const auto& point = static_cast<const CudaEvent&>(event);
    if (point.stream == nullptr) return true;
    return WaitUntil([&] { return point.stream->Reached(point.event); }, timeout);
  }
  std::vector<OpProfile> Profile() const override {
    Enter();
    std::vector<OpProfile> profile;
    for (const auto& stream : streams_) {
      if (stream == nullptr) continue;
      for (const OpProfile& entry : stream->profile()) AddCalls(entry, &profile);
    }
    return profile;
  }
  std::vector<OpProfile> ProfileOf(const Stream& stream) const override {
    Enter();
    // Its own stream, of which the caller has a constant view.
    const auto own = std::ranges::find(streams_, &stream, [](const auto& of) { return of.get(); });
    return (*own)->profile();
  }
  std::optional<LaunchCounts> launches() const override { return streams_[0]->launches(); }
  // Known where operations are timed.
  StreamTime TimeOf(const Stream& stream) const override {
    StreamTime time;
    for (const OpProfile& entry : ProfileOf(stream)) time.busy += entry.seconds;
    return time;
  }

 private:
  base::Status MakeStream(size_t index) {
    cu::Stream stream = nullptr;
    FB_RETURN_IF_ERROR(driver_.Check(
        driver_.StreamCreateWithPriority(&stream, cu::kStreamNonBlocking,
                                         index == 0 ? kComputePriority : kCopyPriority),
        "a stream"));
    const bool of_compute = index == 0 && scratch_ != nullptr;
    streams_[index] = std::make_unique<CudaStream>(
        driver_, *modules_, *arena_, stream,
        CudaStreamOptions{.name = fmt::format("rank {} {}", options_.rank,
                                              index == 0 ? "compute" : kCopyNames[index - 1]),
                          .context = context_,
                          .architecture = architecture_,
                          .multiprocessors = multiprocessors_,
                          .kernels = options_.kernels,
                          .scratch = of_compute ? scratch_->data : nullptr,
                          .scratch_bytes = of_compute ? options_.scratch_bytes : 0,
                          .profile = options_.profile,
                          .debug_sync = options_.debug_sync,
                          .graphs = &graphs_});
    return base::Status::Ok();
  }
  void Enter() const { context_->Enter(); }

  // copy(at, piece) for each piece that fits the buffer.
  template <typename Copy>
  base::Status Stage(uint64_t bytes, const char* what, Copy copy) {
    const std::lock_guard lock(staging_mutex_);
    Enter();
    for (uint64_t at = 0; at < bytes; at += kStagingBytes) {
      FB_RETURN_IF_ERROR(driver_.Check(
          copy(at, std::min(kStagingBytes, bytes - at)),
          fmt::format("rank {}: {} {} bytes of the GPU's memory", options_.rank, what, bytes)));
    }
    return base::Status::Ok();
  }
  cu::Result StagedCopy(void* to, const void* from, uint64_t bytes) {
    const cu::Result enqueued =
        driver_.MemcpyAsync(reinterpret_cast<cu::DevicePtr>(to),
                            reinterpret_cast<cu::DevicePtr>(from), bytes, staging_stream_);
    return enqueued == cu::kSuccess ? driver_.StreamSynchronize(staging_stream_) : enqueued;
  }

  template <typename Done>
  bool WaitUntil(Done done, runtime::TimeNs timeout) {
    Enter();
    const runtime::TimeNs start = runtime_.Now();
    while (!done()) {
      const runtime::TimeNs waited = runtime_.Now() - start;
      if (timeout != runtime::kForever && waited >= timeout) return false;
      if (waited >= kLooking || runtime_.is_virtual()) runtime_.Sleep(kSleep);
    }
    return true;
  }

  runtime::Runtime& runtime_;
  // Which events, host arenas and counters hold too: they may outlive the device.
  const SharedContext context_;
  const Driver& driver_;
  const CudaDeviceOptions options_;
  const int architecture_, multiprocessors_;
  // Where each operation is timed or waited for, nothing is left to launch together.
  bool graphs_;
  std::unique_ptr<CudaModules> modules_;
  std::unique_ptr<CudaArena> arena_;
  const Region* scratch_ = nullptr;
  std::array<std::unique_ptr<CudaStream>, 1 + kCopyNames.size()> streams_;
  std::mutex staging_mutex_;
  cu::Stream staging_stream_ = nullptr;  // guarded by staging_mutex_, as staging_
  void* staging_ = nullptr;
};

// A GPU whose context is current on the thread.
struct Opened {
  SharedContext context;
  int architecture = 0;  // compute capability, tenfold
  int multiprocessors = 0;
};

base::Result<Opened> Open(const Driver& driver, int ordinal) {
  int count = 0;
  FB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetCount(&count), "counting GPUs"));
  if (ordinal < 0 || ordinal >= count) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return base::Status(
        kCudaUnavailable,
        fmt::format("device cuda:{}: the driver sees {} {} (CUDA_VISIBLE_DEVICES is {})", ordinal,
                    count, count == 1 ? "GPU" : "GPUs",
                    visible != nullptr ? fmt::format("'{}'", visible) : "not set"));
  }
  Opened gpu;
  cu::Device device = 0;
  FB_RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&device, ordinal), "finding the GPU"));
  int major = 0, minor = 0;
  for (const auto& [value, attribute] :
       {std::pair(&major, cu::Attribute::kMajor), std::pair(&minor, cu::Attribute::kMinor),
        std::pair(&gpu.multiprocessors, cu::Attribute::kMultiprocessors)}) {
    FB_RETURN_IF_ERROR(
        driver.Check(driver.DeviceGetAttribute(value, attribute, device), "asking the GPU"));
  }
  gpu.architecture = major * 10 + minor;
  if (gpu.architecture < kLeastCapability) {
    return base::Status(kCudaUnavailable,
                        fmt::format("device cuda:{} has compute capability {}.{}, 8.0 is needed",
                                    ordinal, major, minor));
  }
  cu::Context context = nullptr;
  FB_RETURN_IF_ERROR(driver.Check(driver.DevicePrimaryCtxRetain(&context, device),
                                  fmt::format("opening cuda:{}", ordinal)));
  gpu.context = std::make_shared<const CudaContext>(driver, device, context);
  FB_RETURN_IF_ERROR(driver.Check(driver.CtxSetCurrent(context), "opening the GPU"));
  return gpu;
}

}  // namespace

base::Result<std::unique_ptr<Device>> CreateCudaDevice(runtime::Runtime& runtime,
                                                       const Driver& driver,
                                                       const CudaDeviceOptions& options) {
  FB_ASSIGN_OR_RETURN(const Opened gpu, Open(driver, options.ordinal));
  auto made = std::make_unique<CudaDevice>(runtime, gpu.context, options, gpu.architecture,
                                           gpu.multiprocessors);
  FB_RETURN_IF_ERROR(made->Start());
  return std::unique_ptr<Device>(std::move(made));
}

base::Result<CudaMemory> MemoryOfGpu(const Driver& driver, int ordinal) {
  FB_ASSIGN_OR_RETURN(const Opened gpu, Open(driver, ordinal));
  char name[256] = "";
  size_t free = 0, total = 0;
  FB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetName(name, sizeof name, gpu.context->device()),
                                  "asking the GPU's name"));
  FB_RETURN_IF_ERROR(driver.Check(driver.MemGetInfo(&free, &total), "asking its memory"));
  return CudaMemory{free, total, name, gpu.architecture};
}

base::Status ConnectGpus(const Driver& driver, int first, int second) {
  for (const auto& [from, to] : {std::pair(first, second), std::pair(second, first)}) {
    FB_ASSIGN_OR_RETURN(const Opened peer, Open(driver, to));
    FB_ASSIGN_OR_RETURN(const Opened gpu, Open(driver, from));
    int can = 0;
    driver.DeviceCanAccessPeer(&can, gpu.context->device(), peer.context->device());
    if (can == 0) {
      return {kCudaUnavailable,
              fmt::format("cuda:{} does not reach the memory of cuda:{}; expected GPUs of one "
                          "NVLink or PCIe domain, or ranks on one of them",
                          from, to)};
    }
    // Their devices hold the contexts.
    const cu::Result on = driver.CtxEnablePeerAccess(peer.context->get(), 0);
    if (on != cu::kPeerAccessIsOn)
      FB_RETURN_IF_ERROR(driver.Check(on, fmt::format("access of cuda:{} to cuda:{}", from, to)));
  }
  return base::Status::Ok();
}

base::Status CheckCounters(const Driver& driver, int ordinal) {
  FB_ASSIGN_OR_RETURN(const Opened gpu, Open(driver, ordinal));
  int can = 0;
  FB_RETURN_IF_ERROR(driver.Check(
      driver.DeviceGetAttribute(&can, cu::Attribute::kStreamValues64, gpu.context->device()),
      "asking the GPU"));
  if (can != 0) return base::Status::Ok();
  return {kCudaUnavailable,
          fmt::format("cuda:{} has no 64-bit stream memory operations "
                      "(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS is 0), by which ranks "
                      "that meet wait for each other; expected them, or a rank a replica without "
                      "shared weights",
                      ordinal)};
}

base::Result<std::unique_ptr<Counter>> CreateCudaCounter(const Driver& driver, int ordinal,
                                                         std::string name) {
  FB_ASSIGN_OR_RETURN(const Opened gpu, Open(driver, ordinal));
  void* word = nullptr;
  FB_RETURN_IF_ERROR(driver.Check(
      driver.MemHostAlloc(&word, sizeof(uint64_t), cu::kHostPortable | cu::kHostMapped),
      "pinned memory for a counter"));
  *static_cast<uint64_t*>(word) = 0;
  return std::unique_ptr<Counter>(
      std::make_unique<CudaCounter>(gpu.context, static_cast<uint64_t*>(word), std::move(name)));
}

}  // namespace forebay::device
