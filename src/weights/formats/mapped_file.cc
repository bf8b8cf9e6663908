#include "weights/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/units.h"

namespace forebay::weights {

using base::Result;
using base::Status;

Result<MappedFile> MappedFile::Open(const std::string& path, Access access) {
  MappedFile file;
  file.path_ = path;
  file.descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (file.descriptor_ < 0 || fstat(file.descriptor_, &info) != 0) {
    return Status(base::kIoError, fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return Status(base::kIoError,
                  fmt::format("{}: is no regular file; expected one that can be mapped", path));
  }
  file.modified_ = info.st_mtim;
  if (info.st_size == 0) return file;  // nothing to map
  file.size_ = static_cast<size_t>(info.st_size);
  // Some file systems map privately alone, others (FUSE with direct I/O, 9p) not at all.
  void* data = mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, file.descriptor_, 0);
  if (data == MAP_FAILED)
    data = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
  if (data == MAP_FAILED) return Copy(std::move(file));
  file.data_ = static_cast<const std::byte*>(data);
  file.guard_ = std::make_unique<MappedFaultGuard>(file.bytes());
  if (access == Access::kSequential) {
    madvise(data, file.size_, MADV_SEQUENTIAL);
    posix_fadvise(file.descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  return file;
}

Result<MappedFile> MappedFile::Copy(MappedFile file) {
  const int refused = errno;
  void* data =
      mmap(nullptr, file.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Status(base::kIoError, fmt::format("{}: cannot map {} bytes: {}", file.path_, file.size_,
                                              std::strerror(refused)));
  }
  file.data_ = static_cast<const std::byte*>(data);
  file.is_copy_ = true;
  FB_RETURN_IF_ERROR(file.Read(0, {static_cast<std::byte*>(data), file.size_}));
  base::Log(
      base::LogLevel::kWarning,
      fmt::format("{}: the file system maps no files ({}); read into memory instead, {} bytes",
                  file.path_, std::strerror(refused), file.size_));
  return file;
}

Status MappedFile::CheckUnchanged() const {
  struct stat info;
  if (fstat(descriptor_, &info) != 0) {
    return Status(base::kIoError, fmt::format("{}: cannot stat: {}", path_, std::strerror(errno)));
  }
  if (static_cast<size_t>(info.st_size) != size_) {
    return Status(kFileChanged,
                  fmt::format("{}: changed while in use: {} bytes now, {} when it was opened",
                              path_, info.st_size, size_));
  }
  if (info.st_mtim.tv_sec != modified_.tv_sec || info.st_mtim.tv_nsec != modified_.tv_nsec) {
    return Status(kFileChanged, fmt::format("{}: was written to while in use; start again", path_));
  }
  return Status::Ok();
}

Status MappedFile::Read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Status(base::kIoError,
                    fmt::format("{}: cannot read: {}", path_, std::strerror(errno)));
    if (count == 0) {
      return Status(kFileChanged, fmt::format("{}: ends at byte {}; it had {} when it was opened",
                                              path_, offset, size_));
    }
    offset += static_cast<uint64_t>(count);
    out = out.subspan(static_cast<size_t>(count));
  }
  return Status::Ok();
}

void MappedFile::Drop(std::span<const std::byte> part) const {
  if (is_copy_) return;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = base::RoundUp(reinterpret_cast<uintptr_t>(part.data()), page);
  const uint64_t end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  Close();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  is_copy_ = other.is_copy_;
  modified_ = other.modified_;
  descriptor_ = std::exchange(other.descriptor_, -1);
  guard_ = std::move(other.guard_);
  return *this;
}

MappedFile::~MappedFile() { Close(); }

void MappedFile::Close() {
  guard_.reset();
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace forebay::weights
