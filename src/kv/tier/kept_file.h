// A file that outlives its job, beside its index.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/tier/block_file.h"
#include "kv/tier/kept_index.h"

namespace forebay::kv {

inline constexpr char kIndexSuffix[] = ".index";
inline constexpr char kNewSuffix[] = ".new";  // The index while it is written.

// Open as long as it lives; one task at a time calls.
class KeptFile {
 public:
  using Opener = std::function<base::Result<std::unique_ptr<BlockFile>>()>;
  // Opens the file by `open`, and reads what the index beside `path` says of blocks below
  // `num_blocks` with `num_groups` parts each; then writes that anew. Errors: of `open`;
  // kKvFileMismatch, which names both identities; kKvFileInvalid; kKvFileIo.
  static base::Result<std::unique_ptr<KeptFile>> Open(const std::string& path,
                                                      const KeptIdentity& identity,
                                                      int32_t num_blocks, int32_t num_groups,
                                                      const Opener& open);
  ~KeptFile();
  KeptFile(const KeptFile&) = delete;
  KeptFile& operator=(const KeptFile&) = delete;

  // The file, once.
  std::unique_ptr<BlockFile> TakeFile() { return std::move(file_); }
  // The parts in order of each block all of whose parts stand there under one key, which no other
  // has.
  std::span<const KeptRecord> records() const { return records_; }
  // The parts are there.
  base::Status Append(std::span<const KeptRecord> records);

 private:
  KeptFile() = default;
  base::Status Read(const KeptIdentity& identity, int32_t num_blocks, int32_t num_groups);
  // An index without records, if there is none: on the disk when this returns.
  base::Status MakeIndex(const KeptIdentity& identity) const;
  // REQUIRES: no other process has the file.
  base::Status Rewrite(const KeptIdentity& identity);
  base::Status Failed(const char* what) const;

  std::string path_;  // the index's
  int descriptor_ = -1;
  std::unique_ptr<BlockFile> file_;
  std::vector<KeptRecord> records_;
};

}  // namespace forebay::kv
