#include "device/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/units.h"
#include "device/copy.h"
#include "runtime/testing/on_both_runtimes.h"

namespace forebay::device {
namespace {

using base::kMiB;
using runtime::Runtime;

std::unique_ptr<Device> MakeDevice(Runtime& runtime, CpuDeviceOptions options) {
  options.memory_bytes = 64 * kMiB;
  options.scratch_bytes = 64 << 10;
  auto device = CreateCpuDevice(runtime, options);
  EXPECT_TRUE(device.ok()) << device.status().ToString();
  return std::move(device).value();
}

struct AppendArgs {
  std::vector<int>* log;
  int value;
};
void Append(const AppendArgs& args, const WorkerContext& context) {
  if (context.worker == 0) args.log->push_back(args.value);
}
Operation AppendTo(std::vector<int>& log, int value) {
  return MakeOperation<&Append>({.label = "append"}, AppendArgs{&log, value});
}

struct SleepArgs {
  Runtime* runtime;
  runtime::TimeNs duration;
};
void SleepFor(const SleepArgs& args, const WorkerContext& context) {
  args.runtime->Sleep(args.duration);
}
Operation Sleeping(Runtime& runtime, runtime::TimeNs duration) {
  return MakeOperation<&SleepFor>({.label = "sleep"}, SleepArgs{&runtime, duration});
}

using CpuDeviceTest = runtime::OnBothRuntimes;
FB_ON_BOTH_RUNTIMES(CpuDeviceTest);

TEST_P(CpuDeviceTest, OperationsRunInOrder) {
  Run(
      [](Runtime& runtime) {
        std::vector<int> log, expected(500);
        std::iota(expected.begin(), expected.end(), 0);
        const auto device = MakeDevice(runtime, {.num_workers = 2});
        for (const int value : expected) device->compute().Enqueue(AppendTo(log, value));
        EXPECT_TRUE(device->Synchronize(device->compute()).ok());
        EXPECT_EQ(log, expected);
      },
      5);
}

TEST_P(CpuDeviceTest, DestructionFinishesWhatWasEnqueued) {
  Run([](Runtime& runtime) {
    std::vector<int> log;
    {
      const auto device = MakeDevice(runtime, {});
      const auto copied = device->NewEvent();
      device->copy(CopyKind::kKvUp).Enqueue(Sleeping(runtime, 100'000));
      device->copy(CopyKind::kKvUp).Record(*copied);
      device->compute().Wait(*copied);
      for (int i = 0; i < 100; ++i) device->compute().Enqueue(AppendTo(log, i));
    }
    EXPECT_EQ(log.size(), 100u);
  });
}

// Each worker writes its part in rounds and reads its neighbour's part of the round before.
struct RoundsArgs {
  int64_t* values;  // [2, workers]
  int rounds;
};
void Rounds(const RoundsArgs& args, const WorkerContext& context) {
  const int n = context.num_workers, next = (context.worker + 1) % n;
  for (int round = 0; round < args.rounds; ++round) {
    int64_t* const now = args.values + round % 2 * n;
    const int64_t* const before = args.values + (round + 1) % 2 * n;
    now[context.worker] = before[next] + 1;
    context.Barrier();
  }
}

TEST_P(CpuDeviceTest, BarrierHoldsAllWorkers) {
  for (const int num_workers : {1, 2, 3}) {
    Run(
        [num_workers](Runtime& runtime) {
          constexpr int kOperations = 20, kRounds = 50;
          std::vector<int64_t> values(2 * num_workers, 0);
          const auto device = MakeDevice(runtime, {.num_workers = num_workers});
          for (int i = 0; i < kOperations; ++i) {
            device->compute().Enqueue(
                MakeOperation<&Rounds>({.label = "rounds"}, RoundsArgs{values.data(), kRounds}));
          }
          EXPECT_TRUE(device->Synchronize(device->compute()).ok());
          for (int worker = 0; worker < num_workers; ++worker) {
            EXPECT_EQ(values[num_workers + worker], kOperations * kRounds);
          }
        },
        5);
  }
}

struct TicketArgs {
  std::atomic<int>* taken;  // [tickets]
  int tickets;
  std::atomic<int>* errors;
};
void TakeTickets(const TicketArgs& args, const WorkerContext& context) {
  if (reinterpret_cast<uintptr_t>(context.scratch) % 64 != 0 || context.scratch_bytes < 4096)
    ++*args.errors;
  std::memset(context.scratch, context.worker, context.scratch_bytes);
  for (int64_t ticket; (ticket = context.ticket->fetch_add(1)) < args.tickets;)
    ++args.taken[ticket];
  for (uint64_t i = 0; i < context.scratch_bytes; ++i) {
    if (context.scratch[i] != static_cast<std::byte>(context.worker)) ++*args.errors;
  }
}

TEST_P(CpuDeviceTest, TicketsStartAtZeroAndScratchIsPrivate) {
  Run(
      [](Runtime& runtime) {
        constexpr int kTickets = 40, kOperations = 10;
        std::vector<std::atomic<int>> taken(kTickets);
        std::atomic<int> errors = 0;
        const auto device = MakeDevice(runtime, {.num_workers = 3});
        for (int i = 0; i < kOperations; ++i) {
          device->compute().Enqueue(MakeOperation<&TakeTickets>(
              {.label = "tickets"}, TicketArgs{taken.data(), kTickets, &errors}));
        }
        EXPECT_TRUE(device->Synchronize(device->compute()).ok());
        for (const auto& count : taken) EXPECT_EQ(count, kOperations);
        EXPECT_EQ(errors, 0);
      },
      5);
}

// The slot protocol on one rank: the copy stream fills a slot, the compute stream reads it, again
// and again.
TEST_P(CpuDeviceTest, EventsOrderTwoStreams) {
  Run(
      [](Runtime& runtime) {
        HazardChecker checker;
        const auto device =
            MakeDevice(runtime, {.num_workers = 2, .checker = &checker, .max_virtual_delay = 100});
        Stream& compute = device->compute();
        Stream& copy = device->copy(CopyKind::kWeights);
        constexpr int kLayers = 40;
        constexpr uint64_t kBytes = 10'000;
        const Region* source = device->arena().Allocate("source", kLayers * kBytes).value();
        const Region* slot = device->arena().Allocate("slot", kBytes).value();
        const Region* result = device->arena().Allocate("result", kLayers * kBytes).value();
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
        EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
      },
      20);
}

TEST_P(CpuDeviceTest, EventsNeverRecordedPassAndEventsMove) {
  Run([](Runtime& runtime) {
    std::vector<int> log;
    const auto device = MakeDevice(runtime, {});
    const auto event = device->NewEvent();
    device->compute().Wait(*event);
    EXPECT_TRUE(device->WaitFor(*event, 0));
    for (int i = 0; i < 3; ++i) {
      device->compute().Enqueue(AppendTo(log, i));
      device->compute().Record(*event);
      EXPECT_TRUE(device->WaitFor(*event));
      EXPECT_EQ(log.size(), static_cast<size_t>(i + 1));
    }
  });
}

TEST_P(CpuDeviceTest, WaitForTimesOut) {
  Run([](Runtime& runtime) {
    const auto device = MakeDevice(runtime, {});
    const auto event = device->NewEvent();
    device->compute().Enqueue(Sleeping(runtime, 20'000'000));
    device->compute().Record(*event);
    EXPECT_FALSE(device->WaitFor(*event, 100'000));
    EXPECT_TRUE(device->WaitFor(*event));
  });
}

struct FailArgs {
  CpuDevice* device;
  int number;
};
void FailNow(const FailArgs& args, const WorkerContext& context) {
  args.device->Fail(args.device->compute(),
                    {base::kIoError, "fault " + std::to_string(args.number)});
}

TEST_P(CpuDeviceTest, FirstFaultSurfacesAtTheNextSynchronize) {
  Run([](Runtime& runtime) {
    const auto device = MakeDevice(runtime, {});
    auto* const cpu = static_cast<CpuDevice*>(device.get());
    for (const int number : {1, 2}) {
      device->compute().Enqueue(MakeOperation<&FailNow>({.label = "fail"}, FailArgs{cpu, number}));
    }
    EXPECT_EQ(device->Synchronize(device->compute()).message(), "fault 1");
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
  });
}

TEST_P(CpuDeviceTest, ProfileCountsByLabel) {
  Run([](Runtime& runtime) {
    const auto device = MakeDevice(runtime, {.profile = true});
    std::vector<std::byte> memory(200);
    for (int i = 0; i < 3; ++i) {
      device->compute().Enqueue(
          MakeOperation<&SleepFor>({.kind = cost::OpKind::kLinear, .label = "sleep", .flops = 10},
                                   SleepArgs{&runtime, 1'000'000}));
    }
    device->copy(CopyKind::kKvDown).Enqueue(MakeCopy("copy", &memory[100], &memory[0], 100));
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    EXPECT_TRUE(device->Synchronize(device->copy(CopyKind::kKvDown)).ok());
    const std::vector<OpProfile> profile = device->Profile();
    ASSERT_EQ(profile.size(), 2u);
    EXPECT_STREQ(profile[0].label, "sleep");
    EXPECT_EQ(profile[0].calls, 3);
    EXPECT_EQ(profile[0].flops, 30);
    EXPECT_GE(profile[0].seconds, 3e-3);
    EXPECT_STREQ(profile[1].label, "copy");
    EXPECT_EQ(profile[1].read_bytes, 100);
  });
}

struct RowsArgs {
  int64_t* rows;  // control memory
  int64_t written;
};
void WriteRows(const RowsArgs& args, const WorkerContext& context) {
  if (context.worker == 0) *args.rows = args.written;
}
void UseRows(const RowsArgs&, const WorkerContext&) {}
void CompleteRows(const void* args, cost::OpDesc* desc) {
  desc->flops = static_cast<double>(*static_cast<const RowsArgs*>(args)->rows);
}

// What data decide is counted as it is when the operation begins, not when it is enqueued.
TEST_P(CpuDeviceTest, ProfileCountsWhatDataDecide) {
  Run([](Runtime& runtime) {
    const auto device = MakeDevice(runtime, {.profile = true});
    int64_t rows = 1000;
    for (const int64_t written : {7, 20}) {
      device->compute().Enqueue(
          MakeOperation<&WriteRows>({.label = "write"}, RowsArgs{&rows, written}));
      Operation use = MakeOperation<&UseRows>({.label = "use"}, RowsArgs{&rows, 0});
      use.complete = CompleteRows;
      device->compute().Enqueue(use);
    }
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    const std::vector<OpProfile> profile = device->Profile();
    ASSERT_EQ(profile.size(), 2u);
    EXPECT_EQ(profile[1].flops, 27);
  });
}

TEST(CpuDevice, RefusesWrongOptions) {
  const auto runtime = runtime::CreateRealRuntime();
  EXPECT_EQ(
      CreateCpuDevice(*runtime, {.memory_bytes = 64 * kMiB, .num_workers = 0}).status().code(),
      base::kInvalidArgument);
  EXPECT_EQ(CreateCpuDevice(*runtime, {.memory_bytes = 64 * kMiB, .num_workers = 2, .cores = {0}})
                .status()
                .code(),
            base::kInvalidArgument);
  EXPECT_EQ(CreateCpuDevice(*runtime, {.memory_bytes = kMiB}).status().code(), kArenaFull);
}

TEST(CpuDevice, SleepsWhenIdle) {
  const auto runtime = runtime::CreateRealRuntime();
  std::vector<int> computed, copied;
  const auto device = MakeDevice(*runtime, {.num_workers = 2});
  const auto cpu_seconds = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  device->compute().Enqueue(AppendTo(computed, 0));
  device->copy(CopyKind::kKvUp).Enqueue(AppendTo(copied, 0));
  runtime->Sleep(20'000'000);
  const double before = cpu_seconds();
  runtime->Sleep(200'000'000);
  EXPECT_LT(cpu_seconds() - before, 0.02);
}

}  // namespace
}  // namespace forebay::device
