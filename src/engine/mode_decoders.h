// A rank's decoder in each mode in which its replica's ranks share rows and weights of a step
// (schedule/step_mode.h): the layout's own, which loaded its weights, and further ones with views
// of these weights. A step may take any of them, because KV lies alike in all.
//
// Not thread-safe: the rank's control task calls; counters may be read from any thread.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>

#include "engine/membership.h"
#include "engine/rank_regions.h"
#include "fabric/fabric.h"
#include "model/decoder.h"

namespace forebay::engine {

class ModeDecoders {
 public:
  struct Mode {
    model::Degrees degrees;
    model::Decoder decoder;
    // What the rank exchanged in it.
    std::unique_ptr<model::ExchangeCounters> exchanged =
        std::make_unique<model::ExchangeCounters>();
  };

  // The decoder of the layout's own mode, which is there from the beginning.
  model::Decoder& own() { return modes_.front().decoder; }
  const model::Decoder& own() const { return modes_.front().decoder; }
  void SetOwn(const model::Degrees& degrees);
  // A copy of own() in one mode more, in the order of Membership::modes.
  model::Decoder& Add(const model::Degrees& degrees);
  // After all ranks of the group were created: the links of all modes, through the staging among
  // `regions`.
  base::Status Connect(const Membership& group, const RankRegions& regions);

  // The one that takes the next step. Where it is not the last step's, the ranks of the stage meet
  // before it, since the modes' exchanges share their staging.
  const model::Decoder& Begin(const StepMode& mode, uint16_t* chosen);

  const std::deque<Mode>& all() const { return modes_; }  // the layout's own first
  // From one step's mode to another in the next.
  int64_t switches() const { return switches_; }
  // Steps that reached their FFN in this way.
  int64_t steps(FfnMode ffn) const { return steps_[static_cast<size_t>(ffn)]; }

 private:
  base::Status ConnectStages(const Membership& group, model::ReplicaLinks* links);

  std::deque<Mode> modes_ = std::deque<Mode>(1);
  std::deque<fabric::Exchange> exchanges_;  // what decoders' links point to
  std::optional<fabric::Handover> from_last_stage_, to_next_stage_;
  const model::Decoder* last_ = nullptr;  // the last step's
  uint64_t begun_ = 0;
  std::atomic<int64_t> switches_{0};
  std::array<std::atomic<int64_t>, kNumFfnModes> steps_{};
};

}  // namespace forebay::engine
