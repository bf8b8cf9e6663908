// The device on a driver: memory, streams, events, counters, faults. On a GPU the same suite runs
// on its own driver.
#include "device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "base/units.h"
#include "device/copy.h"
#include "device/cuda/launch_context.h"
#include "device/cuda/launches.h"
#include "device/cuda/testing/driver_under_test.h"
#include "device/cuda/testing/emulated_driver.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::device {
namespace {

using base::kMiB;
using testing::EmulatedDriver;
using testing::EmulatedDriverOptions;
using ::testing::HasSubstr;
using testing::OnDriver;
using testing::RealDriver;

std::unique_ptr<Device> MakeCuda(runtime::Runtime& runtime, const Driver& driver, int rank = 0) {
  auto device = CreateCudaDevice(runtime, driver, {.rank = rank, .memory_bytes = 8 * kMiB});
  EXPECT_TRUE(device.ok()) << device.status().ToString();
  return std::move(device).value();
}

// The slot protocol on one rank: the copy stream fills a slot, the compute stream reads it.
TEST(CudaDevice, EventsOrderTwoStreams) {
  OnDriver(1000, [](const Driver& driver, runtime::Runtime& runtime) {
    constexpr int kLayers = 6;
    constexpr uint64_t kBytes = 10'000;
    const auto device = MakeCuda(runtime, driver);
    Stream &compute = device->compute(), &copy = device->copy(CopyKind::kWeights);
    Arena& arena = device->arena();
    const Region* source = arena.Allocate("source", kLayers * kBytes, MemoryUse::kControl).value();
    const Region* slot = arena.Allocate("slot", kBytes).value();
    const Region* result = arena.Allocate("result", kLayers * kBytes, MemoryUse::kControl).value();
    for (uint64_t i = 0; i < source->bytes; ++i)
      source->data[i] = static_cast<std::byte>(i * 7 / 3);
    const auto ready = device->NewEvent(), consumed = device->NewEvent();
    for (int layer = 0; layer < kLayers; ++layer) {
      copy.Wait(*consumed);
      copy.Enqueue(MakeCopy("pull", slot->data, source->data + layer * kBytes, kBytes));
      copy.Record(*ready);
      compute.Wait(*ready);
      compute.Enqueue(MakeCopy("use", result->data + layer * kBytes, slot->data, kBytes));
      compute.Record(*consumed);
    }
    EXPECT_TRUE(device->WaitFor(*consumed));
    EXPECT_EQ(std::memcmp(result->data, source->data, source->bytes), 0);
    EXPECT_TRUE(device->Synchronize(compute).ok());
  });
}

// Without the second event the protocol loses a slot under some interleaving.
TEST(CudaDevice, InterleavingsFindAMissingEvent) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "the planted mistake is for the emulated driver";
  int lost = 0;
  for (int seed = 0; seed < 50; ++seed) {
    EmulatedDriver emulated({.seed = static_cast<uint64_t>(seed)});
    runtime::VirtualRuntime runtime(static_cast<uint64_t>(seed));
    const base::Status status = runtime.Run([&] {
      const auto device = MakeCuda(runtime, emulated.driver());
      Arena& arena = device->arena();
      const Region* source = arena.Allocate("source", 4, MemoryUse::kControl).value();
      const Region* slot = arena.Allocate("slot", 1).value();
      const Region* result = arena.Allocate("result", 4, MemoryUse::kControl).value();
      for (int i = 0; i < 4; ++i) source->data[i] = static_cast<std::byte>(i + 1);
      const auto ready = device->NewEvent();
      for (int i = 0; i < 4; ++i) {
        device->copy(CopyKind::kWeights).Enqueue(MakeCopy("pull", slot->data, source->data + i, 1));
        device->copy(CopyKind::kWeights).Record(*ready);
        device->compute().Wait(*ready);
        device->compute().Enqueue(MakeCopy("use", result->data + i, slot->data, 1));
      }
      EXPECT_TRUE(device->Synchronize(device->compute()).ok());
      lost += std::memcmp(result->data, source->data, 4) != 0;
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_GT(lost, 0);
}

TEST(CudaDevice, EventsNeverRecordedPass) {
  OnDriver(20, [](const Driver& driver, runtime::Runtime& runtime) {
    const auto device = MakeCuda(runtime, driver);
    const auto event = device->NewEvent();
    device->compute().Wait(*event);
    EXPECT_TRUE(device->WaitFor(*event, 0));
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
  });
}

// Two ranks hand a value back and forth by counters; each round's copy sees the other's.
TEST(CudaDevice, CountersOrderTwoRanks) {
  OnDriver(300, [](const Driver& driver, runtime::Runtime& runtime) {
    constexpr int kRounds = 8;
    const auto first = MakeCuda(runtime, driver, 0), second = MakeCuda(runtime, driver, 1);
    const auto there = CreateCudaCounter(driver, 0, "there").value(),
               back = CreateCudaCounter(driver, 0, "back").value();
    const Region* source = first->arena().Allocate("source", kRounds, MemoryUse::kControl).value();
    const Region* box = first->arena().Allocate("box", 1).value();
    const Region* result = second->arena().Allocate("result", kRounds, MemoryUse::kControl).value();
    for (int i = 0; i < kRounds; ++i) source->data[i] = static_cast<std::byte>(i + 1);
    for (uint64_t i = 0; i < kRounds; ++i) {
      first->compute().Await(*back, i);
      first->compute().Enqueue(MakeCopy("send", box->data, source->data + i, 1));
      first->compute().Post(*there, i + 1);
      second->compute().Await(*there, i + 1);
      second->compute().Enqueue(MakeCopy("take", result->data + i, box->data, 1));
      second->compute().Post(*back, i + 1);
    }
    EXPECT_TRUE(second->Synchronize(second->compute()).ok());
    EXPECT_TRUE(first->Synchronize(first->compute()).ok());
    EXPECT_EQ(std::memcmp(source->data, result->data, kRounds), 0);
  });
}

// Who waits for a counter that is aborted dies of it, and so does who waits for its events.
TEST(CudaDevice, AbortedCountersHoldNobody) {
  OnDriver(100, [](const Driver& driver, runtime::Runtime& runtime) {
    const auto device = MakeCuda(runtime, driver);
    const auto counter = CreateCudaCounter(driver, 0, "rank 1 for rank 0").value();
    const auto event = device->NewEvent();
    Stream &copy = device->copy(CopyKind::kWeights), &compute = device->compute();
    copy.Post(*counter, 1);
    copy.Await(*counter, 5);
    copy.Record(*event);
    compute.Wait(*event);
    EXPECT_FALSE(device->WaitFor(*event, 100'000));
    counter->Abort({base::kIoError, "rank 1 has ended"});
    EXPECT_EQ(device->Synchronize(copy).message(), "rank 1 has ended");
    EXPECT_EQ(device->Synchronize(compute).message(), "rank 1 has ended");
    EXPECT_EQ(device->Synchronize(copy).message(), "rank 1 has ended");
  });
}

// An operation that the driver does not take leaves what is behind it without its result. Who waits
// for the stream's event, or for what it posts, gets the fault.
TEST(CudaDevice, FaultsReachWhoWaitsForTheStream) {
  OnDriver(20, [](const Driver& driver, runtime::Runtime& runtime) {
    const auto first = MakeCuda(runtime, driver, 0), second = MakeCuda(runtime, driver, 1);
    const auto counter = CreateCudaCounter(driver, 0, "rank 0 for rank 1").value();
    const auto pulled = first->NewEvent();
    const Region* data = first->arena().Allocate("data", 16).value();
    Stream& copy = first->copy(CopyKind::kWeights);
    Operation pull = MakeCopy("pull", data->data, data->data + 8, 8);
    pull.copies = nullptr;  // no form that runs on a GPU
    copy.Enqueue(pull);
    copy.Record(*pulled);
    first->compute().Wait(*pulled);
    first->compute().Enqueue(MakeCopy("use", data->data + 8, data->data, 8));
    first->compute().Post(*counter, 1);
    second->compute().Await(*counter, 1);
    EXPECT_TRUE(first->WaitFor(*pulled));
    for (const auto& device : {&first, &second}) {
      EXPECT_THAT((*device)->FaultOf((*device)->compute()).message(),
                  HasSubstr("rank 0 weights copy: operation 'pull' has no form"));
      EXPECT_FALSE((*device)->Synchronize((*device)->compute()).ok());
    }
  });
}

TEST(CudaDevice, MemoryIsZeroedWithinABudget) {
  OnDriver(3, [](const Driver& driver, runtime::Runtime& runtime) {
    const auto device = MakeCuda(runtime, driver);
    Arena& arena = device->arena();
    const Region* data = arena.Allocate("weights", 5 * kMiB).value();
    const Region* seen = arena.Allocate("seen", 100, MemoryUse::kControl).value();
    std::memset(seen->data, 1, 100);
    device->compute().Enqueue(MakeCopy("look", seen->data, data->data + 5 * kMiB - 100, 100));
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    EXPECT_EQ(std::vector<std::byte>(seen->data, seen->data + 100), std::vector<std::byte>(100));
    EXPECT_EQ(arena.used(), 5 * kMiB + 4096);
    const base::Status full = arena.Allocate("kv", 3 * kMiB).status();
    EXPECT_EQ(full.code(), kArenaFull);
    for (const char* part : {"'kv' needs 3.0 MiB", "budget of 8.0 MiB", "'weights' 5.0 MiB"})
      EXPECT_THAT(full.message(), HasSubstr(part));
    const auto host = device->NewHostArena(kMiB);
    const Region* tier = host->Allocate("tier", 1000).value();
    std::memset(tier->data, 9, 1000);
    EXPECT_EQ(host->used(), 4096u);
  });
}

// A rank ends its device before its members: events, what lies below the device, and the fabric's
// counters go later, and not with the context.
TEST(CudaDevice, EventsCountersAndHostMemoryMayOutliveIt) {
  OnDriver(3, [](const Driver& driver, runtime::Runtime& runtime) {
    const auto counter = CreateCudaCounter(driver, 0, "there").value();
    auto device = MakeCuda(runtime, driver);
    const auto event = device->NewEvent();
    const auto host = device->NewHostArena(kMiB);
    const Region* tier = host->Allocate("tier", 1000).value();
    device->compute().Post(*counter, 1);
    device->compute().Record(*event);
    device.reset();
    std::memset(tier->data, 9, 1000);
    EXPECT_EQ(host->used(), 4096u);
  });
}

TEST(CudaDevice, FirstFaultSurfacesAtTheNextSynchronize) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "a fault would end the GPU's context";
  EmulatedDriver emulated;
  runtime::VirtualRuntime runtime(1);
  const base::Status status = runtime.Run([&] {
    const auto device = MakeCuda(runtime, emulated.driver());
    const Region* data = device->arena().Allocate("data", 8192).value();
    std::vector<std::byte> pageable(64);
    device->compute().Enqueue(MakeCopy("good", data->data + 64, data->data, 64));
    device->compute().Enqueue(MakeCopy("from a vector", data->data, pageable.data(), 64));
    const base::Status fault = device->Synchronize(device->compute());
    EXPECT_EQ(fault.code(), kCudaFailed);
    for (const char* part : {"rank 0 compute", "ILLEGAL_ADDRESS", "64 bytes of no allocation",
                             "its last operations: good, from a vector"})
      EXPECT_THAT(fault.message(), HasSubstr(part));
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(CudaDeviceDeathTest, TheHostDoesNotTouchTheGpusMemory) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "the emulated driver's check";
  EmulatedDriver emulated;
  runtime::VirtualRuntime runtime(1);
  const base::Status status = runtime.Run([&] {
    const auto device = MakeCuda(runtime, emulated.driver());
    const Region* data = device->arena().Allocate("data", 8192).value();
    EXPECT_DEATH(data->data[0] = std::byte{1}, "");
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// What a stream of rank 0 waits for, rank 1 would post behind a call of the host that waits for the
// GPU: the emulated driver names the call.
TEST(CudaDevice, CallsThatWaitForAPeerAreNamed) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "a GPU waits for ever";
  struct Case {
    EmulatedDriverOptions options;
    const char* call;  // null: nothing waits
  };
  EmulatedDriverOptions narrow{.queue_commands = 2}, few{.connections = 1}, usual;
  for (const Case& c : {Case{usual, nullptr}, Case{narrow, "a launch into a full queue"},
                        Case{few, "cuStreamSynchronize"}}) {
    EmulatedDriverOptions options = c.options;
    options.longest_call = std::chrono::milliseconds(20);
    EmulatedDriver emulated(options);
    const auto runtime = runtime::CreateRealRuntime();
    {
      const auto there = CreateCudaCounter(emulated.driver(), 0, "there").value();
      const auto first = MakeCuda(*runtime, emulated.driver(), 0),
                 second = MakeCuda(*runtime, emulated.driver(), 1);
      const Region* data = first->arena().Allocate("data", 64, MemoryUse::kControl).value();
      const Region* own = second->arena().Allocate("own", 64).value();
      first->compute().Await(*there, 1);
      for (int i = 0; i < 3; ++i)
        first->compute().Enqueue(MakeCopy("on the host", data->data, data->data + 32, 32));
      second->compute().Post(*there, 1);
      base::Status status = second->Write(own->data, data->data + 8, 8);
      if (status.ok()) status = first->Synchronize(first->compute());
      EXPECT_EQ(status.ok(), c.call == nullptr) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr(c.call != nullptr ? c.call : ""));
    }
  }
}

struct AddParams {
  int32_t* values;
  int32_t addend, count;
};
const CudaKernel& AddKernel() {
  static const std::byte image[1] = {};
  static const CudaKernel kernel{.name = "add", .image = image, .least_architecture = 80};
  return kernel;
}
void Add(const AddParams& params, const WorkerContext& context) {
  static_cast<const LaunchContext&>(context).Launch(AddKernel(), {.blocks = {2, 1, 1}}, params);
}
// Of values in control memory.
void AddControl(const AddParams& params, const WorkerContext& context) {
  int32_t* const values = static_cast<const LaunchContext&>(context).OnDevice(params.values);
  Add({values, params.addend, params.count}, context);
}
int32_t Added(int32_t value, int32_t addend) {
  return static_cast<int32_t>(static_cast<uint32_t>(value) * 3 + static_cast<uint32_t>(addend));
}
base::Status RunAdd(std::string_view, const cu::LaunchConfig&, const void* raw, uint64_t) {
  const auto& params = *static_cast<const AddParams*>(raw);
  for (int i = 0; i < params.count; ++i) params.values[i] = Added(params.values[i], params.addend);
  return base::Status::Ok();
}
EmulatedDriverOptions WithAdd(uint64_t seed) {
  return {.seed = seed, .kernel = RunAdd, .params_bytes = [](std::string_view) {
            return sizeof(AddParams);
          }};
}

// Loading code waits for the GPU, and so, at a first launch, for what a peer is yet to post.
TEST(CudaDevice, KernelsAreLoadedBeforeAnythingWaits) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "a GPU waits for ever";
  for (const bool at_the_start : {true, false}) {
    EmulatedDriver emulated({.kernel = [](std::string_view, const cu::LaunchConfig&, const void*,
                                          uint64_t) { return base::Status::Ok(); },
                             .params_bytes = [](std::string_view) { return sizeof(AddParams); },
                             .longest_call = std::chrono::milliseconds(20)});
    const auto runtime = runtime::CreateRealRuntime();
    {
      const auto there = CreateCudaCounter(emulated.driver(), 0, "there").value();
      CudaDeviceOptions options{.memory_bytes = kMiB};
      if (at_the_start) options.kernels = std::span(&AddKernel(), 1);
      const auto device = CreateCudaDevice(*runtime, emulated.driver(), options).value();
      device->copy(CopyKind::kWeights).Await(*there, 1);
      device->compute().Enqueue(MakeOperation({.label = "add"}, AddParams{}, &Add));
      device->compute().Post(*there, 1);
      const base::Status status = device->Synchronize(device->compute());
      EXPECT_EQ(status.ok(), at_the_start);
      EXPECT_THAT(status.message(),
                  HasSubstr(at_the_start ? "" : "cuModuleLoadData never returns"));
    }
  }
}

// Kernels run in the order of their stream, with the parameters of their launch.
TEST(CudaDevice, LaunchesKernels) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "a kernel of the emulated driver's alone";
  for (uint64_t seed = 0; seed < 50; ++seed) {
    int launches = 0;
    EmulatedDriver emulated(
        {.seed = seed,
         .kernel =
             [&](std::string_view name, const cu::LaunchConfig& config, const void* raw, uint64_t) {
               EXPECT_EQ(name, "add");
               EXPECT_EQ(config.grid[0], 2u);
               const auto& params = *static_cast<const AddParams*>(raw);
               for (int i = 0; i < params.count; ++i)
                 params.values[i] = params.values[i] * 3 + params.addend;
               ++launches;
               return base::Status::Ok();
             },
         .params_bytes = [](std::string_view) { return sizeof(AddParams); }});
    runtime::VirtualRuntime runtime(seed);
    const base::Status status = runtime.Run([&] {
      const auto device = MakeCuda(runtime, emulated.driver());
      const Region* values = device->arena().Allocate("values", 40).value();
      const Region* seen = device->arena().Allocate("seen", 40, MemoryUse::kControl).value();
      for (int32_t addend = 1; addend <= 3; ++addend) {
        device->compute().Enqueue(
            MakeOperation({.label = "add"},
                          AddParams{reinterpret_cast<int32_t*>(values->data), addend, 10}, &Add));
      }
      device->compute().Enqueue(MakeCopy("look", seen->data, values->data, 40));
      EXPECT_TRUE(device->Synchronize(device->compute()).ok());
      for (int i = 0; i < 10; ++i)
        EXPECT_EQ(reinterpret_cast<const int32_t*>(seen->data)[i], (1 * 3 + 2) * 3 + 3);
      EXPECT_EQ(emulated.num_streams(), 2);  // no copies of weights or KV were asked for
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(launches, 3);
    EXPECT_EQ(emulated.Leaks(), "");
  }
}

TEST(CudaDevice, LaunchesBeyondAGpusLimitsAreRefused) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "the emulated driver's check";
  EmulatedDriver emulated(WithAdd(1));
  const Driver& driver = emulated.driver();
  cu::Context context = nullptr;
  ASSERT_EQ(driver.DevicePrimaryCtxRetain(&context, 0), cu::kSuccess);
  ASSERT_EQ(driver.CtxSetCurrent(context), cu::kSuccess);
  cu::Module module = nullptr;
  cu::Function function = nullptr;
  cu::Stream stream = nullptr;
  AddParams params{};
  ASSERT_EQ(driver.ModuleLoadData(&module, nullptr), cu::kSuccess);
  ASSERT_EQ(driver.ModuleGetFunction(&function, module, "add"), cu::kSuccess);
  ASSERT_EQ(driver.StreamCreateWithPriority(&stream, cu::kStreamNonBlocking, 0), cu::kSuccess);
  const auto launches = [&](unsigned along_y, unsigned shared_bytes) {
    const cu::LaunchConfig config{.grid = {1, along_y, 1},
                                  .block = {32, 1, 1},
                                  .shared_bytes = shared_bytes,
                                  .stream = stream,
                                  .attributes = nullptr,
                                  .num_attributes = 0};
    void* arguments[] = {&params};
    return driver.LaunchKernelEx(&config, function, arguments, nullptr) == cu::kSuccess;
  };
  const auto allows = [&](int shared_bytes) {
    return driver.FuncSetAttribute(function, cu::FunctionAttribute::kMaxDynamicShared,
                                   shared_bytes) == cu::kSuccess;
  };
  EXPECT_TRUE(launches(65535, 48 << 10));
  EXPECT_FALSE(launches(65536, 0));
  EXPECT_FALSE(launches(1, (48 << 10) + 1));
  EXPECT_FALSE(allows((227 << 10) + 1));
  EXPECT_TRUE(allows(227 << 10));
  EXPECT_TRUE(launches(1, 227 << 10));
  EXPECT_EQ(driver.StreamSynchronize(stream), cu::kSuccess);
}

// What the host sends kernels find, what it fetches it finds, and neither finds anything else.
TEST(CudaDevice, ControlMemoryIsThereTwice) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "a kernel of the emulated driver's alone";
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EmulatedDriver emulated(WithAdd(seed));
    runtime::VirtualRuntime runtime(seed);
    const base::Status status = runtime.Run([&] {
      const auto device = MakeCuda(runtime, emulated.driver());
      Stream& stream = device->compute();
      const Region* control = device->arena().Allocate("rows", 8, MemoryUse::kControl).value();
      EXPECT_EQ(device->arena().used(), 4096u);
      auto* const values = reinterpret_cast<int32_t*>(control->data);
      const auto add = [&](int32_t addend) {
        stream.Enqueue(MakeOperation({.label = "add"}, AddParams{values, addend, 2}, &AddControl));
      };
      values[0] = 1, values[1] = 2;
      stream.SendControl(values, sizeof *values);
      add(1);  // 4, 1
      EXPECT_TRUE(device->Synchronize(stream).ok());
      EXPECT_EQ(std::vector(values, values + 2), (std::vector<int32_t>{1, 2}));
      values[1] = 5;
      stream.SendControl(values + 1, sizeof *values);
      add(2);  // 14, 17
      stream.FetchControl(values, 2 * sizeof *values);
      EXPECT_TRUE(device->Synchronize(stream).ok());
      EXPECT_EQ(std::vector(values, values + 2), (std::vector<int32_t>{14, 17}));
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST(CudaDevice, KernelsThatGetTheHostsControlMemoryAreNamed) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "the emulated driver's check";
  if (!kClearsPadding) GTEST_SKIP() << "which needs a compiler that clears padding";
  EmulatedDriver emulated(WithAdd(1));
  runtime::VirtualRuntime runtime(1);
  const base::Status status = runtime.Run([&] {
    const auto device = MakeCuda(runtime, emulated.driver());
    const Region* control = device->arena().Allocate("rows", 8, MemoryUse::kControl).value();
    const AddParams params{reinterpret_cast<int32_t*>(control->data), 1, 2};
    device->compute().Enqueue(MakeOperation({.label = "add"}, params, &Add));
    const base::Status fault = device->Synchronize(device->compute());
    EXPECT_EQ(fault.code(), kCudaFailed);
    EXPECT_THAT(fault.message(), HasSubstr("kernel add is given memory of the host, in byte 0"));
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Ranks on two GPUs: kernels of one reach the memory of the other once these are connected, copies
// do anyway, and counters are for both.
TEST(CudaDevice, KernelsReachGpusThatAreConnected) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "a kernel of the emulated driver's alone";
  constexpr int kGpus[] = {0, 1};
  for (const bool connected : {false, true}) {
    if (!connected && !kClearsPadding) continue;  // which the check of parameters needs
    EmulatedDriverOptions options = WithAdd(1);
    options.gpus = 2;
    EmulatedDriver emulated(options);
    runtime::VirtualRuntime runtime(1);
    const base::Status status = runtime.Run([&] {
      const Driver& driver = emulated.driver();
      const auto counter = CreateCudaCounter(driver, 1, "rank 1 for rank 0").value();
      std::unique_ptr<Device> devices[2];
      for (const int gpu : kGpus) {
        devices[gpu] =
            CreateCudaDevice(runtime, driver, {.rank = gpu, .ordinal = gpu, .memory_bytes = kMiB})
                .value();
      }
      EXPECT_TRUE(!connected || ConnectGpus(driver, 0, 1).ok());
      auto& [first, second] = devices;
      const Region* data = first->arena().Allocate("values", 4).value();
      const Region* seen = second->arena().Allocate("seen", 4, MemoryUse::kControl).value();
      const auto add = [&](Device& device, int32_t addend) {
        device.compute().Enqueue(MakeOperation(
            {.label = "add"}, AddParams{reinterpret_cast<int32_t*>(data->data), addend, 1}, &Add));
      };
      add(*second, 5);
      second->compute().Post(*counter, 1);
      first->compute().Await(*counter, 1);
      add(*first, 1);
      const base::Status of_first = first->Synchronize(first->compute());
      second->compute().Enqueue(MakeCopy("look", seen->data, data->data, 4));
      const base::Status of_second = second->Synchronize(second->compute());
      EXPECT_EQ(of_first.ok(), connected) << of_first.ToString();
      EXPECT_EQ(of_second.ok(), connected) << of_second.ToString();
      if (connected) {
        EXPECT_EQ(*reinterpret_cast<const int32_t*>(seen->data), 5 * 3 + 1);
      } else {
        EXPECT_THAT(of_first.message(), HasSubstr("kernel add is given memory of cuda:0, which "
                                                  "cuda:1 does not reach"));
      }
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(emulated.Leaks(), "");
  }
}

TEST(CudaDevice, NamesGpusThatReachNoOther) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "the emulated driver's GPUs";
  EmulatedDriver emulated({.gpus = 2, .peers = false});
  const base::Status status = ConnectGpus(emulated.driver(), 0, 1);
  EXPECT_EQ(status.code(), kCudaUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("cuda:0 does not reach the memory of cuda:1"));
  EXPECT_EQ(emulated.Leaks(), "");
}

TEST(CudaDevice, NamesAGpuWhoseStreamsWaitForNoCounter) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "the emulated driver's GPU";
  EmulatedDriver emulated({.gpus = 2, .stream_values = false});
  const base::Status status = CheckCounters(emulated.driver(), 1);
  EXPECT_EQ(status.code(), kCudaUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("cuda:1 has no 64-bit stream memory operations"));
  EXPECT_EQ(emulated.Leaks(), "");
}

// A step of launches that comes again is one call of the driver's, with the same results; one with
// another parameter is not, nor is any where a stream of the rank meets others.
TEST(CudaDevice, LaunchesThatComeAgainGoTogether) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "a kernel of the emulated driver's alone";
  struct Case {
    bool graphs, meets;
    int launches;  // a step
    int graphs_made;
  };
  for (const Case& c : {Case{true, false, 6, 2}, Case{true, false, 50, 3}, Case{true, false, 3, 0},
                        Case{false, false, 6, 0}, Case{true, true, 6, 0}}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EmulatedDriver emulated(WithAdd(seed));
      runtime::VirtualRuntime runtime(seed);
      const base::Status status = runtime.Run([&] {
        const auto counter = CreateCudaCounter(emulated.driver(), 0, "there").value();
        const auto device =
            CreateCudaDevice(runtime, emulated.driver(), {.memory_bytes = kMiB, .graphs = c.graphs})
                .value();
        Stream& stream = device->compute();
        const Region* data = device->arena().Allocate("values", 40).value();
        const Region* seen = device->arena().Allocate("seen", 40, MemoryUse::kControl).value();
        const auto done = device->NewEvent();
        std::vector<int32_t> expected(10);
        if (c.meets) device->copy(CopyKind::kWeights).Post(*counter, 1);
        // Steps of two kinds, as of two batches; of each the second is captured.
        for (const int kind : {0, 1, 0, 0, 1, 1, 0, 1}) {
          for (int32_t i = 0; i < c.launches; ++i) {
            const int32_t addend = i == c.launches - 1 ? -kind : i;
            stream.Enqueue(
                MakeOperation({.label = "add"},
                              AddParams{reinterpret_cast<int32_t*>(data->data), addend, 10}, &Add));
            for (int32_t& value : expected) value = Added(value, addend);
          }
          stream.Record(*done);
          EXPECT_TRUE(device->WaitFor(*done));
        }
        stream.Enqueue(MakeCopy("look", seen->data, data->data, 40));
        EXPECT_TRUE(device->Synchronize(stream).ok());
        EXPECT_EQ(std::memcmp(seen->data, expected.data(), 40), 0);
        const LaunchCounts counts = device->launches().value();
        EXPECT_EQ(counts.kernels, 8 * c.launches);
        EXPECT_EQ(emulated.num_graphs(), c.graphs_made);
        EXPECT_EQ(counts.in_graphs > 0, c.graphs_made > 0);
      });
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(emulated.Leaks(), "");
    }
  }
}

// More steps than are remembered: those used longest ago are forgotten, and their graphs go.
TEST(CudaDevice, GraphsOfOldStepsAreForgotten) {
  if (RealDriver() != nullptr) GTEST_SKIP() << "a kernel of the emulated driver's alone";
  constexpr int kSteps = static_cast<int>(CudaLaunches::kMostRuns) + 10;
  EmulatedDriver emulated(WithAdd(3));
  runtime::VirtualRuntime runtime(3);
  const base::Status status = runtime.Run([&] {
    const auto device = MakeCuda(runtime, emulated.driver());
    const Region* data = device->arena().Allocate("values", 4).value();
    const auto step = [&](int32_t number) {
      for (int32_t i = 0; i < 4; ++i) {
        device->compute().Enqueue(MakeOperation(
            {.label = "add"}, AddParams{reinterpret_cast<int32_t*>(data->data), number, 1}, &Add));
      }
      EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    };
    for (int32_t number = 0; number < kSteps; ++number) {
      step(number);
      step(number);
    }
    EXPECT_EQ(emulated.num_graphs(), kSteps);
    step(kSteps - 1);  // known
    EXPECT_EQ(emulated.num_graphs(), kSteps);
    step(0);  // forgotten: as the first time
    EXPECT_EQ(device->launches()->in_graphs, 4 * (kSteps + 1));
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(emulated.Leaks(), "");
}

// What the host writes is there for operations, and what these leave it can read.
TEST(CudaDevice, TheHostWritesAndReadsDataMemory) {
  OnDriver(20, [](const Driver& driver, runtime::Runtime& runtime) {
    constexpr uint64_t kBytes = (8 << 20) + 1000;  // more than a piece
    const auto device = CreateCudaDevice(runtime, driver, {.memory_bytes = 4 * kBytes}).value();
    ASSERT_FALSE(device->host_reaches_data());
    const Region* from = device->arena().Allocate("from", kBytes).value();
    const Region* to = device->arena().Allocate("to", kBytes).value();
    std::vector<std::byte> written(kBytes), read(kBytes);
    for (uint64_t i = 0; i < kBytes; ++i) written[i] = static_cast<std::byte>(i * 7 / 3);
    ASSERT_TRUE(device->Write(from->data, written.data(), kBytes).ok());
    device->compute().Enqueue(MakeCopy("copy", to->data, from->data, kBytes));
    ASSERT_TRUE(device->Synchronize(device->compute()).ok());
    ASSERT_TRUE(device->Read(read.data(), to->data, kBytes).ok());
    EXPECT_EQ(read, written);
  });
}

struct RowsArgs {
  std::byte *to, *from;
};
void CopyNothing(const RowsArgs&, const WorkerContext&) { ADD_FAILURE() << "it is copied"; }
struct CallArgs {
  const std::byte* from;
  int* calls;
};
void SeeRows(const CallArgs& args, const WorkerContext& context) {
  EXPECT_EQ(context.num_workers, 1);
  const std::byte expected[] = {std::byte{3}, std::byte{4}, std::byte{8}, std::byte{9}};
  EXPECT_EQ(std::memcmp(args.from, expected, sizeof expected), 0);
  ++*args.calls;
}

// A plain function runs as the copies that it lists, or is the host's, in its place in the stream;
// one that is neither is refused by name.
TEST(CudaDevice, PlainFunctionsHaveOtherForms) {
  OnDriver(50, [](const Driver& driver, runtime::Runtime& runtime) {
    const auto device = MakeCuda(runtime, driver);
    const Region* data = device->arena().Allocate("data", 16).value();
    const Region* seen = device->arena().Allocate("seen", 4, MemoryUse::kControl).value();
    std::byte bytes[16];
    for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::byte>(i);
    ASSERT_TRUE(device->Write(data->data, bytes, sizeof bytes).ok());
    int calls = 0;
    Operation rows =
        MakeOperation<&CopyNothing>({.label = "rows"}, RowsArgs{seen->data, data->data + 3});
    rows.copies = [](const void* raw, std::vector<CopiedRows>* copies) {
      const auto& args = *static_cast<const RowsArgs*>(raw);
      copies->push_back({.destination = args.to,
                         .source = args.from,
                         .row_bytes = 2,
                         .rows = 2,
                         .destination_stride = 2,
                         .source_stride = 5});
    };
    Operation call = MakeOperation<&SeeRows>({.label = "see"}, CallArgs{seen->data, &calls});
    call.on_host = true;
    device->compute().Enqueue(rows);
    device->compute().Enqueue(call);
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    EXPECT_EQ(calls, 1);
    device->compute().Enqueue(
        MakeOperation<&CopyNothing>({.label = "neither"}, RowsArgs{seen->data, data->data}));
    const base::Status fault = device->FaultOf(device->compute());
    EXPECT_EQ(fault.code(), kCudaFailed);
    EXPECT_THAT(fault.message(), HasSubstr("'neither' has no form that runs on a GPU"));
  });
}

TEST(CudaDevice, ProfileCountsByLabel) {
  OnDriver(3, [](const Driver& driver, runtime::Runtime& runtime) {
    const auto device =
        CreateCudaDevice(runtime, driver, {.memory_bytes = kMiB, .profile = true}).value();
    const Region* data = device->arena().Allocate("data", 8192).value();
    for (int i = 0; i < 3; ++i)
      device->compute().Enqueue(MakeCopy("copy", data->data, data->data + 4096, 4096));
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    const std::vector<OpProfile> profile = device->Profile();
    ASSERT_EQ(profile.size(), 1u);
    EXPECT_STREQ(profile[0].label, "copy");
    EXPECT_EQ(profile[0].calls, 3);
    EXPECT_EQ(profile[0].read_bytes, 3 * 4096);
    EXPECT_GT(device->TimeOf(device->compute()).busy, 0);
  });
}

TEST(CudaDevice, NamesAGpuThatIsNotThere) {
  OnDriver(1, [](const Driver& driver, runtime::Runtime& runtime) {
    const base::Status status =
        CreateCudaDevice(runtime, driver, {.ordinal = 7, .memory_bytes = kMiB}).status();
    EXPECT_EQ(status.code(), kCudaUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("cuda:7"));
  });
}

}  // namespace
}  // namespace forebay::device
