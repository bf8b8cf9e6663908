// Files for this folder's tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace forebay::job {

// A fresh folder that goes with the object.
class TestFolder {
 public:
  TestFolder() : TestFolder(std::filesystem::temp_directory_path()) {}
  explicit TestFolder(const std::filesystem::path& parent) {
    std::string name = (parent / "forebay-job-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  // In memory where there is such a file system: committing costs nothing there.
  static std::filesystem::path InMemory() {
    const std::filesystem::path path = "/dev/shm";
    return std::filesystem::is_directory(path) ? path : std::filesystem::temp_directory_path();
  }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline void WriteFile(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string ReadWhole(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace forebay::job
