#include "model/decoder_weights.h"

#include <algorithm>
#include <utility>

#include "device/host_writer.h"
#include "model/blocks/kinds.h"
#include "model/blocks/layer_inputs.h"
#include "model/files/head_tie.h"
#include "model/rope_table.h"

namespace forebay::model {
namespace {

constexpr char kFinalNorm[] = "model.norm.weight", kFinalNormBias[] = "model.norm.bias";
constexpr char kEmbeddingNorm[] = "model.embed_norm.weight",
               kEmbeddingNormBias[] = "model.embed_norm.bias";
constexpr char kPositions[] = "model.embed_positions.weight", kTypes[] = "model.embed_types.weight";
constexpr char kLayerInputs[] = "model.embed_tokens_per_layer.weight";

// The first stage's, beside the embedding.
struct EmbeddedTable {
  const char* tensor;
  int64_t rows, columns;
  const std::byte* DecoderWeights::*at;
};
std::vector<EmbeddedTable> EmbeddedTables(const DecoderPlan& plan) {
  const ModelConfig& config = plan.config;
  if (!plan.shard.cut.first_stage()) return {};
  std::vector<EmbeddedTable> tables;
  if (config.position_rows > 0) {
    const int64_t hidden = config.hidden_size;
    tables.push_back({kPositions, config.position_rows, hidden, &DecoderWeights::positions});
    tables.push_back({kTypes, config.token_types, hidden, &DecoderWeights::types});
  }
  if (config.layer_input_size > 0) {
    tables.push_back({kLayerInputs, config.vocab_size, config.num_layers * config.layer_input_size,
                      &DecoderWeights::layer_inputs});
  }
  return tables;
}

uint64_t TableBytes(const EmbeddedTable& table, tensor::DType dtype) {
  return base::RoundUp(tensor::BytesOf(dtype, static_cast<uint64_t>(table.rows * table.columns)),
                       64);
}

// The tables of rope: of all layers, or of those without a window and of those with one.
std::vector<const RopeSpec*> Ropes(const ModelConfig& config) {
  std::vector<const RopeSpec*> ropes = {&config.rope};
  if (config.windowed_rope) ropes.push_back(&*config.windowed_rope);
  return ropes;
}

// Norms that belong to no layer.
std::vector<const char*> OwnNorms(const ModelConfig& config) {
  std::vector<const char*> norms = {kFinalNorm};
  if (config.norm_biases) norms.push_back(kFinalNormBias);
  if (config.embedding_norm) norms.push_back(kEmbeddingNorm);
  if (config.embedding_norm && config.norm_biases) norms.push_back(kEmbeddingNormBias);
  return norms;
}

uint64_t VectorBytes(int64_t size) {
  return base::RoundUp(static_cast<uint64_t>(size) * sizeof(float), 64);
}

// Visits every matrix of the plan in the order in which it lies in memory.
template <typename Visit>
void ForEachMatrix(const DecoderPlan& plan, Visit visit) {
  for (const LayerPlan& layer : plan.layers) {
    for (const PlannedMatrix& matrix : layer.matrices) visit(matrix.plan);
  }
  visit(plan.head);
}

tensor::Shape StoredShape(const PlannedVector& vector) {
  const int64_t channels =
      vector.kept.empty() ? vector.size / std::max<int64_t>(1, vector.taps) : vector.stored;
  if (vector.taps == 0) return {channels};
  return {channels, 1, vector.taps};
}

// Which stored element becomes element i.
int64_t StoredElement(const PlannedVector& vector, int64_t i) {
  if (const int64_t head = vector.order.head_dim; head > 0)
    return i - i % head + vector.order.Stored(i % head);
  const int64_t taps = std::max<int64_t>(1, vector.taps), channels = vector.size / taps,
                tap = i / channels;
  int64_t channel = i % channels;
  for (const Part& part : vector.kept) {
    if (channel < part.size()) {
      channel += part.begin;
      break;
    }
    channel -= part.size();
  }
  return channel * taps + tap;
}

uint64_t OffsetsBytes(int64_t experts) {
  return base::RoundUp(static_cast<uint64_t>(experts + 1) * sizeof(int32_t), 64);
}
// Loads vectors one after another into the region.
class VectorLoader {
 public:
  VectorLoader(const DecoderPlan& plan, const weights::TensorReader* reader,
               device::RegionCutter* cutter, device::Device* device)
      : plan_(plan), reader_(reader), cutter_(cutter), device_(device) {}
  const float* Load(const PlannedVector& vector) {
    auto* out = reinterpret_cast<float*>(cutter_->Cut(VectorBytes(vector.size)));
    if (!reader_ || !status_.ok()) return out;
    const bool exact = vector.exact || vector.plus_one;
    const tensor::Shape shape = StoredShape(vector);
    std::vector<float> stored(static_cast<size_t>(shape.elements()));
    status_ = weights::LoadVector(*reader_, vector.tensor, shape,
                                  exact ? tensor::DType::kF32 : plan_.dtype, stored.data());
    if (!status_.ok()) return out;
    device::HostWriter writer(device_);
    float* const values = writer.Begin(out, vector.size);
    for (int64_t i = 0; i < vector.size; ++i) {
      values[i] = stored[static_cast<size_t>(StoredElement(vector, i))] * vector.factor;
      if (vector.plus_one) values[i] += 1.0f;
    }
    status_ = writer.End();
    return out;
  }
  const base::Status& status() const { return status_; }

 private:
  const DecoderPlan& plan_;
  const weights::TensorReader* reader_;
  device::RegionCutter* cutter_;
  device::Device* device_;
  base::Status status_;
};

// How files store the plan's tensors decides how its tiles are, and whether it multiplies in int8:
// as a whole, since all panels share the codes of its inputs. `as_stored`: nothing else does.
void SetForms(const ModelConfig& config, bool as_stored, weights::MatrixPlan* plan) {
  using kernels::TileForm;
  if (plan->stays_expanded || plan->tensor_k % 2 != 0) return;
  std::vector<TileForm> of_tensors;
  for (const std::string& tensor : plan->tensors) {
    TileForm form = TileForm::kExpanded;
    if (config.forms != nullptr) {
      if (const auto found = config.forms->find(tensor); found != config.forms->end())
        form = found->second;
    }
    of_tensors.push_back(form);
  }
  if (!as_stored) {
    const bool stored_so =
        std::ranges::all_of(of_tensors, [](TileForm form) { return form == TileForm::kInt8Row; });
    if (config.int8 == Int8::kAll || (config.int8 == Int8::kStored && stored_so))
      std::ranges::fill(of_tensors, TileForm::kW8A8);
    if (config.int4) std::ranges::fill(of_tensors, TileForm::kQ4_0);
  }
  plan->SetForms(of_tensors);
}

}  // namespace

DecoderPlan PlanDecoder(const ModelConfig& config, tensor::DType dtype, const ReplicaCut& cut) {
  return PlanDecoder(config, dtype, cut, cut.degrees());
}

DecoderPlan PlanDecoder(const ModelConfig& config, tensor::DType dtype, const ReplicaCut& cut,
                        const Degrees& mode) {
  using kernels::LeafBorders;
  const Family* family = FindFamily(config.family);
  DecoderPlan plan{.dtype = dtype, .config = config, .shard = ShardOf(config, cut, mode)};
  const Shard& shard = plan.shard;
  std::vector<std::shared_ptr<const weights::PanelTable>> tables;  // unlike each other
  const HeadMap heads = StageHeadMap(config, cut.degrees(), config.num_kv_heads);
  std::optional<HeadMap> full_heads;
  if (config.full_heads)
    full_heads = StageHeadMap(config, cut.degrees(), config.full_heads->kv_heads);
  for (int64_t i = shard.layers.begin; i < shard.layers.end; ++i) {
    const LayerNames names = family->layer_names(config, i);
    const bool full = full_heads && config.sliding_window[i] == 0;
    const LayerSite site{config, names, shard, full ? *full_heads : heads, dtype, i};
    LayerPlan& layer = plan.layers.emplace_back();
    layer.attention = &AttentionOf(config, i);
    layer.ffn = &FfnOf(config, i);
    layer.attention->plan(site, &layer);
    const size_t of_attention = layer.matrices.size();
    layer.ffn->plan(site, &layer);
    if (config.layer_input_size > 0) PlanLayerInputs(site, &layer);
    if (config.layer_scales)
      layer.vectors.push_back(
          {.role = kLayerScale, .tensor = names.scale, .size = 1, .exact = true});
    for (size_t m = 0; m < layer.matrices.size(); ++m) {
      const bool latent = config.mla && m < of_attention;
      weights::MatrixPlan& matrix = layer.matrices[m].plan;
      SetForms(config, latent, &matrix);
      const auto same =
          std::ranges::find_if(tables, [&](const auto& table) { return *table == *matrix.table; });
      if (same == tables.end()) {
        tables.push_back(matrix.table);
      } else {
        matrix.table = *same;
      }
    }
  }
  // Kinds of blocks plan matrices in the compute type; how they are stored is told by their
  // tensors.
  for (LayerPlan& layer : plan.layers) {
    for (PlannedMatrix& matrix : layer.matrices) {
      if (config.stored && config.stored->Covers(matrix.plan.tensors.front()))
        matrix.plan.stored = config.stored->format;
    }
  }
  const Part vocab = cut.last_stage() ? shard.vocab : Part{};
  plan.head = weights::PlanMatrix(
      "head", dtype, config.tie_word_embeddings ? kEmbeddingTensor : kHeadTensor, "",
      {config.vocab_size, vocab}, config.hidden_size, LeafBorders::Single(config.hidden_size));
  SetForms(config, true, &plan.head);
  if (dtype == tensor::DType::kBF16) {
    for (LayerPlan& layer : plan.layers) {
      for (PlannedMatrix& matrix : layer.matrices) matrix.plan.packed = config.packed;
    }
    plan.head.packed = config.packed;
  }
  plan.embedding_table =
      cut.first_stage() && (!config.tie_word_embeddings || vocab.size() < config.vocab_size);
  return plan;
}

std::shared_ptr<const DecoderPlan> DecoderPlans::Of(const ModelConfig& config, tensor::DType dtype,
                                                    const ReplicaCut& cut, const Degrees& mode) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const DecoderPlan>& plan = plans_[{cut, mode}];
  if (plan == nullptr) plan = DecoderPlanOf(nullptr, config, dtype, cut, mode);
  return plan;
}

std::shared_ptr<const DecoderPlan> DecoderPlanOf(DecoderPlans* plans, const ModelConfig& config,
                                                 tensor::DType dtype, const ReplicaCut& cut,
                                                 const Degrees& mode) {
  if (plans != nullptr) return plans->Of(config, dtype, cut, mode);
  return std::make_shared<const DecoderPlan>(PlanDecoder(config, dtype, cut, mode));
}

uint64_t DecoderPlan::bytes(int64_t max_positions) const {
  uint64_t sum = OwnNorms(config).size() * VectorBytes(config.hidden_size);
  for (const EmbeddedTable& table : EmbeddedTables(*this)) sum += TableBytes(table, dtype);
  for (const LayerPlan& layer : layers) {
    for (const PlannedVector& vector : layer.vectors) sum += VectorBytes(vector.size);
    for (const PlannedMatrix& matrix : layer.matrices) {
      if (!matrix.pooled) sum += matrix.plan.TileBytes();
    }
  }
  sum += head.TileBytes();
  if (embedding_table) {
    sum += base::RoundUp(
        tensor::BytesOf(dtype, static_cast<uint64_t>(config.vocab_size * config.hidden_size)), 64);
  }
  if (config.temperature_floor > 0) sum += VectorBytes(max_positions);
  for (const RopeSpec* rope : Ropes(config))
    sum += 2 * VectorBytes(max_positions * static_cast<int64_t>(rope->inv_freq.size()));
  return sum;
}

std::map<kernels::TileForm, uint64_t> DecoderPlan::BytesByForm() const {
  std::map<kernels::TileForm, uint64_t> bytes;
  ForEachMatrix(*this, [&](const weights::MatrixPlan& matrix) {
    const kernels::PackedWeight geometry = matrix.Geometry();
    for (int leaf = 0; leaf < geometry.leaves.num_leaves; ++leaf) {
      for (int32_t panel = 0; panel < geometry.num_panels; ++panel) {
        bytes[geometry.FormOf(panel)] +=
            static_cast<uint64_t>(geometry.TileBytes(leaf, panel) * matrix.count());
      }
    }
  });
  return bytes;
}

uint64_t DecoderPlan::table_bytes() const {
  uint64_t sum = 0;
  ForEachMatrix(*this, [&](const weights::MatrixPlan& matrix) { sum += matrix.TableBytes(); });
  if (config.moe) sum += OffsetsBytes(config.moe->num_experts);
  return sum;
}

std::map<std::string, tensor::Shape, std::less<>> DecoderPlan::TensorShapes() const {
  std::map<std::string, tensor::Shape, std::less<>> shapes;
  ForEachMatrix(*this, [&](const weights::MatrixPlan& matrix) {
    for (size_t t = 0; t < matrix.tensors.size(); ++t) {
      for (int32_t expert = 0; expert < matrix.count(); ++expert)
        shapes[matrix.TensorName(t, expert)] = {matrix.tensor_rows[t], matrix.tensor_k};
      for (int32_t expert = 0; expert < matrix.count(); ++expert) {
        if (!matrix.biases.empty() && !matrix.biases[t].empty())
          shapes[matrix.BiasName(t, expert)] = {matrix.tensor_rows[t]};
      }
    }
  });
  for (const LayerPlan& layer : layers) {
    for (const PlannedVector& vector : layer.vectors) shapes[vector.tensor] = StoredShape(vector);
  }
  for (const char* norm : OwnNorms(config)) shapes[norm] = {config.hidden_size};
  for (const EmbeddedTable& table : EmbeddedTables(*this))
    shapes[table.tensor] = {table.rows, table.columns};
  shapes[kEmbeddingTensor] = {config.vocab_size, config.hidden_size};
  return shapes;
}

base::Result<DecoderWeights> LoadDecoder(const DecoderPlan& plan, int64_t max_positions,
                                         const weights::TensorReader* reader,
                                         const device::Region& region, const device::Region& tables,
                                         const PooledRunAt& pooled_at, int num_threads,
                                         device::Device* device) {
  const ModelConfig& config = plan.config;
  FB_CHECK(region.bytes >= plan.bytes(max_positions),
           "the weight region has {} bytes, the plan needs {}", region.bytes,
           plan.bytes(max_positions));
  FB_CHECK(tables.bytes >= plan.table_bytes(), "the tables have {} bytes, the plan needs {}",
           tables.bytes, plan.table_bytes());
  device::RegionCutter cutter(region), table_cutter(tables);
  DecoderWeights loaded{.shard = plan.shard};
  VectorLoader vectors(plan, reader, &cutter, device);
  std::vector<weights::PlacedMatrix> matrices;
  // Tiles have their places first; what is in them is read at the end, of all matrices at once, so
  // that threads have enough to share.
  const auto place = [&](const weights::MatrixPlan& matrix) {
    matrices.push_back({&matrix, weights::PlaceMatrix(matrix, &table_cutter)});
    return matrices.back().placed;
  };
  for (const LayerPlan& layer : plan.layers) {
    const auto index = static_cast<int64_t>(loaded.layers.size());
    LayerWeights& w = loaded.layers.emplace_back();
    w.attention = layer.attention;
    w.ffn = layer.ffn;
    for (const PlannedVector& vector : layer.vectors)
      w.vectors.push_back({vector.role, vectors.Load(vector)});
    for (const PlannedMatrix& matrix : layer.matrices)
      w.matrices.push_back({matrix.role, matrix.pooled, place(matrix.plan)});
    // Pooled runs lie in the pool's region, numbered within the layer in the same order as by the
    // pool's book.
    ForEachRun(w, &IsOwn<LoadedMatrix>,
               [&](const LoadedMatrix& matrix, const weights::RunPlace& run) {
                 weights::SetRun(matrix.placed, run, cutter.Cut(run.bytes));
               });
    int64_t pooled_run = 0;
    ForEachRun(w, &IsPooled<LoadedMatrix>,
               [&](const LoadedMatrix& matrix, const weights::RunPlace& run) {
                 weights::SetRun(matrix.placed, run, pooled_at(index, pooled_run++));
               });
  }
  if (config.moe) {
    loaded.expert_offsets =
        reinterpret_cast<int32_t*>(table_cutter.Cut(OffsetsBytes(config.moe->num_experts)));
  }
  const float** const places[] = {&loaded.final_norm, &loaded.final_norm_bias,
                                  &loaded.embedding_norm, &loaded.embedding_norm_bias};
  const char* const tensors[] = {kFinalNorm, kFinalNormBias, kEmbeddingNorm, kEmbeddingNormBias};
  for (const char* norm : OwnNorms(config)) {
    const auto at = std::ranges::find(tensors, norm) - std::begin(tensors);
    *places[at] = vectors.Load({.role = {"norm"},
                                .tensor = norm,
                                .size = config.hidden_size,
                                .exact = config.norm_sums,
                                .plus_one = config.norm_plus_one});
  }
  FB_RETURN_IF_ERROR(vectors.status());
  const weights::PlacedWeight head = place(plan.head);
  weights::ForEachRun(head.weight, 0, [&](const weights::RunPlace& run) {
    weights::SetRun(head, run, cutter.Cut(run.bytes));
  });
  loaded.head = head.weight;
  if (plan.embedding_table) {
    std::byte* table = cutter.Cut(plan.dtype, {config.vocab_size, config.hidden_size}).data;
    if (reader) {
      FB_RETURN_IF_ERROR(weights::LoadRowMajor(*reader, kEmbeddingTensor, config.vocab_size,
                                               config.hidden_size, plan.dtype, table, num_threads,
                                               device));
    }
    loaded.embedding = table;
  }
  for (const EmbeddedTable& table : EmbeddedTables(plan)) {
    std::byte* const rows = cutter.Cut(plan.dtype, {table.rows, table.columns}).data;
    if (reader) {
      FB_RETURN_IF_ERROR(weights::LoadRowMajor(*reader, table.tensor, table.rows, table.columns,
                                               plan.dtype, rows, num_threads, device));
    }
    loaded.*table.at = rows;
  }
  if (reader) FB_RETURN_IF_ERROR(weights::LoadMatrices(*reader, matrices, num_threads, device));
  base::Status filled;
  const auto rope_table = [&](const RopeSpec& rope, const float** cos, const float** sin) {
    const auto half = static_cast<int64_t>(rope.inv_freq.size());
    auto* const cos_table = cutter.Cut(tensor::DType::kF32, {max_positions, half}).as<float>();
    auto* const sin_table = cutter.Cut(tensor::DType::kF32, {max_positions, half}).as<float>();
    *cos = cos_table;
    *sin = sin_table;
    if (!reader || !filled.ok()) return;
    device::HostWriter cos_writer(device), sin_writer(device);
    FillRope(rope, max_positions, num_threads, cos_writer.Begin(cos_table, max_positions * half),
             sin_writer.Begin(sin_table, max_positions * half));
    filled = cos_writer.End();
    if (filled.ok()) filled = sin_writer.End();
  };
  rope_table(config.rope, &loaded.rope_cos, &loaded.rope_sin);
  if (config.windowed_rope)
    rope_table(*config.windowed_rope, &loaded.windowed_cos, &loaded.windowed_sin);
  FB_RETURN_IF_ERROR(filled);
  if (config.temperature_floor > 0) {
    auto* q_scale = cutter.Cut(tensor::DType::kF32, {max_positions}).as<float>();
    if (reader) {
      device::HostWriter writer(device);
      FillTemperature(config, max_positions, writer.Begin(q_scale, max_positions));
      FB_RETURN_IF_ERROR(writer.End());
    }
    loaded.q_scale = q_scale;
  }
  return loaded;
}

}  // namespace forebay::model
