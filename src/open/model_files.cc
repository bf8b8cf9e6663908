#include "open/model_files.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/read_file.h"
#include "cost/profile.h"
#include "kv/tier/block_file.h"
#include "layout/machine.h"
#include "model/files/config_reader.h"

namespace forebay::open {
namespace {

// "": --generation-config names no file.
std::string GenerationFile(const job::ModelOptions& options) {
  const std::string& given = options.generation_config;
  return given == "auto" || given == "vllm" ? "" : given + "/generation_config.json";
}

// --generation-config: "auto" (the model's), "vllm" (none), or a folder that holds the file.
base::Result<model::GenerationConfig> ReadGeneration(const job::ModelOptions& options,
                                                     const engine::ModelFiles& files) {
  if (options.generation_config == "auto") return files.generation;
  if (options.generation_config == "vllm")
    return model::GenerationConfig{.eos_token_ids = files.generation.eos_token_ids};
  const std::string path = GenerationFile(options);
  const auto json = base::ReadFile(path);
  if (!json.ok()) return json.status().WithContext("--generation-config");
  return model::ParseGenerationConfig(*json, path);
}

constexpr char kYesNo[] = "yes-no";

base::Status SetYesNo(const job::ModelTextOptions& options, engine::ModelFiles* files) {
  FB_ASSIGN_OR_RETURN(const auto text, LoadText(options, *files));
  std::optional<int32_t> ids[2];
  for (const auto& [i, word] : {std::pair{0, "yes"}, {1, "no"}}) {
    if (text->tokenizer() != nullptr) ids[i] = text->tokenizer()->TokenToId(word);
    if (ids[i] && *ids[i] < files->config.vocab_size) continue;
    return {base::kInvalidArgument,
            fmt::format("--pooling yes-no: the tokenizer of {} has no token \"{}\"; expected a "
                        "reranker that answers so",
                        files->path, word)};
  }
  return engine::SetYesNo(*ids[0], *ids[1], files);
}

NamedFiles FilesOf(const job::ModelOptions& options) {
  const layout::MachineOptions& machine = options.engine.machine;
  NamedFiles files{.outputs = {{"--record-routing", machine.record_routing}},
                   .inputs = {{"--model", options.engine.model},
                              {"--chat-template", options.text.chat_template},
                              {"--generation-config", GenerationFile(options)},
                              {"--device-profile", cost::ProfileFile(machine.device_profile)},
                              {"--devices", cost::ProfileFile(machine.devices.name)}}};
  // Simulated devices have no data to write.
  if (layout::RequireSimulated(machine.devices).ok()) return files;
  for (const std::string& path : options.engine.tier.Files(machine.devices.count))
    files.outputs.push_back({"--kv-file", path, kv::kKvFileInvalid});
  return files;
}

}  // namespace

base::Status CheckFiles(const job::ModelOptions& options, NamedFiles others) {
  NamedFiles files = FilesOf(options);
  others.outputs.insert(others.outputs.end(), files.outputs.begin(), files.outputs.end());
  files.inputs.insert(files.inputs.end(), others.inputs.begin(), others.inputs.end());
  return job::CheckOutputs(others.outputs, files.inputs);
}

base::Result<engine::ModelFiles> OpenModelFiles(const job::ModelOptions& options,
                                                bool config_alone) {
  FB_ASSIGN_OR_RETURN(auto files, engine::OpenModel(options.engine.model,
                                                    options.engine.random_weights || config_alone,
                                                    options.engine.seed));
  if (options.engine.machine.mla_absorbed) FB_RETURN_IF_ERROR(engine::AbsorbPrompts(&files));
  FB_RETURN_IF_ERROR(options.engine.pooling == kYesNo
                         ? SetYesNo(options.text, &files)
                         : engine::SetPooling(options.engine.pooling, &files));
  FB_ASSIGN_OR_RETURN(files.generation, ReadGeneration(options, files));
  if (options.engine.machine.quantization.format == cost::NumberFormat::kInt8 &&
      files.config.int8 == model::Int8::kStored) {
    base::Log(
        base::LogLevel::kWarning,
        fmt::format("--quantization int8 changes nothing: {} has int8 layers already", files.path));
  }
  // Results carry the first name that is one.
  const auto& names = options.served_model_names;
  const auto name = std::ranges::find_if(names, [](const auto& given) { return given != "*"; });
  if (name != names.end()) files.name = *name;
  return files;
}

base::Result<std::unique_ptr<job::ModelText>> LoadText(job::ModelTextOptions options,
                                                       const engine::ModelFiles& files) {
  options.path = files.path;
  options.gguf = files.gguf;
  return job::ModelText::Load(options);
}

SamplingParams SamplingDefaults(const model::GenerationConfig& generation) {
  SamplingParams params;
  if (generation.temperature) params.temperature = static_cast<float>(*generation.temperature);
  if (generation.top_p) params.top_p = static_cast<float>(*generation.top_p);
  if (generation.min_p) params.min_p = static_cast<float>(*generation.min_p);
  if (generation.top_k) params.top_k = static_cast<int32_t>(*generation.top_k);
  if (generation.max_new_tokens)
    params.default_max_tokens = static_cast<int32_t>(*generation.max_new_tokens);
  if (generation.repetition_penalty)
    params.repetition_penalty = static_cast<float>(*generation.repetition_penalty);
  return params;
}

job::RequestRules RulesOf(const job::ModelOptions& options, const engine::ModelFiles& files,
                          const ModelFacts& facts) {
  const auto& names = options.served_model_names;
  const std::optional<model::Classifier>& head = files.config.classifier;
  return {.defaults = SamplingDefaults(files.generation),
          .job_defaults = options.defaults,
          .model_names = names.empty() ? std::vector{facts.name} : names,
          .vocab_size = facts.vocab_size,
          .max_logprobs = options.max_logprobs,
          .labels = head ? std::make_shared<const Labels>(head->labels) : nullptr};
}

}  // namespace forebay::open
