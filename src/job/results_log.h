// The results file: a job's only journal (docs/formats/results-log.md). One process at a time appends whole lines to
// it; a crash at any moment loses nothing but the lines not yet committed and leaves at most a torn tail.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "job/results_scan.h"

namespace forebay::job {

inline constexpr base::ErrorCode kResultsLocked{"results_locked"};
inline constexpr base::ErrorCode kResultsIo{"results_io"};

// The system calls that can fail while a job runs; tests replace them.
class LogIo {
 public:
  virtual ~LogIo() = default;
  virtual ssize_t Write(int fd, const char* data, size_t size, off_t offset);
  virtual int Sync(int fd);
};

// Owns the open file and its lock. Invariants: the file's first end_ bytes are whole result lines; at most one result
// for each input line; after the first error nothing more is written.
class ResultsLog {
 public:
  // Results that wait for a commit at most; the caller commits at least once a second.
  static constexpr size_t kGroup = 256;

  // Opens or creates (and syncs the folder), locks, scans and cuts off a torn tail. Errors: kResultsLocked,
  // kResultsIo, and those of ScanResults, which leave the file as it is. `io` may be null.
  static base::Result<std::unique_ptr<ResultsLog>> Open(const ScanExpectation& expected,
                                                        std::unique_ptr<LogIo> io = nullptr);
  ~ResultsLog();
  ResultsLog(const ResultsLog&) = delete;

  // Thread-safe. Appends one result, `line` without its LF. On an error the file is cut back to its last whole line
  // and the error latches: this and every later call returns it.
  base::Status Append(size_t ordinal, std::string_view line);
  // Thread-safe; does not keep Append waiting. Returns once all that was appended before is on stable storage.
  base::Status Commit();
  // Would a commit now be a full group's?
  bool GroupIsFull() const;

  // REQUIRES (the next three): no Append at the same time.
  bool Done(size_t ordinal) const { return offsets_[ordinal] != kNoOffset; }
  size_t num_done() const { return num_done_; }
  const std::vector<uint64_t>& offsets() const { return offsets_; }

  // Of the results found by Open.
  size_t num_resumed_failed() const { return num_resumed_failed_; }
  uint64_t torn_bytes() const { return torn_bytes_; }

  // Rewrites the file in the order of the input, atomically: a new file beside it is written, synced and renamed
  // over it, and the lock moves with it. On an error the old file stays. Nothing happens where the order is right.
  // REQUIRES: all lines done, no Append at the same time.
  base::Status RewriteInOrder();

 private:
  ResultsLog(std::string path, int fd, std::unique_ptr<LogIo> io);
  base::Status Scan(const ScanExpectation& expected);
  base::Status Latch(const std::string& what, int error);
  base::Status CopyInOrder(int to);

  const std::string path_;
  int fd_;
  const std::unique_ptr<LogIo> io_;
  std::vector<uint64_t> offsets_;
  size_t num_done_ = 0;
  size_t num_resumed_failed_ = 0;
  uint64_t torn_bytes_ = 0;

  mutable std::mutex mutex_;   // guards what follows, and offsets_ and num_done_ while appending
  std::mutex commit_mutex_;    // one commit at a time; taken before mutex_
  uint64_t end_ = 0;
  uint64_t committed_end_ = 0;
  size_t uncommitted_ = 0;
  base::Status error_;
};

}  // namespace forebay::job
