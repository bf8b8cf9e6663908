#include "model/recorded_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <optional>

#include "base/json_writer.h"
#include "base/read_file.h"

namespace forebay::model {
namespace {

constexpr std::string_view kMagic = "FBROUTE1";
constexpr int64_t kMostPositions = 1 << 30, kMostLines = int64_t{1} << 40;
constexpr uint32_t kMostLayers = 1 << 16;
// Steps of a rank that are remembered: more than are ever in flight.
constexpr size_t kKeptSteps = 64;

// Numbers are little-endian, as those of all machines that this runs on.
template <typename T>
void AppendNumber(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string HeaderOf(const RoutingShape& shape) {
  std::string header(kMagic);
  for (const uint32_t value : {shape.num_experts, shape.experts_per_token, shape.hidden_size,
                               shape.num_layers, shape.vocab_size})
    AppendNumber(value, &header);
  AppendNumber(static_cast<uint32_t>(shape.layers.size()), &header);
  for (const uint32_t layer : shape.layers) AppendNumber(layer, &header);
  return header;
}

std::string Describe(const RoutingShape& shape) {
  return fmt::format("{} of {} experts in {} of {} layers, hidden size {}, a vocabulary of {}",
                     shape.experts_per_token, shape.num_experts, shape.layers.size(),
                     shape.num_layers, shape.hidden_size, shape.vocab_size);
}

// Reads a text from its beginning on.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}
  template <typename T>
  bool Read(T* value) {
    const std::optional<std::string_view> bytes = Take(sizeof(T));
    if (bytes) std::memcpy(value, bytes->data(), sizeof(T));
    return bytes.has_value();
  }
  std::optional<std::string_view> Take(size_t bytes) {
    if (text_.size() - at_ < bytes) return std::nullopt;
    at_ += bytes;
    return text_.substr(at_ - bytes, bytes);
  }
  size_t at() const { return at_; }
  bool done() const { return at_ == text_.size(); }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

bool MakesSense(const RoutingShape& shape) {
  return shape.num_experts > 0 && shape.num_experts <= 65536 && shape.experts_per_token > 0 &&
         shape.experts_per_token <= shape.num_experts && shape.experts_per_token <= 1024 &&
         !shape.layers.empty() &&
         std::ranges::adjacent_find(shape.layers, std::greater_equal<>()) == shape.layers.end() &&
         shape.layers.back() < shape.num_layers && shape.num_layers <= kMostLayers;
}

class Recorded final : public Routing {
 public:
  explicit Recorded(std::string name) : name_(std::move(name)) {}

  base::Status Parse(std::string text);
  base::Status Check(const ModelConfig& config) const override;
  bool names_rows() const override { return true; }
  base::Status Tell(uint64_t rank, uint64_t step, std::span<const NamedRows> rows) const override;
  void Count(const Draw& draw, std::span<int32_t> counts) const override;

 private:
  using Key = std::pair<int64_t, int32_t>;  // line and choice
  struct Step {
    uint64_t number;
    std::vector<const char*> rows;
  };

  base::Status Invalid(size_t at, std::string_view what) const {
    return {kRoutingInvalid, fmt::format("{}: byte {}: {}", name_, at, what)};
  }
  base::Status ParseHeader(Cursor* cursor);
  base::Status ParseRecord(Cursor* cursor);
  base::Status CheckRow(const char* row, const NamedRows& rows, int64_t position) const;
  uint16_t Expert(const char* row, size_t slot) const {
    uint16_t expert;
    std::memcpy(&expert, row + slot * sizeof(expert), sizeof(expert));
    return expert;
  }

  const std::string name_;
  std::string text_;
  RoutingShape shape_;
  std::vector<int32_t> place_;  // of a layer among those with experts; -1: it has none
  std::map<Key, std::vector<const char*>> rows_;  // by position; null: unknown
  mutable std::mutex mutex_;
  mutable std::map<uint64_t, std::deque<Step>> told_;  // by rank
};

base::Status Recorded::ParseHeader(Cursor* cursor) {
  if (cursor->Take(kMagic.size()) != kMagic)
    return Invalid(0, "this is no recorded routing; expected what --record-routing wrote");
  uint32_t layers = 0;
  for (uint32_t* const value : {&shape_.num_experts, &shape_.experts_per_token, &shape_.hidden_size,
                                &shape_.num_layers, &shape_.vocab_size, &layers}) {
    if (!cursor->Read(value)) return Invalid(cursor->at(), "the header is cut off");
  }
  for (uint32_t i = 0; i < layers; ++i) {
    if (!cursor->Read(&shape_.layers.emplace_back()))
      return Invalid(cursor->at(), "the header is cut off");
  }
  if (!MakesSense(shape_))
    return Invalid(cursor->at(), fmt::format("no model has {}", Describe(shape_)));
  place_.assign(shape_.layers.back() + 1, -1);
  for (size_t i = 0; i < shape_.layers.size(); ++i)
    place_[shape_.layers[i]] = static_cast<int32_t>(i);
  return {};
}

base::Status Recorded::CheckRow(const char* row, const NamedRows& rows, int64_t position) const {
  const size_t k = shape_.experts_per_token;
  std::vector<uint16_t> chosen(k);
  for (size_t i = 0; i < shape_.layers.size(); ++i) {
    for (size_t slot = 0; slot < k; ++slot) chosen[slot] = Expert(row, i * k + slot);
    std::ranges::sort(chosen);
    const bool twice = std::ranges::adjacent_find(chosen) != chosen.end();
    if (chosen.back() < shape_.num_experts && !twice) continue;
    return {kRoutingInvalid,
            fmt::format("{}: line {}, choice {}, position {}, layer {}: expert {}{}; expected "
                        "different ones below {}",
                        name_, rows.line + 1, rows.choice, position, shape_.layers[i],
                        chosen.back(), twice ? ", or another one, twice" : "", shape_.num_experts)};
  }
  return {};
}

base::Status Recorded::ParseRecord(Cursor* cursor) {
  const size_t begin = cursor->at();
  NamedRows rows;
  uint32_t count = 0;
  if (!cursor->Read(&rows.line) || !cursor->Read(&rows.choice) || !cursor->Read(&count) ||
      !cursor->Read(&rows.first_position))
    return Invalid(begin, "the record is cut off");
  if (rows.line < 0 || rows.line > kMostLines || rows.choice < 0 || count == 0 ||
      rows.first_position < 0 || rows.first_position > kMostPositions - int64_t{count}) {
    return Invalid(
        begin, fmt::format("{} rows of line {}, choice {}, from position {} on cannot be", count,
                           rows.line, rows.choice, rows.first_position));
  }
  const size_t bytes = shape_.slots() * sizeof(uint16_t);
  const std::optional<std::string_view> data = cursor->Take(count * bytes);
  if (!data) return Invalid(begin, fmt::format("{} rows are cut off", count));
  std::vector<const char*>& known = rows_[{rows.line, rows.choice}];
  const auto first = static_cast<size_t>(rows.first_position);
  if (first > known.size()) {
    return Invalid(begin, fmt::format("position {} of line {}, choice {}; expected {} next", first,
                                      rows.line + 1, rows.choice, known.size()));
  }
  known.resize(std::max(known.size(), first + count));
  for (size_t i = 0; i < count; ++i) {
    const char* const row = data->data() + i * bytes;
    const char*& at = known[first + i];
    if (at != nullptr && std::memcmp(at, row, bytes) != 0) {
      return Invalid(begin, fmt::format("position {} of line {}, choice {} stands there twice, "
                                        "with different experts",
                                        first + i, rows.line + 1, rows.choice));
    }
    if (at == nullptr) FB_RETURN_IF_ERROR(CheckRow(row, rows, static_cast<int64_t>(first + i)));
    at = row;
  }
  return {};
}

base::Status Recorded::Parse(std::string text) {
  text_ = std::move(text);
  Cursor cursor(text_);
  FB_RETURN_IF_ERROR(ParseHeader(&cursor));
  while (!cursor.done()) FB_RETURN_IF_ERROR(ParseRecord(&cursor));
  return {};
}

base::Status Recorded::Check(const ModelConfig& config) const {
  const RoutingShape expected = RoutingShape::Of(config);
  if (expected == shape_) return {};
  return {kRoutingInvalid, fmt::format("{} is of another model: {}; this one has {}", name_,
                                       Describe(shape_), Describe(expected))};
}

base::Status Recorded::Tell(uint64_t rank, uint64_t step, std::span<const NamedRows> rows) const {
  Step told{step, {}};
  for (const NamedRows& each : rows) {
    const auto found = rows_.find({each.line, each.choice});
    const auto known =
        found == rows_.end() ? int64_t{0} : static_cast<int64_t>(found->second.size());
    if (each.first_position + each.count > known) {
      return {kRoutingInvalid,
              fmt::format("{} knows {} positions of line {}, choice {}; the run computes position "
                          "{}. Give the run that was recorded the same input and output lengths",
                          name_, known, each.line + 1, each.choice,
                          each.first_position + each.count - 1)};
    }
    const auto first = found->second.begin() + each.first_position;
    told.rows.insert(told.rows.end(), first, first + each.count);
  }
  const std::lock_guard lock(mutex_);
  std::deque<Step>& steps = told_[rank];
  if (!steps.empty() && steps.back().number >= step) steps.clear();  // another run
  steps.push_back(std::move(told));
  if (steps.size() > kKeptSteps) steps.pop_front();
  return {};
}

void Recorded::Count(const Draw& draw, std::span<int32_t> counts) const {
  std::ranges::fill(counts, 0);
  if (draw.rows == 0) return;
  const std::lock_guard lock(mutex_);
  const std::deque<Step>& steps = told_[draw.rank];
  const auto step = std::ranges::find(steps, draw.step, &Step::number);
  FB_CHECK(step != steps.end(), "nobody told of step {} of rank {}", draw.step, draw.rank);
  const auto first = static_cast<size_t>(draw.first_row), rows = static_cast<size_t>(draw.rows);
  FB_CHECK(first + rows <= step->rows.size(), "rows {} to {} of a step of {}", first, first + rows,
           step->rows.size());
  const auto k = static_cast<size_t>(draw.experts_per_token);
  const size_t at = static_cast<size_t>(place_[static_cast<size_t>(draw.layer)]) * k;
  for (size_t row = first; row < first + rows; ++row) {
    for (size_t slot = 0; slot < k; ++slot) ++counts[Expert(step->rows[row], at + slot)];
  }
}

}  // namespace

RoutingShape RoutingShape::Of(const ModelConfig& config) {
  const MoeConfig& moe = *config.moe;
  RoutingShape shape{.num_experts = static_cast<uint32_t>(moe.num_experts),
                     .experts_per_token = static_cast<uint32_t>(moe.experts_per_token),
                     .hidden_size = static_cast<uint32_t>(config.hidden_size),
                     .num_layers = static_cast<uint32_t>(config.num_layers),
                     .vocab_size = static_cast<uint32_t>(config.vocab_size)};
  for (uint32_t layer = 0; layer < shape.num_layers; ++layer) {
    if (moe.has_experts[layer] != 0) shape.layers.push_back(layer);
  }
  return shape;
}

base::Result<std::unique_ptr<RoutingLog>> RoutingLog::Create(const std::string& path,
                                                             const ModelConfig& config) {
  FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return base::Status(base::kIoError,
                        fmt::format("--record-routing {}: {}", path, std::strerror(errno)));
  }
  std::unique_ptr<RoutingLog> log(new RoutingLog(path, RoutingShape::Of(config), file));
  const std::string header = HeaderOf(log->shape_);
  log->failed_ = std::fwrite(header.data(), 1, header.size(), file) != header.size();
  FB_RETURN_IF_ERROR(log->Flush());
  return log;
}

void RoutingLog::Append(const NamedRows& rows, std::span<const uint16_t> experts) {
  std::string head;
  AppendNumber(rows.line, &head);
  AppendNumber(rows.choice, &head);
  AppendNumber(static_cast<uint32_t>(rows.count), &head);
  AppendNumber(rows.first_position, &head);
  const std::lock_guard lock(mutex_);
  failed_ |= std::fwrite(head.data(), 1, head.size(), file_) != head.size() ||
             std::fwrite(experts.data(), sizeof(uint16_t), experts.size(), file_) != experts.size();
}

base::Status RoutingLog::Flush() {
  const std::lock_guard lock(mutex_);
  if (!failed_ && std::fflush(file_) == 0) return {};
  return {base::kIoError, fmt::format("{} cannot be written: {}", path_, std::strerror(errno))};
}

base::Result<std::shared_ptr<const Routing>> ParseRecordedRouting(std::string text,
                                                                  const std::string& name) {
  auto recorded = std::make_shared<Recorded>(name);
  FB_RETURN_IF_ERROR(recorded->Parse(std::move(text)));
  return std::shared_ptr<const Routing>(std::move(recorded));
}

base::Result<std::shared_ptr<const Routing>> ReadRouting(const std::string& path) {
  FB_ASSIGN_OR_RETURN(std::string text, base::ReadFile(path, 1ull << 36));
  return ParseRecordedRouting(std::move(text), path);
}

}  // namespace forebay::model
