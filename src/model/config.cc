#include "model/config.h"

#include "model/config_reader.h"

namespace forebay::model {
namespace {

base::Status Invalid(std::string_view file, std::string_view what) {
  return base::Status(kConfigInvalid, fmt::format("{}: {}", file, what));
}

base::Status ValidateExperts(const MoeConfig& moe, std::string_view file) {
  if (moe.experts_per_token > moe.num_experts) {
    return Invalid(file, fmt::format("a token goes to {} of {} experts; expected at most all", moe.experts_per_token, moe.num_experts));
  }
  const int64_t experts = moe.num_experts + moe.num_shared_experts;
  if (experts * moe.intermediate_size > kMostWidth) {
    return Invalid(file, fmt::format("{} experts of width {}; expected at most {} together", experts, moe.intermediate_size, kMostWidth));
  }
  return base::Status::Ok();
}

}  // namespace

base::Status ValidateConfig(const ModelConfig& config, std::string_view file) {
  if (config.num_heads % config.num_kv_heads != 0) {
    return Invalid(file, fmt::format("{} attention heads and {} key-value heads; expected a multiple", config.num_heads,
                                     config.num_kv_heads));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > kMostHeadDim) {
    return Invalid(file, fmt::format("a head has {} dimensions; expected an even number (rope turns pairs) up to {}", config.head_dim,
                                     kMostHeadDim));
  }
  return config.moe ? ValidateExperts(*config.moe, file) : base::Status::Ok();
}

}  // namespace forebay::model
