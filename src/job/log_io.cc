#include "job/log_io.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace forebay::job {

ssize_t LogIo::Write(int fd, const char* data, size_t size, off_t offset) {
  return pwrite(fd, data, size, offset);
}
int LogIo::Sync(int fd) { return fdatasync(fd); }

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
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return ResultsIoError(path, "cannot lock the results", errno);
    return base::Status(kResultsLocked,
                        fmt::format("{}: another process is writing these results; wait for it, or "
                                    "name another file",
                                    path));
  }
  return {};
}

base::Status LogIo::SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "."
                             : slash == 0               ? "/"
                                                        : path.substr(0, slash);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ResultsIoError(folder, "cannot open the results' folder", errno);
  // Some filesystems cannot sync a folder and say EINVAL; their renames are as durable as they get.
  const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return error == 0 ? base::Status()
                    : ResultsIoError(folder, "cannot sync the results' folder", error);
}

}  // namespace forebay::job
