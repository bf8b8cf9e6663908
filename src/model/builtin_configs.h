// Public models by name, known by their configuration alone: src/model/configs/*.json, compiled in.
// The numbers are the published ones.
#pragma once

#include <span>
#include <string_view>

#include "model/config.h"

namespace forebay::model {

inline constexpr base::ErrorCode kBuiltinUnknown{"model_builtin_unknown"};

// What `-m` calls them: "builtin:Qwen3-32B".
inline constexpr std::string_view kBuiltinPrefix = "builtin:";

struct BuiltinConfigText {
  std::string_view name;
  std::string_view json;  // as config.json
};

// Sorted by file.
std::span<const BuiltinConfigText> BuiltinConfigTexts();

// By name, with or without the prefix; kBuiltinUnknown lists the names.
base::Result<BuiltinConfigText> FindBuiltinConfig(std::string_view name);
base::Result<ModelConfig> LoadBuiltinConfig(std::string_view name);

}  // namespace forebay::model
