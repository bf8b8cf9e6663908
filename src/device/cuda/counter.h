// A pinned word that streams write and wait for.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "device/cuda/context.h"
#include "device/device.h"

namespace forebay::device {

class CudaCounter final : public Counter {
 public:
  // The driver compares as signed numbers: this one lets every wait pass.
  static constexpr uint64_t kPassed = INT64_MAX;

  // `word`: pinned in the context, 0, and the counter's from here on.
  CudaCounter(SharedContext context, uint64_t* word, std::string name)
      : context_(std::move(context)), word_(word), name_(std::move(name)) {}
  ~CudaCounter() override {
    context_->Enter();
    context_->driver().MemFreeHost(word_);
  }

  void Abort(const base::Status& why) override {
    {
      const std::lock_guard lock(mutex_);
      if (fault_.ok()) fault_ = why;
    }
    PassAgain();
  }

  // The first Abort's reason; OK: there was none.
  base::Status fault() const {
    const std::lock_guard lock(mutex_);
    return fault_;
  }
  // Once it is aborted every wait passes, whatever streams have written since.
  void PassAgain() { std::atomic_ref(*word_).store(kPassed); }

  cu::DevicePtr address() const { return reinterpret_cast<cu::DevicePtr>(word_); }
  const std::string& name() const { return name_; }

 private:
  const SharedContext context_;
  uint64_t* const word_;
  const std::string name_;
  mutable std::mutex mutex_;
  base::Status fault_;  // guarded by mutex_
};

}  // namespace forebay::device
