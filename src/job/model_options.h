// What a caller chooses of a model and of how it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/lines/job_defaults.h"
#include "job/model_text.h"
#include "layout/options.h"

namespace forebay::job {

struct ModelOptions {
  layout::EngineOptions engine;
  ModelTextOptions text;                        // `path` and `gguf` follow from the model
  std::vector<std::string> served_model_names;  // in requests, "*" for any; results carry the first
  // "auto" (the model's), "vllm" (none), or a folder that holds generation_config.json
  std::string generation_config = "auto";
  JobDefaults defaults;
  int32_t max_logprobs = 20;
};

}  // namespace forebay::job
