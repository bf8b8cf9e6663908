// Files that are something else than their names say, told by their first bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::base {

inline constexpr ErrorCode kFileKindWrong{"file_kind_wrong"};

// What a file that begins with `begin` is, and the way on: "is compressed (gzip); unpack it first".
// Nothing: none of the kinds that are known here. JSON, safetensors and GGUF are not among them.
std::optional<std::string> ForeignKind(std::string_view begin);

// kFileKindWrong for a file of such a kind.
Status CheckKind(const std::string& path, std::string_view begin);

}  // namespace forebay::base
