#include "device/cuda/cuda_device.h"

#include <fmt/core.h>

#include <array>
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

constexpr std::array kCopyNames = {"weights copy", "kv copy up", "kv copy down"};

class CudaDevice final : public Device {
 public:
  CudaDevice(runtime::Runtime& runtime, const Driver& driver, const CudaDeviceOptions& options,
             cu::Device device, cu::Context context, int architecture)
      : runtime_(runtime),
        driver_(driver),
        options_(options),
        device_(device),
        context_(context),
        modules_(std::make_unique<CudaModules>(driver, architecture)),
        arena_(std::make_unique<CudaArena>(driver, options.rank, options.memory_bytes, false)) {}

  ~CudaDevice() override {
    Enter();
    for (const auto& stream : streams_) {
      if (stream != nullptr) (void)Synchronize(*stream);
    }
    for (auto& stream : streams_) stream.reset();
    modules_.reset();
    arena_.reset();
    driver_.DevicePrimaryCtxRelease(device_);
  }

  // Makes its streams. Errors: kCudaFailed.
  base::Status Start() {
    for (size_t i = 0; i < streams_.size(); ++i) {
      cu::Stream stream = nullptr;
      FB_RETURN_IF_ERROR(
          driver_.Check(driver_.StreamCreateWithPriority(&stream, cu::kStreamNonBlocking,
                                                         i == 0 ? kComputePriority : kCopyPriority),
                        "a stream"));
      streams_[i] = std::make_unique<CudaStream>(
          driver_, *modules_, stream,
          CudaStreamOptions{.name = fmt::format("rank {} {}", options_.rank,
                                                i == 0 ? "compute" : kCopyNames[i - 1]),
                            .profile = options_.profile});
    }
    return base::Status::Ok();
  }

  int rank() const override { return options_.rank; }
  Arena& arena() override {
    Enter();
    return *arena_;
  }
  std::unique_ptr<Arena> NewHostArena(uint64_t budget) override {
    Enter();
    return std::make_unique<CudaArena>(driver_, options_.rank, budget, true);
  }
  Stream& compute() override {
    Enter();
    return *streams_[0];
  }
  Stream& copy(CopyKind kind) override {
    Enter();
    return *streams_[1 + static_cast<size_t>(kind)];
  }
  std::unique_ptr<DeviceEvent> NewEvent() override {
    Enter();
    cu::Event event = nullptr;
    FB_CHECK(driver_.EventCreate(&event, cu::kEventDisableTiming) == cu::kSuccess,
             "rank {}: the driver gives no event", options_.rank);
    return std::make_unique<CudaEvent>(driver_, event);
  }
  int num_workers() const override { return 1; }
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
    return WaitUntil(
        [&] {
          // Of a stream that waits for an aborted counter, too.
          return driver_.EventQuery(point.event) != cu::kNotReady || point.stream->Idle();
        },
        timeout);
  }
  std::vector<OpProfile> Profile() const override {
    std::vector<OpProfile> profile;
    for (const auto& stream : streams_) {
      for (const OpProfile& entry : stream->profile()) AddCalls(entry, &profile);
    }
    return profile;
  }
  std::vector<OpProfile> ProfileOf(const Stream& stream) const override {
    return static_cast<const CudaStream&>(stream).profile();
  }
  // Known where operations are timed.
  StreamTime TimeOf(const Stream& stream) const override {
    StreamTime time;
    for (const OpProfile& entry : ProfileOf(stream)) time.busy += entry.seconds;
    return time;
  }

 private:
  // The context is the thread's from here on: a task that calls the device may run on any.
  void Enter() const { driver_.CtxSetCurrent(context_); }

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
  const Driver& driver_;
  const CudaDeviceOptions options_;
  const cu::Device device_;
  const cu::Context context_;
  std::unique_ptr<CudaModules> modules_;
  std::unique_ptr<CudaArena> arena_;
  std::array<std::unique_ptr<CudaStream>, 1 + kCopyNames.size()> streams_;
};

}  // namespace

base::Result<std::unique_ptr<Device>> CreateCudaDevice(runtime::Runtime& runtime,
                                                       const Driver& driver,
                                                       const CudaDeviceOptions& options) {
  int count = 0;
  FB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetCount(&count), "counting GPUs"));
  if (options.ordinal < 0 || options.ordinal >= count) {
    return base::Status(kCudaUnavailable, fmt::format("device cuda:{}: the driver sees {} GPUs",
                                                      options.ordinal, count));
  }
  cu::Device device = 0;
  FB_RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&device, options.ordinal), "finding the GPU"));
  int major = 0, minor = 0;
  FB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetAttribute(&major, cu::Attribute::kMajor, device),
                                  "asking the GPU"));
  FB_RETURN_IF_ERROR(driver.Check(driver.DeviceGetAttribute(&minor, cu::Attribute::kMinor, device),
                                  "asking the GPU"));
  const int architecture = major * 10 + minor;
  if (architecture < kLeastCapability) {
    return base::Status(kCudaUnavailable,
                        fmt::format("device cuda:{} has compute capability {}.{}, 8.0 is needed",
                                    options.ordinal, major, minor));
  }
  cu::Context context = nullptr;
  FB_RETURN_IF_ERROR(
      driver.Check(driver.DevicePrimaryCtxRetain(&context, device), "opening the GPU"));
  FB_RETURN_IF_ERROR(driver.Check(driver.CtxSetCurrent(context), "opening the GPU"));
  auto made = std::make_unique<CudaDevice>(runtime, driver, options, device, context, architecture);
  FB_RETURN_IF_ERROR(made->Start());
  return std::unique_ptr<Device>(std::move(made));
}

base::Result<std::unique_ptr<Counter>> CreateCudaCounter(const Driver& driver, std::string name) {
  void* word = nullptr;
  FB_RETURN_IF_ERROR(driver.Check(
      driver.MemHostAlloc(&word, sizeof(uint64_t), cu::kHostPortable | cu::kHostMapped),
      "pinned memory for a counter"));
  *static_cast<uint64_t*>(word) = 0;
  return std::unique_ptr<Counter>(
      std::make_unique<CudaCounter>(driver, static_cast<uint64_t*>(word), std::move(name)));
}

}  // namespace forebay::device
