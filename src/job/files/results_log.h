// The results file: a job's only journal (docs/formats/results-log.md). One process at a time
// appends whole lines to it; a crash at any moment loses nothing but the lines not yet committed
// and leaves at most a torn tail.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "job/files/failures.h"
#include "job/files/job_file.h"
#include "job/files/log_io.h"
#include "job/files/results_rewrite.h"
#include "job/files/results_scan.h"

namespace forebay::job {

inline constexpr base::ErrorCode kResultsReplaced{"results_replaced"};

// kResultsInvalid where `path` names the input file itself.
base::Status CheckIsNotInput(const std::string& path, const JobFile& input);
// What the results file `path` of the job (input, fingerprints) may hold. Reads `input` as long as
// it is used.
ScanExpectation ResultsOf(const JobFile& input, std::string path, const Fingerprints& fingerprints,
                          bool retry_failed);

// Owns the open file and its lock. Invariants: the file's first end_ bytes are whole result lines;
// at most one result for each input line; after the first error nothing more is written. Others
// that unlink, rename, cut or append to the file are found out at the next write or commit.
class ResultsLog {
 public:
  // Results that wait for a commit at most; the caller commits at least once a second.
  static constexpr size_t kGroup = 256;

  // Opens or creates (and syncs the folder), locks, scans, cuts off a torn tail, and takes out
  // holes and failed results that are to run again. Errors: kResultsLocked, kResultsIo, and those
  // of ScanResults, which leave the file as it is. `io` may be null.
  static base::Result<std::unique_ptr<ResultsLog>> Open(const ScanExpectation& expected,
                                                        std::unique_ptr<LogIo> io = nullptr);
  ~ResultsLog();
  ResultsLog(const ResultsLog&) = delete;

  // Thread-safe. Appends one result, `line` without its LF. On an error the file is cut back to its
  // last whole line and the error latches: this and every later call returns it. kResultsReplaced:
  // the file is no longer as it was left; it stays as it was found.
  base::Status Append(size_t ordinal, std::string_view line);
  // The same of a line too long to be held: `give` gives it piece by piece, and other results wait
  // meanwhile. What an end in between leaves is a torn line.
  using PieceSink = std::function<void(std::string_view piece)>;
  base::Status AppendPieces(size_t ordinal, const std::function<void(const PieceSink&)>& give);
  // Thread-safe; does not keep Append waiting. Returns once all that was appended before is on
  // stable storage, in the file that the path names (else kResultsReplaced).
  base::Status Commit();
  // Would a commit now be a full group's?
  bool GroupIsFull() const;

  // REQUIRES (the next three): no Append at the same time.
  bool Done(size_t ordinal) const { return offsets_[ordinal] != kNoOffset; }
  size_t num_done() const { return num_done_; }
  const std::vector<uint64_t>& offsets() const { return offsets_; }

  // The fingerprints of the results found by Open.
  size_t num_resumed_failed() const { return num_resumed_failed_; }
  const FailureTally& resumed_failures() const { return resumed_failures_; }
  // How long those are that did not fail; once.
  std::vector<schedule::EarlierAnswer> TakeResumedAnswers() {
    return std::exchange(resumed_answers_, {});
  }
  uint64_t torn_bytes() const { return torn_bytes_; }
  uint64_t hole_bytes() const { return hole_bytes_; }
  size_t num_retried() const { return num_retried_; }

  // Rewrites the file in the order of the input, atomically (RewriteResults); the lock moves with
  // it. On an error the old file stays. Nothing happens where the order is right. REQUIRES: all
  // lines done, no Append at the same time.
  base::Status RewriteInOrder();

 private:
  ResultsLog(std::string name, std::string path, int fd, std::unique_ptr<LogIo> io);
  base::Result<ScanOutcome> Scan(const ScanExpectation& expected) const;
  base::Status Adopt(const ScanExpectation& expected);
  base::Status Replace(std::span<const Piece> pieces);
  base::Status Latch(const std::string& what, int error);
  // `give` gives the line with its LF.
  base::Status Write(size_t ordinal, const std::function<void(const PieceSink&)>& give);
  // The next three: REQUIRE mutex_.
  base::Status LatchReplaced(const std::string& found);
  base::Status CheckSize();
  base::Status CheckName();

  const std::string name_;  // as it was given
  const std::string path_;  // where `name_` is a link: what it names
  int fd_;
  const std::unique_ptr<LogIo> io_;
  std::vector<uint64_t> offsets_;
  size_t num_done_ = 0;
  size_t num_resumed_failed_ = 0;
  FailureTally resumed_failures_;
  std::vector<schedule::EarlierAnswer> resumed_answers_;
  uint64_t torn_bytes_ = 0, hole_bytes_ = 0;
  size_t num_retried_ = 0;

  mutable std::mutex mutex_;  // guards what follows, and offsets_ and num_done_ while appending
  std::mutex commit_mutex_;   // one commit at a time; taken before mutex_
  uint64_t end_ = 0;
  uint64_t committed_end_ = 0;
  size_t uncommitted_ = 0;
  base::Status error_;
};

}  // namespace forebay::job
