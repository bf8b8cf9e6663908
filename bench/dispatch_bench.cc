// What the cpu device and the runtimes cost beside the work itself: `dispatch_bench [most workers,
// default 2]`. Each figure is the median of several rounds; "best" shows what a quiet machine
// gives.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay {
namespace {

using device::WorkerContext;
using runtime::TimeNs;

struct NoArgs {};
void DoNothing(const NoArgs&, const WorkerContext&) {}

struct BarrierArgs {
  int count;
};
void PassBarriers(const BarrierArgs& args, const WorkerContext& context) {
  for (int i = 0; i < args.count; ++i) context.Barrier();
}

struct StampArgs {
  const runtime::Runtime* runtime;
  TimeNs* at;
};
void Stamp(const StampArgs& args, const WorkerContext& context) {
  if (context.worker == context.num_workers - 1) *args.at = args.runtime->Now();
}

struct SleepArgs {
  runtime::Runtime* runtime;
  TimeNs duration;
};
void SleepFirst(const SleepArgs& args, const WorkerContext&) { args.runtime->Sleep(args.duration); }

void Print(const char* what, int workers, const std::function<double()>& measure, int rounds) {
  std::vector<double> us(rounds);
  for (double& round : us) round = measure();
  std::ranges::sort(us);
  fmt::print("{:<44} {:>7} {:>11.3f} {:>11.3f}\n", what, workers, us[rounds / 2], us[0]);
}

std::unique_ptr<device::Device> MakeDevice(runtime::Runtime& runtime, int workers) {
  return device::CreateCpuDevice(
             runtime, {.memory_bytes = 64 << 20, .num_workers = workers, .scratch_bytes = 4096})
      .value();
}

void MeasureDevice(runtime::Runtime& runtime, int workers) {
  const auto device = MakeDevice(runtime, workers);
  device::Stream& stream = device->compute();
  const auto us_since = [&](TimeNs start) {
    return static_cast<double>(runtime.Now() - start) * 1e-3;
  };
  const device::Operation nothing =
      device::MakeOperation<&DoNothing>({.label = "nothing"}, NoArgs{});
  constexpr int kCount = 10'000;

  // The control task has gone to sleep when the first of them runs.
  Print(
      "empty operation", workers,
      [&] {
        TimeNs first = 0, last = 0;
        stream.Enqueue(
            device::MakeOperation<&SleepFirst>({.label = "sleep"}, SleepArgs{&runtime, 5'000'000}));
        stream.Enqueue(
            device::MakeOperation<&Stamp>({.label = "stamp"}, StampArgs{&runtime, &first}));
        for (int i = 0; i < kCount; ++i) stream.Enqueue(nothing);
        stream.Enqueue(
            device::MakeOperation<&Stamp>({.label = "stamp"}, StampArgs{&runtime, &last}));
        (void)device->Synchronize(stream);
        return static_cast<double>(last - first) * 1e-3 / kCount;
      },
      21);
  Print(
      "enqueue alone (control task)", workers,
      [&] {
        const TimeNs start = runtime.Now();
        for (int i = 0; i < kCount; ++i) stream.Enqueue(nothing);
        const double us = us_since(start) / kCount;
        (void)device->Synchronize(stream);
        return us;
      },
      21);
  Print(
      "barrier inside an operation", workers,
      [&] {
        const TimeNs start = runtime.Now();
        stream.Enqueue(
            device::MakeOperation<&PassBarriers>({.label = "barriers"}, BarrierArgs{kCount}));
        (void)device->Synchronize(stream);
        return us_since(start) / kCount;
      },
      21);
  Print(
      "operation and Synchronize, stream warm", workers,
      [&] {
        const TimeNs start = runtime.Now();
        stream.Enqueue(nothing);
        (void)device->Synchronize(stream);
        return us_since(start);
      },
      501);
  Print(
      "enqueue to the last worker's start, from idle", workers,
      [&] {
        runtime.Sleep(5'000'000);
        TimeNs at = 0;
        const TimeNs start = runtime.Now();
        stream.Enqueue(device::MakeOperation<&Stamp>({.label = "stamp"}, StampArgs{&runtime, &at}));
        (void)device->Synchronize(stream);
        return static_cast<double>(at - start) * 1e-3;
      },
      51);
}

void MeasureVirtualSwitch() {
  Print(
      "switch of the virtual runtime", 1,
      [] {
        const auto real = runtime::CreateRealRuntime();
        runtime::VirtualRuntime runtime(1);
        const TimeNs start = real->Now();
        (void)runtime.Run([&] {
          const auto yield = [&] {
            for (int i = 0; i < 50'000; ++i) runtime.Yield();
          };
          const auto other = runtime.Spawn({.name = "other"}, yield);
          yield();
        });
        return static_cast<double>(real->Now() - start) * 1e-3 /
               static_cast<double>(runtime.num_switches());
      },
      11);
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) {
  const int most_workers = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto runtime = forebay::runtime::CreateRealRuntime();
  fmt::print("{:<44} {:>7} {:>11} {:>11}\n", "", "workers", "median us", "best us");
  for (int workers = 1; workers <= most_workers; ++workers)
    forebay::MeasureDevice(*runtime, workers);
  forebay::MeasureVirtualSwitch();
}
