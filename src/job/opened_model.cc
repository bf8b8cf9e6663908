#include "job/opened_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "base/read_file.h"
#include "cost/profile.h"
#include "job/job_clock.h"
#include "job/settings.h"
#include "layout/machine.h"
#include "model/config_reader.h"

namespace forebay::job {
namespace {

// "": --generation-config names no file.
std::string GenerationFile(const ModelOptions& options) {
  const std::string& given = options.generation_config;
  return given == "auto" || given == "vllm" ? "" : given + "/generation_config.json";
}

// --generation-config: "auto" (the model's), "vllm" (none), or a folder that holds the file.
base::Result<model::GenerationConfig> ReadGeneration(const ModelOptions& options,
                                                     const engine::ModelFiles& files) {
  if (options.generation_config == "auto") return files.generation;
  if (options.generation_config == "vllm")
    return model::GenerationConfig{.eos_token_ids = files.generation.eos_token_ids};
  const std::string path = GenerationFile(options);
  FB_ASSIGN_OR_RETURN(const std::string json, base::ReadFile(path));
  return model::ParseGenerationConfig(json, path);
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

// Raised by every change that may change an answer of the same request: results of an older one are
// not gone on with.
constexpr int64_t kAnswerRevision = 3;

std::string TokenName(const ModelText& text, int32_t id) {
  const std::string shown = text.TokenBytes(id);
  return shown.empty() ? fmt::format("token {}", id)
                       : fmt::format("{} ({})", base::ShownName(shown), id);
}

// What the tokenizer's files say ends an answer does, beside what the configuration names; the log
// gets all of it.
void AddEnds(const ModelText& text, engine::ModelFiles* files) {
  std::vector<int32_t>& ends = files->config.eos_token_ids;
  const std::vector<int32_t>& others = files->generation.eos_token_ids;
  const auto has = [&](int32_t id) {
    return std::ranges::count(ends, id) > 0 || std::ranges::count(others, id) > 0;
  };
  for (const int32_t id : text.tokenizer() ? text.tokenizer()->ends() : std::vector<int32_t>()) {
    if (has(id)) continue;
    if (id >= files->config.vocab_size) {
      base::Log(
          base::LogLevel::kWarning,
          fmt::format("{}: eos_token {} of the tokenizer is beyond the vocabulary of {} tokens, "
                      "and ends nothing",
                      files->path, TokenName(text, id), files->config.vocab_size));
      continue;
    }
    if (files->gguf == nullptr && !(ends.empty() && others.empty())) {
      base::Log(base::LogLevel::kWarning,
                fmt::format("{}: eos_token {} of the tokenizer is not among eos_token_id of "
                            "config.json and generation_config.json; it ends answers too",
                            files->path, TokenName(text, id)));
    }
    ends.push_back(id);
  }
  std::vector<int32_t> all = ends;
  all.insert(all.end(), others.begin(), others.end());
  std::vector<std::string> names;
  for (const int32_t id : all) {
    std::string name = TokenName(text, id);
    if (std::ranges::count(names, name) == 0) names.push_back(std::move(name));
  }
  base::Log(base::LogLevel::kInfo,
            fmt::format("answers end at {}; chat template: {}",
                        names.empty() ? "no token" : fmt::format("{}", fmt::join(names, ", ")),
                        text.templates().Names()));
}

// A job whose template reads the clock goes on with the one it began with.
base::Status AdoptClock(const std::string& results_path, ModelText* text) {
  if (!text->uses_clock()) return base::Status::Ok();
  const std::optional<std::string> clock = FindJobClock(results_path);
  if (!clock) return base::Status::Ok();
  FB_ASSIGN_OR_RETURN(const std::tm now, text::ParseClock(*clock));
  text->set_now(now);
  return base::Status::Ok();
}

}  // namespace

OptionFiles FilesOf(const ModelOptions& options) {
  const layout::MachineOptions& machine = options.engine.machine;
  OptionFiles files{.outputs = {{"--record-routing", machine.record_routing}},
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

base::Result<engine::ModelFiles> OpenModelFiles(const ModelOptions& options, bool config_alone) {
  FB_ASSIGN_OR_RETURN(auto files, engine::OpenModel(options.engine.model,
                                                    options.engine.random_weights || config_alone,
                                                    options.engine.seed));
  if (options.engine.machine.mla_absorbed) FB_RETURN_IF_ERROR(engine::AbsorbPrompts(&files));
  FB_ASSIGN_OR_RETURN(files.generation, ReadGeneration(options, files));
  // Results carry the first name that is one.
  const auto& names = options.served_model_names;
  const auto name = std::ranges::find_if(names, [](const auto& given) { return given != "*"; });
  if (name != names.end()) files.name = *name;
  return files;
}

ModelFacts FactsOf(const engine::ModelFiles& files) {
  return {.name = files.name, .vocab_size = static_cast<int32_t>(files.config.vocab_size)};
}

RequestRules RulesOf(const ModelOptions& options, const engine::ModelFiles& files,
                     const ModelFacts& facts) {
  const auto& names = options.served_model_names;
  return {.defaults = SamplingDefaults(files.generation),
          .model_names = names.empty() ? std::vector{facts.name} : names,
          .vocab_size = facts.vocab_size,
          .max_logprobs = options.max_logprobs};
}

base::Result<std::unique_ptr<OpenedModel>> OpenedModel::Open(runtime::Runtime& runtime,
                                                             const ModelOptions& options,
                                                             const std::string& results_path,
                                                             bool keep_clock,
                                                             const DescribeFn& describe) {
  std::unique_ptr<OpenedModel> opened(new OpenedModel(options));
  FB_ASSIGN_OR_RETURN(opened->files_, OpenModelFiles(options, false));
  opened->options_.text.path = options.engine.model;
  opened->options_.text.gguf = opened->files_.gguf;
  FB_ASSIGN_OR_RETURN(opened->text_, ModelText::Load(opened->options_.text));
  AddEnds(*opened->text_, &opened->files_);
  if (!results_path.empty() && !keep_clock)
    FB_RETURN_IF_ERROR(AdoptClock(results_path, opened->text_.get()));
  if (describe) {
    const RequestRules rules = RulesOf(options, opened->files_, FactsOf(opened->files_));
    FB_RETURN_IF_ERROR(describe(opened->files_, rules, *opened->text_, &opened->options_.engine));
  }
  FB_ASSIGN_OR_RETURN(opened->engine_,
                      engine::CreateEngine(runtime, opened->options_.engine, opened->files_,
                                           opened->text_->tokenizer()));
  return opened;
}

Fingerprints OpenedModel::fingerprints() const {
  const SamplingParams defaults = SamplingDefaults(files_.generation);
  SettingsHash settings;
  settings.Add(Setting::kTemplate, fmt::format("{} {}", kAnswerRevision, text_->Fingerprint()));
  settings.Add(Setting::kNow, text_->uses_clock() ? text_->clock() : "");
  settings.Add(Setting::kText, fmt::format("{} {}", options_.text.skip_tokenizer,
                                           options_.text.parse_special_in_content));
  settings.Add(Setting::kSeed, fmt::format("{}", options_.engine.seed));
  settings.Add(Setting::kMaxModelLen, fmt::format("{}", facts().max_model_len));
  settings.Add(Setting::kMaxLogprobs, fmt::format("{}", options_.max_logprobs));
  settings.Add(
      Setting::kSampling,
      fmt::format("{} {} {} {} {} {} {}", defaults.temperature, defaults.top_p, defaults.min_p,
                  defaults.top_k, defaults.repetition_penalty, defaults.default_max_tokens,
                  fmt::join(files_.generation.eos_token_ids, ",")));
  settings.Add(Setting::kDigest, fmt::format("{}", options_.engine.digest));
  return {.model = files_.fingerprint,
          .settings = settings.hash(),
          .numerics = base::HashBytes(facts().numerics_class),
          .marks = settings.marks()};
}

ResultStyle OpenedModel::style() const {
  std::string fingerprint = "fb-" + facts().numerics_class;
  if (facts().random_weights) fingerprint += "-random-weights";
  if (text_->uses_clock()) fingerprint += kClockMark + text_->clock();
  return {.model = facts().name,
          .system_fingerprint = std::move(fingerprint),
          .digests = options_.engine.digest};
}

}  // namespace forebay::job
