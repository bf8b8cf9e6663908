// How the rows of a step and the weights come together.
#pragma once

#include <compare>
#include <cstdint>

namespace forebay {

// How the rows of a step reach the FFN weights of layers that ranks share.
//   kLocal   no weights are shared: all weights are the rank's own
//   kPull    the weights come to the rank; no replica waits for another
//   kShip    the rows go to the ranks that own the weights
//   kGather  all replicas synchronize before each shared layer and pull it, as FSDP does
//   kRouted  as kPull, but only the experts come that the step's rows go to
enum class FfnMode : uint8_t { kLocal, kPull, kShip, kGather, kRouted };
inline constexpr int kNumFfnModes = 5;

// Degrees of sequence and tensor parallelism, of a layout or of a mode, and the place of a block
// in them (model/modes.h).
struct Degrees {
  int sp = 1, tp = 1;

  int ranks() const { return sp * tp; }
  int TpIndex(int block) const { return block / sp; }
  int SpIndex(int block) const { return block % sp; }
  friend auto operator<=>(const Degrees&, const Degrees&) = default;
};

struct StepMode {
  FfnMode ffn = FfnMode::kLocal;
  Degrees degrees;  // in which the step runs

  // True if the replicas of a group take such a step together, and so agree before it begins.
  bool meets() const { return ffn == FfnMode::kShip || ffn == FfnMode::kGather; }
  // True if the rank pulls the weights that it lacks.
  bool pulls() const {
    return ffn == FfnMode::kPull || ffn == FfnMode::kGather || ffn == FfnMode::kRouted;
  }
  friend auto operator<=>(const StepMode&, const StepMode&) = default;
};

}  // namespace forebay
