// How rows are spread over experts on devices of shapes alone (--routing). Pure.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "kernels/route.h"

namespace forebay::model {

inline constexpr base::ErrorCode kRoutingInvalid{"routing_invalid"};

// "balanced": every expert gets as many rows as the others, to within one. "power:A": loads are
// drawn from a density that falls as x^-A between one row and .8 of the step's, which is the skew
// under which kernels of experts were measured (docs/profiles.md); which expert is in demand is
// drawn once for a layer, from `seed`. kRoutingInvalid says what is accepted.
base::Result<std::shared_ptr<const kernels::RoutingSource>> ParseRouting(std::string_view text,
                                                                         uint64_t seed);

}  // namespace forebay::model
