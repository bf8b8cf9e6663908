#include "job/files/job_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/file_kind.h"
#include "base/log.h"

namespace forebay::job {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

base::Status Unreadable(const std::string& path, const std::string& why) {
  return base::Status(kInputUnreadable, fmt::format("{}: {}", path, why));
}

// Whether the first line reads as a row of a table: cells between commas, tabs or semicolons.
bool IsTable(const std::string& path, std::string_view begin) {
  for (const char* extension : {".csv", ".tsv"}) {
    if (path.ends_with(extension)) return true;
  }
  const std::string_view row = begin.substr(0, begin.find('\n'));
  return row.size() < begin.size() && row.find_first_of("{[") == row.npos &&
         row.find_first_of(",\t;") != row.npos;
}

// What a file that begins with `begin` is instead of lines of JSON, or "".
std::string OtherThanLines(const std::string& path, std::string_view begin) {
  if (const auto kind = base::ForeignKind(begin)) return *kind;
  const size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == begin.npos || begin[first] == '{') {
    if (begin.substr(std::min(first, begin.size())).starts_with("{\n "))
      return "is JSON over several lines; expected a line a request (jq -c . makes them)";
    const bool no_lf = begin.find('\n') == begin.npos && begin.find("}\r{") != begin.npos;
    return no_lf ? "has lines that end in CR alone; expected LF (tr '\\r' '\\n')" : "";
  }
  if (begin[first] == '[') {
    // One such line is a bad line; an array of requests goes on.
    const size_t next = begin.find_first_not_of(" \t\r\n", first + 1);
    if (next != begin.npos && begin[next] == '{')
      return "is a JSON array; expected a line a request (jq -c '.[]' makes them)";
    return "";
  }
  return IsTable(path, begin) ? "is a table: forebay.run_table (Python) reads tables" : "";
}

}  // namespace

void LineIndex::Append(const LineEntry& entry) {
  if (size_ % kChunk == 0) chunks_.push_back(std::make_unique<LineEntry[]>(kChunk));
  chunks_.back()[size_ % kChunk] = entry;
  ++size_;
}

void LineSplitter::Update(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    Extend(piece);
    position_ += piece.size();
    if (end == std::string_view::npos) return;
    ++position_;
    EndLine();
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::Finish() {
  if (position_ > begin_) EndLine();
}

void LineSplitter::Extend(std::string_view piece) {
  if (piece.empty()) return;
  // A CR before the LF is no part of the line, one elsewhere is: it is known with the next byte.
  if (held_cr_) {
    hasher_.Update("\r");
    ++length_;
  }
  held_cr_ = piece.back() == '\r';
  if (held_cr_) piece.remove_suffix(1);
  if (blank_) blank_ = piece.find_first_not_of(" \t\r") == std::string_view::npos;
  hasher_.Update(piece);
  length_ += piece.size();
}

void LineSplitter::EndLine() {
  if (!blank_) {
    constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
    index_->Append({.offset = begin_,
                    .hash = hasher_.Finish(),
                    .length = static_cast<uint32_t>(std::min(length_, kMost)),
                    .line = static_cast<uint32_t>(line_)});
  }
  ++line_;
  begin_ = position_;
  length_ = 0;
  blank_ = true;
  held_cr_ = false;
  hasher_ = base::Hasher();
}

JobFile::JobFile(JobFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      index_(std::move(other.index_)),
      physical_lines_(other.physical_lines_) {}

JobFile::~JobFile() {
  if (fd_ >= 0) close(fd_);
}

base::Result<JobFile> JobFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes must not wait.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return Unreadable(path, fmt::format("cannot open the input: {}", std::strerror(errno)));
  JobFile file(path, fd);
  struct stat info;
  if (fstat(fd, &info) != 0) return Unreadable(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return Unreadable(path, "is a folder; expected a JSONL file");
  if (!S_ISREG(info.st_mode)) {
    return Unreadable(
        path, "is a pipe or a device; the input is read twice, so write it into a file first");
  }

  std::string buffer(kReadBytes, '\0');
  const ssize_t head = pread(fd, buffer.data(), buffer.size(), 0);
  std::string_view begin(buffer.data(), static_cast<size_t>(std::max<ssize_t>(head, 0)));
  const bool has_mark = begin.starts_with(kByteOrderMark);
  if (has_mark) begin.remove_prefix(kByteOrderMark.size());
  if (const std::string other = OtherThanLines(path, begin); !other.empty())
    return Unreadable(path, other);
  const uint64_t start = has_mark ? kByteOrderMark.size() : 0;
  LineSplitter splitter(&file.index_, start);
  for (uint64_t offset = start;;) {
    const ssize_t count = pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Unreadable(path, fmt::format("cannot read the input: {}", std::strerror(errno)));
    if (count == 0) break;
    splitter.Update({buffer.data(), static_cast<size_t>(count)});
    offset += static_cast<uint64_t>(count);
    if (splitter.lines() > std::numeric_limits<uint32_t>::max()) {
      return Unreadable(path, "has more than 4294967295 lines; split it");
    }
  }
  splitter.Finish();
  file.physical_lines_ = splitter.lines();
  if (file.size() == 0)
    base::Log(base::LogLevel::kWarning,
              fmt::format("{}: has no lines; there is nothing to do", path));
  return file;
}

void JobFile::Keep(const InputShard& shard) {
  LineIndex kept;
  for (size_t i = 0; i < index_.size(); ++i) {
    if (shard.Has(index_[i].line)) kept.Append(index_[i]);
  }
  index_ = std::move(kept);
}

std::optional<size_t> JobFile::Find(int64_t line) const {
  size_t low = 0, high = size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (index_[middle].line < line) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == size() || index_[low].line != line) return std::nullopt;
  return low;
}

base::Status JobFile::Read(size_t ordinal, std::string* text) const {
  const LineEntry& entry = index_[ordinal];
  FB_CHECK(entry.length <= kMaxLineBytes, "line {} has {} bytes", entry.line + 1, entry.length);
  text->resize(entry.length);
  for (size_t done = 0; done < text->size();) {
    const ssize_t count = pread(fd_, text->data() + done, text->size() - done,
                                static_cast<off_t>(entry.offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Unreadable(
          path_, fmt::format("cannot read line {}: {}", entry.line + 1, std::strerror(errno)));
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  // The results say of which line they are by this hash: a line that is another now must not be
  // answered as the one that was indexed.
  if (base::HashBytes(*text) != entry.hash) {
    return base::Status(
        kInputChanged,
        fmt::format("{}: line {} changed while the job ran; results so far are kept, run "
                    "the same command again to go on",
                    path_, entry.line + 1));
  }
  return {};
}

bool JobFile::SameFile(const std::string& path) const {
  struct stat mine, other;
  return fstat(fd_, &mine) == 0 && stat(path.c_str(), &other) == 0 && mine.st_dev == other.st_dev &&
         mine.st_ino == other.st_ino;
}

}  // namespace forebay::job
