#include "job/files/log_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_lock.h"
#include "base/log.h"

namespace forebay::job {
namespace {

// What file systems say that have no such thing.
bool CannotSync(int error) {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP || error == ENOTSUP;
}

}  // namespace

ssize_t LogIo::Write(int fd, const char* data, size_t size, off_t offset) {
  return pwrite(fd, data, size, offset);
}
int LogIo::Sync(int fd) {
  if (fdatasync(fd) == 0) return 0;
  if (!CannotSync(errno)) return -1;
  if (fsync(fd) == 0) return 0;
  if (!CannotSync(errno)) return -1;
  if (!std::exchange(warned_, true)) {
    base::Log(base::LogLevel::kWarning,
              fmt::format("the results' file system cannot sync files ({}); what a crash of the "
                          "machine takes is not known",
                          std::strerror(errno)));
  }
  return 0;
}

int WriteAll(LogIo& io, int fd, std::string_view data, uint64_t offset) {
  while (!data.empty()) {
    const ssize_t count = io.Write(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    data.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return 0;
}

base::Status ResultsIoError(const std::string& path, const std::string& what, int error) {
  return base::Status(kResultsIo, fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

base::Status LockResults(int fd, const std::string& path) {
  switch (base::TakeFileLock(fd, path)) {
    case base::LockOutcome::kTaken:
    case base::LockOutcome::kNoLocks: return {};
    case base::LockOutcome::kFailed: return ResultsIoError(path, "cannot lock the results", errno);
    case base::LockOutcome::kHeld: break;
  }
  return base::Status(kResultsLocked,
                      fmt::format("{}: another process is writing these results; wait for it, or "
                                  "name another file",
                                  path));
}

base::Status LogIo::SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ResultsIoError(folder, "cannot open the results' folder", errno);
  // The renames of a file system that cannot sync a folder are as durable as they get.
  const int error = fsync(fd) == 0 || CannotSync(errno) ? 0 : errno;
  close(fd);
  return error == 0 ? base::Status()
                    : ResultsIoError(folder, "cannot sync the results' folder", error);
}

}  // namespace forebay::job
