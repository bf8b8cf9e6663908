#include "base/file_lock.h"

#include <fmt/core.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace forebay::base {

LockOutcome TakeFileLock(int fd, const std::string& path) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    switch (errno) {
      case EINTR: continue;
      case EWOULDBLOCK: return LockOutcome::kHeld;
      case ENOSYS:
      case ENOLCK:
      case EOPNOTSUPP:
      case EBADF:
        Log(LogLevel::kWarning,
            fmt::format("{}: its file system has no locks ({}); nothing keeps two writers apart: "
                        "let one process alone write it",
                        path, std::strerror(errno)));
        return LockOutcome::kNoLocks;
      default: return LockOutcome::kFailed;
    }
  }
  return LockOutcome::kTaken;
}

}  // namespace forebay::base
