// Reading a mapped file that was cut meanwhile: zeros instead of the signal that ends the process.
#pragma once

#include <cstddef>
#include <span>

namespace forebay::weights {

// While it lives, a read of a page of `bytes` that its file no longer has (SIGBUS) sees a page of
// zeros; the reader finds out by MappedFile::CheckUnchanged afterwards. Faults elsewhere keep
// their effect. `bytes` begins at a page's border.
class MappedFaultGuard {
 public:
  explicit MappedFaultGuard(std::span<const std::byte> bytes);
  ~MappedFaultGuard();
  MappedFaultGuard(const MappedFaultGuard&) = delete;

 private:
  int slot_ = -1;  // -1: all slots were taken, and the file is unguarded
};

}  // namespace forebay::weights
