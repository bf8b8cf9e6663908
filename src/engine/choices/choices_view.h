// What the policy is shown of a replica's choices, and which of them its indices mean.
//
// Not thread-safe: the replica's control task calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/choices/choice_lists.h"
#include "engine/choices/foresight.h"
#include "engine/choices/open_loans.h"
#include "engine/choices/parking.h"
#include "engine/choices/state_places.h"
#include "engine/choices/streaming.h"
#include "forebay/engine.h"
#include "kv/book/group_books.h"
#include "schedule/held_peak.h"
#include "schedule/plan.h"
#include "schedule/steal.h"

namespace forebay::engine {

struct ChoicesOptions {
  int replica = 0;  // whose they are, among the job's
  GroupRole role = GroupRole::kAll;
  schedule::Limits limits;
  bool prefix_caching = true;
  bool keeps_states = false;  // layers keep a state of a running choice
  int32_t kept_states = 0;    // places for further ones, kept at each multiple of `state_every`
  int64_t state_every = 0;
  int32_t max_blocks_per_sequence = 0;
  int32_t steps_in_flight = 1;
  std::vector<base::Reach> kv_reaches = {{}};  // one for each KV group
  std::vector<int32_t> most_kv_blocks;         // of each, as kv::GroupBooks has it
  schedule::StealPrices steal;
  kv::TierBlocks tier;                             // below, for preempted choices
  int32_t state_blocks = 0;                        // that a choice's states take there
  const char* tier_flag = "--kv-offloading-size";  // which says how many
  bool keeps_tier = false;                         // for the next job
  schedule::ParkPrices park;
  StreamingOptions streaming;  // how running choices are read from the tier
  // How the policy foresees lengths; nothing: it does not.
  std::optional<schedule::LengthPredictor> lengths;
  std::shared_ptr<const std::vector<schedule::EarlierAnswer>> earlier;  // as Foresight has it
  // Of host memory, for log probabilities of the requests that it takes.
  int64_t most_logprob_bytes = std::numeric_limits<int64_t>::max();
  double overcommit = 1;  // the view's
  // Whether interactive choices come before batches; and the view's prices, null: there are none.
  bool by_service = false;
  std::shared_ptr<const schedule::StepPrices> prices;
};

class ChoicesView {
 public:
  // What it looks at, which outlives it. Only Parking is asked for what changes its order of use.
  struct Sources {
    const ChoiceLists& lists;
    const kv::GroupBooks& book;
    const StatePlaces& states;
    const Foresight& foresight;
    const Streaming& streaming;
    const OpenLoans& loans;
    Parking& parking;
  };
  ChoicesView(const ChoicesOptions& options, const Sources& sources)
      : options_(options), from_(sources) {}

  // As Choices::Hurry has it.
  void Hurry(double until) { view_.hurried_until = until; }
  double hurried_until() const { return view_.hurried_until; }

  // As Choices::View has it.
  const schedule::StepView& Update(bool share, int64_t now_us, double price_factor);
  // Those of the latest view.
  Sequence* running(int32_t index) const { return running_[static_cast<size_t>(index)]; }
  Sequence* waiting(int32_t index) const { return waiting_[static_cast<size_t>(index)]; }
  // Positions of the one that waits that it finds computed.
  int64_t cached_tokens(int32_t index) const {
    return view_.waiting[static_cast<size_t>(index)].cached_tokens;
  }

  // Positions that the choice may find computed and hold on the device.
  int64_t MaxCached(const Sequence& sequence) const;
  // What the device's cache has of them.
  kv::CachedPrefix FindCached(Sequence* sequence) const;

 private:
  schedule::RunningView ViewOf(const Sequence& sequence, bool short_of_blocks) const;
  // What interactive choices hold, and what those of the view do that may give way.
  void ViewServices();
  void ViewWaiting();
  const schedule::WaitingView& AddWaiting(Sequence* sequence);
  // Tokens that the choice may still generate here.
  int64_t OutputHere(const Sequence& sequence) const;

  const ChoicesOptions& options_;
  const Sources from_;
  schedule::StepView view_;
  std::vector<Sequence*> running_, waiting_;
  schedule::HeldPeak interactive_peak_;
  schedule::Held batch_held_, later_held_;  // of batch choices; of those that no deadline hurries
};

}  // namespace forebay::engine
