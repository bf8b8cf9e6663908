#include "engine/group.h"

#include <utility>

#include "base/log.h"

namespace forebay::engine {
namespace {

// How long a replica without work takes to notice that the run ends.
constexpr runtime::TimeNs kGlance = 50'000'000;
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
  for (int member = 0; member < count; ++member) replica(member).Join(control_.get(), member);
}

void Group::End() {
  for (const auto& replica : parts_.replicas) replica->choices().loans().Reclaim();
}

RunEnd Group::Run(int member, EngineRun& run) {
  const RunEnd end = control_ ? RunAgreed(member, run) : RunAlone(member, run);
  // What is wrong with the job ends it for all groups; a stall is its group's alone.
  if (end == RunEnd::kSinkFailed || end == RunEnd::kAborted) run.Stop();
  // Nobody may wait for it from here on: not in a round, for a gift, for what was handed over, nor
  // for its share of the requests.
  if (control_) control_->Leave(member);
  board_->Leave(member);
  if (parts_.role != GroupRole::kAll) run.hand_over().Leave(replica(member).index());
  run.queue().Leave(replica(member).index());
  return end;
}

RunEnd Group::RunAgreed(int member, EngineRun& run) {
  while (true) {
    bool ended = false;
    // It waits in a round, not for requests: the others' steps need it.
    if (const auto end = Border(member, run, /*wait=*/false, &ended)) return *end;
    if (!replica(member).choices().idle()) {
      StepEnd step;
      if (const auto end = Step(member, run, &step)) return *end;
      continue;
    }
    // It asks and does not wait: what it is given it collects at its next border, to which Wake
    // sends it.
    if (ended && parts_.steal) board_->Ask(member);
    const base::Result<Turn> turn = replica(member).StepIdle(ended);
    if (!turn.ok()) return Stalled(member, turn.status().ToString());
    if (*turn == Turn::kDone) return EndOf(run);
  }
}

RunEnd Group::RunAlone(int member, EngineRun& run) {
  while (true) {
    bool ended = false;
    if (const auto end = Border(member, run, /*wait=*/true, &ended)) return *end;
    StepEnd step;
    if (const auto end = Step(member, run, &step)) return *end;
    // The job may have come to its end during the step.
    if (step != StepEnd::kIdle || !(ended || run.ended(replica(member)))) continue;
    if (!parts_.steal || board_->Await(member, kGlance) == StealBoard::Answer::kDone)
      return EndOf(run);
  }
}

std::optional<RunEnd> Group::Border(int member, EngineRun& run, bool wait, bool* ended) {
  Replica& replica = this->replica(member);
  if (run.stopped()) return RunEnd::kAborted;
  if (parts_.one_fate && failed_) return RunEnd::kStalled;
  replica.choices().loans().Reclaim();
  if (const base::Status received = Receive(member); !received.ok())
    return Stalled(member, received.ToString());
  if (!run.Cancel(replica)) return RunEnd::kSinkFailed;
  const bool generation = parts_.role == GroupRole::kGeneration;
  // What was handed over runs: a drain waits for it.
  const bool draining = run.draining() && !generation;
  base::Status over;
  if (generation) over = TakeOver(replica, run, wait);
  if (parts_.role == GroupRole::kContext) over = HandOver(replica, run);
  if (!over.ok()) return Stalled(member, over.ToString());
  if (draining) {
    // What has begun is finished; the rest is the next run's.
    replica.choices().DropUnstarted();
  } else {
    if (!generation) run.TakeRequests(replica, wait);
    // While the queue has requests, whoever has nothing to do takes from there.
    if (run.ended(replica) && board_->askers() > 0) GiveAway(member, run);
  }
  *ended = draining || run.ended(replica);
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
    run.hand_over().Await(replica.index(), kGlance);
  for (Gift& gift : gifts) {
    run.queue().Move(gift.from, replica.index());
    FB_RETURN_IF_ERROR(replica.Adopt(std::move(gift)));
  }
  return {};
}

std::optional<RunEnd> Group::Step(int member, EngineRun& run, StepEnd* end) {
  Replica& replica = this->replica(member);
  std::vector<RequestResult> finished;
  StepRecord record;
  *end = replica.Step(&finished, run.observed() ? &record : nullptr);
  if (!run.Deliver(replica, &finished)) return RunEnd::kSinkFailed;
  if (*end == StepEnd::kStalled) return Stalled(member, replica.what_stalled());
  if (*end == StepEnd::kStepped && run.observed()) run.Observe(std::move(record));
  // What waits here has no room until others have pulled what they were lent, which no event says.
  if (*end == StepEnd::kLending) runtime_.Sleep(kLoanGlance);
  return std::nullopt;
}

void Group::GiveAway(int member, EngineRun& run) {
  const std::optional<int> to = board_->Claim();
  if (!to) return;
  std::vector<Gift> gifts = replica(member).choices().GiveAway(1 + board_->askers());
  for (size_t i = 0; i < gifts.size(); ++i)
    run.queue().Move(replica(member).index(), replica(*to).index());
  const bool any = !gifts.empty();
  board_->Give(*to, std::move(gifts));
  if (any && control_) control_->Wake(*to);
}

base::Status Group::Receive(int member) {
  base::Status status;
  for (Gift& gift : board_->Collect(member)) {
    const base::Status adopted = replica(member).Adopt(std::move(gift));
    if (status.ok()) status = adopted;
  }
  return status;
}

RunEnd Group::Stalled(int member, const std::string& cause) {
  // Where they share a fate the others only say what the first has said.
  if (failed_.exchange(true) && parts_.one_fate) return RunEnd::kStalled;
  const int index = replica(member).index();
  std::string what = cause;
  for (int other = 0; other < static_cast<int>(parts_.replicas.size()); ++other) {
    if (other == member || parts_.one_fate) what += PlacesOf(replica(other));
  }
  base::Log(base::LogLevel::kError, fmt::format("replica {} stalled: {}", index, what));
  const base::Status why(kGroupFailed, fmt::format("replica {} failed: {}", index, what));
  if (control_) control_->Fail(why);
  // Streams of other ranks wait for counters that this one raises no more: it lets them pass, with
  // the error.
  if (parts_.one_fate) replica(member).ranks().front()->Abort(why);
  return RunEnd::kStalled;
}

}  // namespace forebay::engine
