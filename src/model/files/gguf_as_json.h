// GGUF metadata as the config.json of the folder that the file was made of: a family whose folder
// is read needs no second reader for its GGUF files, but for what these leave unsaid
// (ConfigRules::gguf_implies).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/family.h"
#include "model/files/gguf_fields.h"

namespace forebay::model {

// A key after the architecture's name, and what config.json calls it.
struct GgufKey {
  std::string_view gguf, json;
};
// Adds the numbers and flags among `keys` that the file has.
void CopyKeys(GgufFields* in, std::initializer_list<GgufKey> keys, GgufImplied* implied);

// The values of a hybrid model's key, one a layer: 0 or a number that all other layers have, which
// is added (1 where no layer has one).
std::vector<int64_t> CopyByLayer(const GgufSizes& sizes, GgufKey key, GgufImplied* implied);
// Adds "layer_types": layers of which attention.head_count_kv says 0 are `without`, the others
// `with`; and the number of KV heads.
void ImplyLayerTypes(const GgufSizes& sizes, std::string_view without, std::string_view with,
                     GgufImplied* implied);
// Adds the number and the dimension of heads of layers that keep a state: of ssm.time_step_rank
// and ssm.inner_size.
void ImplyStateHeads(GgufFields* in, std::string_view heads, std::string_view head_dim,
                     GgufImplied* implied);

// The elements of a tensor F32 [n], which may have `expected` of them (0: any); what else it is
// costs an error.
std::vector<float> ReadFactors(const weights::TensorInfo& tensor, int64_t expected, GgufFields* in);

// Values of expert_gating_func.
inline constexpr int64_t kSoftmaxGates = 1, kSigmoidGates = 2, kMostGatingFunctions = 16;

struct GgufConfigJson {
  std::string text;
  bool has_rope_divisors = false;  // what rope_freqs.weight means is in it
};
// REQUIRES: the family says what its files imply. Errors name the key.
base::Result<GgufConfigJson> GgufAsConfigJson(const weights::GgufFile& gguf, const Family& family,
                                              GgufFields* in);

}  // namespace forebay::model
