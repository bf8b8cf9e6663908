#include "job/files/results_rewrite.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

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

// Creates a file whose name is `path` and a suffix, and sets *name.
base::Result<int> CreateBeside(const std::string& path, std::optional<mode_t> mode,
                               std::string* name) {
  constexpr int kMostTries = 100;
  std::random_device random;
  for (int tries = 0; tries < kMostTries; ++tries) {
    *name = fmt::format("{}.{:08x}", path, random());
    // O_EXCL follows no link.
    const int fd =
        open(name->c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode.value_or(0666) & 0777);
    if (fd >= 0 && mode) static_cast<void>(fchmod(fd, *mode));
    if (fd >= 0) return fd;
    if (errno != EEXIST) break;
  }
  return ResultsIoError(path, "cannot create a file beside the results", errno);
}

}  // namespace

base::Result<int> ReplaceResults(const std::string& path, std::optional<mode_t> mode,
                                 const FillFile& fill, LogIo& io) {
  std::string fresh;
  FB_ASSIGN_OR_RETURN(const int to, CreateBeside(path, mode, &fresh));
  base::Status status = LockResults(to, fresh);
  if (status.ok()) status = fill(to, fresh);
  if (status.ok() && io.Sync(to) != 0) status = ResultsIoError(fresh, "cannot sync", errno);
  if (status.ok() && rename(fresh.c_str(), path.c_str()) != 0)
    status = ResultsIoError(path, "cannot put the new results in place", errno);
  if (status.ok()) {
    status = io.SyncFolderOf(path);
    if (status.ok()) return to;
  } else {
    unlink(fresh.c_str());
  }
  close(to);
  return status;
}

base::Result<int> RewriteResults(const std::string& path, int fd, std::span<const Piece> pieces,
                                 LogIo& io) {
  std::optional<mode_t> mode;
  struct stat info;
  if (fstat(fd, &info) == 0) mode = info.st_mode & 07777;
  const FillFile copy = [&](int to, const std::string&) {
    return CopyPieces(path, fd, pieces, to, io);
  };
  return ReplaceResults(path, mode, copy, io);
}

}  // namespace forebay::job
