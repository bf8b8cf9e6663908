// A kind of device under measurement: what its devices are made of, and the numbers that are its
// alone. Tables are measured alike on all kinds (cases.h). A kind is a file here and a row in
// subject.cc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cost/profile.h"
#include "device/device.h"
#include "kernels/kernel_set.h"
#include "layout/devices.h"
#include "profile/grid.h"
#include "runtime/runtime.h"

namespace forebay::device {
struct Driver;
}

namespace forebay::profile {

class Bench;

// One line of progress.
using ProgressFn = std::function<void(std::string_view)>;

struct ProfileOptions {
  layout::DevicesSpec devices;  // one that computes
  int threads = 0;              // a CPU's workers; 0: all usable cores
  std::string isa = "auto", numerics = "auto";
  bool quick = false;       // fewer points, shorter samples
  bool bf16_alone = false;  // no kernels of fp32 or stored weights, nor of other KV than bf16
  const device::Driver* driver = nullptr;  // GPUs; null: this machine's
  std::optional<Grid> grid;                // nothing: the kind's
};

class Subject {
 public:
  virtual ~Subject() = default;
  const ProfileOptions& options() const { return options_; }
  const kernels::KernelSet& kernels() const { return kernels_; }
  const Grid& grid() const { return grid_; }

  // Whether its workers are cores of this machine. Then what one of them wrote lies in its caches,
  // and the task that enqueues takes a core from them.
  virtual bool on_cores() const = 0;
  // Whether kernels are measured that `ProfileOptions::bf16_alone` leaves out.
  virtual bool bf16_alone() const { return options_.bf16_alone; }
  // A device for a Bench, with so much memory beside what kernels need for themselves. Errors: the
  // device's, kInvalidArgument.
  virtual base::Result<std::unique_ptr<device::Device>> MakeDevice(runtime::Runtime& runtime,
                                                                   uint64_t bytes) const = 0;
  // What it is, its memory, and its peaks: the unit of every table.
  virtual void MeasurePeaks(Bench& bench, cost::DeviceProfile* profile) const = 0;
  // Copies, links, and what work loses beside copies. REQUIRES: MeasurePeaks has measured.
  virtual void MeasureCopies(Bench& bench, const ProgressFn& progress,
                             cost::DeviceProfile* profile) const = 0;
  // What needs the memory that the bench had.
  virtual base::Status MeasureRest(runtime::Runtime& /*runtime*/,
                                   cost::DeviceProfile* /*profile*/) const {
    return base::Status::Ok();
  }

 protected:
  Subject(const ProfileOptions& options, const kernels::KernelSet& kernels, Grid grid)
      : options_(options), kernels_(kernels), grid_(options.grid ? *options.grid : grid) {}

 private:
  const ProfileOptions options_;
  const kernels::KernelSet& kernels_;
  const Grid grid_;
};

// Errors: kDevicesInvalid of what is not one device that computes; a kernel set that it lacks; of a
// GPU those of its driver.
base::Result<std::unique_ptr<Subject>> MakeSubject(const ProfileOptions& options);

std::unique_ptr<Subject> MakeCpuSubject(const ProfileOptions& options,
                                        const kernels::KernelSet& kernels);
base::Result<std::unique_ptr<Subject>> MakeGpuSubject(const ProfileOptions& options,
                                                      const kernels::KernelSet& kernels);

}  // namespace forebay::profile
