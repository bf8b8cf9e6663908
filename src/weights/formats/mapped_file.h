// A file's bytes, read-only, by mmap, or copied: the ways in which weights are read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "weights/formats/mapped_fault.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kFileChanged{"weights_file_changed"};

// Owns the mapping and the descriptor. The bytes stay where they are when the object moves. Const
// calls are thread-safe. A file that shrinks under a mapping reads as zeros there
// (MappedFaultGuard), so readers call CheckUnchanged before they follow offsets that were checked
// earlier, and before they trust what they read.
class MappedFile {
 public:
  // kSequential lets the kernel read far ahead and forget behind.
  enum class Access { kNormal, kSequential };

  // Where the file system maps no files, the bytes are read into memory, with a warning.
  static base::Result<MappedFile> Open(const std::string& path, Access access = Access::kNormal);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // An error if the file's size or time of change differs from Open.
  base::Status CheckUnchanged() const;

  // Copies bytes [offset, offset + out.size()) of the file: cheaper than faulting them in if all
  // are read once.
  base::Status Read(uint64_t offset, std::span<std::byte> out) const;

  // Lets the kernel take back the pages that lie whole inside `part`; reading them again is slower,
  // not wrong.
  void Drop(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;
  // Where nothing can be mapped.
  static base::Result<MappedFile> Copy(MappedFile file);
  void Close();

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool is_copy_ = false;  // memory of our own holds the bytes
  timespec modified_{};
  int descriptor_ = -1;
  std::unique_ptr<MappedFaultGuard> guard_;
};

}  // namespace forebay::weights
