// From files to ModelConfig. Errors name the file, the key, what was found and what was expected.
#pragma once

#include <string>
#include <string_view>

#include "model/config.h"
#include "weights/formats/gguf.h"

namespace forebay::model {

// config.json's text (kMostConfigBytes at most), in the spelling of transformers 4 (torch_dtype,
// rope_theta, rope_scaling) or 5 (dtype, rope_parameters). `file` names it in errors.
base::Result<ModelConfig> ParseHfConfig(std::string_view json, std::string_view file);

// generation_config.json's text; keys that are not asked for are ignored.
base::Result<GenerationConfig> ParseGenerationConfig(std::string_view json, std::string_view file);

// The same from GGUF metadata of the architectures "llama", "qwen2", "qwen3". Whether there are
// biases and a head of its own, the tensors say.
base::Result<ModelConfig> ReadGgufConfig(const weights::GgufFile& gguf, std::string_view file);

// Checks that hold whatever the format; the readers call it last.
base::Status ValidateConfig(const ModelConfig& config, std::string_view file);

inline constexpr uint64_t kMostConfigBytes = 4 << 20;

// Bounds of a model's size; beyond them a file is taken for damaged.
inline constexpr int64_t kMostVocabulary = 1 << 26;
// hidden and intermediate sizes; of all experts of a layer together
inline constexpr int64_t kMostWidth = 1 << 24;
inline constexpr int64_t kMostLayers = 1 << 12;
inline constexpr int64_t kMostHeads = 1 << 12;
inline constexpr int64_t kMostHeadDim = 1 << 10;
inline constexpr int64_t kMostLoraRank = 1 << 16;
inline constexpr int64_t kMostExperts = 1 << 14;
inline constexpr int64_t kMostPositions = 1 << 30;

}  // namespace forebay::model
