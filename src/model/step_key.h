// What control flow inside a layer program may depend on, and nothing else.
#pragma once

#include <cstdint>

namespace forebay::model {

// How a step's weights and tokens meet. Agreed before the step.
// kLocal: the rank computes its rows, with weights that are its own or pulled. kShip: rows go to the owners of pooled weights.
enum class StepMode : uint8_t { kLocal, kShip };

// Programs of equal keys enqueue the same operations with the same shapes, but for the context that attention sees and
// how many rows are of prompts: graphs are captured and steps are priced per key.
struct StepKey {
  StepMode mode = StepMode::kLocal;
  uint8_t slot_phase = 0;   // how far the cycle of weight slots has turned
  uint16_t layer_kind = 0;  // the first layer that is equal but for its weights
  int32_t row_bucket = 0;   // > 0: rows that the rank's operations get
};

// Another number for each key. 0, as for no key: the rows of other ranks matter too.
inline uint64_t Packed(const StepKey& key) {
  if (key.mode == StepMode::kShip) return 0;
  return static_cast<uint64_t>(key.mode) << 56 | uint64_t{key.slot_phase} << 48 | uint64_t{key.layer_kind} << 32 |
         static_cast<uint32_t>(key.row_bucket);
}

}  // namespace forebay::model
