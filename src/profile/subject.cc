#include "profile/subject.h"

#include <fmt/core.h>

#include "layout/platform.h"

namespace forebay::profile {

base::Result<std::unique_ptr<Subject>> MakeSubject(const ProfileOptions& options) {
  const layout::DevicesSpec& devices = options.devices;
  const bool is_cpu = devices.platform == &layout::CpuPlatform(),
             is_gpu = devices.platform == &layout::CudaPlatform();
  if (devices.count != 1 || (!is_cpu && !is_gpu)) {
    return base::Status(
        layout::kDevicesInvalid,
        fmt::format("--devices {}: expected one device that can be measured, cpu, cuda or cuda:K",
                    devices.text));
  }
  layout::EngineOptions engine;
  engine.machine.devices = devices;
  engine.trial.driver = options.driver;
  const bool is_open = options.isa == "auto" && options.numerics == "auto";
  FB_ASSIGN_OR_RETURN(const kernels::KernelSet* kernels,
                      is_open ? devices.platform->DefaultKernels(engine)
                              : devices.platform->Kernels(options.isa, options.numerics));
  if (is_gpu) return MakeGpuSubject(options, *kernels);
  return MakeCpuSubject(options, *kernels);
}

}  // namespace forebay::profile
