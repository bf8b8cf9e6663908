// What an operation costs on a device. Pure: the simulator, the policies and the planner call the
// same functions.
#pragma once

#include "cost/operation.h"
#include "cost/profile.h"

namespace forebay::cost {

// calibrated: measured tables where the profile has them, else as uncalibrated.
// uncalibrated: a roofline of the profile's peaks times mfu and mbu, with its floors.
enum class Calibration : uint8_t { kCalibrated, kUncalibrated };

enum class Bound : uint8_t { kCompute, kMemory, kOverhead };  // memory: or the link

struct PriceResult {
  double seconds = 0;  // launch included; alone on the device and its links
  How how = How::kMiss;
  Bound bound = Bound::kOverhead;  // overhead: half of the time or more is a kernel's floor
  Mark mark = Mark::kDatasheet;    // the table's; without one the datasheet's numbers hold
};

// REQUIRES: counts and bytes >= 0. More rows of the same operation never cost less.
// Attention with prefill and decode rows is the sum of both; `how` is the less certain one's.
PriceResult Price(const OpDesc& op, const DeviceProfile& device,
                  Calibration mode = Calibration::kCalibrated);

// Copies from peers that a device has under way at once: what a kernel reads of several, or a copy
// each.
inline constexpr int kPeersRead = 8;

// What a link carries in bytes per second while one copy uses it; a device without links to peers
// reaches them through its host.
double LinkRate(Link link, const DeviceProfile& device);

// The rate of a rank's pulls from its peers over idle links, in bytes per second; between ranks of
// one CPU, a core's rate of copying.
double PullRate(const DeviceProfile& device);

// The same of copies between a rank and its host's memory; on a CPU a core copies within memory.
double HostRate(const DeviceProfile& device);

// Whether a device has no link to its peers but the one to its host, which both kinds of copies
// share.
bool PeersBehindHost(const DeviceProfile& device);

// What the disk of the device's machine reads and writes; where the profile does not say it, what
// cloud disks do.
inline constexpr double kUsualDiskRate = 1e9;
double DiskReadRate(const DeviceProfile& device);
double DiskWriteRate(const DeviceProfile& device);

// Seconds by where their prices come from: tables measured on the device, numbers derived from
// measurements (of another device or program, or scaled), and the datasheet with default
// efficiencies.
struct PriceOrigins {
  double measured = 0, derived = 0, datasheet = 0;

  double all() const { return measured + derived + datasheet; }
  PriceOrigins& operator+=(const PriceOrigins& other) {
    measured += other.measured, derived += other.derived, datasheet += other.datasheet;
    return *this;
  }
  PriceOrigins operator*(double times) const {
    return {measured * times, derived * times, datasheet * times};
  }
  // Adds seconds of a number with this mark.
  void Add(Mark mark, double seconds) {
    (mark == Mark::kMeasured ? measured : mark == Mark::kDerived ? derived : datasheet) += seconds;
  }
};

// Of a CPU's profile all numbers are measured, or follow from what is; a GPU's are its datasheet's.
constexpr Mark NumbersMark(const DeviceProfile& device) {
  return device.kind == DeviceKind::kCpu ? Mark::kDerived : Mark::kDatasheet;
}

// Time of an operation, or of several in sequence, and the parts of it that copies slow.
struct Work {
  double seconds = 0;          // alone on the device
  double compute_seconds = 0;  // limited by the clock frequency
  double memory_seconds = 0;   // of memory at full bandwidth
  PriceOrigins origins;        // of the seconds

  Work& operator+=(const Work& other) {
    seconds += other.seconds, compute_seconds += other.compute_seconds,
        memory_seconds += other.memory_seconds, origins += other.origins;
    return *this;
  }
  Work operator*(double times) const {
    return {seconds * times, compute_seconds * times, memory_seconds * times, origins * times};
  }
};

// The work of an operation in a step. The host's part of a step is in its embedding, that of a
// sequence where its token is chosen.
Work WorkOf(const OpDesc& op, const DeviceProfile& device,
            Calibration mode = Calibration::kCalibrated);

// What one-sided copies move at present on a device, in bytes per second.
struct CopyLoad {
  double in = 0;
  double out = 0;
};

// What copies and the kernels beside them share.
struct Contention {
  // memory-bound work loses the copies' part of it (in: written, out: read)
  double memory_bytes_per_s = 4.8e12;
  // compute-bound work takes 1 + frequency_loss as long while a link is full one way
  double link_bytes_per_s = 450e9;
  double frequency_loss = 0.049;  // measured at 0.963 of the clock frequency
  // what the rank's cores could copy, which have to; 0: copies have engines of their own
  double core_bytes_per_s = 0;
  // The bandwidth that all ranks of a machine share; 0: each has memory of its own.
  double machine_bytes_per_s = 0;
};
// What a rank with `cores` cores contends for (cpu alone).
Contention ContentionOf(const DeviceProfile& device, double cores);

// By how much (>= 1) the work lasts longer beside `load`. `others` (< 1): the part of its memory's
// bandwidth that other ranks take.
double Slowdown(const Work& work, const CopyLoad& load, const Contention& contention,
                double others = 0);

}  // namespace forebay::cost
