#include "weights/formats/weight_source.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/file_kind.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "weights/formats/dequantize.h"
#include "weights/formats/expert_tensors.h"
#include "weights/formats/gguf_names.h"
#include "weights/formats/gguf_order.h"
#include "weights/formats/latent_tensors.h"
#include "weights/formats/quantised_tensors.h"
#include "weights/formats/safetensors.h"
#include "weights/formats/unpack.h"

namespace forebay::weights {

using base::Result;
using base::ShownName;
using base::Status;

namespace {

namespace fs = std::filesystem;

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The folder's files with one of the extensions.
std::vector<fs::path> FilesWith(const fs::path& folder,
                                std::initializer_list<std::string_view> extensions) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (std::ranges::count(extensions, it->path().extension().string()) > 0)
      found.push_back(it->path());
  }
  std::ranges::sort(found);
  return found;
}

// A folder without the files of a model: what it is instead, and the way on.
Status NoWeights(const fs::path& root) {
  if (Exists(root / "adapter_config.json")) {
    return Status(
        kWeightsFormatUnsupported,
        fmt::format("{}: is a LoRA adapter (adapter_config.json); expected a whole model: "
                    "merge it into its base model first (peft's merge_and_unload)",
                    root.string()));
  }
  if (const auto ggufs = FilesWith(root, {".gguf"}); !ggufs.empty()) {
    return Status(
        kWeightsFormatUnsupported,
        fmt::format("{}: holds {}; give its path: -m {}", root.string(),
                    ggufs.size() == 1 ? "a GGUF file" : fmt::format("{} GGUF files", ggufs.size()),
                    ggufs[0].string()));
  }
  if (!FilesWith(root, {".bin", ".pt", ".pth"}).empty()) {
    return Status(
        kWeightsFormatUnsupported,
        fmt::format(
            "{}: holds PyTorch pickle files (.bin, .pt, .pth), which can run code when they are "
            "read; convert them to model.safetensors",
            root.string()));
  }
  return Status(kWeightsNotFound,
                fmt::format("{}: neither model.safetensors nor model.safetensors.index.json is "
                            "here; expected a Hugging Face folder or a GGUF file",
                            root.string()));
}

// The file's first bytes are those of another kind of file.
Status CheckKindOf(const MappedFile& file) {
  constexpr size_t kBegin = 256;
  const auto begin = file.bytes().first(std::min(kBegin, file.bytes().size()));
  return base::CheckKind(file.path(), {reinterpret_cast<const char*>(begin.data()), begin.size()});
}

struct Assignment {
  std::string_view tensor, shard;
};

// `weight_map` of an index, as it is written there. Views live as long as the parser.
Result<std::vector<Assignment>> ReadWeightMap(simdjson::ondemand::parser& parser,
                                              const simdjson::padded_string& json) {
  const auto invalid = [](std::string_view what) {
    return Status(kWeightsIndexInvalid, std::string(what));
  };
  simdjson::ondemand::document document;
  simdjson::ondemand::object map;
  if (parser.iterate(json).get(document) || document["weight_map"].get_object().get(map)) {
    return invalid("no JSON object with an object \"weight_map\"");
  }
  std::vector<Assignment> assignments;
  constexpr size_t kLeastBytes = 7;  // "":"x",
  assignments.reserve(json.size() / kLeastBytes + 1);
  for (auto field : map) {
    Assignment assignment;
    if (field.unescaped_key().get(assignment.tensor) ||
        field.value().get_string().get(assignment.shard)) {
      return invalid("weight_map: expected tensor names and file names, both strings");
    }
    if (assignment.shard.empty() || assignment.shard.find('/') != std::string_view::npos) {
      return Status(
          kWeightsIndexInvalid,
          fmt::format("weight_map: {} is in file {}; expected the name of a file in this folder",
                      ShownName(assignment.tensor), base::Quoted(assignment.shard)));
    }
    assignments.push_back(assignment);
  }
  return assignments;
}

uint64_t HashSpan(uint64_t key, std::span<const std::byte> bytes) {
  return base::HashBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, key);
}

// Small tensors whole; of others the ends and two places between, a page each at most.
uint64_t HashSamples(uint64_t key, std::span<const std::byte> data) {
  constexpr size_t kSample = 1024, kSamples = 4;
  if (data.size() <= kSample * kSamples) return HashSpan(key, data);
  for (size_t i = 0; i < kSamples; ++i) {
    key = HashSpan(key, data.subspan((data.size() - kSample) / (kSamples - 1) * i, kSample));
  }
  return key;
}

// Rows lie in the file as readers ask for them.
bool IsPlain(const TensorInfo& tensor) {
  return tensor.rearranged == nullptr && tensor.transposed_stride == 0 && tensor.step == 1;
}

// Keys of a GGUF file in parts.
constexpr std::string_view kSplitCount = "split.count", kSplitTensors = "split.tensors.count";

}  // namespace

Result<WeightSource> WeightSource::Open(const std::string& path) {
  WeightSource source;
  source.path_ = path;
  const fs::path root(path);
  std::error_code error;
  if (!fs::is_directory(root, error)) {
    FB_RETURN_IF_ERROR(source.AddGguf());
  } else if (const fs::path single = root / "model.safetensors"; Exists(single)) {
    FB_RETURN_IF_ERROR(source.AddSafetensors(single));
  } else if (const fs::path index = root / "model.safetensors.index.json"; Exists(index)) {
    FB_RETURN_IF_ERROR(source.AddShards(index));
  } else {
    return NoWeights(root);
  }
  FB_RETURN_IF_ERROR(source.NameParts());
  FB_RETURN_IF_ERROR(source.SortTensors());
  return source;
}

Status WeightSource::AddSafetensors(const std::string& path) {
  FB_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path, MappedFile::Access::kSequential));
  FB_RETURN_IF_ERROR(CheckKindOf(file));
  auto parsed = ParseSafetensors(file.bytes());
  if (!parsed.ok()) return parsed.status().WithContext(path);
  for (TensorInfo& tensor : parsed->tensors) {
    tensor.file = static_cast<int32_t>(files_.size());
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back(std::move(file));
  return Status::Ok();
}

Status WeightSource::AddShards(const std::string& index_path) {
  FB_ASSIGN_OR_RETURN(const MappedFile index, MappedFile::Open(index_path));
  const simdjson::padded_string json(reinterpret_cast<const char*>(index.bytes().data()),
                                     index.bytes().size());
  simdjson::ondemand::parser parser;
  auto assignments = ReadWeightMap(parser, json);
  if (!assignments.ok()) return assignments.status().WithContext(index_path);

  std::vector<std::string_view> shards;
  shards.reserve(assignments->size());
  for (const Assignment& assignment : *assignments) shards.push_back(assignment.shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  for (const std::string_view shard : shards) {
    const fs::path path = fs::path(path_) / shard;
    if (!Exists(path)) {
      return Status(kWeightsNotFound,
                    fmt::format("{}: names the file {}, which is not in the folder", index_path,
                                ShownName(shard)));
    }
    FB_RETURN_IF_ERROR(AddSafetensors(path));
  }
  FB_RETURN_IF_ERROR(SortTensors());
  // Files say themselves what they hold; a tensor that is nowhere is missed where it is needed.
  size_t num_wrong = 0;
  std::string_view first_wrong;
  for (const Assignment& assignment : *assignments) {
    const TensorInfo* tensor = Find(assignment.tensor);
    if (tensor != nullptr && shards[tensor->file] == assignment.shard) continue;
    if (num_wrong++ == 0) first_wrong = assignment.tensor;
  }
  if (num_wrong > 0) {
    base::Log(base::LogLevel::kWarning,
              fmt::format("{}: {} tensors are not in the files where the index has them, among "
                          "them {}",
                          index_path, num_wrong, ShownName(first_wrong)));
  }
  return Status::Ok();
}

Status WeightSource::AddGguf() {
  FB_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path_, MappedFile::Access::kSequential));
  FB_RETURN_IF_ERROR(CheckKindOf(file));
  if (fs::path(path_).extension() == ".safetensors") {
    return Status(kWeightsFormatUnsupported,
                  fmt::format("{}: is a safetensors file; give the folder that holds it and its "
                              "config.json: -m {}",
                              path_, fs::path(path_).parent_path().string()));
  }
  auto parsed = GgufFile::Parse(file.bytes());
  if (!parsed.ok()) return parsed.status().WithContext(path_);
  gguf_ = std::move(*parsed);
  files_.push_back(std::move(file));
  FB_RETURN_IF_ERROR(AddGgufTensors(gguf_->tensors()));
  if (!gguf_->Has(kSplitCount)) return Status::Ok();
  const auto count = gguf_->GetUint(kSplitCount);
  if (!count.ok()) return count.status().WithContext(path_);
  return *count > 1 ? AddGgufParts(*count) : Status::Ok();
}

Status WeightSource::AddGgufParts(uint64_t count) {
  const std::string end = fmt::format("-{:05}-of-{:05}.gguf", 1, count);
  if (!path_.ends_with(end)) {
    return Status(kGgufSplit, fmt::format("{}: is one of {} parts; give the first one, whose name "
                                          "ends in {}",
                                          path_, count, end));
  }
  const auto tensors = gguf_->GetUint(kSplitTensors);
  if (!tensors.ok()) return tensors.status().WithContext(path_);
  const std::string stem = path_.substr(0, path_.size() - end.size());
  for (uint64_t part = 1; part < count; ++part) {
    const std::string path = fmt::format("{}-{:05}-of-{:05}.gguf", stem, part + 1, count);
    if (!Exists(path)) {
      return Status(kWeightsNotFound,
                    fmt::format("{}: is the first of {} parts; {} is missing", path_, count, path));
    }
    FB_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path, MappedFile::Access::kSequential));
    FB_RETURN_IF_ERROR(CheckKindOf(file));
    auto parsed = GgufFile::Parse(file.bytes());
    if (!parsed.ok()) return parsed.status().WithContext(path);
    const auto says = [&](std::string_view key, uint64_t expected) {
      const auto found = parsed->GetUint(key);
      if (!found.ok()) return found.status().WithContext(path);
      if (*found == expected) return Status::Ok();
      return Status(kGgufSplit, fmt::format("{}: {} is {}; expected {} beside {}", path, key,
                                            *found, expected, path_));
    };
    FB_RETURN_IF_ERROR(says("split.no", part));
    FB_RETURN_IF_ERROR(says(kSplitCount, count));
    FB_RETURN_IF_ERROR(says(kSplitTensors, *tensors));
    files_.push_back(std::move(file));
    FB_RETURN_IF_ERROR(AddGgufTensors(parsed->tensors()));
  }
  if (*tensors != tensors_.size()) {
    return Status(kGgufSplit, fmt::format("{}: its {} parts hold {} tensors; {} says {}: they are "
                                          "not of one model",
                                          path_, count, tensors_.size(), kSplitTensors, *tensors));
  }
  return Status::Ok();
}

Status WeightSource::AddGgufTensors(const std::vector<TensorInfo>& tensors) {
  const auto said = gguf_->GetString("general.architecture");
  const std::string architecture(said.ok() ? *said : "");
  for (TensorInfo tensor : tensors) {
    tensor.file = static_cast<int32_t>(files_.size()) - 1;
    tensor.own_name = std::exchange(tensor.name, HfTensorName(architecture, tensor.name));
    const Status order = SetGgufOrder(*gguf_, architecture, &tensor);
    if (!order.ok()) return order.WithContext(path_);
    tensors_.push_back(std::move(tensor));
  }
  return Status::Ok();
}

// The text part of a model of several kinds is what a text model's folder holds.
Status WeightSource::NameParts() {
  constexpr std::string_view kTextPart = "language_model.", kNested = "model.language_model.";
  for (TensorInfo& tensor : tensors_) {
    if (tensor.name.starts_with(kTextPart)) tensor.name.erase(0, kTextPart.size());
    if (tensor.name.starts_with(kNested)) tensor.name.replace(0, kNested.size(), "model.");
  }
  const Status joined = JoinQuantised(&tensors_);
  if (!joined.ok()) return joined.WithContext(path_);
  const Status latent = JoinLatent(&tensors_);
  if (!latent.ok()) return latent.WithContext(path_);
  const Status split = SplitExpertStacks(&tensors_);
  return split.ok() ? split : split.WithContext(path_);
}

Status WeightSource::SortTensors() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(tensors_.begin(), tensors_.end(),
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twin == tensors_.end()) return Status::Ok();
  return Status(kTensorDuplicate, fmt::format("{}: is there twice, also in {}", Label(*twin),
                                              files_[std::next(twin)->file].path()));
}

std::vector<std::string_view> WeightSource::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const TensorInfo& tensor : tensors_) names.push_back(tensor.name);
  return names;
}

const TensorInfo* WeightSource::Find(std::string_view name) const {
  const auto it = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorInfo& tensor, std::string_view n) { return tensor.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

Result<tensor::Shape> WeightSource::ShapeOf(std::string_view name) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr)
    return Status(kTensorMissing, fmt::format("{}: tensor {} is missing", path_, name));
  FB_RETURN_IF_ERROR(CheckType(*tensor));
  return tensor->shape;
}

std::string WeightSource::FileOf(std::string_view name) const {
  const TensorInfo* tensor = Find(name);
  return tensor == nullptr ? path_ : files_[tensor->file].path();
}

void WeightSource::DoneWith(std::string_view name) const {
  if (const TensorInfo* tensor = Find(name)) files_[tensor->file].Drop(tensor->data);
}

Status WeightSource::ReadRows(std::string_view name, int64_t begin, int64_t end, float* out) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr)
    return Status(kTensorMissing, fmt::format("{}: tensor {} is missing", path_, name));
  return ExpandRows(*tensor, begin, end, out);
}

Status WeightSource::ReadRows(std::string_view name, int64_t begin, int64_t end,
                              tensor::BF16* out) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr || tensor->type->dtype != tensor::DType::kBF16 || !IsPlain(*tensor)) {
    return TensorReader::ReadRows(name, begin, end, out);
  }
  FB_CHECK(0 <= begin && begin <= end && end <= tensor->rows(), "rows {} to {} of {}", begin, end,
           name);
  const MappedFile& file = files_[tensor->file];
  FB_RETURN_IF_ERROR(file.CheckUnchanged());
  const int64_t columns = tensor->columns();
  const std::span<tensor::BF16> values(out, static_cast<size_t>((end - begin) * columns));
  const auto first = static_cast<uint64_t>(tensor->data.data() - file.bytes().data());
  FB_RETURN_IF_ERROR(file.Read(first + static_cast<uint64_t>(begin * columns) * sizeof(*out),
                               std::as_writable_bytes(values)));
  const int64_t bad = FlushDenormals(values);
  if (bad < 0) return Status::Ok();
  return NotFinite(*tensor, begin + bad / columns, bad % columns, tensor::ToFloat(out[bad]));
}

void WeightSource::Rename(std::string_view from, std::string to) {
  const auto it = std::ranges::find(tensors_, from, &TensorInfo::name);
  FB_CHECK(it != tensors_.end() && !Has(to), "{} cannot become {}", from, to);
  if (it->own_name.empty()) it->own_name = it->name;
  it->name = std::move(to);
  std::ranges::sort(tensors_, {}, &TensorInfo::name);
}

Status WeightSource::CheckType(const TensorInfo& tensor) const {
  if (tensor.type == &kUnreadableType)
    return Status(kTensorTypeUnsupported, fmt::format("{}: has {}", Label(tensor), tensor.why));
  if (tensor.type->dtype && CanExpand(*tensor.type->dtype)) return Status::Ok();
  if (tensor.type->form != kernels::TileForm::kExpanded) return Status::Ok();
  if (tensor.parts != nullptr) return Status::Ok();
  return Status(
      kTensorTypeUnsupported,
      fmt::format("{}: type {} is not read; expected F32, F16, BF16, {}", Label(tensor),
                  tensor.type->name,
                  gguf_ ? "Q8_0, Q6_K, Q5_K, Q4_K, Q3_K, Q2_K, Q5_1, Q5_0, Q4_1, Q4_0, IQ4_XS, "
                          "IQ4_NL or MXFP4: take this model's Q4_K_M file"
                        : "or F8_E4M3 or I8 with scales, 4 bits of compressed-tensors, AWQ or "
                          "GPTQ, NVFP4 or MXFP4"));
}

Status WeightSource::ExpandRows(const TensorInfo& tensor, int64_t begin, int64_t end,
                                float* out) const {
  FB_CHECK(0 <= begin && begin <= end && end <= tensor.rows(), "rows {} to {} of {} {}", begin, end,
           tensor.name, tensor.shape.ToString());
  FB_RETURN_IF_ERROR(CheckType(tensor));
  FB_RETURN_IF_ERROR(files_[tensor.file].CheckUnchanged());
  const Rearrangement& place = tensor.arrangement();
  const int64_t columns = tensor.columns();
  const uint64_t row_bytes =
      static_cast<uint64_t>(columns) / tensor.type->format.elements * tensor.type->format.bytes;
  const auto expand = [&](int64_t row, int64_t count, float* to) {
    const std::byte* const from = tensor.data.data() + row * row_bytes;
    if (tensor.type->dtype) {
      ExpandElements(*tensor.type->dtype, from, count * columns, to);
    } else {
      for (int64_t i = 0; i < count; ++i)
        ExpandBlocks(tensor.type->form, from + i * row_bytes, columns, to + i * columns);
    }
  };
  if (tensor.parts != nullptr) {
    StoredRowMemory stored;
    for (int64_t row = begin; row < end; ++row) {
      ReadParts(tensor, row, row + 1, &stored);
      kernels::ExpandRow(tensor.parts->form, stored.view(), 0, columns,
                         out + (row - begin) * columns);
    }
  } else if (place.latent != nullptr) {
    ExpandLatent(tensor, begin, end, out);
  } else if (tensor.transposed_stride != 0) {
    ExpandTransposed(tensor, begin, end, out);
  } else if (tensor.step != 1) {  // a vector of every step-th element
    std::vector<float> all(tensor.data.size() / tensor.type->format.bytes);
    ExpandElements(*tensor.type->dtype, tensor.data.data(), std::ssize(all), all.data());
    for (int64_t i = 0; begin < end && i < columns; ++i)
      out[i] = all[static_cast<size_t>(i * tensor.step)];
  } else if (!place.rows.changed()) {
    expand(begin, end - begin, out);
  } else if (tensor.shape.rank() > 1) {
    for (int64_t row = begin; row < end; ++row)
      expand(place.rows.Stored(row), 1, out + (row - begin) * columns);
  } else if (begin < end) {  // its elements stand for rows
    std::vector<float> stored(columns);
    expand(0, 1, stored.data());
    for (int64_t i = 0; i < columns; ++i) out[i] = stored[place.rows.Stored(i)];
  }
  if (place.columns.changed()) {
    std::vector<float> stored(columns);
    for (float* row = out; row != out + (end - begin) * columns; row += columns) {
      std::copy_n(row, columns, stored.data());
      for (int64_t i = 0; i < columns; ++i) row[i] = stored[place.columns.Stored(i)];
    }
  }
  if (place.negated_exp) {
    for (float* value = out; value != out + (end - begin) * columns; ++value)
      *value = static_cast<float>(std::log(-static_cast<double>(*value)));
  }
  FB_RETURN_IF_ERROR(files_[tensor.file].CheckUnchanged());
  const int64_t bad = FindNotFinite(out, (end - begin) * columns);
  if (bad < 0) return Status::Ok();
  return NotFinite(tensor, begin + bad / columns, bad % columns, out[bad]);
}

kernels::TileForm WeightSource::FormOf(std::string_view name) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr || tensor->shape.rank() != 2 || tensor->transposed_stride != 0 ||
      tensor->arrangement().columns.changed() || tensor->arrangement().latent != nullptr)
    return kernels::TileForm::kExpanded;
  return tensor->parts != nullptr ? tensor->parts->form : tensor->type->form;
}

Status WeightSource::ReadStored(std::string_view name, int64_t begin, int64_t end,
                                StoredRowMemory* out) const {
  const TensorInfo* tensor = Find(name);
  FB_CHECK(tensor != nullptr && 0 <= begin && begin <= end && end <= tensor->rows(),
           "rows {} to {} of {}", begin, end, name);
  FB_RETURN_IF_ERROR(files_[tensor->file].CheckUnchanged());
  const kernels::TileForm form = FormOf(name);
  const int64_t columns = tensor->columns();
  const int64_t row_bytes = columns / tensor->type->format.elements * tensor->type->format.bytes;
  for (int64_t row = begin; row < end; ++row) {
    StoredRowMemory& to = out[row - begin];
    if (tensor->parts != nullptr) {
      ReadParts(*tensor, row, row + 1, &to);
    } else {
      UnpackBlocks(form, tensor->data.data() + tensor->arrangement().rows.Stored(row) * row_bytes,
                   columns, &to);
    }
    const int64_t bad = FindBadGroup(form, to, columns);
    if (bad < 0) continue;
    return Status(kTensorNotFinite,
                  fmt::format("{}: row {}, group {} has a scale that is no finite number; expected "
                              "finite weights",
                              Label(*tensor), row, bad));
  }
  return files_[tensor->file].CheckUnchanged();
}

Status WeightSource::NotFinite(const TensorInfo& tensor, int64_t row, int64_t column,
                               float value) const {
  return Status(kTensorNotFinite,
                fmt::format("{}: row {}, column {} is {}; expected finite weights", Label(tensor),
                            row, column, value));
}

uint64_t WeightSource::Fingerprint(std::string_view config) const {
  uint64_t key = base::HashBytes(config);
  if (gguf_) key = HashSpan(key, gguf_->header());
  for (const MappedFile& file : files_) key = base::Combine64(key, file.bytes().size());
  for (const TensorInfo& tensor : tensors_) {
    key = base::HashBytes(tensor.type->name, base::HashBytes(tensor.name, key));
    for (int i = 0; i < tensor.shape.rank(); ++i)
      key = base::Combine64(key, static_cast<uint64_t>(tensor.shape[i]));
    key = base::Combine64(key, tensor.data.data() - files_[tensor.file].bytes().data());
    key = HashSamples(base::Combine64(key, tensor.file), tensor.data);
    if (const auto& latent = tensor.arrangement().latent) key = HashSamples(key, latent->keys);
    if (tensor.parts == nullptr) continue;
    for (const auto part : {tensor.parts->scales, tensor.parts->zeros, tensor.parts->outer})
      key = HashSamples(key, part);
  }
  return key;
}

std::string WeightSource::Label(const TensorInfo& tensor) const {
  const std::string& name = tensor.own_name.empty() ? tensor.name : tensor.own_name;
  return fmt::format("{}: tensor {}", files_[tensor.file].path(), ShownName(name));
}

}  // namespace forebay::weights
