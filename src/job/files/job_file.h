// The input of a job: a JSONL file, indexed by one streaming pass and then read line by line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "job/files/shard.h"
#include "job/lines/result_id.h"

namespace forebay::job {

inline constexpr base::ErrorCode kInputUnreadable{"input_unreadable"};
inline constexpr base::ErrorCode kInputChanged{"input_changed"};

// Longer lines are not read; they become error results.
inline constexpr uint64_t kMaxLineBytes = 64ull << 20;

// What the index keeps of a line that is not blank.
struct LineEntry {
  uint64_t offset = 0;
  // base::HashBytes of its bytes, the line's end (LF or CRLF) and the file's BOM left out
  uint64_t hash = 0;
  uint32_t length = 0;  // the same bytes; saturates
  uint32_t line = 0;    // physical line number from 0
};
static_assert(sizeof(LineEntry) <= 32, "a job of a million lines is indexed in 32 MB");

// An append-only array that never moves what it holds, so that growing costs no second copy.
class LineIndex {
 public:
  void Append(const LineEntry& entry);
  size_t size() const { return size_; }
  const LineEntry& operator[](size_t i) const { return chunks_[i / kChunk][i % kChunk]; }

 private:
  static constexpr size_t kChunk = 1 << 14;
  std::vector<std::unique_ptr<LineEntry[]>> chunks_;
  size_t size_ = 0;
};

// Splits bytes that arrive in pieces into lines and indexes those that are not blank (spaces, tabs
// and CR alone).
class LineSplitter {
 public:
  // The first byte comes from offset `start` of the file.
  LineSplitter(LineIndex* index, uint64_t start) : index_(index), position_(start), begin_(start) {}
  void Update(std::string_view bytes);
  // The last line may lack its LF.
  void Finish();
  uint64_t lines() const { return line_; }

 private:
  void Extend(std::string_view piece);
  void EndLine();

  LineIndex* index_;
  uint64_t position_, line_ = 0;  // where the next byte is
  uint64_t begin_, length_ = 0;   // the line so far
  bool blank_ = true;
  bool held_cr_ = false;  // a CR that belongs to the line unless LF follows
  base::Hasher hasher_;
};

// The input file, open for the whole job. Read may be called from any thread.
class JobFile {
 public:
  // Reads the file once. A folder, a pipe or a device is refused: the file is read twice.
  static base::Result<JobFile> Open(const std::string& path);
  JobFile(JobFile&& other) noexcept;
  JobFile& operator=(JobFile&&) = delete;
  ~JobFile();

  // From here on the file has the shard's lines alone.
  void Keep(const InputShard& shard);

  const std::string& path() const { return path_; }
  // Lines that are not blank, in file order; an index into them is a line's ordinal.
  size_t size() const { return index_.size(); }
  const LineEntry& operator[](size_t ordinal) const { return index_[ordinal]; }
  uint64_t physical_lines() const { return physical_lines_; }
  // The ordinal of the physical line `line` (from 0), unless it is blank or behind the end.
  std::optional<size_t> Find(int64_t line) const;
  // Reads a line's bytes; kInputChanged where they are not those that were indexed.
  // REQUIRES: its length is at most kMaxLineBytes.
  base::Status Read(size_t ordinal, std::string* text) const;
  // Is `path` this very file?
  bool SameFile(const std::string& path) const;

 private:
  JobFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  LineIndex index_;
  uint64_t physical_lines_ = 0;
};

}  // namespace forebay::job
