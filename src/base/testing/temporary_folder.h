// A folder for a test's files.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"

namespace forebay::base {

// A fresh folder that goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() : TemporaryFolder(std::filesystem::temp_directory_path()) {}
  explicit TemporaryFolder(const std::filesystem::path& parent) {
    std::string name = (parent / "forebay-XXXXXX").string();
    FB_CHECK(mkdtemp(name.data()) != nullptr, "no folder {}", name);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  // In memory where there is such a file system: committing costs nothing there.
  static std::filesystem::path InMemory() {
    const std::filesystem::path path = "/dev/shm";
    return std::filesystem::is_directory(path) ? path : std::filesystem::temp_directory_path();
  }

  std::string path() const { return path_.string(); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  // The path of a new file of that content.
  std::string Write(std::string_view name, std::string_view content) const {
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace forebay::base
