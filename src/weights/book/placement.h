// The owners of tiles: pure functions that every device, the simulator and the planner call.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kUnknownPlacement{"placement_unknown"};
inline constexpr base::ErrorCode kCannotPlace{"placement_cannot"};

// Tensors of one kind have one placement.
enum class TensorKind : uint8_t {
  kDense,    // every token's: attention, dense and shared feed-forward blocks
  kExperts,  // matrices of experts: a token uses some of them
};

// Tiles that always lie next to each other: the unit in which weights are shared. A run is one tile
// of a dense matrix, or a whole matrix of an expert.
struct TileRun {
  uint64_t bytes;
  // The run's leaf of K, or its expert, of the layer's [0, num_leaves): runs of one leaf can be
  // computed with on their own.
  int32_t leaf;
  int32_t piece;        // [0, num_pieces): runs of one piece are used at the same time
  uint64_t before = 0;  // bytes of the layer's runs that come first

  friend bool operator==(const TileRun&, const TileRun&) = default;
};

// The runs of a layer that may be pooled, in the order of memory.
struct LayerRuns {
  std::vector<TileRun> runs;
  int32_t num_leaves = 1;
  int32_t num_pieces = 1;
  TensorKind tensors = TensorKind::kDense;  // what they all are

  void Add(uint64_t bytes, int32_t leaf, int32_t piece);
  uint64_t bytes() const;
  friend bool operator==(const LayerRuns&, const LayerRuns&) = default;
};

// A run of a layer, counted through LayerRuns.
struct RunId {
  int64_t layer;
  int64_t run;
};

// The sharers of weights and what they share. The members of a pool are replicas, or the ranks of
// one replica if these cut rows.
struct PlacementGroup {
  int num_members = 1;
  // [layers]: how many pooled layers come before this one; -1: it is replicated
  std::vector<int32_t> pool_index;
  std::vector<LayerRuns> kinds;  // one for layers whose runs are alike; at least one
  std::vector<int32_t> kind_of;  // [layers]; empty: all are of the first kind

  int64_t num_layers() const { return static_cast<int64_t>(pool_index.size()); }
  const LayerRuns& layer(int64_t layer) const { return kinds[KindOf(layer)]; }
  size_t KindOf(int64_t layer) const {
    return kind_of.empty() ? 0 : static_cast<size_t>(kind_of[layer]);
  }
  // Pieces of the layer that has most.
  int32_t num_pieces() const;
};

// pool_index with `pooled` layers spread evenly over those that `can` be pooled. REQUIRES: at least
// `pooled` can.
std::vector<int32_t> SpreadPool(const std::vector<bool>& can, int64_t pooled);
// The same where all of `num_layers` can.
std::vector<int32_t> SpreadPool(int64_t num_layers, int64_t pooled);

class Placement {
 public:
  virtual ~Placement() = default;
  // Whether it can place the group's pooled layers: kCannotPlace says what would do.
  virtual base::Status Check(const PlacementGroup&) const { return base::Status::Ok(); }
  // Members that own the run, ascending; never none. Of a replicated layer: all.
  std::vector<int> Holders(const RunId& run, const PlacementGroup& group) const;
  bool Holds(int member, const RunId& run, const PlacementGroup& group) const;
  // Where `reader` takes the run from: itself if it owns it, else the nearest holder, which is
  // counted upwards, wrapping round, unless the placement says otherwise.
  virtual int Source(int reader, const RunId& run, const PlacementGroup& group) const;
  // Whether the member holds this run of a pooled layer; at least one member does. Of the layer
  // nothing counts but its kind and its pool_index modulo members: books ask about a layer of each.
  virtual bool PoolHolds(int member, const RunId& run, const PlacementGroup& group) const = 0;
};

// The placement of a group's layers of both kinds: each layer has that of its tensors.
std::shared_ptr<const Placement> PlaceByKind(std::shared_ptr<const Placement> dense,
                                             std::shared_ptr<const Placement> experts);

// A placement's entry in the registry, and all that its file declares.
struct PlacementKind {
  std::string_view name;
  TensorKind tensors = TensorKind::kDense;  // that it is for
  // The meaning of the whole number that may follow the name ("by_expert:24" has "SIZE"); empty:
  // none.
  std::string_view parameter = "";
  bool pools = true;                                            // whether members can lack runs
  std::unique_ptr<const Placement> (*make)(int64_t parameter);  // 0: there is no number
};

// The placements. A new one: its file in placements/, and a line here.
#define FOREBAY_PLACEMENTS(X) \
  X(kReplicated)              \
  X(kByLayer)                 \
  X(kStriped)                 \
  X(kSharded)                 \
  X(kByExpert)

#define FOREBAY_DECLARE(kind) extern const PlacementKind kind;
FOREBAY_PLACEMENTS(FOREBAY_DECLARE)
#undef FOREBAY_DECLARE

// The sizes that by_expert can have: equal stretches, one per member, that cover `experts` exactly.
// Ascending; none if there are more members than experts.
std::vector<int64_t> ExpertSizes(int64_t experts, int64_t members);

// What makes a placement without a parameter.
template <typename PlacementType>
std::unique_ptr<const Placement> Make(int64_t) {
  return std::make_unique<PlacementType>();
}

// What a layout says of one kind of tensor.
struct ChosenPlacement {
  const PlacementKind* kind = &kReplicated;  // never null
  int64_t parameter = 0;                     // 0: there is none

  bool pools() const { return kind->pools; }
  std::unique_ptr<const Placement> Make() const { return kind->make(parameter); }
  // As FindPlacement reads it.
  std::string text() const;

  friend bool operator==(const ChosenPlacement&, const ChosenPlacement&) = default;
  friend std::strong_ordering operator<=>(const ChosenPlacement& a, const ChosenPlacement& b) {
    const auto by_name = a.kind->name <=> b.kind->name;
    return by_name != 0 ? by_name : a.parameter <=> b.parameter;
  }
};
// "striped", "by_expert:24". kUnknownPlacement lists the names, or names the fault of the
// parameter.
base::Result<ChosenPlacement> FindPlacement(std::string_view text);

}  // namespace forebay::weights
