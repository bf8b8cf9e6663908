#include "job/files/results_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

namespace forebay::job {
namespace {

// Opens and locks the file that `path` names now: one that was renamed over between the two is
// opened anew.
base::Result<int> OpenLocked(const std::string& path) {
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) return ResultsIoError(path, "cannot open the results file", errno);
    struct stat opened, named;
    base::Status status;
    if (fstat(fd, &opened) != 0) {
      status = ResultsIoError(path, "cannot open the results file", errno);
    } else if (!S_ISREG(opened.st_mode)) {
      status = base::Status(
          kResultsIo, fmt::format("{}: is no regular file; results need one to resume from", path));
    } else {
      status = LockResults(fd, path);
    }
    if (!status.ok()) {
      close(fd);
      return status;
    }
    if (stat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
        named.st_dev == opened.st_dev)
      return fd;
    close(fd);
  }
}

}  // namespace

base::Status CheckIsNotInput(const std::string& path, const JobFile& input) {
  if (!input.SameFile(path)) return {};
  return base::Status(kResultsInvalid,
                      fmt::format("{}: is the input; name another file for the results", path));
}

ScanExpectation ResultsOf(const JobFile& input, std::string path, const Fingerprints& fingerprints,
                          bool retry_failed) {
  ScanExpectation expected{.path = std::move(path),
                           .num_lines = input.size(),
                           .job = fingerprints,
                           .retry_failed = retry_failed};
  expected.find = [&input](int64_t line) -> std::optional<LineKey> {
    const std::optional<size_t> ordinal = input.Find(line);
    if (!ordinal) return std::nullopt;
    return LineKey{*ordinal, input[*ordinal].hash};
  };
  return expected;
}

ResultsLog::ResultsLog(std::string name, std::string path, int fd, std::unique_ptr<LogIo> io)
    : name_(std::move(name)),
      path_(std::move(path)),
      fd_(fd),
      io_(io ? std::move(io) : std::make_unique<LogIo>()) {}

ResultsLog::~ResultsLog() { close(fd_); }

base::Result<std::unique_ptr<ResultsLog>> ResultsLog::Open(const ScanExpectation& expected,
                                                           std::unique_ptr<LogIo> io) {
  FB_ASSIGN_OR_RETURN(const int fd, OpenLocked(expected.path));
  // A link's target is what RewriteInOrder replaces, not the link.
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(expected.path, error);
  std::unique_ptr<ResultsLog> log(
      new ResultsLog(expected.path, error ? expected.path : path.string(), fd, std::move(io)));
  FB_RETURN_IF_ERROR(log->Adopt(expected));
  FB_RETURN_IF_ERROR(log->io_->SyncFolderOf(log->path_));
  return log;
}

base::Result<ScanOutcome> ResultsLog::Scan(const ScanExpectation& expected) const {
  uint64_t position = 0;
  const ByteSource source = [&](char* buffer, size_t size) -> int64_t {
    ssize_t count;
    do {
      count = pread(fd_, buffer, size, static_cast<off_t>(position));
    } while (count < 0 && errno == EINTR);
    position += static_cast<uint64_t>(std::max<ssize_t>(count, 0));
    return count;
  };
  return ScanResults(source, expected);
}

base::Status ResultsLog::Adopt(const ScanExpectation& expected) {
  FB_ASSIGN_OR_RETURN(ScanOutcome outcome, Scan(expected));
  struct stat info;
  if (fstat(fd_, &info) != 0) return ResultsIoError(path_, "cannot size the results", errno);
  torn_bytes_ = static_cast<uint64_t>(info.st_size) - outcome.whole_bytes;
  hole_bytes_ = outcome.hole_bytes;
  num_retried_ = outcome.num_retried;
  // What is dropped lies between results: the file is written anew without it and read again, for
  // all offsets have moved. A torn tail alone is cut off.
  if (!outcome.dropped.empty()) {
    std::vector<Piece> kept;
    uint64_t begin = 0;
    for (const Piece& dropped : outcome.dropped) {
      if (begin < dropped.begin) kept.push_back({begin, dropped.begin});
      begin = dropped.end;
    }
    if (begin < outcome.whole_bytes) kept.push_back({begin, outcome.whole_bytes});
    FB_RETURN_IF_ERROR(Replace(kept));
    FB_ASSIGN_OR_RETURN(outcome, Scan(expected));
    FB_CHECK(outcome.dropped.empty(), "{} pieces are to be dropped twice", outcome.dropped.size());
  } else if (torn_bytes_ > 0 && ftruncate(fd_, static_cast<off_t>(outcome.whole_bytes)) != 0) {
    return ResultsIoError(path_, "cannot cut off the torn tail", errno);
  }
  // What an earlier run wrote without committing counts as done from now on, so it is made durable
  // first.
  if (io_->Sync(fd_) != 0) return ResultsIoError(path_, "cannot sync the results", errno);
  offsets_ = std::move(outcome.offsets);
  num_done_ = outcome.num_done;
  num_resumed_failed_ = outcome.num_failed;
  resumed_failures_ = std::move(outcome.failures);
  resumed_answers_ = std::move(outcome.answers);
  end_ = committed_end_ = outcome.whole_bytes;
  return {};
}

base::Status ResultsLog::Replace(std::span<const Piece> pieces) {
  FB_ASSIGN_OR_RETURN(const int fd, RewriteResults(path_, fd_, pieces, *io_));
  close(std::exchange(fd_, fd));
  return {};
}

base::Status ResultsLog::LatchReplaced(const std::string& found) {
  if (error_.ok()) {
    error_ = base::Status(
        kResultsReplaced,
        fmt::format("{}: {} while this job wrote it; results of this run may be lost: leave the "
                    "file alone until the job has ended, and run the same command again",
                    name_, found));
  }
  return error_;
}

base::Status ResultsLog::CheckSize() {
  struct stat info;
  if (fstat(fd_, &info) != 0) return Latch("cannot size the results", errno);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size == end_) return {};
  return LatchReplaced(fmt::format("the file was {} ({} bytes where there were {})",
                                   size < end_ ? "cut" : "written to", size, end_));
}

base::Status ResultsLog::CheckName() {
  struct stat opened, named;
  if (fstat(fd_, &opened) != 0) return Latch("cannot size the results", errno);
  if (stat(name_.c_str(), &named) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return Latch("cannot find the results", errno);
    return LatchReplaced("the file was removed or renamed");
  }
  if (named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) return {};
  return LatchReplaced("another file was put in its place");
}

base::Status ResultsLog::Latch(const std::string& what, int error) {
  if (error_.ok()) {
    error_ = ResultsIoError(path_, what, error);
    // A line that was cut short goes; should this fail too, the next run finds a torn tail.
    if (ftruncate(fd_, static_cast<off_t>(end_)) != 0)
      error_ = error_.WithContext("cannot cut back");
  }
  return error_;
}

base::Status ResultsLog::Append(size_t ordinal, std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  return Write(ordinal, [&](const PieceSink& sink) { sink(bytes); });
}

base::Status ResultsLog::AppendPieces(size_t ordinal,
                                      const std::function<void(const PieceSink&)>& give) {
  return Write(ordinal, [&](const PieceSink& sink) {
    give(sink);
    sink("\n");
  });
}

base::Status ResultsLog::Write(size_t ordinal, const std::function<void(const PieceSink&)>& give) {
  const std::lock_guard lock(mutex_);
  if (!error_.ok()) return error_;
  FB_CHECK(offsets_[ordinal] == kNoOffset, "a second result for the line with ordinal {}", ordinal);
  // Where the file does not end at our end somebody else writes to it: one of the two would
  // overwrite the other.
  FB_RETURN_IF_ERROR(CheckSize());
  uint64_t end = end_;
  int error = 0;
  give([&](std::string_view piece) {
    if (error == 0) error = WriteAll(*io_, fd_, piece, end);
    end += piece.size();
  });
  if (error != 0) return Latch("cannot write results", error);
  offsets_[ordinal] = std::exchange(end_, end);
  ++num_done_;
  ++uncommitted_;
  return {};
}

base::Status ResultsLog::Commit() {
  const std::lock_guard commit_lock(commit_mutex_);
  std::unique_lock lock(mutex_);
  if (!error_.ok()) return error_;
  FB_RETURN_IF_ERROR(CheckSize());
  FB_RETURN_IF_ERROR(CheckName());
  if (committed_end_ == end_) return {};
  const uint64_t end = end_;
  const size_t group = uncommitted_;
  // Appending goes on while the disk works; what comes meanwhile is the next commit's.
  lock.unlock();
  const int error = io_->Sync(fd_) == 0 ? 0 : errno;
  lock.lock();
  // After a failed sync the kernel may have dropped the pages: trying again would only look like
  // success.
  if (error != 0) return Latch("cannot sync results", error);
  // What was done to the file meanwhile: a name that went away has nothing durable behind it.
  FB_RETURN_IF_ERROR(CheckSize());
  FB_RETURN_IF_ERROR(CheckName());
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
  // Where each result ends: at the begin of the one behind it in the file.
  std::vector<uint32_t> by_offset(offsets_.size());
  std::iota(by_offset.begin(), by_offset.end(), 0u);
  std::sort(by_offset.begin(), by_offset.end(),
            [&](uint32_t a, uint32_t b) { return offsets_[a] < offsets_[b]; });
  std::vector<Piece> pieces(offsets_.size());
  for (size_t i = 0; i < by_offset.size(); ++i) {
    pieces[by_offset[i]] = {offsets_[by_offset[i]],
                            i + 1 < by_offset.size() ? offsets_[by_offset[i + 1]] : end_};
  }
  FB_RETURN_IF_ERROR(Replace(pieces));
  const std::lock_guard lock(mutex_);
  return CheckName();
}

}  // namespace forebay::job
