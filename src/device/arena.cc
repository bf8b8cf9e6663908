#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "device/device.h"

namespace forebay::device {

const Region& Arena::region(std::string_view name) const {
  const auto found = std::ranges::find(
      regions(), name, [](const auto& region) { return std::string_view(region->name); });
  FB_CHECK(found != regions().end(), "the rank has no region '{}'", name);
  return **found;
}

std::byte* RegionCutter::Cut(uint64_t bytes, uint64_t alignment) {
  const uint64_t offset = base::RoundUp(used_, alignment);
  FB_CHECK(offset + bytes <= region_->bytes, "region '{}' of {} bytes: {} do not fit at {}",
           region_->name, region_->bytes, bytes, offset);
  used_ = offset + bytes;
  return region_->data + offset;
}

tensor::TensorView RegionCutter::Cut(tensor::DType dtype, const tensor::Shape& shape) {
  tensor::TensorView view{nullptr, dtype, shape};
  view.data = Cut(view.bytes());
  return view;
}

base::Status Device::Write(void* to, const void* from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
  return {};
}

base::Status Device::Read(void* to, const void* from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
  return {};
}

}  // namespace forebay::device
