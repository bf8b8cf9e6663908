#include "job/files/output_check.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

namespace forebay::job {
namespace {

namespace fs = std::filesystem;

// What makes two paths the same file: its inode, or, where there is none yet, its folder's inode
// and its name.
using Identity = std::tuple<dev_t, ino_t, std::string>;

// Where a chain of links ends that lead to a file which is not there yet.
fs::path FollowLinks(fs::path path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

std::string FolderOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

// Nothing for devices, pipes and what cannot be reached.
std::optional<Identity> IdentityOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) return std::nullopt;
    return Identity{info.st_dev, info.st_ino, ""};
  }
  const fs::path end = FollowLinks(path);
  if (stat(FolderOf(end).c_str(), &info) != 0) return std::nullopt;
  return Identity{info.st_dev, info.st_ino, end.filename().string()};
}

base::Status CheckWritable(const NamedPath& output) {
  const auto refuse = [&](int error) {
    return base::Status(output.not_writable,
                        fmt::format("{} {}: cannot be written: {}", output.flag, output.path,
                                    std::strerror(error)));
  };
  struct stat info;
  if (stat(output.path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return refuse(EISDIR);
    return access(output.path.c_str(), W_OK) == 0 ? base::Status() : refuse(errno);
  }
  if (errno != ENOENT) return refuse(errno);
  const fs::path end = FollowLinks(output.path);
  if (end.filename().empty()) return refuse(EISDIR);
  return access(FolderOf(end).c_str(), W_OK | X_OK) == 0 ? base::Status() : refuse(errno);
}

// Calls add(path) for an input's file, or for each file of its folder.
template <typename Add>
void ForEachFile(const std::string& path, const Add& add) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return add(path);
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error)) {
    add(it->path().string());
  }
}

}  // namespace

base::Status CheckOutputs(std::span<const NamedPath> outputs, std::span<const NamedPath> inputs) {
  std::map<Identity, NamedPath> taken;
  for (const NamedPath& input : inputs) {
    if (input.path.empty()) continue;
    ForEachFile(input.path, [&](const std::string& path) {
      if (const auto identity = IdentityOf(path))
        taken.try_emplace(*identity, NamedPath{input.flag, path});
    });
  }
  for (const NamedPath& output : outputs) {
    if (output.path.empty()) continue;
    if (output.path == "-") {
      return base::Status(
          base::kInvalidArgument,
          fmt::format("{} is -; expected a file, standard output is none", output.flag));
    }
    FB_RETURN_IF_ERROR(CheckWritable(output));
    const auto identity = IdentityOf(output.path);
    if (!identity) continue;
    const auto [found, is_new] = taken.try_emplace(*identity, output);
    if (is_new) continue;
    return base::Status(kOutputTaken,
                        fmt::format("{} {} would overwrite {} {}; name another file", output.flag,
                                    output.path, found->second.flag, found->second.path));
  }
  return {};
}

}  // namespace forebay::job
