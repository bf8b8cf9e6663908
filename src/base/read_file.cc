#include "base/read_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace forebay::base {

Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file)
    return Status(kIoError, fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  struct stat info;
  if (fstat(fileno(file.get()), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Status(kIoError, fmt::format("{}: is a folder; expected a file", path));
  }
  std::string content;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    content.append(buffer, count);
    if (content.size() > max_bytes) {
      return Status(kIoError, fmt::format("{}: larger than {} bytes, the most that is read here",
                                          path, max_bytes));
    }
  }
  if (std::ferror(file.get())) {
    return Status(kIoError, fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  }
  return content;
}

}  // namespace forebay::base
