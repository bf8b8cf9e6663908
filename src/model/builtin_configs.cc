#include "model/builtin_configs.h"

#include "model/files/config_reader.h"

namespace forebay::model {

base::Result<BuiltinConfigText> FindBuiltinConfig(std::string_view name) {
  if (name.starts_with(kBuiltinPrefix)) name.remove_prefix(kBuiltinPrefix.size());
  std::string known;
  for (const BuiltinConfigText& config : BuiltinConfigTexts()) {
    if (config.name == name) return config;
    known += (known.empty() ? "" : ", ") + std::string(config.name);
  }
  return base::Status(kBuiltinUnknown, fmt::format("model {}{} is not built in; expected one of {}",
                                                   kBuiltinPrefix, name, known));
}

base::Result<ModelConfig> LoadBuiltinConfig(std::string_view name) {
  FB_ASSIGN_OR_RETURN(const BuiltinConfigText config, FindBuiltinConfig(name));
  return ParseHfConfig(config.json, fmt::format("{}{}", kBuiltinPrefix, config.name));
}

}  // namespace forebay::model
