#include "model/config.h"

#include "model/config_reader.h"

namespace forebay::model {

base::Status ValidateConfig(const ModelConfig& config, std::string_view file) {
  const auto invalid = [&](std::string what) {
    return base::Status(kConfigInvalid, fmt::format("{}: {}", file, what));
  };
  if (config.num_heads % config.num_kv_heads != 0) {
    return invalid(fmt::format("{} attention heads and {} key-value heads; expected a multiple", config.num_heads,
                               config.num_kv_heads));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > kMostHeadDim) {
    return invalid(fmt::format("a head has {} dimensions; expected an even number (rope turns pairs) up to {}",
                               config.head_dim, kMostHeadDim));
  }
  if (config.moe && config.moe->experts_per_token > config.moe->num_experts) {
    return invalid(fmt::format("a token goes to {} of {} experts; expected at most all", config.moe->experts_per_token,
                               config.moe->num_experts));
  }
  return base::Status::Ok();
}

}  // namespace forebay::model
