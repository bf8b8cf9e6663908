#include "model/decoder_weights.h"

#include "model/head_map.h"
#include "model/rope_table.h"

namespace forebay::model {
namespace {

constexpr char kEmbedding[] = "model.embed_tokens.weight";
constexpr char kFinalNorm[] = "model.norm.weight";
constexpr char kHead[] = "lm_head.weight";

uint64_t VectorBytes(int64_t size) { return base::RoundUp(static_cast<uint64_t>(size) * sizeof(float), 64); }

constexpr LayerMatrix kLayerMatrices[] = {LayerMatrix::kQkv, LayerMatrix::kOutput, LayerMatrix::kGateUp, LayerMatrix::kDown};

// Visits every matrix of the plan in the order in which it lies in memory.
template <typename Visit>
void ForEachMatrix(const DecoderPlan& plan, Visit visit) {
  for (const LayerPlan& layer : plan.layers) {
    for (const LayerMatrix matrix : kLayerMatrices) visit(layer.matrix(matrix));
  }
  visit(plan.head);
}

// Loads vectors one after another into the region.
class VectorLoader {
 public:
  VectorLoader(const DecoderPlan& plan, const weights::TensorReader* reader, device::RegionCutter* cutter)
      : plan_(plan), reader_(reader), cutter_(cutter) {}
  // Null without a name.
  const float* Load(const std::string& name, int64_t size) {
    if (name.empty()) return nullptr;
    auto* out = reinterpret_cast<float*>(cutter_->Cut(VectorBytes(size)));
    if (reader_ && status_.ok()) status_ = weights::LoadVector(*reader_, name, size, plan_.dtype, out);
    return out;
  }
  const base::Status& status() const { return status_; }

 private:
  const DecoderPlan& plan_;
  const weights::TensorReader* reader_;
  device::RegionCutter* cutter_;
  base::Status status_;
};

}  // namespace

DecoderPlan PlanDecoder(const ModelConfig& config, tensor::DType dtype, int64_t max_positions, const ReplicaCut& cut) {
  using kernels::LeafBorders;
  FB_CHECK(CheckRunnable(config, "").ok(), "{} was not refused when it was opened", config.architecture);
  const Family* family = FindFamily(config.family);
  DecoderPlan plan{.dtype = dtype, .config = config, .shard = ShardOf(config, cut), .max_positions = max_positions};
  const Shard& shard = plan.shard;
  const HeadMap map = TpHeadMap(config, cut.tp);
  const weights::QkvHeads heads{config.num_heads, config.num_kv_heads, map.QueryHeadsOf(cut.tp_rank), map.KvHeadsOf(cut.tp_rank),
                                config.head_dim};
  for (int64_t i = shard.layers.begin; i < shard.layers.end; ++i) {
    LayerPlan layer;
    layer.names = family->layer_names(config, i);
    const LayerNames& names = layer.names;
    const std::string label = "layers." + std::to_string(i);
    layer.qkv = weights::PlanQkv(label + ".qkv", dtype, {names.q, names.k, names.v, names.q_bias, names.k_bias, names.v_bias},
                                 heads, config.hidden_size);
    layer.output = weights::PlanMatrix(label + ".output", dtype, names.o, names.o_bias, config.hidden_size,
                                       config.num_heads * config.head_dim,
                                       LeafBorders::ForOutput(config.num_heads, config.head_dim));
    layer.output.KeepLeaves(shard.output_leaves);
    layer.gate_up = weights::PlanGateUp(label + ".gate_up", dtype, names.gate, names.up, names.gate_bias, names.up_bias,
                                        {config.intermediate_size, shard.intermediate}, config.hidden_size);
    layer.down = weights::PlanMatrix(label + ".down", dtype, names.down, names.down_bias, config.hidden_size,
                                     config.intermediate_size, LeafBorders::ForDown(config.intermediate_size));
    layer.down.KeepLeaves(shard.down_leaves);
    plan.layers.push_back(std::move(layer));
  }
  const Part vocab = cut.last_stage() ? shard.vocab : Part{};
  plan.head = weights::PlanMatrix("head", dtype, config.tie_word_embeddings ? kEmbedding : kHead, "",
                                  {config.vocab_size, vocab}, config.hidden_size,
                                  LeafBorders::Single(config.hidden_size));
  plan.embedding_table = cut.first_stage() && (!config.tie_word_embeddings || vocab.size() < config.vocab_size);
  return plan;
}

uint64_t DecoderPlan::bytes(int64_t positions) const {
  uint64_t sum = VectorBytes(config.hidden_size);
  for (const LayerPlan& layer : layers) {
    sum += 2 * VectorBytes(config.hidden_size);
    if (!layer.names.q_norm.empty()) sum += 2 * VectorBytes(config.head_dim);
  }
  for (const LayerPlan& layer : layers) {
    for (const LayerMatrix matrix : kLayerMatrices) {
      if (!layer.pooled(matrix)) sum += layer.matrix(matrix).TileBytes();
    }
  }
  sum += head.TileBytes();
  if (embedding_table) {
    sum += base::RoundUp(tensor::BytesOf(dtype, static_cast<uint64_t>(config.vocab_size * config.hidden_size)), 64);
  }
  return sum + 2 * VectorBytes(positions * config.head_dim / 2);
}

uint64_t DecoderPlan::table_bytes() const {
  uint64_t sum = 0;
  ForEachMatrix(*this, [&](const weights::MatrixPlan& matrix) { sum += matrix.TableBytes(); });
  return sum;
}

std::map<std::string, tensor::Shape, std::less<>> DecoderPlan::TensorShapes() const {
  std::map<std::string, tensor::Shape, std::less<>> shapes;
  ForEachMatrix(*this, [&](const weights::MatrixPlan& matrix) {
    for (size_t t = 0; t < matrix.tensors.size(); ++t) {
      shapes[matrix.tensors[t]] = {matrix.tensor_rows[t], matrix.tensor_k};
      if (!matrix.biases.empty() && !matrix.biases[t].empty()) shapes[matrix.biases[t]] = {matrix.tensor_rows[t]};
    }
  });
  for (const LayerPlan& layer : layers) {
    shapes[layer.names.attention_norm] = {config.hidden_size};
    shapes[layer.names.ffn_norm] = {config.hidden_size};
    if (!layer.names.q_norm.empty()) {
      shapes[layer.names.q_norm] = {config.head_dim};
      shapes[layer.names.k_norm] = {config.head_dim};
    }
  }
  shapes[kFinalNorm] = {config.hidden_size};
  shapes[kEmbedding] = {config.vocab_size, config.hidden_size};
  return shapes;
}

base::Result<DecoderWeights> LoadDecoder(const DecoderPlan& plan, const weights::TensorReader* reader,
                                         const device::Region& region, const device::Region& tables, const PoolShare& share,
                                         int num_threads) {
  const ModelConfig& config = plan.config;
  FB_CHECK(region.bytes >= plan.bytes(), "the weight region has {} bytes, the plan needs {}", region.bytes, plan.bytes());
  FB_CHECK(tables.bytes >= plan.table_bytes(), "the tables have {} bytes, the plan needs {}", tables.bytes, plan.table_bytes());
  device::RegionCutter cutter(region), table_cutter(tables);
  DecoderWeights loaded{.shard = plan.shard};
  VectorLoader vectors(plan, reader, &cutter);
  std::vector<weights::PlacedMatrix> matrices;
  const auto place = [&](const weights::MatrixPlan& matrix) {
    matrices.push_back(weights::PlaceMatrix(matrix, [&](uint64_t bytes) { return cutter.Cut(bytes); }, &table_cutter));
    return matrices.back().weight;
  };
  // Tiles of a layer's pooled matrices are counted through all of them.
  weights::TileId pooled{0, 0};
  const auto place_in_pool = [&](uint64_t) -> std::byte* {
    const uint64_t offset = share.book->OffsetOf(share.rank, pooled);
    ++pooled.tile;
    return offset == weights::PoolBook::kNotHeld ? nullptr : share.region->data + offset;
  };
  const auto place_layer = [&](const LayerPlan& layer, LayerMatrix matrix) {
    if (!layer.pooled(matrix)) return place(layer.matrix(matrix));
    matrices.push_back(weights::PlaceMatrix(layer.matrix(matrix), place_in_pool, &table_cutter));
    return matrices.back().weight;
  };
  for (const LayerPlan& layer : plan.layers) {
    pooled = {static_cast<int64_t>(loaded.layers.size()), 0};
    LayerWeights w;
    w.attention_norm = vectors.Load(layer.names.attention_norm, config.hidden_size);
    w.ffn_norm = vectors.Load(layer.names.ffn_norm, config.hidden_size);
    w.q_norm = vectors.Load(layer.names.q_norm, config.head_dim);
    w.k_norm = vectors.Load(layer.names.k_norm, config.head_dim);
    for (const LayerMatrix matrix : kLayerMatrices) MatrixOf(w, matrix) = place_layer(layer, matrix);
    loaded.layers.push_back(w);
  }
  loaded.final_norm = vectors.Load(kFinalNorm, config.hidden_size);
  FB_RETURN_IF_ERROR(vectors.status());
  loaded.head = place(plan.head);
  if (plan.embedding_table) {
    std::byte* table = cutter.Cut(plan.dtype, {config.vocab_size, config.hidden_size}).data;
    if (reader) {
      FB_RETURN_IF_ERROR(weights::LoadRowMajor(*reader, kEmbedding, config.vocab_size, config.hidden_size, plan.dtype, table,
                                               num_threads));
    }
    loaded.embedding = table;
  }
  if (reader) FB_RETURN_IF_ERROR(weights::LoadMatrices(*reader, matrices, num_threads));
  const int64_t half = config.head_dim / 2;
  auto* rope_cos = cutter.Cut(tensor::DType::kF32, {plan.max_positions, half}).as<float>();
  auto* rope_sin = cutter.Cut(tensor::DType::kF32, {plan.max_positions, half}).as<float>();
  if (reader) FillRope(config.rope, plan.max_positions, num_threads, rope_cos, rope_sin);
  loaded.rope_cos = rope_cos;
  loaded.rope_sin = rope_sin;
  return loaded;
}

}  // namespace forebay::model
