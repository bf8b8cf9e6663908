#include "job/files/merge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "job/files/answer.h"
#include "job/files/job_file.h"
#include "job/files/output_check.h"
#include "job/files/results_log.h"
#include "job/files/results_rewrite.h"
#include "job/files/results_scan.h"

namespace forebay::job {
namespace {

base::Status IoError(const std::string& path, const std::string& what) {
  return ResultsIoError(path, what, errno);
}

// A part, open for reading.
class File {
 public:
  // O_NONBLOCK: opening a pipe that nobody writes must not wait.
  explicit File(std::string path)
      : path_(std::move(path)), fd_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  File(File&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  base::Status Read(uint64_t offset, std::string* to) const {
    for (size_t done = 0; done < to->size();) {
      const ssize_t count =
          pread(fd_, to->data() + done, to->size() - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count == 0) errno = EIO;
      if (count <= 0) return IoError(path_, "cannot read the results");
      done += static_cast<size_t>(count);
    }
    return {};
  }

 private:
  std::string path_;
  int fd_;
};

// Where a line's result lies.
struct Place {
  int64_t line;  // from 1
  uint64_t input_hash;
  uint64_t offset;
  uint32_t size;
  uint32_t part;
};

class Merge {
 public:
  explicit Merge(const MergeOptions& options) : options_(options) {}

  base::Result<MergeOutcome> Run() {
    FB_RETURN_IF_ERROR(CheckOutput());
    if (!options_.input.empty()) {
      auto input = JobFile::Open(options_.input);
      if (!input.ok()) return input.status();
      input_.emplace(std::move(*input));
    }
    for (const std::string& path : options_.parts) FB_RETURN_IF_ERROR(ReadPart(path));
    // The first part's line comes first of equal ones.
    std::ranges::stable_sort(places_, {}, &Place::line);
    FB_RETURN_IF_ERROR(DropTwice());
    FindMissing();
    FB_RETURN_IF_ERROR(Write());
    outcome_.lines = static_cast<int64_t>(places_.size());
    return std::move(outcome_);
  }

 private:
  base::Status CheckOutput() {
    const NamedPath outputs[] = {{"--output-file", options_.output, kResultsIo}};
    const NamedPath inputs[] = {{"--input-file", options_.input}};
    FB_RETURN_IF_ERROR(CheckOutputs(outputs, inputs));
    struct stat output, part;
    if (stat(options_.output.c_str(), &output) != 0) return {};
    for (const std::string& path : options_.parts) {
      if (stat(path.c_str(), &part) == 0 && part.st_ino == output.st_ino &&
          part.st_dev == output.st_dev)
        return LockReplaced();
    }
    return base::Status(base::kInvalidArgument,
                        fmt::format("{}: exists and is none of the parts; name another file, or "
                                    "give it as a part too",
                                    options_.output));
  }

  // A job that still writes to the part which is replaced would lose results.
  base::Status LockReplaced() {
    replaced_.emplace(options_.output);
    if (!replaced_->ok()) return IoError(options_.output, "cannot open the results");
    return LockResults(replaced_->fd(), options_.output);
  }

  base::Status ReadPart(const std::string& path) {
    const auto part = static_cast<uint32_t>(files_.size());
    files_.emplace_back(path);
    if (!files_.back().ok()) return IoError(path, "cannot open the results");
    struct stat info;
    if (fstat(files_.back().fd(), &info) != 0 || !S_ISREG(info.st_mode))
      return base::Status(kResultsIo, path + ": is no regular file");
    const ByteSource source = [&, offset = off_t{0}](char* buffer, size_t size) mutable {
      const ssize_t count = pread(files_.back().fd(), buffer, size, offset);
      offset += std::max<ssize_t>(count, 0);
      return static_cast<int64_t>(count);
    };
    FB_ASSIGN_OR_RETURN(const Walked walked,
                        WalkResults(source, path, [&](const FoundResult& found) {
                          return Take(path, part, found);
                        }));
    // A part that is still written to may have grown since.
    const auto bytes = static_cast<uint64_t>(info.st_size);
    outcome_.torn_bytes += bytes - std::min(bytes, walked.whole_bytes);
    return {};
  }

  base::Status Take(const std::string& path, uint32_t part, const FoundResult& found) {
    Fingerprints job = found.id.hash;
    job.input = 0;
    // The first result says of which job all are.
    if (!job_) job_ = job;
    if (!(*job_ == job)) {
      return base::Status(
          kResultsMismatch,
          fmt::format("{}: line {} is a result of another job than {}: {} differs", path,
                      found.number, options_.parts[0],
                      job_->model != job.model         ? "the model"
                      : job_->settings != job.settings ? "the template, sampling defaults or flags"
                                                       : "the numerics class"));
    }
    if (input_) {
      const std::optional<size_t> ordinal = input_->Find(found.id.line - 1);
      if (!ordinal || (*input_)[*ordinal].hash != found.id.hash.input) {
        return base::Status(
            kResultsMismatch,
            fmt::format("{}: line {} is the result of input line {}, which {} in {}", path,
                        found.number, found.id.line, ordinal ? "is another" : "is not",
                        options_.input));
      }
    }
    places_.push_back({.line = found.id.line,
                       .input_hash = found.id.hash.input,
                       .offset = found.place.begin,
                       .size = static_cast<uint32_t>(found.text.size()),
                       .part = part});
    return {};
  }

  base::Result<std::string> Read(const Place& place) const {
    std::string text(place.size, '\0');
    FB_RETURN_IF_ERROR(files_[place.part].Read(place.offset, &text));
    return text;
  }

  base::Status DropTwice() {
    simdjson::dom::parser parser;
    size_t kept = 0;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (kept == 0 || places_[kept - 1].line != places_[i].line) {
        places_[kept++] = places_[i];
        continue;
      }
      const Place &first = places_[kept - 1], &second = places_[i];
      const auto refuse = [&](base::ErrorCode code, const char* what) {
        return base::Status(
            code, fmt::format("input line {}: {} and {} {}", first.line, options_.parts[first.part],
                              options_.parts[second.part], what));
      };
      if (first.input_hash != second.input_hash)
        return refuse(kResultsMismatch, "are results of different inputs");
      // Equal but for what differs from run to run: an answer that differs is a fault to be seen,
      // not to be chosen from.
      FB_ASSIGN_OR_RETURN(const std::string one, Read(first));
      FB_ASSIGN_OR_RETURN(const std::string other, Read(second));
      FB_ASSIGN_OR_RETURN(const std::string answer, AnswerOf(parser, one));
      FB_ASSIGN_OR_RETURN(const std::string other_answer, AnswerOf(parser, other));
      if (answer != other_answer)
        return refuse(kResultsDiffer,
                      "hold different answers; one of the machines computes wrongly, or the model "
                      "changed");
      ++outcome_.twice;
    }
    places_.resize(kept);
    return {};
  }

  void Miss(int64_t first, int64_t last) {
    auto& missing = outcome_.missing;
    if (!missing.empty() && missing.back().second == first - 1) {
      missing.back().second = last;
    } else {
      missing.emplace_back(first, last);
    }
  }

  void FindMissing() {
    if (!input_) {
      int64_t next = 1;
      for (const Place& place : places_) {
        if (place.line > next) Miss(next, place.line - 1);
        next = place.line + 1;
      }
      return;
    }
    size_t at = 0;
    for (size_t ordinal = 0; ordinal < input_->size(); ++ordinal) {
      const int64_t line = int64_t{(*input_)[ordinal].line} + 1;
      if (at < places_.size() && places_[at].line == line) {
        ++at;
      } else {
        Miss(line, line);
      }
    }
  }

  base::Status Write() const {
    // The output may be one of the parts: it is replaced when all stands. A link's target is what
    // is replaced, not the link.
    std::error_code error;
    const std::filesystem::path target = std::filesystem::weakly_canonical(options_.output, error);
    const std::string path = error ? options_.output : target.string();
    std::optional<mode_t> mode;
    struct stat info;
    if (stat(path.c_str(), &info) == 0) mode = info.st_mode & 07777;
    LogIo io;
    const FillFile copy = [&](int fd, const std::string& name) { return CopyTo(fd, name, io); };
    FB_ASSIGN_OR_RETURN(const int fd, ReplaceResults(path, mode, copy, io));
    close(fd);
    return {};
  }

  base::Status CopyTo(int fd, const std::string& name, LogIo& io) const {
    constexpr size_t kBufferBytes = 1 << 20;
    std::string buffer;
    uint64_t written = 0;
    const auto flush = [&]() -> base::Status {
      const int failed = WriteAll(io, fd, buffer, written);
      written += buffer.size();
      buffer.clear();
      return failed == 0 ? base::Status()
                         : ResultsIoError(name, "cannot write the merged results", failed);
    };
    for (const Place& place : places_) {
      FB_ASSIGN_OR_RETURN(const std::string text, Read(place));
      buffer += text;
      buffer += '\n';
      if (buffer.size() >= kBufferBytes) FB_RETURN_IF_ERROR(flush());
    }
    return flush();
  }

  const MergeOptions& options_;
  std::optional<JobFile> input_;
  std::vector<File> files_;
  std::optional<File> replaced_;     // the part that is the output, too; locked
  std::optional<Fingerprints> job_;  // of the first result; `input` is 0
  std::vector<Place> places_;
  MergeOutcome outcome_;
};

}  // namespace

base::Result<MergeOutcome> MergeResults(const MergeOptions& options) {
  return Merge(options).Run();
}

}  // namespace forebay::job
