// A file that is read and written in large pieces past the page cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace forebay::kv {

inline constexpr base::ErrorCode kKvFileInvalid{"kv_file_invalid"};
inline constexpr base::ErrorCode kKvFileNoSpace{"kv_file_no_space"};
inline constexpr base::ErrorCode kKvFileLocked{"kv_file_locked"};
inline constexpr base::ErrorCode kKvFileMismatch{"kv_file_mismatch"};
inline constexpr base::ErrorCode kKvFileIo{"kv_file_io"};

// Offsets, lengths and addresses are multiples of it.
inline constexpr uint64_t kFileAlignment = 4096;

// Any thread may call.
class BlockFile {
 public:
  virtual ~BlockFile() = default;
  // Errors: kKvFileIo, with path, offset and reason. A read that ends early is one.
  virtual base::Status Write(uint64_t offset, std::span<const std::byte> data) = 0;
  virtual base::Status Read(uint64_t offset, std::span<std::byte> data) = 0;
  // Nothing was in it when it was opened.
  virtual bool is_new() const { return false; }
};

enum class FileLife : uint8_t { kJob, kKept };

// Opens the file with all of its space allocated, for this process alone. kJob: it must not be
// there, and has no name any more when this returns; kKept: it is made where it is not there.
// Errors: kKvFileInvalid (no folder, memory in place of a disk, no O_DIRECT, a file that is there),
// kKvFileNoSpace, kKvFileLocked.
base::Result<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path, uint64_t bytes,
                                                       FileLife life);

}  // namespace forebay::kv
