#include "layout/layout.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "layout/memory_plan.h"

namespace forebay::layout {
namespace {

constexpr int kMostRanks = 1024;
constexpr char kKeys[] =
    "groups, dp, sp, tp, pp, weights, pool, pool-attention, experts, expert-size";

base::Result<int64_t> ParseNumber(std::string_view key, std::string_view value, int64_t least,
                                  int64_t most, std::string_view instead) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc() && end == value.data() + value.size() && least <= number &&
      number <= most)
    return number;
  return base::Status(kLayoutInvalid, fmt::format("--layout: {}={} is no number from {} to {}{}",
                                                  key, value, least, most, instead));
}

base::Status Set(std::string_view key, std::string_view value, Layout* layout) {
  for (const auto& [name, member] : {std::pair{"groups", &Layout::groups},
                                     {"dp", &Layout::dp},
                                     {"sp", &Layout::sp},
                                     {"tp", &Layout::tp},
                                     {"pp", &Layout::pp}}) {
    if (key != name) continue;
    FB_ASSIGN_OR_RETURN(const int64_t number, ParseNumber(key, value, 1, kMostRanks, ""));
    layout->*member = static_cast<int>(number);
    return base::Status::Ok();
  }
  if (key == "weights" || key == "experts") {
    const bool experts = key == "experts";
    FB_ASSIGN_OR_RETURN(const weights::ChosenPlacement chosen, weights::FindPlacement(value));
    const auto tensors = experts ? weights::TensorKind::kExperts : weights::TensorKind::kDense;
    if (chosen.kind->tensors != tensors && chosen.pools()) {
      return {kLayoutInvalid, fmt::format("--layout: {}={} is for {}; expected it behind {}=", key,
                                          value, experts ? "layers without experts" : "experts",
                                          experts ? "weights" : "experts")};
    }
    (experts ? layout->experts : layout->weights) = chosen;
    return base::Status::Ok();
  }
  if (key == "expert-size") {
    layout->expert_size = 0;
    if (value == "auto") layout->expert_size.reset();
    if (value == "least" || value == "auto") return base::Status::Ok();
    FB_ASSIGN_OR_RETURN(layout->expert_size,
                        ParseNumber(key, value, 1, 100'000, ", nor least, nor auto"));
    return base::Status::Ok();
  }
  if (key == "pool") {
    layout->pool_layers.reset();
    if (value == "auto") return base::Status::Ok();
    FB_ASSIGN_OR_RETURN(layout->pool_layers, ParseNumber(key, value, 0, 100'000, ", nor auto"));
    return base::Status::Ok();
  }
  if (key == "pool-attention") {
    if (value != "on" && value != "off") {
      return {kLayoutInvalid,
              fmt::format("--layout: pool-attention={} is neither on nor off", value)};
    }
    layout->pool_attention = value == "on";
    return base::Status::Ok();
  }
  return {kLayoutInvalid, fmt::format("--layout: key \"{}\" is unknown; expected {}", key, kKeys)};
}

std::string SizeText(const Layout& layout) {
  return layout.expert_size ? std::to_string(*layout.expert_size) : "auto";
}

base::Status CheckExperts(const Layout& layout, const model::ModelConfig& config) {
  if (!layout.pools_experts()) {
    if (layout.expert_size == 0) return base::Status::Ok();
    return {kLayoutPool, fmt::format("--layout: expert-size={} with experts=replicated; expected "
                                     "experts=by_expert",
                                     SizeText(layout))};
  }
  if (layout.experts.parameter > 0 && layout.expert_size != 0) {
    return {kLayoutPool, fmt::format("--layout: expert-size={} beside experts={}; expected the "
                                     "number in one of them",
                                     SizeText(layout), layout.experts.text())};
  }
  if (!layout.expert_size && layout.pools_layers() && !layout.pool_layers) {
    return {kLayoutPool,
            fmt::format("--layout: expert-size=auto beside weights={},pool=auto, which is for the "
                        "same memory; expected a number for one of them",
                        layout.weights.text())};
  }
  if (config.moe) return base::Status::Ok();
  return {kLayoutPool, fmt::format("--layout: experts={} of a model without experts ({})",
                                   layout.experts.text(), config.architecture)};
}

// Ranks along sp share in the order of their blocks, so that each has what it computes with alone.
bool InBlockOrder(const Layout& layout, const model::ModelConfig& config) {
  if (layout.pool_attention) return false;
  if (layout.pools_layers() && layout.weights.kind != &weights::kStriped) return false;
  if (!layout.pools_experts()) return true;
  return layout.expert_size == 0 && layout.experts.parameter == 0 && config.moe &&
         config.moe->num_experts % layout.ranks_per_stage() == 0;
}

base::Status CheckPool(const Layout& layout, const model::ModelConfig& config) {
  if (layout.pools_along_sp() && !InBlockOrder(layout, config)) {
    return {kLayoutPool,
            fmt::format("--layout: weights={},experts={},expert-size={},pool-attention={} beside "
                        "sp={}, whose ranks share the FFN in the order of their blocks; expected "
                        "weights=striped, experts in equal parts, expert-size=least, "
                        "pool-attention=off, or sp=1",
                        layout.weights.text(), layout.experts.text(), SizeText(layout),
                        layout.pool_attention ? "on" : "off", layout.sp)};
  }
  FB_RETURN_IF_ERROR(CheckExperts(layout, config));
  if (!layout.pools_layers()) {
    if (layout.pool_layers.value_or(0) == 0 && !layout.pool_attention) return base::Status::Ok();
    return {
        kLayoutPool,
        fmt::format(
            "--layout: {} with weights=replicated, which pools nothing; expected weights=by_layer, "
            "striped or sharded",
            layout.pool_attention ? std::string("pool-attention=on")
                                  : fmt::format("pool={}", *layout.pool_layers))};
  }
  if (layout.pool_layers.value_or(0) > config.num_layers) {
    return {kLayoutPool, fmt::format("--layout: pool={} of a model of {} layers",
                                     *layout.pool_layers, config.num_layers)};
  }
  // A block has a leaf at least.
  if (layout.weights.kind != &weights::kStriped || layout.sp > 1) return base::Status::Ok();
  for (int t = 0; t < layout.tp; ++t) {
    const int64_t leaves =
        model::ShardOf(config, {.tp = layout.tp, .tp_rank = t}).down_leaves.size();
    if (layout.dp <= leaves) continue;
    return {
        model::kShardLeaves,
        fmt::format(
            "--layout: weights=striped over dp={}: the down projection of a rank with tp={} has {} "
            "leaves, and a stripe needs at least one",
            layout.dp, layout.tp, leaves)};
  }
  return base::Status::Ok();
}

// Scales of fp8_block stand for 128 x 128 values: no rank's part begins within such a block.
base::Status CheckScales(const Layout& layout, const model::ModelConfig& config) {
  constexpr int64_t kScaleBlock = 128;
  if (!config.stored || config.stored->format != cost::NumberFormat::kFP8Block) return {};
  for (int rank = 0; rank < layout.ranks_per_stage(); ++rank) {
    const auto degrees = layout.degrees();
    const model::Shard shard =
        model::ShardOf(config, CutOf(layout, rank), {.sp = 1, .tp = degrees.ranks()});
    const std::pair<const char*, int64_t> begins[] = {
        {"column of the FFN", shard.intermediate.begin},
        {"value of the queries", shard.heads.begin * config.head_dim},
        {"value of the keys", shard.kv_heads.begin * config.head_dim}};
    for (const auto& [what, begin] : begins) {
      if (begin % kScaleBlock == 0) continue;
      return {kQuantization,
              fmt::format("--quantization fp8_block with sp={}, tp={}: the part of rank {} begins "
                          "at {} {}, within a block of {} that has one scale; expected a cut at "
                          "whole blocks, or fp8",
                          layout.sp, layout.tp, rank, what, begin, kScaleBlock)};
    }
  }
  return {};
}

// Ranks of the stage of `rank`, as ranks of the group.
fabric::Communicator InStageOf(const Layout& layout, int rank, std::vector<int> members,
                               int my_index) {
  const int first = rank / layout.ranks_per_stage() * layout.ranks_per_stage();
  for (int& member : members) member += first;
  return {std::move(members), my_index};
}

template <typename RankAt>
fabric::Communicator Collect(int count, int my_index, RankAt rank_at) {
  fabric::Communicator communicator{.my_index = my_index};
  for (int i = 0; i < count; ++i) communicator.ranks.push_back(rank_at(i));
  return communicator;
}

}  // namespace

base::Result<Layout> ParseLayout(std::string_view text) {
  Layout layout;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      return base::Status(
          kLayoutInvalid,
          fmt::format("--layout: \"{}\" is no key=value; keys are {}", entry, kKeys));
    }
    const std::string_view key = entry.substr(0, equals);
    if (!seen.insert(key).second)
      return base::Status(kLayoutInvalid, fmt::format("--layout: {} is given twice", key));
    FB_RETURN_IF_ERROR(Set(key, entry.substr(equals + 1), &layout));
  }
  if (static_cast<int64_t>(layout.groups) * layout.dp * layout.sp * layout.tp * layout.pp >
      kMostRanks) {
    return base::Status(kLayoutInvalid, fmt::format("--layout: more than {} ranks", kMostRanks));
  }
  return layout;
}

std::string FormatLayout(const Layout& layout) {
  const std::string sp = layout.sp == 1 ? "" : fmt::format("sp={},", layout.sp);
  std::string text =
      fmt::format("groups={},dp={},{}tp={},pp={},weights={},pool={},pool-attention={}",
                  layout.groups, layout.dp, sp, layout.tp, layout.pp, layout.weights.text(),
                  layout.pool_layers ? std::to_string(*layout.pool_layers) : "auto",
                  layout.pool_attention ? "on" : "off");
  if (layout.pools_experts()) text += ",experts=" + layout.experts.text();
  if (layout.expert_size != 0) text += ",expert-size=" + SizeText(layout);
  return text;
}

base::Status ValidateLayout(const Layout& layout, const model::ModelConfig& config,
                            int num_devices) {
  if (layout.num_devices() != num_devices) {
    return {
        kLayoutDevices,
        fmt::format("--layout: groups={} x dp={} x pp={} x{} tp={} needs {} devices, there are {}",
                    layout.groups, layout.dp, layout.pp,
                    layout.sp == 1 ? "" : fmt::format(" sp={} x", layout.sp), layout.tp,
                    layout.num_devices(), num_devices)};
  }
  FB_RETURN_IF_ERROR(model::CheckCut(config, layout.degrees(), layout.pp));
  FB_RETURN_IF_ERROR(CheckScales(layout, config));
  return CheckPool(layout, config);
}

std::string FormatUneven(const Layout& layout, const model::ModelConfig& config) {
  constexpr double kNotWorthALine = 1.01;
  const int ranks = layout.ranks_per_stage();
  const bool has_dense = config.DenseLayers() > 0;
  int64_t heads = 0, columns = 0;  // the most of any rank
  for (int rank = 0; rank < ranks; ++rank) {
    const model::Shard shard = model::ShardOf(config, CutOf(layout, rank), {.sp = 1, .tp = ranks});
    heads = std::max(heads, shard.heads.size());
    if (has_dense) columns = std::max(columns, shard.intermediate.size());
  }
  std::string parts;
  const auto add = [&](const char* name, int64_t most, int64_t all) {
    const double over_mean = static_cast<double>(most * ranks) / static_cast<double>(all);
    if (most == 0 || over_mean < kNotWorthALine) return;
    parts += fmt::format("{}{} of {} {}, {:.2f} times the mean", parts.empty() ? "" : ", and ",
                         most, all, name, over_mean);
  };
  add("heads", heads, config.num_heads);
  add("columns of the FFN", columns, config.intermediate_size);
  if (parts.empty()) return "";
  return fmt::format(
      "sp={}, tp={}: the busiest rank has {}; the others wait for it where these "
      "are cut",
      layout.sp, layout.tp, parts);
}

// Ranks are numbered by replica, stage, sp rank and tp rank, the last one first to change: those
// that meet most often are neighbours.
RankPlace PlaceOf(const Layout& layout, int rank) {
  return {rank / layout.ranks_per_replica(), rank / layout.ranks_per_stage() % layout.pp,
          rank % layout.tp, rank / layout.tp % layout.sp};
}

int RankOf(const Layout& layout, const RankPlace& place) {
  const int stage = place.replica * layout.pp + place.stage;
  return (stage * layout.sp + place.sp_rank) * layout.tp + place.tp_rank;
}

fabric::Communicator TpRanks(const Layout& layout, int rank, const model::Degrees& mode) {
  const int block = CutOf(layout, rank).block();
  return InStageOf(layout, rank, model::TpRanks(layout.degrees(), mode, block),
                   mode.TpIndex(block));
}

fabric::Communicator SpRanks(const Layout& layout, int rank, const model::Degrees& mode) {
  const int block = CutOf(layout, rank).block();
  return InStageOf(layout, rank, model::SpRanks(layout.degrees(), mode, block),
                   mode.SpIndex(block));
}

fabric::Communicator RanksOfStage(const Layout& layout, int rank) {
  return TpRanks(layout, rank, {.sp = 1, .tp = layout.ranks_per_stage()});
}

fabric::Communicator StageRanks(const Layout& layout, int rank) {
  const RankPlace place = PlaceOf(layout, rank);
  return Collect(layout.pp, place.stage, [&](int stage) {
    return RankOf(layout, {place.replica, stage, place.tp_rank, place.sp_rank});
  });
}

fabric::Communicator PoolRanks(const Layout& layout, int rank) {
  // With sp the ranks of one replica share weights. Without it replicas do: each of their ranks
  // with those that have the same part of the same layers.
  if (layout.sp > 1) return SpRanks(layout, rank, layout.degrees());
  const RankPlace place = PlaceOf(layout, rank);
  return Collect(layout.dp, place.replica, [&](int replica) {
    return RankOf(layout, {replica, place.stage, place.tp_rank, place.sp_rank});
  });
}

fabric::Communicator ShipRanks(const Layout& layout, int rank) {
  const RankPlace place = PlaceOf(layout, rank);
  return Collect(layout.tp * layout.dp, place.tp_rank * layout.dp + place.replica, [&](int i) {
    return RankOf(layout, {i % layout.dp, place.stage, i / layout.dp});
  });
}

model::ReplicaCut CutOf(const Layout& layout, int rank) {
  const RankPlace place = PlaceOf(layout, rank);
  return {.tp = layout.tp,
          .pp = layout.pp,
          .tp_rank = place.tp_rank,
          .stage = place.stage,
          .sp = layout.sp,
          .sp_rank = place.sp_rank};
}

int ReplicasOn(int devices, int tp, int pp) {
  return devices % (tp * pp) == 0 ? devices / (tp * pp) : 0;
}

}  // namespace forebay::layout
