#include "weights/book/placement.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace forebay::weights {

void LayerRuns::Add(uint64_t run_bytes, int32_t leaf, int32_t piece) {
  runs.push_back({.bytes = run_bytes, .leaf = leaf, .piece = piece, .before = bytes()});
}

uint64_t LayerRuns::bytes() const {
  return runs.empty() ? 0 : runs.back().before + runs.back().bytes;
}

int32_t PlacementGroup::num_pieces() const {
  return std::ranges::max(kinds, {}, &LayerRuns::num_pieces).num_pieces;
}

std::vector<int32_t> SpreadPool(const std::vector<bool>& can, int64_t pooled) {
  std::vector<size_t> layers;
  for (size_t layer = 0; layer < can.size(); ++layer) {
    if (can[layer]) layers.push_back(layer);
  }
  const auto count = static_cast<int64_t>(layers.size());
  FB_CHECK(0 <= pooled && pooled <= count, "{} of {} layers are pooled", pooled, count);
  std::vector<int32_t> index(can.size(), -1);
  for (int64_t p = 0; p < pooled; ++p)
    index[layers[(2 * p + 1) * count / (2 * pooled)]] = static_cast<int32_t>(p);
  return index;
}

std::vector<int32_t> SpreadPool(int64_t num_layers, int64_t pooled) {
  return SpreadPool(std::vector<bool>(static_cast<size_t>(num_layers), true), pooled);
}

std::vector<int> Placement::Holders(const RunId& run, const PlacementGroup& group) const {
  std::vector<int> holders;
  for (int member = 0; member < group.num_members; ++member) {
    if (Holds(member, run, group)) holders.push_back(member);
  }
  return holders;
}

bool Placement::Holds(int member, const RunId& run, const PlacementGroup& group) const {
  return group.pool_index[run.layer] < 0 || PoolHolds(member, run, group);
}

int Placement::Source(int reader, const RunId& run, const PlacementGroup& group) const {
  for (int distance = 0; distance < group.num_members; ++distance) {
    const int member = (reader + distance) % group.num_members;
    if (Holds(member, run, group)) return member;
  }
  FB_CHECK(false, "nobody holds run {} of layer {}", run.run, run.layer);
  return -1;
}

namespace {

class ByKind final : public Placement {
 public:
  ByKind(std::shared_ptr<const Placement> dense, std::shared_ptr<const Placement> experts)
      : dense_(std::move(dense)), experts_(std::move(experts)) {}

  base::Status Check(const PlacementGroup& group) const override {
    FB_RETURN_IF_ERROR(dense_->Check(group));
    return experts_->Check(group);
  }
  int Source(int reader, const RunId& run, const PlacementGroup& group) const override {
    return Of(run, group).Source(reader, run, group);
  }
  bool PoolHolds(int member, const RunId& run, const PlacementGroup& group) const override {
    return Of(run, group).PoolHolds(member, run, group);
  }

 private:
  const Placement& Of(const RunId& run, const PlacementGroup& group) const {
    return group.layer(run.layer).tensors == TensorKind::kExperts ? *experts_ : *dense_;
  }

  const std::shared_ptr<const Placement> dense_, experts_;
};

}  // namespace

std::shared_ptr<const Placement> PlaceByKind(std::shared_ptr<const Placement> dense,
                                             std::shared_ptr<const Placement> experts) {
  return std::make_shared<ByKind>(std::move(dense), std::move(experts));
}

std::string ChosenPlacement::text() const {
  return parameter == 0 ? std::string(kind->name) : fmt::format("{}:{}", kind->name, parameter);
}

base::Result<ChosenPlacement> FindPlacement(std::string_view text) {
#define FOREBAY_ENTRY(kind) &kind,
  static const PlacementKind* const kKinds[] = {FOREBAY_PLACEMENTS(FOREBAY_ENTRY)};
#undef FOREBAY_ENTRY
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon), digits = text.substr(colon);
  std::string names;
  for (const PlacementKind* kind : kKinds) {
    const std::string expected = kind->parameter.empty()
                                     ? std::string(kind->name)
                                     : fmt::format("{}[:{}]", kind->name, kind->parameter);
    names += (names.empty() ? "" : ", ") + expected;
    if (name != kind->name) continue;
    int64_t parameter = 0;
    const char* const end = digits.data() + digits.size();
    const bool number =
        digits.size() > 1 && std::from_chars(digits.data() + 1, end, parameter).ptr == end;
    if (digits.empty() || (!kind->parameter.empty() && number && parameter > 0))
      return ChosenPlacement{kind, parameter};
    return base::Status(kUnknownPlacement, fmt::format("weights placement \"{}\" is not as it "
                                                       "should be; expected {}",
                                                       text, expected));
  }
  return base::Status(
      kUnknownPlacement,
      fmt::format("weights placement \"{}\" is unknown; expected one of {}", text, names));
}

}  // namespace forebay::weights
