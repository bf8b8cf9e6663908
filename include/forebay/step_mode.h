// How a step's rows meet the weights.
#pragma once

#include <compare>
#include <cstdint>

namespace forebay {

// How the rows of a step reach the FFN weights of layers that ranks share.
//   kLocal   nothing is shared: all weights are the rank's own
//   kPull    the weights come to the rank; no replica waits for another
//   kShip    the rows go to the ranks that own the weights
//   kGather  all replicas meet before each shared layer and pull it, as FSDP does
//   kRouted  as kPull, but of a layer's experts those alone come that the step's rows go to
enum class FfnMode : uint8_t { kLocal, kPull, kShip, kGather, kRouted };
inline constexpr int kNumFfnModes = 5;

// Degrees of sequence and tensor parallelism, of a layout or of a mode, and where a block stands
// (model/modes.h).
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

  // The replicas of a group take such a step together, so they agree on it before it begins.
  bool meets() const { return ffn == FfnMode::kShip || ffn == FfnMode::kGather; }
  // Weights that the rank lacks come to it.
  bool pulls() const {
    return ffn == FfnMode::kPull || ffn == FfnMode::kGather || ffn == FfnMode::kRouted;
  }
  friend auto operator<=>(const StepMode&, const StepMode&) = default;
};

}  // namespace forebay
