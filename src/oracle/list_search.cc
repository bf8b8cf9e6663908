#include "oracle/list_search.h"

#include <algorithm>
#include <numeric>

#include "base/rng.h"

namespace forebay::oracle {
namespace {

// What is held at each step by the requests that were placed.
class Usage {
 public:
  explicit Usage(int64_t capacity) : capacity_(capacity) {}

  // The first step from `earliest` on at which the profile fits.
  int64_t FirstFit(const Profile& profile, int64_t earliest) const {
    int64_t begin = earliest;
    for (size_t age = 0; age < profile.size();) {
      const size_t step = static_cast<size_t>(begin) + age;
      if (step >= held_.size() || held_[step] + profile[age] <= capacity_) {
        ++age;
      } else {
        // It does not fit at this step; a step later this one is met at another age.
        ++begin;
        age = 0;
      }
    }
    return begin;
  }
  void Add(const Profile& profile, int64_t begin) {
    const size_t end = static_cast<size_t>(begin) + profile.size();
    if (held_.size() < end) held_.resize(end, 0);
    for (size_t age = 0; age < profile.size(); ++age) {
      held_[static_cast<size_t>(begin) + age] += profile[age];
    }
  }
  int64_t makespan() const { return static_cast<int64_t>(held_.size()); }

 private:
  const int64_t capacity_;
  std::vector<int64_t> held_;  // [steps]
};

Instance Reversed(const Instance& instance) {
  Instance reversed = instance;
  for (Profile& profile : reversed.requests) std::ranges::reverse(profile);
  return reversed;
}

// A packing of the reversed instance, seen from its end.
Packing Turned(const Instance& instance, Packing packing) {
  for (size_t i = 0; i < packing.begin.size(); ++i) {
    packing.begin[i] =
        packing.makespan - packing.begin[i] - static_cast<int64_t>(instance.requests[i].size());
  }
  return packing;
}

// Orders that are good beginnings: those with most of something come first.
std::vector<std::vector<int>> FirstOrders(const Instance& instance) {
  const auto by = [&](auto measure) {
    std::vector<int> order(instance.requests.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater{},
                             [&](int i) { return measure(instance.requests[i]); });
    return order;
  };
  const auto length = [](const Profile& p) { return static_cast<int64_t>(p.size()); };
  const auto area = [](const Profile& p) {
    return std::accumulate(p.begin(), p.end(), int64_t{0});
  };
  const auto peak = [](const Profile& p) { return *std::ranges::max_element(p); };
  return {by(length), by(area), by(peak), by([](const Profile&) { return 0; })};
}

// Walks from `order` by moves of one request and swaps of two that make the packing no longer.
void Walk(const Instance& instance, std::vector<int> order, int64_t placements, int64_t bound,
          base::Rng* rng, Packing* best) {
  const uint64_t count = order.size();
  Packing at = PlaceForward(instance, order);
  if (at.makespan < best->makespan) *best = at;
  for (int64_t i = 1; i < placements && best->makespan > bound && count > 1; ++i) {
    std::vector<int> next = order;
    const uint64_t from = rng->Below(count), to = rng->Below(count);
    if (from == to) continue;
    if (rng->Below(2) == 0) {
      std::swap(next[from], next[to]);
    } else {
      const int moved = next[from];
      next.erase(next.begin() + static_cast<int64_t>(from));
      next.insert(next.begin() + static_cast<int64_t>(to), moved);
    }
    const Packing there = PlaceForward(instance, next);
    if (there.makespan > at.makespan) continue;
    order = std::move(next);
    at = there;
    if (at.makespan < best->makespan) *best = at;
  }
}

}  // namespace

Packing PlaceForward(const Instance& instance, std::span<const int> order) {
  Usage usage(instance.capacity);
  Packing packing{.begin = std::vector<int64_t>(instance.requests.size(), 0)};
  for (const int request : order) {
    const Profile& profile = instance.requests[request];
    packing.begin[request] = usage.FirstFit(profile, 0);
    usage.Add(profile, packing.begin[request]);
  }
  packing.makespan = usage.makespan();
  return packing;
}

Packing PlaceBackward(const Instance& instance, std::span<const int> order) {
  return Turned(instance, PlaceForward(Reversed(instance), order));
}

Packing PlaceFifo(const Instance& instance) {
  Usage usage(instance.capacity);
  Packing packing{.begin = std::vector<int64_t>(instance.requests.size(), 0)};
  int64_t earliest = 0;
  for (size_t i = 0; i < instance.requests.size(); ++i) {
    earliest = usage.FirstFit(instance.requests[i], earliest);
    packing.begin[i] = earliest;
    usage.Add(instance.requests[i], earliest);
  }
  packing.makespan = usage.makespan();
  return packing;
}

Packing SearchPacking(const Instance& instance, const SearchOptions& options) {
  if (instance.requests.empty()) return {};
  const int64_t bound = LowerBound(instance);
  const Instance reversed = Reversed(instance);
  const std::vector<std::vector<int>> orders = FirstOrders(instance);
  base::Rng rng(options.seed);
  Packing best = PlaceFifo(instance);
  // Half of the orders are spent on each direction.
  const int64_t each =
      std::max<int64_t>(1, options.placements / (2 * static_cast<int64_t>(orders.size())));
  for (const std::vector<int>& order : orders) {
    Walk(instance, order, each, bound, &rng, &best);
    Packing backward{.begin = {}, .makespan = best.makespan};
    Walk(reversed, order, each, bound, &rng, &backward);
    if (backward.makespan < best.makespan) best = Turned(instance, backward);
  }
  return best;
}

}  // namespace forebay::oracle
