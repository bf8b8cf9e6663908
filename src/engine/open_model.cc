#include "engine/open_model.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file_kind.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/read_file.h"
#include "base/rng.h"
#include "model/builtin_configs.h"
#include "model/decoder_weights.h"
#include "model/family.h"
#include "model/files/config_reader.h"
#include "model/files/head_tie.h"
#include "model/unused.h"
#include "weights/random_reader.h"

namespace forebay::engine {
namespace {

namespace fs = std::filesystem;

bool IsBuiltin(std::string_view path) { return path.starts_with(model::kBuiltinPrefix); }

// What to do with a name that may be the hub's ("org/model"): where this machine's cache has it, or
// how it gets here.
std::string HubHint(const std::string& path) {
  const size_t slash = path.find('/');
  const bool is_name = slash != 0 && slash + 1 < path.size() && path.rfind('/') == slash &&
                       path.front() != '.' && path.front() != '~';
  if (!is_name) return "";
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string home = variable("HF_HOME");
  const fs::path cache =
      home.empty() ? fs::path(variable("HOME")) / ".cache/huggingface" : fs::path(home);
  const fs::path folder =
      cache / "hub" / fmt::format("models--{}--{}", path.substr(0, slash), path.substr(slash + 1));
  std::ifstream main(folder / "refs/main");
  std::string revision;
  std::error_code error;
  if (main >> revision && fs::exists(folder / "snapshots" / revision, error)) {
    return fmt::format(". This machine's Hugging Face cache has it: -m {}",
                       (folder / "snapshots" / revision).string());
  }
  return fmt::format(
      ". A name of the Hugging Face hub? Download it first: huggingface-cli download "
      "{} --local-dir {}",
      path, path.substr(slash + 1));
}

std::string LastPart(const std::string& path) {
  if (IsBuiltin(path)) return path.substr(model::kBuiltinPrefix.size());
  fs::path normal = fs::path(path).lexically_normal();
  if (normal.filename().empty()) normal = normal.parent_path();
  return normal.extension() == ".gguf" ? normal.stem().string() : normal.filename().string();
}

// generation_config.json is optional.
base::Status ReadGenerationConfig(const std::string& folder, model::GenerationConfig* generation) {
  const std::string path = folder + "/generation_config.json";
  std::error_code error;
  if (!fs::exists(path, error)) return base::Status::Ok();
  FB_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  FB_ASSIGN_OR_RETURN(*generation, model::ParseGenerationConfig(text, path));
  return base::Status::Ok();
}

// A folder's tokenizer is part of the model, as a GGUF file's is with its header.
base::Status AddTokenizer(ModelFiles* files) {
  const std::string path = files->path + "/tokenizer.json";
  std::error_code error;
  if (!fs::exists(path, error)) return base::Status::Ok();
  FB_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  files->fingerprint = base::HashBytes(text, files->fingerprint);
  return base::Status::Ok();
}

void WarnOfUnused(const std::string& path, std::string_view what,
                  std::span<const std::string> unused) {
  constexpr size_t kShown = 5;
  if (unused.empty()) return;
  std::vector<std::string> shown;
  for (const std::string& name : unused.first(std::min(kShown, unused.size())))
    shown.push_back(base::ShownName(name));
  base::Log(base::LogLevel::kWarning,
            fmt::format("{}: nothing here uses these {} ({}): {}{}", path, what, unused.size(),
                        fmt::join(shown, ", "), unused.size() > kShown ? ", ..." : ""));
}

// What the files hold beyond what the model is made of is said, or refused.
base::Status CheckUnused(const weights::WeightSource& source, const ModelFiles& files) {
  const auto shapes = model::PlanDecoder(files.config, tensor::DType::kBF16).TensorShapes();
  std::vector<std::string_view> used;
  for (const auto& [name, shape] : shapes) used.push_back(name);
  std::vector<std::string> of_head;
  if (files.config.classifier) {
    for (const model::DenseLayer& layer : files.config.classifier->layers) {
      for (auto& [name, shape] : layer.Tensors()) of_head.push_back(std::move(name));
    }
  }
  used.insert(used.end(), of_head.begin(), of_head.end());
  std::ranges::sort(used);
  FB_ASSIGN_OR_RETURN(const std::vector<std::string> tensors,
                      model::UnusedTensors(files.config, source.names(), used, source));
  WarnOfUnused(files.path, "tensors", tensors);
  WarnOfUnused(files.gguf ? files.path : files.path + "/config.json", "keys",
               files.config.unused_keys);
  std::vector<int32_t> ends = files.config.eos_token_ids;
  ends.insert(ends.end(), files.generation.eos_token_ids.begin(),
              files.generation.eos_token_ids.end());
  for (const int32_t id : ends) {
    if (id < files.config.vocab_size) continue;
    base::Log(
        base::LogLevel::kWarning,
        fmt::format("{}: eos_token_id {} is beyond the vocabulary of {} tokens, and ends nothing",
                    files.path, id, files.config.vocab_size));
  }
  return base::Status::Ok();
}

// Names that begin with "model." beside a head of tokens lack that where the file is of the body
// alone, as most files of models that make vectors.
std::string NameOfBody(const model::ModelConfig& /*config*/, std::string_view stored) {
  constexpr model::Beginning kBeginnings[] = {{"embed_tokens.weight", "model.embed_tokens.weight"},
                                              {"layers.", "model.layers."},
                                              {"norm.weight", "model.norm.weight"}};
  return model::WithBeginning(stored, kBeginnings);
}

// Each tensor gets the name that `name_here` has for it.
base::Status Rename(const model::ModelConfig& config,
                    std::string (*name_here)(const model::ModelConfig&, std::string_view),
                    weights::WeightSource* source) {
  std::vector<std::string> stored;
  for (const weights::TensorInfo& tensor : source->tensors()) stored.push_back(tensor.name);
  for (const std::string& name : stored) {
    std::string here = name_here(config, name);
    if (here == name) continue;
    if (source->Has(here)) {
      return {weights::kTensorDuplicate,
              fmt::format("{}: tensor {} is also there as {}; expected it once",
                          source->FileOf(name), base::ShownName(here), base::ShownName(name))};
    }
    source->Rename(name, std::move(here));
  }
  return {};
}

// A head beside the embedding of a tied model: another one is the head; one without an embedding,
// as some programs write tied models, is both.
base::Status ResolveHead(weights::WeightSource* source, ModelFiles* files) {
  if (!model::Generates(files->config)) return base::Status::Ok();
  if (files->config.tie_word_embeddings && !source->Has(model::kEmbeddingTensor) &&
      source->Has(model::kHeadTensor))
    source->Rename(model::kHeadTensor, model::kEmbeddingTensor);
  FB_ASSIGN_OR_RETURN(const bool untied, model::UntieOtherHead(*source, &files->config));
  if (untied) {
    base::Log(
        base::LogLevel::kWarning,
        fmt::format("{}: tie_word_embeddings is true, but {} is another matrix than {}; it is "
                    "used as the head",
                    files->path, model::kHeadTensor, model::kEmbeddingTensor));
  }
  return base::Status::Ok();
}

// How the tensors are stored; those of a layer's experts have one name, and one form or none.
std::shared_ptr<const model::TensorForms> FormsOf(const weights::WeightSource& source) {
  constexpr std::string_view kExperts = ".experts.";
  auto forms = std::make_shared<model::TensorForms>();
  for (const weights::TensorInfo& tensor : source.tensors()) {
    std::string name = tensor.name;
    if (const size_t at = name.find(kExperts); at != std::string::npos) {
      const size_t number = at + kExperts.size();
      const size_t end = name.find_first_not_of("0123456789", number);
      if (end != std::string::npos && end > number) name.replace(number, end - number, "{}");
    }
    const kernels::TileForm form = source.FormOf(tensor.name);
    const auto [entry, is_new] = forms->emplace(std::move(name), form);
    if (!is_new && entry->second != form) entry->second = kernels::TileForm::kExpanded;
  }
  std::erase_if(*forms,
                [](const auto& entry) { return entry.second == kernels::TileForm::kExpanded; });
  return forms->empty() ? nullptr : forms;
}

// Makers of 8-bit and 4-bit float models quantise activations too.
void SayWhatStaysExact(const weights::WeightSource& source, const model::ModelConfig& config,
                       const std::string& path) {
  const auto quantised = std::ranges::count_if(source.tensors(), [&](const auto& tensor) {
    using kernels::TileForm;
    const TileForm form = source.FormOf(tensor.name);
    return form == TileForm::kF8Block || form == TileForm::kF8Row || form == TileForm::kNVFP4 ||
           (form == TileForm::kInt8Row && config.int8 == model::Int8::kNone);
  });
  if (quantised == 0) return;
  base::Log(base::LogLevel::kInfo,
            fmt::format("{}: {} matrices are quantised with their inputs in mind; inputs keep the "
                        "type that is computed in",
                        path, quantised));
}

// Reads `config.json`, or GGUF metadata, and the weights' headers.
base::Status OpenFiles(ModelFiles* files) {
  FB_ASSIGN_OR_RETURN(auto source, weights::WeightSource::Open(files->path));
  auto owned = std::make_unique<weights::WeightSource>(std::move(source));
  std::string config_text;
  if (owned->gguf()) {
    FB_ASSIGN_OR_RETURN(files->config, model::ReadGgufConfig(*owned->gguf(), files->path));
    files->gguf = owned->gguf();
  } else {
    const std::string path = files->path + "/config.json";
    FB_ASSIGN_OR_RETURN(config_text, base::ReadFile(path));
    FB_RETURN_IF_ERROR(base::CheckKind(path, config_text));
    FB_ASSIGN_OR_RETURN(files->config, model::ParseHfConfig(config_text, path));
    if (files->config.architecture.ends_with("ForConditionalGeneration")) {
      base::Log(base::LogLevel::kInfo,
                fmt::format("{}: the text part is loaded, images are not: {}", path,
                            files->config.architecture));
    }
    FB_RETURN_IF_ERROR(ReadGenerationConfig(files->path, &files->generation));
  }
  if (auto* const name_here = model::FindFamily(files->config.family)->name_here)
    FB_RETURN_IF_ERROR(Rename(files->config, name_here, owned.get()));
  if (owned->Has("embed_tokens.weight"))
    FB_RETURN_IF_ERROR(Rename(files->config, &NameOfBody, owned.get()));
  FB_RETURN_IF_ERROR(ResolveHead(owned.get(), files));
  FB_RETURN_IF_ERROR(CheckUnused(*owned, *files));
  files->config.forms = FormsOf(*owned);
  SayWhatStaysExact(*owned, files->config, files->path);
  files->fingerprint = owned->Fingerprint(config_text);
  files->reader = std::move(owned);
  return base::Status::Ok();
}

// The text of a configuration alone: a built-in one, a file, or a folder's.
base::Result<std::string> ReadBareConfig(const std::string& path, const std::string& config_path) {
  if (!IsBuiltin(path)) return base::ReadFile(config_path);
  FB_ASSIGN_OR_RETURN(const model::BuiltinConfigText builtin, model::FindBuiltinConfig(path));
  return std::string(builtin.json);
}

base::Status OpenRandom(uint64_t seed, ModelFiles* files) {
  const bool is_folder = !IsBuiltin(files->path) && fs::path(files->path).extension() != ".json";
  const std::string config_path = is_folder ? files->path + "/config.json" : files->path;
  FB_ASSIGN_OR_RETURN(const std::string text, ReadBareConfig(files->path, config_path));
  FB_ASSIGN_OR_RETURN(files->config, model::ParseHfConfig(text, config_path));
  if (is_folder) FB_RETURN_IF_ERROR(ReadGenerationConfig(files->path, &files->generation));
  const auto shapes = model::PlanDecoder(files->config, tensor::DType::kBF16).TensorShapes();
  files->reader = std::make_unique<weights::RandomReader>(seed, shapes);
  files->fingerprint = base::HashBytes(text, base::Combine64(seed, 0x72616E646F6Dull));
  files->random_weights = true;
  return base::Status::Ok();
}

// What the pooled rows go through: the model's own tensors, or those of folders beside it.
base::Status LoadHead(ModelFiles* files) {
  model::Pooling& pooling = *files->config.pooling;
  if (pooling.dense.empty()) return base::Status::Ok();
  if (pooling.dense.front().in != files->config.hidden_size) {
    return {model::kPoolingInvalid,
            fmt::format("{}: {} has {} inputs behind rows of {}", files->path,
                        pooling.dense.front().folder, pooling.dense.front().in,
                        files->config.hidden_size)};
  }
  auto head = std::make_shared<model::DenseHead>();
  for (const model::DenseLayer& layer : pooling.dense) {
    const std::string what =
        fmt::format("{}/{}/{}", layer.folder, layer.name, static_cast<int>(layer.activation));
    files->fingerprint = base::HashBytes(what, files->fingerprint);
    if (files->random_weights) {
      std::map<std::string, tensor::Shape, std::less<>> shapes;
      for (auto& [name, shape] : layer.Tensors()) shapes.emplace(name, shape);
      FB_RETURN_IF_ERROR(head->Add(layer, weights::RandomReader(files->fingerprint, shapes)));
    } else if (layer.folder.empty()) {
      FB_RETURN_IF_ERROR(head->Add(layer, *files->reader));
    } else {
      FB_ASSIGN_OR_RETURN(const weights::WeightSource source,
                          weights::WeightSource::Open(files->path + "/" + layer.folder));
      FB_RETURN_IF_ERROR(head->Add(layer, source));
      files->fingerprint = base::Combine64(files->fingerprint, source.Fingerprint(""));
    }
  }
  pooling.head = std::move(head);
  return base::Status::Ok();
}

}  // namespace

ModelFacts FactsOf(const ModelFiles& files) {
  const model::ModelConfig& config = files.config;
  ModelFacts facts{.name = files.name,
                   .vocab_size = static_cast<int32_t>(config.vocab_size),
                   .generates = model::Generates(config)};
  if (config.pooling) {
    facts.vector_width = static_cast<int32_t>(config.pooling->WidthOf(config.hidden_size));
    facts.normalizes = config.pooling->normalize;
  }
  facts.model_fingerprint = files.fingerprint;
  facts.random_weights = files.random_weights;
  return facts;
}

base::Result<ModelFiles> OpenModel(const std::string& path, bool random_weights, uint64_t seed) {
  std::error_code error;
  if (IsBuiltin(path)) {
    FB_RETURN_IF_ERROR(model::FindBuiltinConfig(path).status());
    if (!random_weights) {
      return base::Status(
          kModelNotFound,
          fmt::format("model {}: a configuration without weights; expected --random-weights, "
                      "or simulated devices",
                      path));
    }
  } else if (!fs::exists(path, error)) {
    return base::Status(
        kModelNotFound,
        fmt::format("model {}: no such file or folder; expected a folder in Hugging Face's "
                    "layout, a GGUF file, or builtin:NAME{}",
                    path, HubHint(path)));
  }
  ModelFiles files;
  files.path = path;
  files.name = LastPart(path);
  FB_RETURN_IF_ERROR(random_weights ? OpenRandom(seed, &files) : OpenFiles(&files));
  FB_RETURN_IF_ERROR(AddTokenizer(&files));
  return files;
}

base::Status AbsorbPrompts(ModelFiles* files) {
  if (!files->config.mla) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--mla absorbed: model {} ({}) has no latent attention; expected auto",
                    files->path, files->config.architecture));
  }
  files->config.mla->absorbed = true;
  return base::Status::Ok();
}

base::Status SetPooling(const std::string& name, ModelFiles* files) {
  std::optional<model::Pooling>& pooling = files->config.pooling;
  std::optional<model::Classifier>& head = files->config.classifier;
  if (name != "auto") {
    pooling = model::PoolingNamed(name);
    head.reset();
  } else if (head) {
    pooling = model::Pooling{.rows = head->rows, .dense = head->layers, .normalize = false};
  } else if (files->gguf == nullptr && !IsBuiltin(files->path)) {
    auto read = model::ReadPooling(files->path);
    if (!read.ok()) {
      return {read.status().code(),
              fmt::format("{} (--pooling none opens the model without vectors)",
                          read.status().message())};
    }
    pooling = *read;
  }
  if (!pooling) return base::Status::Ok();
  // Vectors depend on it. Without one the model is what it was.
  const int bits = 2 * static_cast<int>(pooling->rows) + (pooling->normalize ? 1 : 0);
  files->fingerprint = base::Combine64(files->fingerprint, static_cast<uint64_t>(bits));
  return LoadHead(files);
}

base::Status SetYesNo(int32_t yes, int32_t no, ModelFiles* files) {
  model::ModelConfig& config = files->config;
  if (!model::Generates(config) || config.logits_cap != 0 || config.logits_factor != 1) {
    return {base::kInvalidArgument,
            fmt::format("--pooling yes-no: model {} ({}) has no plain logits; expected a decoder "
                        "that neither caps nor scales them",
                        files->path, config.architecture)};
  }
  const auto width = static_cast<size_t>(config.hidden_size);
  std::vector<float> weight(width), of_no(width);
  const char* const head =
      config.tie_word_embeddings ? model::kEmbeddingTensor : model::kHeadTensor;
  FB_RETURN_IF_ERROR(files->reader->ReadRows(head, yes, yes + 1, weight.data()));
  FB_RETURN_IF_ERROR(files->reader->ReadRows(head, no, no + 1, of_no.data()));
  for (size_t i = 0; i < width; ++i) weight[i] -= of_no[i];
  auto loaded = std::make_shared<model::DenseHead>();
  loaded->AddOutput("yes-no", std::move(weight));
  model::DenseLayer layer{.name = "yes-no", .in = config.hidden_size, .out = 1, .bias = false};
  config.pooling = model::Pooling{.dense = {layer}, .normalize = false, .head = std::move(loaded)};
  config.classifier = model::Classifier{
      .layers = {layer}, .labels = {.names = {"yes"}, .rule = Labels::Rule::kSigmoid}};
  files->fingerprint = base::Combine64(
      files->fingerprint, base::Combine64(static_cast<uint64_t>(yes), static_cast<uint64_t>(no)));
  return base::Status::Ok();
}

}  // namespace forebay::engine
