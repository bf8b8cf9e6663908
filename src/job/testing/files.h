// Files for the tests of jobs.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/testing/temporary_folder.h"

namespace forebay::job {

inline void WriteFile(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string ReadWhole(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace forebay::job
