// Good packings of any size: requests are placed one after another, each where it first fits, and
// the order is searched. Pure and seeded: the same instance gives the same packing.
#pragma once

#include "oracle/instance.h"

namespace forebay::oracle {

// Places the requests in `order`, each at the first step at which it fits beside those placed
// before it (forward), or, seen from the end, at the last one (backward: growing requests fit
// better so, since they are small where they begin).
Packing PlaceForward(const Instance& instance, std::span<const int> order);
Packing PlaceBackward(const Instance& instance, std::span<const int> order);

struct SearchOptions {
  int64_t placements = 20'000;  // at most so many orders are tried
  uint64_t seed = 0;
};
// The shortest packing found, forward and backward, from orders by length, area and peak, by moves
// of one request and swaps of two. Ends early where it meets LowerBound.
Packing SearchPacking(const Instance& instance, const SearchOptions& options = {});

// In the order of the file, no later one overtakes: what a queue does that admits in order.
Packing PlaceFifo(const Instance& instance);

}  // namespace forebay::oracle
