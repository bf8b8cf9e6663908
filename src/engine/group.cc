#include "engine/group.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace forebay::engine {
namespace {

constexpr runtime::TimeNs kLoanGlance = 1'000'000;

// What the replica's ranks do now: of each stream that does something "; rank 0 compute in layer 3
// waits for ...".
std::string PlacesOf(const Replica& replica) {
  std::string places;
  const auto add = [&](const device::Stream& stream) {
    const std::string place = stream.Place();
    if (!place.empty()) places += "; " + place;
  };
  for (const auto& rank : replica.ranks()) {
    add(rank->device().compute());
    if (rank->tier() == nullptr) continue;
    for (const device::Stream* copies : rank->tier()->streams()) add(*copies);
  }
  return places;
}

RunEnd EndOf(const EngineRun& run) { return run.draining() ? RunEnd::kDrained : RunEnd::kComplete; }

}  // namespace

// Copies read the memory of other ranks: nobody's goes before all are done.
Group::~Group() { Quiesce(); }

void Group::Quiesce() {
  for (const auto& replica : parts_.replicas) {
    for (const auto& rank : replica->ranks()) rank->Quiesce();
  }
}

void Group::Begin() {
  const int count = static_cast<int>(parts_.replicas.size());
  failed_ = false;
  board_ = std::make_unique<StealBoard>(runtime_, count);
  control_ =
      parts_.agreement ? std::make_unique<GroupControl>(runtime_, *parts_.agreement) : nullptr;
  for (int replica = 0; replica < count; ++replica) At(replica).Join(control_.get(), replica);
}

void Group::End() {
  for (const auto& replica : parts_.replicas) replica->choices().loans().Reclaim();
}

RunEnd Group::Run(int replica, EngineRun& run) {
  const RunEnd end = control_ ? RunAgreed(replica, run) : RunAlone(replica, run);
  // What is wrong with the job ends it for all groups; a stall is its group's alone.
  if (end == RunEnd::kSinkFailed || end == RunEnd::kAborted) run.Stop();
  std::vector<Gift> gifts = board_->Leave(replica);
  FB_CHECK(gifts.empty() || (end != RunEnd::kComplete && end != RunEnd::kDrained),
           "replica {} came to its end without {} requests that were given to it",
           At(replica).index(), gifts.size());
  if (end == RunEnd::kStalled) run.GiveBack(At(replica), std::move(gifts));
  Leave(replica, run);
  return end;
}

// Nobody may wait for it from here on: not in a round, for a gift, for what was handed over, nor
// for its share of the requests.
void Group::Leave(int replica, EngineRun& run) {
  if (control_) control_->Leave(replica);
  board_->Leave(replica);
  if (parts_.role != GroupRole::kAll) run.hand_over().Leave(At(replica).index());
  run.queue().Leave(At(replica).index());
}

RunEnd Group::RunAgreed(int replica, EngineRun& run) {
  while (true) {
    bool ended = false;
    // It waits in a round, not for requests: the others' steps need it.
    if (const auto end = Border(replica, run, /*wait=*/false, &ended)) return *end;
    if (!At(replica).choices().idle()) {
      StepEnd step;
      if (const auto end = Step(replica, run, &step)) return *end;
      continue;
    }
    // It asks and does not wait: what it is given it collects at its next border, to which Wake
    // sends it.
    if (ended && parts_.steal) board_->Ask(replica);
    const base::Result<Turn> turn = At(replica).StepIdle(ended);
    if (!turn.ok()) return Stalled(replica, turn.status().ToString());
    if (*turn == Turn::kDone) return EndOf(run);
  }
}

RunEnd Group::RunAlone(int replica, EngineRun& run) {
  while (true) {
    bool ended = false;
    if (const auto end = Border(replica, run, /*wait=*/true, &ended)) return *end;
    StepEnd step;
    if (const auto end = Step(replica, run, &step)) return *end;
    // The job may have come to its end during the step.
    if (step != StepEnd::kIdle || !(ended || run.ended(At(replica)))) continue;
    if (!parts_.steal || board_->Await(replica, runtime::kGlance) == StealBoard::Answer::kDone)
      return EndOf(run);
  }
}

std::optional<RunEnd> Group::Border(int replica, EngineRun& run, bool wait, bool* ended) {
  Replica& self = At(replica);
  if (run.stopped()) return RunEnd::kAborted;
  if (parts_.one_fate && failed_) return RunEnd::kStalled;
  self.choices().loans().Reclaim();
  if (const base::Status received = Receive(replica); !received.ok())
    return Stalled(replica, received.ToString());
  if (!run.Cancel(self)) return RunEnd::kSinkFailed;
  const bool generation = parts_.role == GroupRole::kGeneration;
  // What was handed over runs: a drain waits for it.
  const bool draining = run.draining() && !generation;
  base::Status over;
  if (generation) over = TakeOver(self, run, wait);
  if (parts_.role == GroupRole::kContext) over = HandOver(self, run);
  if (!over.ok()) return Stalled(replica, over.ToString());
  if (draining) {
    // What has begun is finished; the rest is the next run's.
    self.choices().DropUnstarted();
  } else {
    if (!generation) run.TakeRequests(self, wait);
    // While the queue has requests, whoever has nothing to do takes from there.
    if (run.ended(self) && board_->askers() > 0) GiveAway(replica, run);
  }
  *ended = draining || run.ended(self);
  return std::nullopt;
}

base::Status Group::HandOver(Replica& replica, EngineRun& run) {
  run.hand_over().Put(replica.choices().HandOver());
  if (!run.hand_over().lost()) return {};
  return {kRoleLost,
          "no generation replica is left to go on with what the context replicas have computed"};
}

base::Status Group::TakeOver(Replica& replica, EngineRun& run, bool wait) {
  std::vector<Gift> gifts = run.hand_over().Take(replica.index(), replica.choices().room());
  if (gifts.empty() && wait && replica.choices().idle())
    run.hand_over().Await(replica.index(), runtime::kGlance);
  base::Status status;
  for (Gift& gift : gifts) {
    run.queue().Move(gift.from, replica.index());
    const base::Status adopted = replica.Adopt(std::move(gift));
    if (status.ok()) status = adopted;
  }
  return status;
}

std::optional<RunEnd> Group::Step(int replica, EngineRun& run, StepEnd* end) {
  Replica& self = At(replica);
  std::vector<RequestResult> finished;
  StepRecord record;
  *end = self.Step(&finished, run.observed() ? &record : nullptr);
  if (!run.Deliver(self, &finished)) return RunEnd::kSinkFailed;
  if (*end == StepEnd::kStalled) return Stalled(replica, self.what_stalled());
  if (*end == StepEnd::kStepped && run.observed()) run.Observe(std::move(record));
  // What waits here has no room until others have pulled what they were lent, which no event says.
  if (*end == StepEnd::kLending) runtime_.Sleep(kLoanGlance);
  return std::nullopt;
}

void Group::GiveAway(int replica, EngineRun& run) {
  const std::optional<int> to = board_->Claim();
  if (!to) return;
  std::vector<Gift> gifts = At(replica).choices().GiveAway(1 + board_->askers());
  for (size_t i = 0; i < gifts.size(); ++i) run.queue().Move(At(replica).index(), At(*to).index());
  const bool any = !gifts.empty();
  std::vector<Gift> left = board_->Give(*to, std::move(gifts));
  if (!left.empty()) return run.GiveBack(At(*to).index(), std::move(left));
  if (any && control_) control_->Wake(*to);
}

base::Status Group::Receive(int replica) {
  base::Status status;
  for (Gift& gift : board_->Collect(replica)) {
    const Replica& giver = **std::ranges::find(parts_.replicas, gift.from, &Replica::index);
    const base::Status adopted = At(replica).Adopt(std::move(gift), &giver);
    if (status.ok()) status = adopted;
  }
  return status;
}

RunEnd Group::Stalled(int replica, const std::string& cause) {
  // Where they share a fate the others only say what the first has said.
  if (failed_.exchange(true) && parts_.one_fate) return RunEnd::kStalled;
  const int index = At(replica).index();
  std::string what = cause;
  for (int other = 0; other < static_cast<int>(parts_.replicas.size()); ++other) {
    if (other == replica || parts_.one_fate) what += PlacesOf(At(other));
  }
  base::Log(base::LogLevel::kError, fmt::format("replica {} stalled: {}", index, what));
  const base::Status why(kGroupFailed, fmt::format("replica {} failed: {}", index, what));
  if (control_) control_->Fail(why);
  // Streams of other ranks wait for counters that this one raises no more: it lets them pass, with
  // the error.
  if (parts_.one_fate) At(replica).ranks().front()->Abort(why);
  return RunEnd::kStalled;
}

}  // namespace forebay::engine
