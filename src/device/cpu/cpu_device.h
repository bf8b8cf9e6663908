#pragma once

#include <array>
#include <memory>
#include <vector>

#include "device/cpu/arena.h"
#include "device/cpu/stream.h"
#include "device/device.h"

namespace forebay::device {

// REQUIRES: options are valid, and `scratch` holds num_workers x scratch_bytes, then
// kCopyScratchBytes for each kind.
class CpuDevice final : public Device {
 public:
  static constexpr uint64_t kCopyScratchBytes = 64 << 10;

  CpuDevice(runtime::Runtime& runtime, const CpuDeviceOptions& options,
            std::unique_ptr<CpuArena> arena, const Region& scratch);
  ~CpuDevice() override;

  int rank() const override { return options_.rank; }
  Arena& arena() override { return *arena_; }
  std::unique_ptr<Arena> NewHostArena(uint64_t budget) override {
    return std::make_unique<CpuArena>(options_.rank, budget);
  }
  Stream& compute() override { return *compute_; }
  Stream& copy(CopyKind kind) override;
  std::unique_ptr<DeviceEvent> NewEvent() override { return std::make_unique<CpuEvent>(); }
  int num_workers() const override { return options_.num_workers; }
  base::Status Synchronize(Stream& stream) override {
    return static_cast<CpuStream&>(stream).Synchronize();
  }
  base::Status FaultOf(const Stream& stream) const override {
    return static_cast<const CpuStream&>(stream).fault();
  }
  bool WaitFor(const DeviceEvent& event, runtime::TimeNs timeout) override;
  std::vector<OpProfile> Profile() const override;
  std::vector<OpProfile> ProfileOf(const Stream& stream) const override {
    std::vector<OpProfile> profile;
    static_cast<const CpuStream&>(stream).AddProfileTo(profile);
    return profile;
  }
  StreamTime TimeOf(const Stream& stream) const override {
    return static_cast<const CpuStream&>(stream).time();
  }

  // Latches a fault of `stream`, for code that runs in its operations.
  void Fail(Stream& stream, base::Status fault) {
    static_cast<CpuStream&>(stream).Fail(std::move(fault));
  }

 private:
  CpuStreamOptions StreamOptions(TeamOptions team, WaitCause cause) const;

  runtime::Runtime& runtime_;
  const CpuDeviceOptions options_;
  const std::unique_ptr<CpuArena> arena_;
  const std::span<std::byte> copy_scratch_;
  mutable std::mutex mutex_;  // Profile against the start of a copy stream
  std::unique_ptr<CpuStream> compute_;
  std::array<std::unique_ptr<CpuStream>, kCopyNames.size()> copies_;
};

}  // namespace forebay::device
