#include "device/sim/sim_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "base/rng.h"
#include "device/copy.h"

namespace forebay::device {
namespace {

using runtime::TimeNs;
using runtime::VirtualRuntime;

// The price is written into the operation: `flops` seconds, compute-bound if `rows` > 0.
SimPrice PriceOf(const cost::OpDesc& desc) {
  return {.seconds = desc.kind == cost::OpKind::kCopy ? 0 : desc.flops,
          .compute_bound = desc.rows > 0};
}

Operation Kernel(double us, bool compute_bound = false) {
  Operation operation;
  operation.desc = {
      .kind = cost::OpKind::kLinear, .label = "kernel", .rows = compute_bound, .flops = us * 1e-6};
  return operation;
}

// Links of 1e9 bytes/s without latency: 1000 bytes take 1 us alone. Memory of 10e9.
constexpr SimNodeOptions kNode{
    .egress_bytes_per_s = 1e9,
    .ingress_bytes_per_s = 1e9,
    .from_host_bytes_per_s = 0.5e9,
    .to_host_bytes_per_s = 0.25e9,
    .request_latency_s = 0,
    .contention = {.memory_bytes_per_s = 10e9, .link_bytes_per_s = 1e9, .frequency_loss = 0.25}};

struct Machine {
  Machine(VirtualRuntime& runtime, int num_devices, LinkSharing sharing, const SimNodeOptions& node)
      : engine(runtime, runtime.seed(), sharing) {
    for (int rank = 0; rank < num_devices; ++rank) {
      devices.push_back(CreateSimDevice(engine, {.rank = rank,
                                                 .memory_bytes = 64ull << 30,
                                                 .price = &PriceOf,
                                                 .node = node,
                                                 .profile = true}));
      regions.push_back(devices[rank]->arena().Allocate("weights", 60ull << 30).value());
    }
  }
  Stream& compute(int rank) { return devices[rank]->compute(); }
  Stream& copy(int rank, CopyKind kind = CopyKind::kWeights) { return devices[rank]->copy(kind); }
  // `to` pulls from `from`.
  Operation Pull(int from, int to, uint64_t bytes, uint64_t offset = 0) {
    return MakeCopy("pull", regions[to]->data + (1ull << 30) + offset, regions[from]->data, bytes);
  }
  EventEngine engine;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<const Region*> regions;
};

void RunOn(int num_devices, const std::function<void(VirtualRuntime&, Machine&)>& body,
           uint64_t seed = 1, LinkSharing sharing = LinkSharing::kFair,
           SimNodeOptions node = kNode) {
  VirtualRuntime runtime(seed);
  const base::Status status = runtime.Run([&] {
    Machine machine(runtime, num_devices, sharing, node);
    body(runtime, machine);
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(SimDevice, TwoStreamsWithEvents) {
  RunOn(1, [](VirtualRuntime& runtime, Machine& machine) {
    Device& device = *machine.devices[0];
    const auto a = device.NewEvent(), b = device.NewEvent(), never = device.NewEvent();
    Stream &one = machine.copy(0, CopyKind::kKvUp), &two = machine.copy(0, CopyKind::kKvDown);
    one.Wait(*never);        // passes
    one.Enqueue(Kernel(3));  // 0 .. 3
    one.Record(*a);
    two.Enqueue(Kernel(1));  // 0 .. 1
    two.Wait(*a);
    two.Enqueue(Kernel(2.5));  // 3 .. 5.5
    two.Record(*b);
    one.Enqueue(Kernel(1));  // 3 .. 4
    one.Wait(*b);
    one.Enqueue(Kernel(0.0004));  // 5.5 .. 5.5004
    EXPECT_EQ(runtime.Now(), 0);
    EXPECT_TRUE(device.WaitFor(*a));
    EXPECT_EQ(runtime.Now(), 3000);
    EXPECT_FALSE(device.WaitFor(*b, 2400));
    EXPECT_EQ(runtime.Now(), 5400);
    EXPECT_TRUE(device.WaitFor(*b, 2400));
    EXPECT_EQ(runtime.Now(), 5500);
    EXPECT_TRUE(device.Synchronize(one).ok());
    EXPECT_EQ(runtime.Now(), 5501);  // the clock has whole nanoseconds
    one.Enqueue(Kernel(1));
    EXPECT_TRUE(device.Synchronize(one).ok());
    EXPECT_EQ(runtime.Now(), 6501);
  });
}

// What is wanted is known when a copy begins: it takes the time of these items, and none where
// there are none.
TEST(SimDevice, ACopyOfItemsTakesTheTimeOfThoseThatAreWanted) {
  RunOn(2, [](VirtualRuntime& runtime, Machine& machine) {
    static int32_t offsets[5];
    std::ranges::fill(offsets, 0);
    Device& device = *machine.devices[1];
    const auto known = device.NewEvent();
    Operation want = Kernel(2);
    want.control = true;
    want.run = [](const void*, const WorkerContext&) {
      offsets[2] = 3, offsets[3] = 3, offsets[4] = 4;  // items 1 and 3
    };
    const ItemCopy copy{.destination = machine.regions[1]->data + (1ull << 30),
                        .source = machine.regions[0]->data,
                        .item_bytes = 1000,
                        .num_items = 4,
                        .offsets = offsets};
    Stream& stream = machine.copy(1);
    stream.Enqueue(MakeItemCopy("none", copy));  // is over at once
    machine.compute(1).Enqueue(want);            // 0 .. 2
    machine.compute(1).Record(*known);
    stream.Wait(*known);
    stream.Enqueue(MakeItemCopy("some", copy));  // 2 .. 4
    EXPECT_TRUE(device.Synchronize(stream).ok());
    EXPECT_EQ(runtime.Now(), 4000);
  });
}

TEST(SimDevice, StreamsOfWeightsRunBesideEachOther) {
  RunOn(3, [](VirtualRuntime& runtime, Machine& machine) {
    Device& device = *machine.devices[2];
    ASSERT_GE(device.num_weight_copies(), 2);
    EXPECT_EQ(&device.weight_copy(0), &device.copy(CopyKind::kWeights));
    device.weight_copy(0).Enqueue(machine.Pull(0, 2, 1000));
    device.weight_copy(1).Enqueue(machine.Pull(1, 2, 1000));
    device.weight_copy(0).Enqueue(machine.Pull(0, 2, 1000));
    EXPECT_TRUE(device.Synchronize(device.weight_copy(1)).ok());
    EXPECT_EQ(runtime.Now(), 2000);  // the ingress is shared
    EXPECT_TRUE(device.Synchronize(device.weight_copy(0)).ok());
    EXPECT_EQ(runtime.Now(), 3000);
    int64_t pulls = 0;
    for (const OpProfile& entry : device.Profile()) pulls += entry.calls;
    EXPECT_EQ(pulls, 3);
  });
}

TEST(SimDevice, CopiesTakeTheLinksTheyCross) {
  RunOn(3, [](VirtualRuntime& runtime, Machine& machine) {
    machine.copy(1).Enqueue(machine.Pull(0, 1, 1000));
    machine.copy(2).Enqueue(machine.Pull(0, 2, 2000));
    EXPECT_TRUE(machine.devices[1]->Synchronize(machine.copy(1)).ok());
    EXPECT_EQ(runtime.Now(), 2000);
    EXPECT_TRUE(machine.devices[2]->Synchronize(machine.copy(2)).ok());
    EXPECT_EQ(runtime.Now(), 3000);
    std::vector<std::byte> host(1000);
    machine.copy(0).Enqueue(MakeCopy("load", machine.regions[0]->data, host.data(), 1000));
    EXPECT_TRUE(machine.devices[0]->Synchronize(machine.copy(0)).ok());
    EXPECT_EQ(runtime.Now(), 5000);
    machine.copy(0).Enqueue(MakeCopy("offload", host.data(), machine.regions[0]->data, 1000));
    EXPECT_TRUE(machine.devices[0]->Synchronize(machine.copy(0)).ok());
    EXPECT_EQ(runtime.Now(), 9000);
    machine.engine.links().CheckInvariants();
  });
}

// A device without links to its peers has them behind the host's: what it pulls from a peer and
// what it brings up from the host share one link. With links of their own neither notices the
// other.
TEST(SimDevice, PullsAndHostCopiesShareTheLinkOfADeviceThatHasOne) {
  const auto times = [](bool one_link) {
    SimNodeOptions node = kNode;
    node.from_host_bytes_per_s = node.to_host_bytes_per_s = 1e9;
    node.one_link = one_link;
    std::array<TimeNs, 3> ended{};
    RunOn(
        2,
        [&](VirtualRuntime& runtime, Machine& machine) {
          std::vector<std::byte> host(2000);
          machine.copy(1).Enqueue(machine.Pull(0, 1, 1000));
          machine.copy(1, CopyKind::kKvUp)
              .Enqueue(MakeCopy("kv_up", machine.regions[1]->data, host.data(), 2000));
          // The other direction is free.
          machine.copy(1, CopyKind::kKvDown)
              .Enqueue(MakeCopy("kv_down", host.data(), machine.regions[1]->data + 4096, 500));
          int i = 0;
          for (const CopyKind kind : {CopyKind::kKvDown, CopyKind::kWeights, CopyKind::kKvUp}) {
            EXPECT_TRUE(machine.devices[1]->Synchronize(machine.copy(1, kind)).ok());
            ended[static_cast<size_t>(i++)] = runtime.Now();
          }
          machine.engine.links().CheckInvariants();
        },
        1, LinkSharing::kFair, node);
    return ended;
  };
  EXPECT_EQ(times(false), (std::array<TimeNs, 3>{500, 1000, 2000}));
  EXPECT_EQ(times(true), (std::array<TimeNs, 3>{500, 2000, 3000}));
}

// With a latency as long as a request's transfer, two in flight hide it.
TEST(SimDevice, RequestsInFlightHideTheLatency) {
  SimNodeOptions node = kNode;
  node.request_latency_s = 1e-6;
  const auto time_of = [&](int requests) {
    TimeNs time = 0;
    RunOn(
        2,
        [&](VirtualRuntime& runtime, Machine& machine) {
          SetRequestsInFlight(machine.copy(1), requests);
          for (uint64_t i = 0; i < 10; ++i)
            machine.copy(1).Enqueue(machine.Pull(0, 1, 1000, i * 1000));
          EXPECT_TRUE(machine.devices[1]->Synchronize(machine.copy(1)).ok());
          time = runtime.Now();
        },
        1, LinkSharing::kFifo, node);
    return time;
  };
  EXPECT_EQ(time_of(1), 20'000);
  // Both begin at 1 us and end at 2 and 3; their followers begin at 3 and 4: from 1 us on the link
  // is full.
  EXPECT_EQ(time_of(2), 11'000);
}

TEST(SimDevice, CopiesSlowTheKernelsBesideThem) {
  RunOn(2, [](VirtualRuntime& runtime, Machine& machine) {
    // Memory-bound: 1 of 10 GB/s is taken while the copy runs: 4 us do 3.6 us of work, 0.4 us are
    // left.
    machine.compute(1).Enqueue(Kernel(4));
    machine.copy(1).Enqueue(machine.Pull(0, 1, 4000));
    EXPECT_TRUE(machine.devices[1]->Synchronize(machine.compute(1)).ok());
    EXPECT_EQ(runtime.Now(), 4400);
    // Compute-bound, on the side that is read: 1 us of its 2 runs at 1 / 1.25.
    machine.compute(0).Enqueue(Kernel(2, true));
    machine.copy(1).Enqueue(machine.Pull(0, 1, 1000));
    EXPECT_TRUE(machine.devices[0]->Synchronize(machine.compute(0)).ok());
    EXPECT_EQ(runtime.Now(), 4400 + 2200);
  });
}

TEST(SimDevice, ProfilesHaveTimesAloneOrAsTheyPassed) {
  for (const bool as_passed : {false, true}) {
    VirtualRuntime runtime(1);
    const base::Status status = runtime.Run([&] {
      EventEngine engine(runtime, 1);
      SimDeviceOptions options{.memory_bytes = 1 << 20,
                               .price = &PriceOf,
                               .detail = SimDetail::kFull,
                               .node = kNode,
                               .profile = true,
                               .profile_as_passed = as_passed};
      const auto device = CreateSimDevice(engine, options);
      options.rank = 1;
      const auto peer = CreateSimDevice(engine, options);
      const Region* const to = device->arena().Allocate("to", 8192).value();
      const Region* const from = peer->arena().Allocate("from", 8192).value();
      Operation other = Kernel(1);
      other.desc.label = "other";
      device->compute().Enqueue(Kernel(4));  // 4.4 us, as above
      device->compute().Enqueue(other);
      device->copy(CopyKind::kWeights).Enqueue(MakeCopy("pull", to->data, from->data, 4000));
      EXPECT_TRUE(device->Synchronize(device->compute()).ok());
      const std::vector<OpProfile> profile = device->Profile();
      ASSERT_GE(profile.size(), 2u);
      EXPECT_NEAR(profile[0].seconds, as_passed ? 4.4e-6 : 4e-6, 1e-12);
      EXPECT_NEAR(profile[1].seconds, 1e-6, 1e-12);
      EXPECT_EQ(profile[0].calls, 1);
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

// Enqueues a body for every layer as model::RepeatLayers does; returns how many were enqueued.
int Repeat(Stream& stream, int64_t times, uint64_t key, const std::function<void()>& body) {
  int bodies = 0;
  for (int64_t done = 0; done < times; done += stream.EndRepeat()) {
    stream.BeginRepeat(times - done, key);
    body();
    ++bodies;
  }
  return bodies;
}

// Each reads 10 GB/s alone, the machine's memory gives 15 to all.
TEST(SimDevice, KernelsOfOneMachineShareItsMemory) {
  SimNodeOptions node = kNode;
  node.contention.machine_bytes_per_s = 15e9;
  RunOn(
      3,
      [](VirtualRuntime& runtime, Machine& machine) {
        const auto time_of = [&](const std::function<void()>& program) {
          const TimeNs start = runtime.Now();
          program();
          EXPECT_TRUE(machine.devices[0]->Synchronize(machine.compute(0)).ok());
          const TimeNs first = runtime.Now() - start;
          for (int rank : {1, 2})
            EXPECT_TRUE(machine.devices[rank]->Synchronize(machine.compute(rank)).ok());
          return first;
        };
        EXPECT_EQ(time_of([&] { machine.compute(0).Enqueue(Kernel(3)); }), 3000);
        // 7.5 GB/s each for 2 us, in which the second does its 1.5; then the first has what it
        // wants.
        EXPECT_EQ(time_of([&] {
                    machine.compute(0).Enqueue(Kernel(3)), machine.compute(1).Enqueue(Kernel(1.5));
                  }),
                  3500);
        // What arithmetic limits reads next to nothing.
        EXPECT_EQ(time_of([&] {
                    machine.compute(0).Enqueue(Kernel(3)),
                        machine.compute(1).Enqueue(Kernel(3, true));
                  }),
                  3000);
        EXPECT_EQ(time_of([&] {
                    for (int rank : {0, 1, 2}) machine.compute(rank).Enqueue(Kernel(3));
                  }),
                  6000);
        // Equal layers are not taken as one, for what limits a layer's parts is not what limits
        // their mean.
        EXPECT_EQ(time_of([&] {
                    for (int rank : {0, 1})
                      Repeat(machine.compute(rank), 2, 0, [&] {
                        machine.compute(rank).Enqueue(Kernel(1.5)),
                            machine.compute(rank).Enqueue(Kernel(1, true));
                      });
                  }),
                  6000);
        // A copy of 1 GB/s is read and written: 6.5 GB/s are left for each of two.
        EXPECT_EQ(time_of([&] {
                    machine.copy(2).Enqueue(machine.Pull(1, 2, 10'000));
                    for (int rank : {0, 1}) machine.compute(rank).Enqueue(Kernel(3.25));
                  }),
                  5000);
      },
      1, LinkSharing::kFair, node);
}

TEST(SimDevice, EqualBodiesOfRunsArePricedOnce) {
  RunOn(1, [](VirtualRuntime& runtime, Machine& machine) {
    Stream &compute = machine.compute(0), &copy = machine.copy(0);
    const auto event = machine.devices[0]->NewEvent();
    const auto time_of = [&](const std::function<void()>& program) {
      const TimeNs start = runtime.Now();
      program();
      EXPECT_TRUE(machine.devices[0]->Synchronize(compute).ok());
      return runtime.Now() - start;
    };
    const auto two_kernels = [&] { compute.Enqueue(Kernel(2)), compute.Enqueue(Kernel(3, true)); };
    const int64_t events = machine.engine.num_events();
    EXPECT_EQ(time_of([&] { EXPECT_EQ(Repeat(compute, 10, 7, two_kernels), 1); }), 50'000);
    EXPECT_EQ(machine.engine.num_events() - events, 1);
    EXPECT_EQ(machine.devices[0]->Profile()[0].calls, 20);
    EXPECT_NEAR(machine.devices[0]->Profile()[0].seconds, 50e-6, 1e-12);
    // Under a key prices are kept; the key is a promise, so that a broken one is our bug.
    EXPECT_EQ(time_of([&] { Repeat(compute, 4, 7, two_kernels); }), 20'000);
    EXPECT_DEATH(Repeat(compute, 4, 7, [&] { compute.Enqueue(Kernel(2, true)); }),
                 "under the same key");
    // Whatever is more than runs of one stream goes on in full.
    EXPECT_EQ(time_of([&] {
                EXPECT_EQ(Repeat(compute, 10, 0, [&] { two_kernels(), compute.Record(*event); }),
                          10);
              }),
              50'000);
    EXPECT_EQ(Repeat(compute, 2, 0, [&] { two_kernels(), compute.Wait(*event); }), 2);
    EXPECT_EQ(Repeat(compute, 2, 0, [&] { two_kernels(), copy.Enqueue(Kernel(1)); }), 2);
  });
}

// 10 x (2 us memory-bound, 3 us compute-bound) beside a copy that takes a tenth of the memory's
// bandwidth from 0 to 20 us.
TEST(SimDevice, AMixtureIsSlowedByItsParts) {
  TimeNs times[2];
  for (const bool merged : {false, true}) {
    RunOn(2, [&](VirtualRuntime& runtime, Machine& machine) {
      machine.copy(1).Enqueue(machine.Pull(0, 1, 20'000));
      const auto body = [&] {
        machine.compute(1).Enqueue(Kernel(2)), machine.compute(1).Enqueue(Kernel(3, true));
      };
      for (int i = 0; i < (merged ? 1 : 10); ++i)
        Repeat(machine.compute(1), merged ? 10 : 1, 0, body);
      EXPECT_TRUE(machine.devices[1]->Synchronize(machine.compute(1)).ok());
      times[merged] = runtime.Now();
    });
  }
  // In 5 us x (2 / 0.9 + 3 x 1.25) / 5 one body; the rest, of any mixture, alone.
  const double slow = (2 / 0.9 + 3 * 1.25) / 5;
  EXPECT_NEAR(static_cast<double>(times[0]), 20e3 + (50 - 20 / slow) * 1e3, 200);
  EXPECT_NEAR(static_cast<double>(times[1]), 20e3 + (50 - 20 / slow) * 1e3, 2);
}

struct CountArgs {
  int* calls;
};
void Count(const CountArgs& args, const WorkerContext&) { ++*args.calls; }

TEST(SimDevice, OnlyControlOperationsRunTheirCode) {
  RunOn(1, [](VirtualRuntime&, Machine& machine) {
    int calls = 0;
    Operation operation = MakeOperation<&Count>({.label = "count"}, CountArgs{&calls});
    machine.compute(0).Enqueue(operation);
    operation.control = true;
    machine.compute(0).Enqueue(operation);
    EXPECT_TRUE(machine.devices[0]->Synchronize(machine.compute(0)).ok());
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(machine.devices[0]->Profile()[0].calls, 2);
  });
}

struct WriteArgs {
  double* us;  // control memory
  double written;
};
void WriteTime(const WriteArgs& args, const WorkerContext&) { *args.us += args.written; }
void CompleteTime(const void* args, cost::OpDesc* desc) {
  desc->flops = *static_cast<const WriteArgs*>(args)->us * 1e-6;
}

// An operation that takes as long as control operations before it have said, in bodies under a key:
// each is priced by what it finds.
TEST(SimDevice, WhatDataDecideIsPricedWhenItBegins) {
  RunOn(1, [](VirtualRuntime& runtime, Machine& machine) {
    Stream& compute = machine.compute(0);
    double us = 0;
    Operation write = MakeOperation<&WriteTime>({.label = "write"}, WriteArgs{&us, 1});
    write.control = true;
    Operation use = MakeOperation<&WriteTime>({.label = "use"}, WriteArgs{&us, 1});
    use.complete = CompleteTime;
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(
          Repeat(compute, 3, 7,
                 [&] { compute.Enqueue(Kernel(2)), compute.Enqueue(write), compute.Enqueue(use); }),
          3);
    }
    EXPECT_TRUE(machine.devices[0]->Synchronize(compute).ok());
    EXPECT_EQ(runtime.Now(), 6 * 2000 + (1 + 2 + 3 + 4 + 5 + 6) * 1000);
    const std::vector<OpProfile> profile = machine.devices[0]->Profile();
    ASSERT_EQ(profile.size(), 3u);
    EXPECT_STREQ(profile[2].label, "use");
    EXPECT_EQ(profile[2].calls, 6);
    EXPECT_NEAR(profile[2].seconds, 21e-6, 1e-12);
  });
}

TEST(SimDevice, TheArenaHasTheRealBudget) {
  RunOn(8, [](VirtualRuntime&, Machine& machine) {
    Arena& arena = machine.devices[7]->arena();
    EXPECT_EQ(arena.Allocate("too much", 5ull << 30).status().code(), kArenaFull);
    const Region* const control = arena.Allocate("control", 4096, MemoryUse::kControl).value();
    control->data[0] = std::byte{1};
    EXPECT_EQ(machine.engine.NodeOf(control->data + 4095), 7);
    EXPECT_EQ(machine.engine.NodeOf(machine.regions[3]->data + (60ull << 30) - 1), 3);
    EXPECT_EQ(machine.engine.NodeOf(&arena), EventEngine::kHost);
  });
}

TEST(SimDevice, EightLargeDevicesHaveControlMemoryAlone) {
  VirtualRuntime runtime(1);
  EXPECT_TRUE(
      runtime
          .Run([&] {
            EventEngine engine(runtime, 1);
            std::vector<std::unique_ptr<Device>> devices;
            for (int rank = 0; rank < 8; ++rank) {
              devices.push_back(CreateSimDevice(
                  engine, {.rank = rank, .memory_bytes = 141'000'000'000, .price = &PriceOf}));
              Arena& arena = devices.back()->arena();
              const Region* const control =
                  arena.Allocate("tables", 3 << 20, MemoryUse::kControl).value();
              control->data[control->bytes - 1] = std::byte{1};
              const Region* const norms = arena.Allocate("norms", 4096).value();
              EXPECT_DEATH(norms->data[0] = std::byte{1}, "");
              EXPECT_TRUE(arena.Allocate("weights", 140'000'000'000).ok());
            }
          })
          .ok());
}

TEST(SimDevice, ATaskThatWaitsBesideIdleDevicesIsADeadlock) {
  VirtualRuntime runtime(1);
  const base::Status status = runtime.Run([&] {
    Machine machine(runtime, 1, LinkSharing::kFair, kNode);
    machine.compute(0).Enqueue(Kernel(1));
    runtime.NewEvent("never")->Wait();
  });
  EXPECT_EQ(status.code(), runtime::kDeadlock);
  EXPECT_THAT(status.message(), testing::HasSubstr("waits for event 'never'"));
  EXPECT_EQ(runtime.Now(), 0);
}

struct Trace {
  TimePs end = 0;
  uint64_t hash = 0;
};

// Random kernels, pulls, records and waits on `kRanks` devices; `program` draws them, `seed` the
// ties.
Trace RunRandomProgram(uint64_t program, uint64_t seed, LinkSharing sharing) {
  constexpr int kRanks = 4;
  Trace trace;
  RunOn(
      kRanks,
      [&](VirtualRuntime&, Machine& machine) {
        base::Rng rng(program);
        std::vector<std::unique_ptr<DeviceEvent>> events;
        std::vector<Stream*> streams;
        std::vector<Device*> owners;
        for (int rank = 0; rank < kRanks; ++rank) {
          for (Stream* stream : {&machine.compute(rank), &machine.copy(rank),
                                 &machine.copy(rank, CopyKind::kKvUp)}) {
            streams.push_back(stream);
            owners.push_back(machine.devices[rank].get());
            SetRequestsInFlight(*stream, 1 + static_cast<int>(rng.Below(3)));
          }
        }
        for (int i = 0; i < 12; ++i) events.push_back(machine.devices[0]->NewEvent());
        for (int i = 0; i < 400; ++i) {
          const size_t at = rng.Below(streams.size());
          Stream& stream = *streams[at];
          const int rank = static_cast<int>(at / 3);
          switch (rng.Below(4)) {
            case 0: stream.Record(*events[rng.Below(12)]); break;
            case 1: stream.Wait(*events[rng.Below(12)]); break;
            case 2:
              if (at % 3 != 0) {
                const int from = static_cast<int>(rank + 1 + rng.Below(kRanks - 1)) % kRanks;
                stream.Enqueue(machine.Pull(from, rank, 500 * (1 + rng.Below(8))));
                break;
              }
              [[fallthrough]];
            default:
              stream.Enqueue(Kernel(0.5 * static_cast<double>(rng.Below(8)), rng.Below(2) == 0));
          }
        }
        for (size_t at = 0; at < streams.size(); ++at)
          EXPECT_TRUE(owners[at]->Synchronize(*streams[at]).ok());
        machine.engine.links().CheckInvariants();
        trace = {machine.engine.now(), machine.engine.trace_hash()};
      },
      seed, sharing);
  return trace;
}

TEST(SimDevice, RandomProgramsEndAtTheSameTimeWhateverTheTies) {
  std::set<uint64_t> hashes;
  for (uint64_t program = 0; program < 40; ++program) {
    const Trace first = RunRandomProgram(program, 0, LinkSharing::kFair);
    EXPECT_GT(first.end, 0);
    for (uint64_t seed = 1; seed < 5; ++seed) {
      const Trace other = RunRandomProgram(program, seed, LinkSharing::kFair);
      // Rates are sums of the same shares; a picosecond may round the other way.
      EXPECT_NEAR(static_cast<double>(other.end), static_cast<double>(first.end),
                  1e-9 * static_cast<double>(first.end))
          << "program " << program << ", seed " << seed;
      hashes.insert(other.hash);
    }
  }
  EXPECT_GT(hashes.size(), 40u);  // the order inside a time is the seed's
}

TEST(SimDevice, TheSameSeedGivesTheSameTrace) {
  for (const LinkSharing sharing : {LinkSharing::kFair, LinkSharing::kFifo}) {
    for (uint64_t program = 0; program < 20; ++program) {
      const Trace first = RunRandomProgram(program, 7, sharing),
                  again = RunRandomProgram(program, 7, sharing);
      EXPECT_EQ(first.hash, again.hash);
      EXPECT_EQ(first.end, again.end);
    }
  }
}

}  // namespace
}  // namespace forebay::device
