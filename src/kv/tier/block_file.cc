#include "kv/tier/block_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file_lock.h"
#include "base/units.h"

namespace forebay::kv {
namespace {

class DirectFile final : public BlockFile {
 public:
  DirectFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~DirectFile() override { close(descriptor_); }
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  base::Status Write(uint64_t offset, std::span<const std::byte> data) override {
    return Move("written", offset, data.size(), [&](uint64_t at) {
      return pwrite(descriptor_, data.data() + at, data.size() - at,
                    static_cast<off_t>(offset + at));
    });
  }
  base::Status Read(uint64_t offset, std::span<std::byte> data) override {
    return Move("read", offset, data.size(), [&](uint64_t at) {
      return pread(descriptor_, data.data() + at, data.size() - at,
                   static_cast<off_t>(offset + at));
    });
  }
  void NoteWhetherNew() {
    struct stat info {};
    is_new_ = fstat(descriptor_, &info) == 0 && info.st_size == 0;
  }
  bool is_new() const override { return is_new_; }

 private:
  template <typename Call>
  base::Status Move(const char* how, uint64_t offset, uint64_t bytes, const Call& call) const {
    uint64_t done = 0;
    while (done < bytes) {
      const ssize_t moved = call(done);
      if (moved < 0 && errno == EINTR) continue;
      // What is not a whole number of sectors is a file's end.
      if (moved <= 0 || static_cast<uint64_t>(moved) % kFileAlignment != 0) {
        return base::Status(kKvFileIo,
                            fmt::format("--kv-file {}: {} at {} could not be {}: {}", path_,
                                        base::FormatBytes(bytes), offset, how,
                                        moved < 0 ? std::strerror(errno) : "the file ends before"));
      }
      done += static_cast<uint64_t>(moved);
    }
    return base::Status::Ok();
  }

  const std::string path_;
  const int descriptor_;
  bool is_new_ = false;
};

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

base::Status Invalid(const std::string& path, const std::string& why) {
  return base::Status(kKvFileInvalid, fmt::format("--kv-file {}: {}", path, why));
}

// Whether what would be written there would lie in memory.
base::Status CheckDisk(const std::string& path) {
  struct statfs system {};
  if (statfs(FolderOf(path).c_str(), &system) != 0)
    return Invalid(path, fmt::format("folder {}: {}", FolderOf(path), std::strerror(errno)));
  if (system.f_type != TMPFS_MAGIC && system.f_type != RAMFS_MAGIC) return base::Status::Ok();
  return Invalid(path, fmt::format("folder {} lies in memory (tmpfs), where the file would take "
                                   "what it is to save; expected one on a disk, or "
                                   "--kv-offloading-size for host memory",
                                   FolderOf(path)));
}

// Sets errno.
bool HasSpace(int descriptor, uint64_t bytes, uint64_t free) {
  constexpr uint64_t kStatBlock = 512;
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return false;
  const uint64_t held = static_cast<uint64_t>(info.st_blocks) * kStatBlock;
  errno = ENOSPC;
  return bytes <= held || bytes - held <= free;
}

base::Status Allocate(const std::string& path, int descriptor, uint64_t bytes) {
  struct statvfs space {};
  const uint64_t free =
      statvfs(FolderOf(path).c_str(), &space) == 0 ? space.f_bavail * space.f_frsize : 0;
  // What does not fit is not tried: a file system may fill up before it says so, and others find it
  // full meanwhile.
  if (HasSpace(descriptor, bytes, free) && ftruncate(descriptor, static_cast<off_t>(bytes)) == 0 &&
      fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) == 0)
    return base::Status::Ok();
  const int error = errno;
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) {
    return Invalid(path, fmt::format("{} cannot be allocated: {}", base::FormatBytes(bytes),
                                     std::strerror(error)));
  }
  return base::Status(
      kKvFileNoSpace,
      fmt::format("--kv-file {}: {} cannot be allocated ({}); the disk has {} free", path,
                  base::FormatBytes(bytes), std::strerror(error), base::FormatBytes(free)));
}

}  // namespace

base::Result<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path, uint64_t bytes,
                                                       FileLife life) {
  FB_RETURN_IF_ERROR(CheckDisk(path));
  const bool kept = life == FileLife::kKept;
  const int descriptor =
      open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (kept ? 0 : O_EXCL), 0600);
  if (descriptor < 0 && errno == EEXIST)
    return Invalid(path, "the file is there already; expected a new name, or --kv-file-keep");
  if (descriptor < 0) return Invalid(path, std::strerror(errno));
  auto file = std::make_unique<DirectFile>(path, descriptor);
  if (!kept) unlink(path.c_str());
  const base::LockOutcome lock = base::TakeFileLock(descriptor, path);
  if (lock != base::LockOutcome::kTaken && lock != base::LockOutcome::kNoLocks) {
    return base::Status(kKvFileLocked, fmt::format("--kv-file {}: another process uses it", path));
  }
  file->NoteWhetherNew();
  // Set afterwards, so that a file system without it is told from other errors.
  if (fcntl(descriptor, F_SETFL, O_DIRECT) != 0) {
    return Invalid(path, fmt::format("its file system has no O_DIRECT ({}); expected one that "
                                     "reads and writes past the page cache",
                                     std::strerror(errno)));
  }
  FB_RETURN_IF_ERROR(Allocate(path, descriptor, bytes));
  return std::unique_ptr<BlockFile>(std::move(file));
}

}  // namespace forebay::kv
