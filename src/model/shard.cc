#include "model/shard.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/digest.h"
#include "kernels/packed_weight.h"

namespace forebay::model {
namespace {

using base::EvenPart;
using kernels::LeafBorders;

LeafBorders OutputBorders(const ModelConfig& config) { return LeafBorders::ForOutput(config.num_heads, 1); }
LeafBorders DownBorders(const ModelConfig& config) { return LeafBorders::ForDown(config.intermediate_size); }

// What the leaves cover.
Part Covered(const LeafBorders& borders, const Part& leaves) { return {borders.begin[leaves.begin], borders.begin[leaves.end]}; }

Part HeadsOf(const ModelConfig& config, int tp, int tp_rank) {
  const LeafBorders borders = OutputBorders(config);
  return Covered(borders, EvenPart(borders.num_leaves, tp, tp_rank));
}

// KV heads that these heads read.
Part KvHeadsOf(const ModelConfig& config, const Part& heads) {
  const int64_t group = config.num_heads / config.num_kv_heads;
  return {heads.begin / group, (heads.end - 1) / group + 1};
}

// Whether the i-th KV head serves the i-th equal run of the heads: what attention assumes.
bool ShareEvenly(const ModelConfig& config, const Part& heads, const Part& kv) {
  if (heads.size() % kv.size() != 0) return false;
  const int64_t group = config.num_heads / config.num_kv_heads, run = heads.size() / kv.size();
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    if (head / group - kv.begin != (head - heads.begin) / run) return false;
  }
  return true;
}

}  // namespace

base::Status CheckCut(const ModelConfig& config, int tp, int pp) {
  FB_CHECK(tp > 0 && pp > 0, "a replica of tp={} and pp={}", tp, pp);
  const int output_leaves = OutputBorders(config).num_leaves, down_leaves = DownBorders(config).num_leaves;
  if (tp > output_leaves) {
    return {kShardLeaves, fmt::format("tp={} cannot cut the output projection: its {} heads form {} leaves, and a rank needs "
                                      "at least one", tp, config.num_heads, output_leaves)};
  }
  if (tp > down_leaves) {
    return {kShardLeaves, fmt::format("tp={} cannot cut the down projection: its {} inputs form {} leaves, and a rank needs at "
                                      "least one", tp, config.intermediate_size, down_leaves)};
  }
  for (int rank = 0; rank < tp; ++rank) {
    const Part heads = HeadsOf(config, tp, rank), kv = KvHeadsOf(config, heads);
    if (ShareEvenly(config, heads, kv)) continue;
    return {kShardHeads, fmt::format("tp={} cannot cut {} heads over {} KV heads: rank {} would have heads {} to {}, which do "
                                     "not share KV heads {} to {} evenly", tp, config.num_heads, config.num_kv_heads, rank,
                                     heads.begin, heads.end - 1, kv.begin, kv.end - 1)};
  }
  if (pp > config.num_layers) {
    return {kShardLayers, fmt::format("pp={} stages for {} layers: a stage needs at least one", pp, config.num_layers)};
  }
  return base::Status::Ok();
}

Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut) {
  const LeafBorders output = OutputBorders(config), down = DownBorders(config);
  Shard shard{.cut = cut, .layers = EvenPart(config.num_layers, cut.pp, cut.stage)};
  shard.output_leaves = EvenPart(output.num_leaves, cut.tp, cut.tp_rank);
  shard.heads = Covered(output, shard.output_leaves);
  shard.kv_heads = KvHeadsOf(config, shard.heads);
  if (cut.tp_rank > 0) {
    const Part before = KvHeadsOf(config, HeadsOf(config, cut.tp, cut.tp_rank - 1));
    shard.kv_copies = static_cast<int32_t>(before.end - shard.kv_heads.begin);
  }
  shard.down_leaves = EvenPart(down.num_leaves, cut.tp, cut.tp_rank);
  shard.intermediate = Covered(down, shard.down_leaves);
  shard.vocab = VocabOf(config, cut.tp, cut.tp_rank);
  return shard;
}

Part VocabOf(const ModelConfig& config, int tp, int tp_rank) {
  constexpr int64_t kChunk = kernels::kDigestChunk;
  const Part chunks = EvenPart((config.vocab_size + kChunk - 1) / kChunk, tp, tp_rank);
  return {std::min(chunks.begin * kChunk, config.vocab_size), std::min(chunks.end * kChunk, config.vocab_size)};
}

HeadMap TpHeadMap(const ModelConfig& config, int tp) {
  HeadMap map;
  map.kv.resize(static_cast<size_t>(config.num_kv_heads));
  for (int32_t rank = 0; rank < tp; ++rank) {
    const Part heads = HeadsOf(config, tp, rank), kv = KvHeadsOf(config, heads);
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
