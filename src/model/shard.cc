#include "model/shard.h"

#include <algorithm>

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
LeafBorders DownBorders(const ModelConfig& config) {
  return LeafBorders::ForDown(config.intermediate_size);
}

// What the leaves cover.
Part Covered(const LeafBorders& borders, const Part& leaves) {
  return {borders.begin[leaves.begin], borders.begin[leaves.end]};
}

Part HeadsOf(const ModelConfig& config, const Degrees& layout, const Part& blocks) {
  const LeafBorders borders = OutputBorders(config);
  return Covered(borders, PartOfBlocks(borders.num_leaves, layout, blocks));
}
Part Alone(int block) { return {block, int64_t{block} + 1}; }

// KV heads that these heads read. Latents are one for all heads.
Part KvHeadsOf(const ModelConfig& config, const Part& heads) {
  if (config.mla) return {0, 1};
  const int64_t group = config.num_heads / config.num_kv_heads;
  return {heads.begin / group, (heads.end - 1) / group + 1};
}

// Whether the i-th KV head serves the i-th equal run of the heads: what attention assumes.
bool ShareEvenly(const ModelConfig& config, const Part& heads, const Part& kv) {
  if (config.mla) return true;
  if (heads.size() % kv.size() != 0) return false;
  const int64_t group = config.num_heads / config.num_kv_heads, run = heads.size() / kv.size();
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
  if (config.moe && layout.ranks() > config.moe->num_experts) {
    return {kLayoutExperts, fmt::format("{} cannot cut the {} experts of a layer: a rank needs at "
                                        "least one",
                                        FormatDegrees(layout), config.moe->num_experts)};
  }
  FB_RETURN_IF_ERROR(
      CheckLeaves(layout, "output", config.num_heads, "heads", OutputBorders(config).num_leaves));
  if (!config.moe || std::ranges::count(config.moe->has_experts, 0) > 0) {
    FB_RETURN_IF_ERROR(CheckLeaves(layout, "down", config.intermediate_size, "inputs",
                                   DownBorders(config).num_leaves));
  }
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const auto [heads, kv] = HeadsOfBlock(config, layout, BlockOfRank(layout, rank));
    if (ShareEvenly(config, heads, kv)) continue;
    return {kShardHeads, fmt::format("{} cannot cut {} heads over {} KV heads: rank {} would have "
                                     "heads {} to {}, which do not share KV heads {} to {} evenly",
                                     FormatDegrees(layout), config.num_heads, config.num_kv_heads,
                                     rank, heads.begin, heads.end - 1, kv.begin, kv.end - 1)};
  }
  if (pp > config.num_layers) {
    return {kShardLayers, fmt::format("pp={} stages for {} layers: a stage needs at least one", pp,
                                      config.num_layers)};
  }
  return base::Status::Ok();
}

BlockHeads HeadsOfBlock(const ModelConfig& config, const Degrees& layout, int block) {
  const Part heads = HeadsOf(config, layout, Alone(block));
  return {heads, KvHeadsOf(config, heads)};
}

Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut) {
  return ShardOf(config, cut, cut.degrees());
}

Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut, const Degrees& mode) {
  const LeafBorders output = OutputBorders(config), down = DownBorders(config);
  const Degrees layout = cut.degrees();
  const int block = cut.block();
  const Part run = BlocksOf(mode, mode.TpIndex(block));
  Shard shard{.cut = cut, .mode = mode, .layers = EvenPart(config.num_layers, cut.pp, cut.stage)};
  shard.output_leaves = PartOfBlocks(output.num_leaves, layout, run);
  shard.heads = Covered(output, shard.output_leaves);
  shard.kv_heads = KvHeadsOf(config, shard.heads);
  shard.down_leaves = PartOfBlocks(down.num_leaves, layout, run);
  shard.intermediate = Covered(down, shard.down_leaves);
  for (int64_t b = run.begin; b < run.end; ++b)
    shard.run_heads.push_back(HeadsOfBlock(config, layout, static_cast<int>(b)));
  const BlockHeads& own = shard.run_heads[static_cast<size_t>(mode.SpIndex(block))];
  shard.own_heads = own.heads;
  shard.own_kv_heads = own.kv_heads;
  if (block > 0) {
    const Part before = HeadsOfBlock(config, layout, block - 1).kv_heads;
    shard.kv_copies = static_cast<int32_t>(before.end - shard.own_kv_heads.begin);
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

HeadMap StageHeadMap(const ModelConfig& config, const Degrees& layout) {
  HeadMap map;
  map.kv.resize(static_cast<size_t>(config.num_kv_heads));
  for (int block = 0; block < layout.ranks(); ++block) {
    const int32_t rank = RankOfBlock(layout, block);
    const auto [heads, kv] = HeadsOfBlock(config, layout, block);
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
