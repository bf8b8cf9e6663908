#include "job/results_rewrite.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace forebay::job {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

base::Status CopyPieces(const std::string& path, int from, std::span<const Piece> pieces, int to,
                        LogIo& io) {
  std::string buffer;
  uint64_t written = 0;
  const auto flush = [&]() -> base::Status {
    const int error = WriteAll(io, to, buffer, written);
    written += buffer.size();
    buffer.clear();
    return error == 0 ? base::Status()
                      : ResultsIoError(path, "cannot write the rewritten results", error);
  };
  for (Piece piece : pieces) {
    while (piece.begin < piece.end) {
      const size_t held = buffer.size();
      const size_t want = std::min<uint64_t>(piece.end - piece.begin, kBufferBytes);
      buffer.resize(held + want);
      const ssize_t count =
          pread(from, buffer.data() + held, want, static_cast<off_t>(piece.begin));
      const int error = errno;
      buffer.resize(held + static_cast<size_t>(std::max<ssize_t>(count, 0)));
      if (count < 0 && error == EINTR) continue;
      if (count <= 0) {
        return ResultsIoError(path, "cannot read the results", count < 0 ? error : EIO);
      }
      piece.begin += static_cast<uint64_t>(count);
      if (buffer.size() >= kBufferBytes) FB_RETURN_IF_ERROR(flush());
    }
  }
  return flush();
}

}  // namespace

base::Result<int> RewriteResults(const std::string& path, int fd, std::span<const Piece> pieces,
                                 LogIo& io) {
  std::string fresh = path + ".XXXXXX";
  const int to = mkostemp(fresh.data(), O_CLOEXEC);  // O_EXCL, so no link is followed
  if (to < 0) return ResultsIoError(path, "cannot create a file beside the results", errno);
  struct stat info;
  if (fstat(fd, &info) == 0) static_cast<void>(fchmod(to, info.st_mode & 07777));
  base::Status status = LockResults(to, fresh);
  if (status.ok()) status = CopyPieces(path, fd, pieces, to, io);
  if (status.ok() && io.Sync(to) != 0) status = ResultsIoError(fresh, "cannot sync", errno);
  if (status.ok() && rename(fresh.c_str(), path.c_str()) != 0)
    status = ResultsIoError(path, "cannot put the rewritten results in place", errno);
  if (status.ok()) {
    status = io.SyncFolderOf(path);
    if (status.ok()) return to;
  } else {
    unlink(fresh.c_str());
  }
  close(to);
  return status;
}

}  // namespace forebay::job
