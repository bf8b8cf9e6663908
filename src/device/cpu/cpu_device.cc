#include "device/cpu/cpu_device.h"

#include <utility>

#include "base/rng.h"
#include "base/units.h"
#include "device/cpu/counter.h"

namespace forebay::device {
namespace {

// Longer than the gaps inside a step; a sleep and its wake-up cost about 10 us
// (bench/dispatch_bench).
constexpr runtime::TimeNs kComputeSpin = 50'000;
// Copy streams run beside as many compute workers as there are cores.
constexpr runtime::TimeNs kCopySpin = 2'000;

base::Status Validate(const CpuDeviceOptions& options) {
  if (options.num_workers < 1) {
    return {base::kInvalidArgument, fmt::format("rank {}: {} workers, at least 1 is needed",
                                                options.rank, options.num_workers)};
  }
  if (!options.cores.empty() && static_cast<int>(options.cores.size()) != options.num_workers) {
    return {base::kInvalidArgument, fmt::format("rank {}: {} cores for {} workers", options.rank,
                                                options.cores.size(), options.num_workers)};
  }
  return base::Status::Ok();
}

}  // namespace

base::Result<std::unique_ptr<Device>> CreateCpuDevice(runtime::Runtime& runtime,
                                                      const CpuDeviceOptions& options) {
  FB_RETURN_IF_ERROR(Validate(options));
  auto arena = std::make_unique<CpuArena>(options.rank, options.memory_bytes, UINT64_MAX,
                                          options.shared_memory);
  const uint64_t scratch_bytes = options.num_workers * base::RoundUp(options.scratch_bytes, 64) +
                                 kCopyNames.size() * CpuDevice::kCopyScratchBytes;
  FB_ASSIGN_OR_RETURN(const Region* scratch, arena->Allocate("scratch", scratch_bytes));
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(runtime, options, std::move(arena), *scratch));
}

std::unique_ptr<Counter> CreateCpuCounter(runtime::Runtime& runtime, std::string name) {
  return std::make_unique<TaskCounter>(runtime, std::move(name));
}

CpuDevice::CpuDevice(runtime::Runtime& runtime, const CpuDeviceOptions& options,
                     std::unique_ptr<CpuArena> arena, const Region& scratch)
    : runtime_(runtime),
      options_(options),
      arena_(std::move(arena)),
      copy_scratch_(
          std::span(scratch.data, scratch.bytes).last(kCopyNames.size() * kCopyScratchBytes)) {
  compute_ = std::make_unique<CpuStream>(
      runtime_, StreamOptions({.name = fmt::format("rank {} compute", options_.rank),
                               .num_workers = options_.num_workers,
                               .cores = options_.cores,
                               .scratch = {scratch.data, scratch.bytes - copy_scratch_.size()},
                               .spin = kComputeSpin},
                              WaitCause::kStaging));
}

// The streams wait for each other's progress, so all of them finish before the first is destroyed.
CpuDevice::~CpuDevice() {
  (void)compute_->Synchronize();
  for (const auto& copy : copies_) {
    if (copy != nullptr) (void)copy->Synchronize();
  }
}

// Spinning is of use only where tasks run at the same time.
CpuStreamOptions CpuDevice::StreamOptions(TeamOptions team, WaitCause cause) const {
  const bool interleave = runtime_.is_virtual();
  if (interleave) team.spin = 0;
  uint64_t seed = base::Combine64(options_.seed, options_.rank);
  // each stream draws its own delays
  for (const char c : team.name) seed = base::Combine64(seed, c);
  return {.team = std::move(team),
          .checker = options_.checker,
          .profile = options_.profile,
          .cause = cause,
          .interleave = interleave,
          .max_virtual_delay = options_.max_virtual_delay,
          .seed = seed};
}

Stream& CpuDevice::copy(CopyKind kind) {
  const int index = static_cast<int>(kind);
  if (copies_[index] == nullptr) {
    // A rank of one core copies on it: another's belongs to another rank.
    const auto cores = options_.cores.size() == 1 ? options_.cores : std::vector<int>();
    auto stream = std::make_unique<CpuStream>(
        runtime_,
        StreamOptions(
            {.name = fmt::format("rank {} {}", options_.rank, kCopyNames[index]),
             .cores = cores,
             .scratch = copy_scratch_.subspan(index * kCopyScratchBytes, kCopyScratchBytes),
             .spin = kCopySpin},
            CauseOf(kind)));
    const std::lock_guard lock(mutex_);
    copies_[index] = std::move(stream);
  }
  return *copies_[index];
}

bool CpuDevice::WaitFor(const DeviceEvent& event, runtime::TimeNs timeout) {
  const auto& point = static_cast<const CpuEvent&>(event);
  return point.stream == nullptr || point.stream->WaitFor(point.position, 0, timeout);
}

std::vector<OpProfile> CpuDevice::Profile() const {
  std::vector<OpProfile> profile;
  compute_->AddProfileTo(profile);
  const std::lock_guard lock(mutex_);
  for (const auto& copy : copies_) {
    if (copy != nullptr) copy->AddProfileTo(profile);
  }
  return profile;
}

}  // namespace forebay::device
