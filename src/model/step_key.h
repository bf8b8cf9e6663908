// What control flow inside a layer program may depend on, and nothing else.
#pragma once

#include <cstdint>

#include "forebay/step_mode.h"

namespace forebay::model {

// Programs of equal keys enqueue the same operations with the same shapes, but for the context that
// attention sees and how many rows are of prompts: graphs are captured and steps are priced per
// key.
struct StepKey {
  StepMode mode;
  uint16_t layer_kind = 0;  // the first layer that is equal but for its weights
  int32_t row_bucket = 0;   // > 0: rows that the rank's operations get
  bool expands = false;     // contexts of prompts, of which there are as many lengths as steps
};

// Another number for each key of one layout. 0, as for no key, where replicas meet: their rows
// matter too; and where contexts are expanded, whose lengths do.
inline uint64_t Packed(const StepKey& key) {
  if (key.mode.meets() || key.expands) return 0;
  // sp tells the modes of one layout apart.
  return static_cast<uint64_t>(key.mode.ffn) << 56 |
         static_cast<uint64_t>(key.mode.degrees.sp) << 48 | uint64_t{key.layer_kind} << 32 |
         static_cast<uint32_t>(key.row_bucket);
}

}  // namespace forebay::model
