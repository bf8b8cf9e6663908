#include "kv/tier/kept_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "base/read_file.h"
#include "kv/book/prefix_index.h"

namespace forebay::kv {
namespace {

bool IsThere(const std::string& path) {
  struct stat unused {};
  return stat(path.c_str(), &unused) == 0;
}

base::Status WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return base::Status(kKvFileIo, written < 0 ? std::strerror(errno) : "nothing was written");
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return base::Status::Ok();
}

// All of a new file, which is closed. Were it not synced, a power cut could leave its name with
// nothing behind it.
base::Status WriteWhole(int descriptor, std::string_view bytes) {
  base::Status written = WriteAll(descriptor, bytes);
  if (written.ok() && fsync(descriptor) != 0)
    written = base::Status(kKvFileIo, std::strerror(errno));
  close(descriptor);
  return written;
}

}  // namespace

KeptFile::~KeptFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

base::Status KeptFile::Failed(const char* what) const {
  return base::Status(kKvFileIo, fmt::format("{}: {}: {}", path_, what, std::strerror(errno)));
}

base::Result<std::unique_ptr<KeptFile>> KeptFile::Open(const std::string& path,
                                                       const KeptIdentity& identity,
                                                       int32_t num_blocks, int32_t num_groups,
                                                       const Opener& open) {
  std::unique_ptr<KeptFile> kept(new KeptFile());
  kept->path_ = path + kIndexSuffix;
  if (IsThere(path) && !IsThere(kept->path_)) {
    return base::Status(kKvFileInvalid,
                        fmt::format("--kv-file {}: the file is there, and no index {} beside it; "
                                    "expected a kept file, or a new name. If it is a kept file, "
                                    "remove it: a kept file saves time and holds no results",
                                    path, kept->path_));
  }
  // A new file's index comes first: should the job die in between, the next finds an index without
  // a file and begins anew, where a file without an index would be refused. Another job may do the
  // same at this moment, so that what is in it counts only when nobody else has the file.
  const bool made = !IsThere(path);
  if (made) {
    FB_RETURN_IF_ERROR(kept->MakeIndex(identity));
  } else {
    // A file of others is refused before it is touched.
    FB_RETURN_IF_ERROR(kept->Read(identity, num_blocks, num_groups));
  }
  base::Result<std::unique_ptr<BlockFile>> file = open();
  // One that is locked was made by another job since.
  if (!file.ok() && made && file.status().code() != kKvFileLocked) {
    unlink(path.c_str());
    unlink(kept->path_.c_str());
  }
  if (!file.ok()) return file.status();
  kept->file_ = *std::move(file);
  kept->records_.clear();
  if (!kept->file_->is_new()) FB_RETURN_IF_ERROR(kept->Read(identity, num_blocks, num_groups));
  FB_RETURN_IF_ERROR(kept->Rewrite(identity));
  kept->descriptor_ = ::open(kept->path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (kept->descriptor_ < 0) return kept->Failed("it cannot be opened");
  return kept;
}

base::Status KeptFile::Read(const KeptIdentity& identity, int32_t num_blocks, int32_t num_groups) {
  records_.clear();
  FB_ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(path_));
  FB_ASSIGN_OR_RETURN(KeptReader reader, KeptReader::Open(bytes, path_));
  if (reader.torn()) {
    base::Log(base::LogLevel::kWarning,
              fmt::format("{}: its head is torn; what the file holds is computed again", path_));
    return base::Status::Ok();
  }
  if (reader.identity().of != identity.of) {
    return base::Status(
        kKvFileMismatch,
        fmt::format("{} was kept for {} ({}), and this job is of {} ({}); expected the same, or "
                    "another --kv-file",
                    path_, reader.identity().name, reader.identity().of, identity.name,
                    identity.of));
  }
  std::vector<KeptRecord> last(static_cast<size_t>(num_blocks) * static_cast<size_t>(num_groups));
  while (const std::optional<KeptRecord> record = reader.Next()) {
    if (record->below < 0 || record->below >= num_blocks || record->group < 0 ||
        record->group >= num_groups)
      continue;
    last[static_cast<size_t>(record->below) * static_cast<size_t>(num_groups) +
         static_cast<size_t>(record->group)] = *record;
  }
  PrefixIndex keys(num_blocks);
  for (size_t first = 0; first < last.size(); first += static_cast<size_t>(num_groups)) {
    const auto parts = std::span(last).subspan(first, static_cast<size_t>(num_groups));
    const PrefixKey& key = parts.front().key;
    const bool whole =
        key != PrefixKey{} &&
        std::ranges::all_of(parts, [&](const KeptRecord& part) { return part.key == key; });
    if (!whole || keys.Find(key) >= 0) continue;
    keys.Insert(key, parts.front().below);
    records_.insert(records_.end(), parts.begin(), parts.end());
  }
  return base::Status::Ok();
}

base::Status KeptFile::MakeIndex(const KeptIdentity& identity) const {
  const int descriptor =
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return errno == EEXIST ? base::Status::Ok() : Failed("it cannot be written");
  return WriteWhole(descriptor, KeptHead(identity)).WithContext(path_);
}

base::Status KeptFile::Rewrite(const KeptIdentity& identity) {
  std::string bytes = KeptHead(identity);
  for (const KeptRecord& record : records_) bytes += KeptLine(record);
  // What stands under the name is the old index or the new one, never a part of one.
  const std::string fresh = path_ + kNewSuffix;
  const int descriptor =
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return Failed("it cannot be written");
  const base::Status written = WriteWhole(descriptor, bytes);
  if (!written.ok()) return written.WithContext(fresh);
  if (std::rename(fresh.c_str(), path_.c_str()) != 0) return Failed("it cannot be renamed");
  return base::Status::Ok();
}

base::Status KeptFile::Append(std::span<const KeptRecord> records) {
  std::string bytes;
  for (const KeptRecord& record : records) bytes += KeptLine(record);
  return WriteAll(descriptor_, bytes).WithContext(path_);
}

}  // namespace forebay::kv
