#include "profile/cpu_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "cost/profile_writer.h"
#include "kernels/kernel_set.h"
#include "price/cpu_prices.h"
#include "profile/profile_device.h"
#include "runtime/topology.h"

namespace forebay::profile {
namespace {

// Holds others off while one measures; they go on when the process ends, however it does.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    while (fd_ >= 0 && flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool opened() const { return fd_ >= 0; }

 private:
  const int fd_;
};

std::string DescriptionOf(const CpuAtHand& cpu) {
  return fmt::format("{}, {} of {} cores, {}, measured by forebay {}", cpu.name, cpu.workers,
                     cpu.cores, cpu.isa, FOREBAY_VERSION);
}

// Not where it is torn, or of something else.
bool IsWholeAndOf(const std::string& path, const CpuAtHand& cpu) {
  const auto profile = cost::LoadProfile(path);
  return profile.ok() && profile->kind == cost::DeviceKind::kCpu &&
         profile->description == DescriptionOf(cpu);
}

// Whole or not at all.
base::Status Keep(const std::string& path, const std::string& text) {
  const std::string draft = fmt::format("{}.{}", path, getpid());
  std::ofstream file(draft, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (file.good()) std::filesystem::rename(draft, path, error);
  if (file.good() && !error) return {};
  std::filesystem::remove(draft, error);
  return {base::kIoError, fmt::format("{}: cannot be written", path)};
}

}  // namespace

base::Result<std::string> KeptProfile(const std::string& folder, const CpuAtHand& cpu,
                                      const MeasureFn& measure) {
  const std::string name = fmt::format("cpu-{}-{}of{}", cpu.isa, cpu.workers, cpu.cores);
  std::string path = fmt::format("{}/{}.json", folder, name);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const FileLock lock(path + ".lock");
  if (IsWholeAndOf(path, cpu)) return path;
  if (!lock.opened())
    return base::Status(base::kIoError, fmt::format("{}: cannot be written", folder));
  FB_ASSIGN_OR_RETURN(cost::DeviceProfile profile, measure(name));
  profile.description = DescriptionOf(cpu);
  const std::string text = cost::WriteProfile(profile);
  // On a machine whose cores come and go the times may make no profile.
  FB_RETURN_IF_ERROR(cost::ParseProfile(text, "what was measured").status());
  FB_RETURN_IF_ERROR(Keep(path, text));
  return path;
}

std::string CacheFolder() {
  const auto set = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  // The specification of base directories has relative ones ignored.
  if (const std::string cache = set("XDG_CACHE_HOME"); cache.starts_with('/'))
    return cache + "/forebay";
  if (const std::string home = set("HOME"); !home.empty()) return home + "/.cache/forebay";
  return fmt::format("/tmp/forebay-{}", getuid());
}

void PriceCpu(runtime::Runtime& runtime, layout::EngineOptions* options) {
  if (!price::WantsPrices(*options)) return;
  layout::MachineOptions& machine = options->machine;
  const kernels::KernelSet* kernels = machine.kernels;
  if (kernels == nullptr) {
    const auto best = kernels::ChooseKernels("auto");
    if (!best.ok()) return;  // who makes the engine says it
    kernels = *best;
  }
  const int cores = runtime::ReadTopology().usable_cores;
  const int used = machine.threads > 0 ? machine.threads : cores;
  const CpuAtHand cpu{.name = runtime::CpuName(),
                      .isa = kernels->name,
                      .workers = std::max(1, used / machine.devices.count),
                      .cores = cores};
  machine.device_profile = price::FittingProfile(cpu.name, cpu.isa, cpu.workers);
  if (!machine.device_profile.empty() || cpu.isa == "ref") return;
  const auto measure = [&](const std::string& name) {
    base::Log(
        base::LogLevel::kInfo,
        fmt::format("measuring {} of {} cores once, for about 15 s, since ranks decide by what "
                    "steps and copies take; kept as {}/{}.json (--device-profile names "
                    "another profile)",
                    cpu.workers, cpu.cores, CacheFolder(), name));
    return ProfileDevice(
        runtime, {.threads = cpu.workers, .isa = cpu.isa, .quick = true, .bf16_alone = true}, name,
        [](std::string_view) {});
  };
  auto kept = KeptProfile(CacheFolder(), cpu, measure);
  if (kept.ok()) {
    machine.device_profile = *std::move(kept);
    return;
  }
  base::Log(base::LogLevel::kWarning,
            fmt::format("this CPU was not measured, and --mode auto keeps to constants: {}",
                        kept.status().ToString()));
}

}  // namespace forebay::profile
