#include "model/shard.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "kernels/digest.h"
#include "kernels/packed_weight.h"

namespace forebay::model {
namespace {

using base::EvenPart;
using kernels::LeafBorders;

LeafBorders OutputBorders(const ModelConfig& config) {
  return LeafBorders::ForOutput(config.num_heads, 1);
}

// Leaves of whole value heads; none where the model keeps no states.
LeafBorders StateBorders(const ModelConfig& config) {
  return config.states ? LeafBorders::ForOutput(config.states->value_heads, 1) : LeafBorders{};
}

// What the leaves cover.
Part Covered(const LeafBorders& borders, const Part& leaves) {
  return {borders.begin[leaves.begin], borders.begin[leaves.end]};
}

Part Alone(int block) { return {block, int64_t{block} + 1}; }

// KV heads that these heads read, each of which serves `group` heads.
Part KvHeadsOf(int64_t group, const Part& heads) {
  return {heads.begin / group, (heads.end - 1) / group + 1};
}

BlockHeads HeadsOf(const LeafBorders& borders, int64_t group, const Degrees& layout, int block) {
  const Part heads = Covered(borders, PartOfBlocks(borders.num_leaves, layout, Alone(block)));
  return {heads, KvHeadsOf(group, heads)};
}

// Whether the i-th KV head serves the i-th equal run of the heads: what kernels assume.
bool ShareEvenly(int64_t group, const BlockHeads& block) {
  const auto& [heads, kv] = block;
  if (heads.size() % kv.size() != 0) return false;
  const int64_t run = heads.size() / kv.size();
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    if (head / group - kv.begin != (head - heads.begin) / run) return false;
  }
  return true;
}

// "tp=2", or "sp=4 x tp=2".
std::string FormatDegrees(const Degrees& layout) {
  if (layout.sp == 1) return fmt::format("tp={}", layout.tp);
  return fmt::format("sp={} x tp={}", layout.sp, layout.tp);
}

base::Status CheckLeaves(const Degrees& layout, const char* projection, int64_t inputs,
                         const char* name, int leaves) {
  if (layout.ranks() <= leaves) return base::Status::Ok();
  return {kShardLeaves, fmt::format("{} cannot cut the {} projection: its {} {} form {} leaves, "
                                    "and a rank needs at least one",
                                    FormatDegrees(layout), projection, inputs, name, leaves)};
}

// Whether each rank's heads share its KV heads evenly. `name`, `kv_name`: "heads", "KV heads".
base::Status CheckHeads(const Degrees& layout, int64_t all, int64_t all_kv, const char* name,
                        const char* kv_name, const std::function<BlockHeads(int block)>& of_block) {
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const BlockHeads block = of_block(BlockOfRank(layout, rank));
    if (ShareEvenly(all / all_kv, block)) continue;
    const auto& [heads, kv] = block;
    return {kShardHeads,
            fmt::format("{} cannot cut {} {} over {} {}: rank {} would have {} {} to {}, which do "
                        "not share {} {} to {} evenly",
                        FormatDegrees(layout), all, name, all_kv, kv_name, rank, name, heads.begin,
                        heads.end - 1, kv_name, kv.begin, kv.end - 1)};
  }
  return base::Status::Ok();
}

// Latents are one for all heads.
int64_t KvHeadCount(const ModelConfig& config) { return config.mla ? 1 : config.num_kv_heads; }

// Of all layers.
std::vector<int64_t> KvHeadCounts(const ModelConfig& config) {
  std::vector<int64_t> counts = {KvHeadCount(config)};
  if (config.full_heads) counts.push_back(config.full_heads->kv_heads);
  return counts;
}

KvCut KvCutOf(const ModelConfig& config, const Shard& shard, int64_t kv_heads) {
  const Degrees layout = shard.cut.degrees();
  const int block = shard.cut.block();
  const Part run = BlocksOf(shard.mode, shard.mode.TpIndex(block));
  KvCut cut{.kv_heads = KvHeadsOf(config.num_heads / kv_heads, shard.heads)};
  for (int64_t b = run.begin; b < run.end; ++b)
    cut.run_heads.push_back(HeadsOfBlock(config, layout, static_cast<int>(b), kv_heads));
  cut.own_kv_heads = cut.run_heads[static_cast<size_t>(shard.mode.SpIndex(block))].kv_heads;
  if (block > 0) {
    const Part before = HeadsOfBlock(config, layout, block - 1, kv_heads).kv_heads;
    cut.kv_copies = static_cast<int32_t>(before.end - cut.own_kv_heads.begin);
  }
  return cut;
}

// Heads of layers with state: key heads that serve whole parts of a rank's, whole norms.
base::Status CheckStateHeads(const ModelConfig& config, const Degrees& layout) {
  const StateConfig& net = *config.states;
  const bool mamba = net.kind == StateKind::kMamba2;
  const char* const heads = mamba ? "Mamba heads" : "value heads";
  FB_RETURN_IF_ERROR(CheckLeaves(layout, "state layers' output", net.value_heads, heads,
                                 StateBorders(config).num_leaves));
  const auto of_block = [&](int block) { return StateHeadsOfBlock(config, layout, block); };
  FB_RETURN_IF_ERROR(CheckHeads(layout, net.value_heads, net.key_heads, heads,
                                mamba ? "groups of B and C" : "key heads", of_block));
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const Part part = of_block(BlockOfRank(layout, rank)).heads;
    if (part.begin % net.normed_heads == 0 && part.end % net.normed_heads == 0) continue;
    return {kShardHeads,
            fmt::format("{} cannot cut {} {}, of which {} go through one norm: rank {} would have "
                        "{} {} to {}",
                        FormatDegrees(layout), net.value_heads, heads, net.normed_heads, rank,
                        heads, part.begin, part.end - 1)};
  }
  return base::Status::Ok();
}

}  // namespace

base::Status CheckCut(const ModelConfig& config, const Degrees& layout, int pp) {
  FB_CHECK(layout.sp > 0 && layout.tp > 0 && pp > 0, "a replica of sp={}, tp={} and pp={}",
           layout.sp, layout.tp, pp);
  if (layout.sp > 1 && config.mla) {
    return {kLayoutExperts, fmt::format("{} beside latent attention ({}) is not there yet; "
                                        "expected sp=1",
                                        FormatDegrees(layout), config.architecture)};
  }
  if (layout.ranks() > 1 && config.qk_norm_of_rows) {
    return {kShardHeads, fmt::format("{} beside a norm over all heads of a row ({}) is not there "
                                     "yet; expected tp=1 and sp=1",
                                     FormatDegrees(layout), config.architecture)};
  }
  if (layout.sp > 1 && config.kv_readers > 0) {
    return {kShardLayers, fmt::format("sp={} beside layers that read earlier layers' keys and "
                                      "values ({}) is not there yet; expected sp=1",
                                      layout.sp, config.architecture)};
  }
  if (config.moe && layout.ranks() > config.moe->num_experts) {
    return {kLayoutExperts, fmt::format("{} cannot cut the {} experts of a layer: a rank needs at "
                                        "least one",
                                        FormatDegrees(layout), config.moe->num_experts)};
  }
  FB_RETURN_IF_ERROR(
      CheckLeaves(layout, "output", config.num_heads, "heads", OutputBorders(config).num_leaves));
  if (config.DenseLayers() > 0 || (config.moe && config.moe->beside_dense)) {
    FB_RETURN_IF_ERROR(CheckLeaves(layout, "down", config.intermediate_size, "inputs",
                                   LeafBorders::ForDown(config.intermediate_size).num_leaves));
  }
  for (const int64_t kv_heads : KvHeadCounts(config)) {
    FB_RETURN_IF_ERROR(
        CheckHeads(layout, config.num_heads, kv_heads, "heads", "KV heads",
                   [&](int block) { return HeadsOfBlock(config, layout, block, kv_heads); }));
  }
  if (config.states) FB_RETURN_IF_ERROR(CheckStateHeads(config, layout));
  if (pp > 1 && (config.kv_readers > 0 || config.layer_input_size > 0)) {
    return {kShardLayers,
            fmt::format("pp={} beside {} ({}) is not there yet; expected pp=1", pp,
                        config.kv_readers > 0 ? "layers that read earlier layers' keys and values"
                                              : "inputs by layer",
                        config.architecture)};
  }
  if (pp > config.num_layers) {
    return {kShardLayers, fmt::format("pp={} stages for {} layers: a stage needs at least one", pp,
                                      config.num_layers)};
  }
  return base::Status::Ok();
}

BlockHeads HeadsOfBlock(const ModelConfig& config, const Degrees& layout, int block,
                        int64_t kv_heads) {
  return HeadsOf(OutputBorders(config), config.num_heads / kv_heads, layout, block);
}

BlockHeads StateHeadsOfBlock(const ModelConfig& config, const Degrees& layout, int block) {
  const StateConfig& net = *config.states;
  return HeadsOf(StateBorders(config), net.value_heads / net.key_heads, layout, block);
}

StateShape StateShapeOf(const ModelConfig& config, const BlockHeads& heads) {
  StateShape shape = *config.states;
  shape.value_heads = heads.heads.size();
  shape.key_heads = heads.kv_heads.size();
  return shape;
}

FfnCut FfnCutOf(const Shard& shard, int64_t width) {
  const LeafBorders down = LeafBorders::ForDown(width);
  const Part leaves = PartOfBlocks(down.num_leaves, shard.cut.degrees(),
                                   BlocksOf(shard.mode, shard.mode.TpIndex(shard.cut.block())));
  return {leaves, Covered(down, leaves)};
}

Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut) {
  return ShardOf(config, cut, cut.degrees());
}

Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut, const Degrees& mode) {
  const LeafBorders output = OutputBorders(config);
  const Degrees layout = cut.degrees();
  const int block = cut.block();
  const Part run = BlocksOf(mode, mode.TpIndex(block));
  Shard shard;
  shard.cut = cut;
  shard.mode = mode;
  shard.layers = EvenPart(config.num_layers, cut.pp, cut.stage);
  shard.output_leaves = PartOfBlocks(output.num_leaves, layout, run);
  shard.heads = Covered(output, shard.output_leaves);
  const FfnCut ffn = FfnCutOf(shard, config.intermediate_size);
  shard.down_leaves = ffn.leaves;
  shard.intermediate = ffn.columns;
  shard.own_heads = HeadsOfBlock(config, layout, block, KvHeadCount(config)).heads;
  static_cast<KvCut&>(shard) = KvCutOf(config, shard, KvHeadCount(config));
  if (config.full_heads) shard.full_kv = KvCutOf(config, shard, config.full_heads->kv_heads);
  if (config.states) {
    shard.state_leaves = PartOfBlocks(StateBorders(config).num_leaves, layout, run);
    for (int64_t b = run.begin; b < run.end; ++b)
      shard.run_state_heads.push_back(StateHeadsOfBlock(config, layout, static_cast<int>(b)));
    shard.own_state_heads = StateHeadsOfBlock(config, layout, block);
  }
  shard.vocab = VocabOf(config, layout, block);
  shard.experts = ExpertsOf(config, layout, mode, mode.TpIndex(block));
  return shard;
}

Part ExpertsOf(const ModelConfig& config, const Degrees& layout, const Degrees& mode, int index) {
  return PartOfBlocks(config.moe ? config.moe->num_experts : 0, layout, BlocksOf(mode, index));
}

Part VocabOf(const ModelConfig& config, const Degrees& layout, int block) {
  constexpr int64_t kChunk = kernels::kDigestChunk;
  const int64_t all = (config.vocab_size + kChunk - 1) / kChunk;
  const Part chunks = PartOfBlocks(all, layout, Alone(block));
  return {std::min(chunks.begin * kChunk, config.vocab_size),
          std::min(chunks.end * kChunk, config.vocab_size)};
}

HeadMap StageHeadMap(const ModelConfig& config, const Degrees& layout, int64_t kv_heads) {
  HeadMap map;
  map.kv.resize(static_cast<size_t>(kv_heads));
  for (int block = 0; block < layout.ranks(); ++block) {
    const int32_t rank = RankOfBlock(layout, block);
    const auto [heads, kv] = HeadsOfBlock(config, layout, block, kv_heads);
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      map.query.push_back({rank, static_cast<int32_t>(head - heads.begin)});
    }
    for (int64_t head = kv.begin; head < kv.end; ++head) {
      map.kv[head].push_back({rank, static_cast<int32_t>(head - kv.begin)});
    }
  }
  return map;
}

}  // namespace forebay::model
