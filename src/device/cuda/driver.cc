#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>

namespace forebay::device {
namespace {

// The interface whose forms of the functions are asked for, and the oldest driver that has it.
constexpr int kInterface = 12000;

base::Result<Driver> Load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return base::Status(kCudaUnavailable,
                        fmt::format("no NVIDIA driver on this machine ({}); it comes with "
                                    "libcuda.so.1",
                                    dlerror()));
  }
  using GetProcAddress =
      cu::Result (*)(const char* name, void** function, int interface, uint64_t flags, int* status);
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    return base::Status(kCudaUnavailable,
                        "the NVIDIA driver is older than 12.0, which the kernels need");
  }
  Driver driver;
  const char* missing = nullptr;
#define FB_CUDA_LOAD(name, arguments)                                                              \
  {                                                                                                \
    int status = 0;                                                                                \
    void* function = nullptr;                                                                      \
    if (get("cu" #name, &function, kInterface, 0, &status) != cu::kSuccess || function == nullptr) \
      missing = "cu" #name;                                                                        \
    driver.name = reinterpret_cast<decltype(driver.name)>(function);                               \
  }
  FB_CUDA_DRIVER(FB_CUDA_LOAD)
#undef FB_CUDA_LOAD
  if (missing != nullptr) {
    return base::Status(
        kCudaUnavailable,
        fmt::format("the NVIDIA driver lacks {}; 12.0 or newer is needed", missing));
  }
  // Streams that wait for values must not hold up others in a queue that they share: the driver has
  // 8 queues unless it is told.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // Code that is loaded at its first launch waits for all streams, also for those that wait for it.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  const cu::Result started = driver.Init(0);
  int version = 0, count = 0;
  if (started == cu::kSuccess) {
    driver.DriverGetVersion(&version);
    driver.DeviceGetCount(&count);
  }
  if (started == cu::kSuccess && version < kInterface) {
    return base::Status(kCudaUnavailable,
                        fmt::format("the NVIDIA driver is for CUDA {}.{}, 12.0 or newer is needed",
                                    version / 1000, version % 1000 / 10));
  }
  if (count == 0) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const char* why = "";
    driver.GetErrorString(started, &why);
    return base::Status(
        kCudaUnavailable,
        fmt::format("the NVIDIA driver sees no GPU ({}; CUDA_VISIBLE_DEVICES is {})", why,
                    visible != nullptr ? fmt::format("'{}'", visible) : "not set"));
  }
  return driver;
}

}  // namespace

base::Status Driver::Check(cu::Result result, std::string_view what) const {
  if (result == cu::kSuccess) return base::Status::Ok();
  const char *name = "an unknown error", *text = "";
  GetErrorName(result, &name);
  GetErrorString(result, &text);
  return {kCudaFailed, fmt::format("{}: {} ({}, {})", what, name, result, text)};
}

base::Result<const Driver*> OpenDriver() {
  static const base::Result<Driver> driver = Load();
  if (!driver.ok()) return driver.status();
  return &*driver;
}

}  // namespace forebay::device
