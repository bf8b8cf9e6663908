// A device of shapes without data: its streams are lists in an EventEngine, its memory is address
// space.
//
//  - Operations cost what `price` says for their OpDesc; their code does not run, except that of
//    operations with
//    `control` set (writers of control memory), which runs once, on one worker without scratch, at
//    the operation's end.
//  - An operation that completes its description is priced when it begins.
//  - A copy between regions of two devices goes over their links, one between a region and memory
//    of no region over the
//    host link; a copy inside a device is priced.
//  - The arena has the real budget. Control memory is real; data regions are address space that
//    faults when touched.
#pragma once

#include <functional>
#include <memory>

#include "device/device.h"
#include "device/sim/event_engine.h"

namespace forebay::device {

using PriceFn = std::function<SimPrice(const cost::OpDesc&)>;

// kJump: where the first of several equal bodies (Stream::BeginRepeat) is nothing but runs on one
// stream, one item stands for all bodies, with the sum of their work; where it is runs, meetings
// and copies of one stream, one item that repeats them (EventEngine::Repeat). Bodies that wait,
// record, or have operations of other streams go on in full, as all do under a checker. kFull:
// every body, always, each operation priced anew.
enum class SimDetail : uint8_t { kJump, kFull };

struct SimDeviceOptions {
  int rank = 0;
  uint64_t memory_bytes = 0;      // the arena's budget
  uint64_t max_usable_bytes = 0;  // data regions of up to this size are real memory, for tests
  int num_workers = 1;            // what num_workers() says
  PriceFn price;
  SimDetail detail = SimDetail::kJump;
  SimNodeOptions node;
  // seconds alone, counted when enqueued, or when priced (Operation::complete)
  bool profile = false;
  // The same seconds as they passed, beside copies, counted when operations end. REQUIRES:
  // `profile` and SimDetail::kFull.
  bool profile_as_passed = false;
};

// The engine must outlive the device; destroying the device waits for everything that was enqueued.
std::unique_ptr<Device> CreateSimDevice(EventEngine& engine, SimDeviceOptions options);

// For streams of the engine's devices.
std::unique_ptr<Counter> CreateSimCounter(EventEngine& engine);

// How many copies of `stream`, a simulated device's, are under way at once from here on (1 at
// first).
void SetRequestsInFlight(Stream& stream, int requests);

}  // namespace forebay::device
