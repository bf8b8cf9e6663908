// Locks that keep other processes from writing a file.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::base {

enum class LockOutcome : uint8_t {
  kTaken,
  kHeld,     // by another process
  kNoLocks,  // the file system has none: Lustre without flock, some FUSE and NFS mounts
  kFailed,   // errno says why
};

// Takes the file's exclusive lock, which goes when the descriptor is closed, and does not wait.
// Where the file system has no locks a warning says that nothing keeps two writers of `path` apart.
LockOutcome TakeFileLock(int fd, const std::string& path);

}  // namespace forebay::base
