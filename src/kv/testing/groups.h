// KV groups for tests of the cache and what lies below it.
#pragma once

#include <vector>

#include "kv/groups.h"

namespace forebay::kv {

// Layers 0 and 2 see all, layer 1 a window; 2 KV heads of 16.
inline std::vector<KvGroup> Groups() {
  const kernels::KvLayout layout{tensor::DType::kBF16, 2, 16, 0};
  const KvLayerPlan full{{.token_bytes = 128}, layout, {0, 2}},
      windowed{{.token_bytes = 128, .reach = 64}, layout, {0, 2}};
  return PlanKvGroups(std::vector{full, windowed, full}, {0, 3});
}

}  // namespace forebay::kv
