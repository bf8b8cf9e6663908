// How the host fills data memory of a device: in place where it reaches it, else by way of a
// buffer.
#pragma once

#include <vector>

#include "device/device.h"

namespace forebay::device {

// One thread's. Pieces are written one after another.
class HostWriter {
 public:
  // Null: the host reaches the memory.
  explicit HostWriter(Device* device)
      : device_(device != nullptr && !device->host_reaches_data() ? device : nullptr) {}

  // Memory in which to make what shall lie at `at`; what it holds is undefined.
  template <typename T>
  T* Begin(T* at, int64_t elements) {
    if (device_ == nullptr) return at;
    at_ = at;
    bytes_ = static_cast<size_t>(elements) * sizeof(T);
    if (buffer_.size() < bytes_) buffer_.resize(bytes_);
    return reinterpret_cast<T*>(buffer_.data());
  }
  // It is made. Errors: the device's.
  base::Status End() {
    return device_ == nullptr ? base::Status() : device_->Write(at_, buffer_.data(), bytes_);
  }

 private:
  Device* const device_;
  void* at_ = nullptr;
  size_t bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace forebay::device
