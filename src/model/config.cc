#include "model/config.h"

#include <fnmatch.h>

#include <algorithm>

#include "kernels/kv_layout.h"
#include "model/files/config_reader.h"

namespace forebay::model {
namespace {

base::Status Invalid(std::string_view file, std::string_view what) {
  return base::Status(kConfigInvalid, fmt::format("{}: {}", file, what));
}

base::Status ValidateExperts(const MoeConfig& moe, std::string_view file) {
  if (moe.experts_per_token > moe.num_experts) {
    return Invalid(file, fmt::format("a token goes to {} of {} experts; expected at most all",
                                     moe.experts_per_token, moe.num_experts));
  }
  if (moe.num_experts % moe.num_groups != 0 || moe.chosen_groups > moe.num_groups) {
    return Invalid(file, fmt::format("{} experts in {} groups, of which {} are chosen; expected "
                                     "groups of equal size, at most all of them chosen",
                                     moe.num_experts, moe.num_groups, moe.chosen_groups));
  }
  const int64_t group = moe.num_experts / moe.num_groups;
  if (moe.group_score == kernels::GroupScore::kTwoGreatest && group < 2) {
    return Invalid(file, fmt::format("groups of {} experts are chosen by their two best; expected "
                                     "at least 2 in each",
                                     group));
  }
  if (moe.experts_per_token > moe.chosen_groups * group) {
    return Invalid(file, fmt::format("a token goes to {} experts; expected at most the {} of {} "
                                     "groups of {}",
                                     moe.experts_per_token, moe.chosen_groups * group,
                                     moe.chosen_groups, group));
  }
  if (moe.num_experts * moe.intermediate_size + moe.SharedWidth() > kMostWidth) {
    return Invalid(file, fmt::format("{} experts of width {}; expected at most {} together",
                                     moe.num_experts + moe.num_shared_experts,
                                     moe.intermediate_size, kMostWidth));
  }
  return base::Status::Ok();
}

// What attention over the cache and over expanded keys and values can do.
base::Status ValidateLatents(const MlaConfig& mla, std::string_view file) {
  const auto check = [&](const char* name, int64_t width, int64_t most) {
    if (width % 2 == 0 && width <= most) return base::Status::Ok();
    return Invalid(file,
                   fmt::format("{} is {}; expected an even number up to {}", name, width, most));
  };
  FB_RETURN_IF_ERROR(check("kv_lora_rank", mla.kv_lora_rank, kernels::kMaxValueDim));
  FB_RETURN_IF_ERROR(check("v_head_dim", mla.v_head_dim, kernels::kMaxValueDim));
  FB_RETURN_IF_ERROR(
      check("kv_lora_rank + qk_rope_head_dim", mla.latent_dim(), kernels::kMaxKeyDim));
  return check("qk_nope_head_dim + qk_rope_head_dim", mla.qk_head_dim(), kernels::kMaxKeyDim);
}

}  // namespace

bool StoredFormat::Covers(const std::string& tensor) const {
  const auto is = [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), tensor.c_str(), 0) == 0 ||
           ::fnmatch((pattern + ".*").c_str(), tensor.c_str(), 0) == 0;
  };
  return tensor.ends_with(".weight") && !is("*.gate") && !is("*.router") &&
         std::ranges::none_of(excluded, is);
}

base::Status ValidateConfig(const ModelConfig& config, std::string_view file) {
  if (config.num_heads % config.num_kv_heads != 0) {
    return Invalid(file,
                   fmt::format("{} attention heads and {} key-value heads; expected a multiple",
                               config.num_heads, config.num_kv_heads));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > kMostHeadDim) {
    return Invalid(
        file,
        fmt::format("a head has {} dimensions; expected an even number (rope turns pairs) up to {}",
                    config.head_dim, kMostHeadDim));
  }
  if (config.RotaryDim() % 2 != 0 || config.RotaryDim() > config.head_dim) {
    return Invalid(file, fmt::format("rope turns {} of a head's {} dimensions; expected an even "
                                     "number, at most all",
                                     config.RotaryDim(), config.head_dim));
  }
  if (config.full_heads) {
    const auto& [kv_heads, head_dim] = *config.full_heads;
    if (config.num_heads % kv_heads != 0 || head_dim % 2 != 0 || head_dim > kMostHeadDim) {
      return Invalid(
          file, fmt::format("layers without a window have {} key-value heads of {} dimensions; "
                            "expected a divisor of {} heads, and an even number up to {}",
                            kv_heads, head_dim, config.num_heads, kMostHeadDim));
    }
  }
  for (int64_t layer = config.num_layers - config.kv_readers; layer < config.num_layers; ++layer) {
    const int64_t from = config.KvLayerOf(layer);
    if (from >= 0 && config.sliding_window[from] == config.sliding_window[layer]) continue;
    return Invalid(file, fmt::format("layer {} reads the keys and values of a layer before layer "
                                     "{}, and none there has its window of {}",
                                     layer, config.num_layers - config.kv_readers,
                                     config.sliding_window[layer]));
  }
  if (config.mla) FB_RETURN_IF_ERROR(ValidateLatents(*config.mla, file));
  return config.moe ? ValidateExperts(*config.moe, file) : base::Status::Ok();
}

}  // namespace forebay::model
