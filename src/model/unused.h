// What the files of a model say and no reader asks for: keys of the configuration, tensors. Where
// leaving them out would make another model of it, the model is refused; the rest is for a warning.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/files/json_fields.h"
#include "weights/tensor_reader.h"

namespace forebay::model {

inline constexpr base::ErrorCode kTensorUnexpected{"tensor_unexpected"};

// Keys that no reader asked `fields` for, except those that mean nothing to inference. Refuses
// (kConfigUnsupported) those that change logits wherever they are known, unless their value does
// nothing.
base::Result<std::vector<std::string>> UnusedKeys(const JsonFields& fields);

// The `names` (sorted) of the text part that `used` (sorted) lacks. Refuses
// (kTensorUnexpected) nonzero biases, norms, and experts beyond the configuration's
// count.
base::Result<std::vector<std::string>> UnusedTensors(const ModelConfig& config,
                                                     std::span<const std::string_view> names,
                                                     std::span<const std::string_view> used,
                                                     const weights::TensorReader& reader);

}  // namespace forebay::model
