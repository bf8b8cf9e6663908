// What an operation costs on a device. Pure: the simulator, the policies and the planner call the same functions.
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
};

// REQUIRES: counts and bytes >= 0. More rows of the same operation never cost less.
// Attention with prefill and decode rows is the sum of both; `how` is the less certain one's.
PriceResult Price(const OpDesc& op, const DeviceProfile& device, Calibration mode = Calibration::kCalibrated);

// What a link carries in bytes per second while one copy uses it; a device without links to peers reaches them through its host.
double LinkRate(Link link, const DeviceProfile& device);

// What a rank pulls from its peers, in bytes per second, while nobody else uses the links; between ranks of one CPU: what a
// core copies.
double PullRate(const DeviceProfile& device);

// What one-sided copies move at present on a device, in bytes per second.
struct CopyLoad {
  double in = 0;
  double out = 0;
};

// By how much (>= 1) an operation of this bound lasts longer beside `load`.
//   memory   the copies' share of the memory bandwidth is lost (in: written, out: read)
//   compute  frequency falls with the load of the link, by frequency_loss when that is full one way
//   cpu      copies also take the cores that they keep busy
double Interference(Bound bound, const CopyLoad& load, const DeviceProfile& device);

}  // namespace forebay::cost
