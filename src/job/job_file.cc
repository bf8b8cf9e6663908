#include "job/job_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace forebay::job {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

base::Status Unreadable(const std::string& path, const std::string& why) {
  return base::Status(kInputUnreadable, fmt::format("{}: {}", path, why));
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
  const ssize_t head = pread(fd, buffer.data(), kByteOrderMark.size(), 0);
  const bool has_mark =
      head > 0 && std::string_view(buffer.data(), static_cast<size_t>(head)) == kByteOrderMark;
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
