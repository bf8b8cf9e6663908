// A model as its files describe it: config, sampling defaults, weights to read, identity.
#pragma once

#include <memory>
#include <string>

#include "forebay/engine.h"
#include "model/config.h"
#include "weights/formats/weight_source.h"
#include "weights/tensor_reader.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kModelNotFound{"model_not_found"};

struct ModelFiles {
  std::string path;
  std::string name;  // the path's last part
  model::ModelConfig config;
  model::GenerationConfig generation;
  std::unique_ptr<weights::TensorReader> reader;
  const weights::GgufFile* gguf = nullptr;  // metadata of a GGUF file; owned by `reader`
  uint64_t fingerprint = 0;
  bool random_weights = false;
};

// The facts that the files alone tell.
ModelFacts FactsOf(const ModelFiles& files);

// With `random_weights` a folder needs its config.json alone; `path` may then be such a file, or
// "builtin:NAME" (a configuration that the program holds, model/builtin_configs.h).
base::Result<ModelFiles> OpenModel(const std::string& path, bool random_weights, uint64_t seed);
// Gives the model's latent attention one form for all rows (--mla absorbed).
// base::kInvalidArgument: it has no latent attention.
base::Status AbsorbPrompts(ModelFiles* files);
// How prompts become vectors: "auto" (by the model's head of labels, if it has one, else as the
// folder's modules.json says, if there is one), "none", or a name of model::PoolingNamed. Loads
// what pooled rows go through.
base::Status SetPooling(const std::string& name, ModelFiles* files);
// Makes a reranker of a decoder: a text's only label is how much likelier token `yes` follows it
// than `no`. base::kInvalidArgument: the model caps or scales its logits.
base::Status SetYesNo(int32_t yes, int32_t no, ModelFiles* files);

}  // namespace forebay::engine
