// Experts lie on members in overlapping stretches (DWDP, section 3): member r holds the `size`
// experts from r x stride on, so that size + (members - 1) x stride is all of them.
#include <algorithm>
#include <cstdlib>

#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

// How far apart members begin, if stretches of `size` cover the experts exactly; else 0.
int64_t StrideOf(int64_t experts, int64_t members, int64_t size) {
  if (members == 1) return size == experts ? 1 : 0;
  const int64_t rest = experts - size, stride = rest / (members - 1);
  return rest % (members - 1) == 0 && 1 <= stride && stride <= size ? stride : 0;
}

// The nearest size from `size` on, in steps of `step`, that covers them; 0: there is none.
int64_t NearestSize(int64_t experts, int64_t members, int64_t size, int64_t step) {
  while (1 <= size && size <= experts && StrideOf(experts, members, size) == 0) size += step;
  return 1 <= size && size <= experts ? size : 0;
}

class ByExpert final : public Placement {
 public:
  explicit ByExpert(int64_t size) : size_(size) {}

  base::Status Check(const PlacementGroup& group) const override {
    for (const LayerRuns& layer : group.kinds) {
      if (layer.tensors != TensorKind::kExperts) continue;
      const int64_t experts = layer.num_leaves, members = group.num_members;
      if (members > experts) {
        return {kCannotPlace, fmt::format("experts=by_expert over {} ranks of {} "
                                          "experts; expected at most as many ranks as experts",
                                          members, experts)};
      }
      if (size_ == 0 || StrideOf(experts, members, size_) > 0) continue;
      const int64_t less = NearestSize(experts, members, std::min(size_, experts), -1),
                    more = NearestSize(experts, members, size_, 1);
      std::string works = less > 0 ? std::to_string(less) : "";
      if (more > 0) works += (less > 0 ? " or " : "") + std::to_string(more);
      return {kCannotPlace,
              fmt::format("expert-size={}: {} ranks of so many experts, equally far apart, do not "
                          "cover {}; expected {}",
                          size_, members, experts, works)};
    }
    return base::Status::Ok();
  }
  // The nearest holder; of two that are as near the lower one.
  int Source(int reader, const RunId& run, const PlacementGroup& group) const override {
    int nearest = -1;
    for (int member = 0; member < group.num_members; ++member) {
      if (!Holds(member, run, group)) continue;
      if (nearest < 0 || std::abs(member - reader) < std::abs(nearest - reader)) nearest = member;
    }
    return nearest;
  }
  bool PoolHolds(int member, const RunId& run, const PlacementGroup& group) const override {
    const LayerRuns& layer = group.layer(run.layer);
    const int64_t size = size_ > 0 ? size_ : NearestSize(layer.num_leaves, group.num_members, 1, 1),
                  stride = StrideOf(layer.num_leaves, group.num_members, size),
                  expert = layer.runs[static_cast<size_t>(run.run)].leaf;
    return member * stride <= expert && expert < member * stride + size;
  }

 private:
  const int64_t size_;  // 0: the least
};

}  // namespace

std::vector<int64_t> ExpertSizes(int64_t experts, int64_t members) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= experts; ++size) {
    if (StrideOf(experts, members, size) > 0) sizes.push_back(size);
  }
  return sizes;
}

const PlacementKind kByExpert{.name = "by_expert",
                              .tensors = TensorKind::kExperts,
                              .parameter = "SIZE",
                              .make = [](int64_t size) -> std::unique_ptr<const Placement> {
                                return std::make_unique<ByExpert>(size);
                              }};

}  // namespace forebay::weights
