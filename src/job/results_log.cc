#include "job/results_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

namespace forebay::job {
namespace {

base::Status IoError(const std::string& path, const std::string& what, int error) {
  return base::Status(kResultsIo, fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

// Makes a created or renamed file's name durable.
base::Status SyncFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return IoError(folder, "cannot open the results' folder", errno);
  // Some filesystems cannot sync a folder and say EINVAL; their renames are as durable as they get.
  const int error = fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  close(fd);
  return error == 0 ? base::Status() : IoError(folder, "cannot sync the results' folder", error);
}

base::Status LockFile(int fd, const std::string& path) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return IoError(path, "cannot lock the results", errno);
    return base::Status(kResultsLocked, fmt::format("{}: another process is writing these results; wait for it, or "
                                                    "name another file", path));
  }
  return {};
}

// Opens and locks the file that `path` names now: one that was renamed over between the two is opened anew.
base::Result<int> OpenLocked(const std::string& path) {
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) return IoError(path, "cannot open the results file", errno);
    struct stat opened, named;
    base::Status status;
    if (fstat(fd, &opened) != 0) {
      status = IoError(path, "cannot open the results file", errno);
    } else if (!S_ISREG(opened.st_mode)) {
      status = base::Status(kResultsIo, fmt::format("{}: is no regular file; results need one to resume from", path));
    } else {
      status = LockFile(fd, path);
    }
    if (!status.ok()) {
      close(fd);
      return status;
    }
    if (stat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) return fd;
    close(fd);
  }
}

// Writes all of `data`; 0, or the errno of what failed.
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

}  // namespace

ssize_t LogIo::Write(int fd, const char* data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }
int LogIo::Sync(int fd) { return fdatasync(fd); }

ResultsLog::ResultsLog(std::string path, int fd, std::unique_ptr<LogIo> io)
    : path_(std::move(path)), fd_(fd), io_(io ? std::move(io) : std::make_unique<LogIo>()) {}

ResultsLog::~ResultsLog() { close(fd_); }

base::Result<std::unique_ptr<ResultsLog>> ResultsLog::Open(const ScanExpectation& expected, std::unique_ptr<LogIo> io) {
  FB_ASSIGN_OR_RETURN(const int fd, OpenLocked(expected.path));
  // A link's target is what RewriteInOrder replaces, not the link.
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(expected.path, error);
  std::unique_ptr<ResultsLog> log(new ResultsLog(error ? expected.path : path.string(), fd, std::move(io)));
  FB_RETURN_IF_ERROR(log->Scan(expected));
  FB_RETURN_IF_ERROR(SyncFolder(log->path_));
  return log;
}

base::Status ResultsLog::Scan(const ScanExpectation& expected) {
  uint64_t position = 0;
  const ByteSource source = [&](char* buffer, size_t size) -> int64_t {
    ssize_t count;
    do {
      count = pread(fd_, buffer, size, static_cast<off_t>(position));
    } while (count < 0 && errno == EINTR);
    position += static_cast<uint64_t>(std::max<ssize_t>(count, 0));
    return count;
  };
  FB_ASSIGN_OR_RETURN(ScanOutcome outcome, ScanResults(source, expected));
  struct stat info;
  if (fstat(fd_, &info) != 0) return IoError(path_, "cannot size the results", errno);
  torn_bytes_ = static_cast<uint64_t>(info.st_size) - outcome.whole_bytes;
  if (torn_bytes_ > 0 && ftruncate(fd_, static_cast<off_t>(outcome.whole_bytes)) != 0) {
    return IoError(path_, "cannot cut off the torn tail", errno);
  }
  // What an earlier run wrote without committing counts as done from now on, so it is made durable first.
  if (io_->Sync(fd_) != 0) return IoError(path_, "cannot sync the results", errno);
  offsets_ = std::move(outcome.offsets);
  num_done_ = outcome.num_done;
  num_resumed_failed_ = outcome.num_failed;
  end_ = committed_end_ = outcome.whole_bytes;
  return {};
}

base::Status ResultsLog::Latch(const std::string& what, int error) {
  if (error_.ok()) {
    error_ = IoError(path_, what, error);
    // A line that was cut short goes; should this fail too, the next run finds a torn tail.
    if (ftruncate(fd_, static_cast<off_t>(end_)) != 0) error_ = error_.WithContext("cannot cut back");
  }
  return error_;
}

base::Status ResultsLog::Append(size_t ordinal, std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) return error_;
  FB_CHECK(offsets_[ordinal] == kNoOffset, "a second result for the line with ordinal {}", ordinal);
  if (const int error = WriteAll(*io_, fd_, bytes, end_); error != 0) return Latch("cannot write results", error);
  offsets_[ordinal] = end_;
  end_ += bytes.size();
  ++num_done_;
  ++uncommitted_;
  return {};
}

base::Status ResultsLog::Commit() {
  const std::lock_guard commit_lock(commit_mutex_);
  std::unique_lock lock(mutex_);
  if (committed_end_ == end_) return error_;
  const uint64_t end = end_;
  const size_t group = uncommitted_;
  lock.unlock();
  const int error = io_->Sync(fd_) == 0 ? 0 : errno;
  lock.lock();
  // After a failed sync the kernel may have dropped the pages: trying again would only look like success.
  if (error != 0) return Latch("cannot sync results", error);
  committed_end_ = end;
  uncommitted_ -= group;
  return error_;
}

bool ResultsLog::GroupIsFull() const {
  const std::lock_guard lock(mutex_);
  return uncommitted_ >= kGroup;
}

base::Status ResultsLog::RewriteInOrder() {
  FB_CHECK(num_done_ == offsets_.size(), "{} of {} results are there", num_done_, offsets_.size());
  if (std::is_sorted(offsets_.begin(), offsets_.end())) return {};
  const std::string ordered_path = path_ + ".ordered";
  const int fd = open(ordered_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return IoError(ordered_path, "cannot create", errno);
  struct stat info;
  if (fstat(fd_, &info) == 0) static_cast<void>(fchmod(fd, info.st_mode & 07777));
  base::Status status = LockFile(fd, ordered_path);
  if (status.ok()) status = CopyInOrder(fd);
  if (status.ok() && io_->Sync(fd) != 0) status = IoError(ordered_path, "cannot sync", errno);
  if (status.ok() && rename(ordered_path.c_str(), path_.c_str()) != 0) {
    status = IoError(path_, "cannot put the results in order", errno);
  }
  if (!status.ok()) {
    unlink(ordered_path.c_str());
    close(fd);
    return status;
  }
  close(std::exchange(fd_, fd));
  return SyncFolder(path_);
}

base::Status ResultsLog::CopyInOrder(int to) {
  // Where each result ends: at the begin of the one behind it in the file.
  std::vector<uint32_t> by_offset(offsets_.size());
  std::iota(by_offset.begin(), by_offset.end(), 0u);
  std::sort(by_offset.begin(), by_offset.end(), [&](uint32_t a, uint32_t b) { return offsets_[a] < offsets_[b]; });
  std::vector<uint64_t> ends(offsets_.size());
  for (size_t i = 0; i < by_offset.size(); ++i) {
    ends[by_offset[i]] = i + 1 < by_offset.size() ? offsets_[by_offset[i + 1]] : end_;
  }

  constexpr size_t kBufferBytes = 1 << 20;
  std::string buffer;
  uint64_t written = 0;
  const auto flush = [&] {
    const int error = WriteAll(*io_, to, buffer, written);
    written += buffer.size();
    buffer.clear();
    return error;
  };
  for (size_t ordinal = 0; ordinal < offsets_.size(); ++ordinal) {
    const uint64_t size = ends[ordinal] - offsets_[ordinal];
    const size_t held = buffer.size();
    buffer.resize(held + size);
    for (uint64_t done = 0; done < size;) {
      const ssize_t count = pread(fd_, buffer.data() + held + done, size - done, static_cast<off_t>(offsets_[ordinal] + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return IoError(path_, "cannot read the results", count < 0 ? errno : EIO);
      done += static_cast<uint64_t>(count);
    }
    if (buffer.size() < kBufferBytes) continue;
    if (const int error = flush(); error != 0) return IoError(path_, "cannot write the ordered results", error);
  }
  const int error = flush();
  return error == 0 ? base::Status() : IoError(path_, "cannot write the ordered results", error);
}

}  // namespace forebay::job
