// The system calls that can fail while a job writes its results; tests replace them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::job {

inline constexpr base::ErrorCode kResultsLocked{"results_locked"};
inline constexpr base::ErrorCode kResultsIo{"results_io"};

class LogIo {
 public:
  virtual ~LogIo() = default;
  virtual ssize_t Write(int fd, const char* data, size_t size, off_t offset);
  // A file system that cannot sync costs a warning.
  virtual int Sync(int fd);
  // Makes the name of a created or renamed file durable.
  virtual base::Status SyncFolderOf(const std::string& path);

 private:
  bool warned_ = false;
};

// Writes all of `data`; 0, or the errno of what failed.
int WriteAll(LogIo& io, int fd, std::string_view data, uint64_t offset);

// kResultsIo: the file, what could not be done, and the system's reason.
base::Status ResultsIoError(const std::string& path, const std::string& what, int error);

// Takes the exclusive lock that makes a process the only writer, or kResultsLocked. A file system
// without locks costs a warning.
base::Status LockResults(int fd, const std::string& path);

}  // namespace forebay::job
