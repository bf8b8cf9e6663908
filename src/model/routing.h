// How rows are spread over experts on devices of shapes alone (--routing): by a law, or as a run on
// real devices recorded it.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "kernels/route.h"
#include "model/config.h"

namespace forebay::model {

inline constexpr base::ErrorCode kRoutingInvalid{"routing_invalid"};

// Consecutive positions of a choice that a step computes.
struct NamedRows {
  int64_t line = 0;
  int32_t choice = 0;
  int64_t first_position = 0, count = 0;
};

class Routing : public kernels::RoutingSource {
 public:
  // kRoutingInvalid: it is that of another model.
  virtual base::Status Check(const ModelConfig&) const { return {}; }
  // Whether it knows rows by their names: Count may be asked of steps that were told alone.
  virtual bool names_rows() const { return false; }
  // The rows of Draw::rank in the step of that number; call before the ranks that take it together
  // begin it. kRoutingInvalid: a row is unknown. Any thread.
  virtual base::Status Tell(uint64_t rank, uint64_t step, std::span<const NamedRows> rows) const {
    (void)rank, (void)step, (void)rows;
    return {};
  }
};

// "balanced": every expert gets as many rows as the others, to within one. "power:A": loads are
// drawn from a density that falls as x^-A between one row and .8 of the step's, which is the skew
// under which kernels of experts were measured (docs/profiles.md); which expert is in demand is
// drawn once for a layer, from `seed`. Else the path of a recorded routing
// (model/recorded_routing.h). kRoutingInvalid says what is accepted.
base::Result<std::shared_ptr<const Routing>> ParseRouting(std::string_view text, uint64_t seed);

// For a rank's counts of what routers chose; null: no layer of the model has experts.
std::unique_ptr<kernels::RoutingCounters> RoutingCountersOf(const ModelConfig& config);

}  // namespace forebay::model
