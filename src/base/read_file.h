// Whole files.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace forebay::base {

// The whole file as bytes; errors name it and say why.
Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes = 1ull << 30);

}  // namespace forebay::base
