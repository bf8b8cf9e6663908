#include "choose/foresee.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/choices/choices.h"
#include "engine/group_rule.h"
#include "engine/hand_over_board.h"
#include "engine/request_queue.h"
#include "runtime/real/real_runtime.h"

namespace forebay::choose {
namespace {

using engine::ChoiceRows;
using layout::ChoiceShape;

constexpr double kNever = std::numeric_limits<double>::infinity();
// After so many steps a replica looks again whether something has come that its plan did not know.
constexpr int64_t kStepsToLook = 16;
constexpr int64_t kAllBlocks = std::numeric_limits<int64_t>::max();
// How long a replica waits for others to give back what it has lent, when it can do nothing else.
constexpr double kLoanGlance = 1e-3;

// The job's requests: a choice, and those behind it that share all of its prompt. Tokens say no
// more than what prompts share.
class ShapeSource final : public RequestSource {
 public:
  explicit ShapeSource(std::span<const ChoiceShape> job) : job_(job) {}

  std::optional<Request> Next(bool /*wait*/) override {
    if (ended()) return std::nullopt;
    const ChoiceShape& shape = job_[next_];
    Request request;
    request.id = request.line = static_cast<int64_t>(next_);
    const int64_t shared = std::min(shape.shared, shape.prompt);
    std::vector<int32_t>& prompt = request.prompts.emplace_back();
    prompt.reserve(static_cast<size_t>(shape.prompt + shape.output));
    prompt.resize(static_cast<size_t>(shape.prompt));
    // Keys of blocks are chained: all behind this token differ from other requests'.
    if (shared < shape.prompt)
      prompt[static_cast<size_t>(shared)] = static_cast<int32_t>(next_ + 1);
    request.sampling.max_tokens = shape.bound > 0 ? static_cast<int32_t>(shape.bound) : -1;
    request.ends_after = static_cast<int32_t>(shape.output);
    request.n = 0;
    do {
      ++request.n;
      ++next_;
    } while (!ended() && IsSibling(job_[next_], shape));
    return request;
  }
  bool ended() const override { return next_ == job_.size(); }
  int64_t remaining() const override { return static_cast<int64_t>(job_.size() - next_); }

 private:
  static bool IsSibling(const ChoiceShape& shape, const ChoiceShape& first) {
    return shape.shared == shape.prompt && first.shared < first.prompt &&
           shape.prompt == first.prompt && shape.output == first.output &&
           shape.bound == first.bound;
  }

  const std::span<const ChoiceShape> job_;
  size_t next_ = 0;
};

class ResultCounter final : public ResultSink {
 public:
  bool Finish(RequestResult result) override {
    count_ += result.choices.size();
    return true;
  }
  size_t count() const { return count_; }

 private:
  size_t count_ = 0;
};

// A step from its plan to its end, and equal ones that follow it.
struct Flight {
  std::vector<ChoiceRows> rows;
  price::StepLoad load;
  engine::StepOffer offer;
  double ends = 0;
  int64_t left = 0;  // equal steps that follow
  // Those that would if there were blocks for all and nothing else came, and the blocks for all of
  // them at first; negative: they were not counted yet.
  int64_t equal = -1, blocks = 0;
  int64_t taken = 0;   // those that were taken and are not in the books yet
  bool again = false;  // it is one of these
  // Seconds on each stage, as they were priced last, and how they grow from step to step.
  std::optional<PricedStep> priced;
  std::vector<double> seconds, growth;
  double saves = 0;  // seconds, if all took the step together; of one that is taken alone

  void GoOn() {
    --left;
    --equal;
    ++taken;
    again = true;
    load.sums.decode_context += load.sums.decode_rows;
    for (size_t stage = 0; stage < seconds.size(); ++stage) seconds[stage] += growth[stage];
  }
};

// Where a replica stands: at its step's border, or in a service of the others' steps, until `wake`;
// waiting for its oldest step to end, for the group's answer, or for work (or blocks that it
// lends).
enum class State : uint8_t { kBorder, kEnds, kAsks, kIdle };

struct Replica {
  Replica(const ForeseeQuestion& question, const engine::ChoicesOptions& options, size_t group,
          int in_group)
      : of(question),
        group(group),
        in_group(in_group),
        choices(options, {}),
        stage_free(static_cast<size_t>(question.stages)) {}

  bool generates() const { return of.choices.role == GroupRole::kGeneration; }
  int most_in_flight() const { return of.choices.steps_in_flight; }

  const ForeseeQuestion& of;  // of its role
  const size_t group;         // among all of the job
  const int in_group;
  engine::Choices choices;
  State state = State::kBorder;
  double wake = 0;
  std::deque<Flight> flights;  // the oldest first; the last one may wait for the group
  int64_t begun = 0;
  std::vector<double> stage_free;
  std::vector<engine::Gift> inbox;
  bool asks = false;         // for work
  engine::ReplicaLoad told;  // to the queue
  int64_t untold = 0;        // tokens computed since
};

class Job {
 public:
  explicit Job(const ForeseeQuestion& question);
  JobForecast Run();

 private:
  struct Group {
    std::unique_ptr<engine::GroupRule> rule;  // null: each for itself
    std::vector<int> woken;                   // replicas of the group, by the rule
    uint64_t round = 0;                       // whose seconds these are
    std::vector<double> seconds;              // by stage: of the slowest
  };

  Replica& At(int replica) { return *replicas_[static_cast<size_t>(replica)]; }
  Group& GroupOf(int replica) { return groups_[At(replica).group]; }
  int FirstOf(int replica) { return replica - At(replica).in_group; }
  // No request comes from the queue, or from context replicas, any more.
  bool Ended(int replica) {
    return At(replica).generates() ? board_->done() : queue_.ended(replica);
  }

  void AddGroups(const ForeseeQuestion& question);
  int Next() const;
  void Act(int replica);
  bool PlanNext(int replica);
  void Take(int replica);
  void TakeRequests(int replica);
  // Whether it pulls what others gave, until `wake`.
  bool Receive(int replica);
  void HandOver(int replica);
  void LeaveContext();
  void CallTakers();
  void Call(int replica);
  void GiveAway(int replica);
  void AskForWork(int replica);
  bool Begin(int replica, bool share);
  void CountEqual(Replica& self, int replica, Flight* flight);
  void End(int replica);
  // The books know all steps that were taken.
  void Settle(Replica& self);
  void Offer(int replica, const engine::StepOffer& offer);
  void Ask(int replica);
  void Answer(int replica, const engine::Round& round);
  const std::vector<double>& SecondsOf(int replica, const engine::Round& round);
  static const std::vector<double>& Price(const ForeseeQuestion& of, Flight& flight,
                                          const StepMode& mode, const price::RowsOfAll& all);
  static double SavedTogether(const ForeseeQuestion& of, const Flight& flight);
  double Pass(Replica& self, const std::vector<double>& seconds) const;
  void Enqueue(int replica, const std::vector<double>& seconds, const StepMode& mode);
  void AwaitEnd(Replica& self) const;

  const ForeseeQuestion& question_;
  const std::unique_ptr<runtime::Runtime> runtime_ = runtime::CreateRealRuntime();
  ShapeSource source_;
  ResultCounter sink_;
  engine::RequestQueue queue_;
  const engine::SequenceContext context_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // group by group
  std::deque<Group> groups_;
  // Between roles; null: there are none.
  std::unique_ptr<engine::HandOverBoard> board_;
  bool all_handed_over_ = false;  // and generation replicas know
  double now_ = 0;
  JobForecast total_;
  schedule::StepPlan plan_;
  std::vector<RequestResult> finished_;
};

int ReplicasOf(const ForeseeQuestion& question) { return question.groups * question.replicas; }

Job::Job(const ForeseeQuestion& question)
    : question_(question),
      source_(question.job),
      queue_(*runtime_,
             ReplicasOf(question) + (question.generation ? ReplicasOf(*question.generation) : 0),
             static_cast<size_t>(ReplicasOf(question)) *
                 static_cast<size_t>(question.choices.limits.max_num_seqs),
             source_, sink_),
      context_({.max_model_len = question.max_model_len}) {
  AddGroups(question);
  if (question.generation == nullptr) return;
  AddGroups(*question.generation);
  std::vector<engine::HandOverBoard::Seat> seats;
  for (const auto& replica : replicas_) {
    // They have no share in the queue's requests.
    if (replica->generates()) queue_.Leave(static_cast<int>(seats.size()));
    seats.push_back({replica->of.choices.role, replica->choices.room()});
  }
  board_ = std::make_unique<engine::HandOverBoard>(*runtime_, seats);
}

void Job::AddGroups(const ForeseeQuestion& question) {
  for (int number = 0; number < question.groups; ++number) {
    for (int replica = 0; replica < question.replicas; ++replica) {
      engine::ChoicesOptions options = question.choices;
      options.replica = static_cast<int>(replicas_.size());
      replicas_.push_back(std::make_unique<Replica>(question, options, groups_.size(), replica));
    }
    Group& group = groups_.emplace_back();
    group.seconds.resize(static_cast<size_t>(question.stages));
    if (!question.agreement) continue;
    group.rule = std::make_unique<engine::GroupRule>(
        *question.agreement, [&group](int replica) { group.woken.push_back(replica); });
  }
}

JobForecast Job::Run() {
  while (sink_.count() < question_.job.size()) {
    const int replica = Next();
    FB_CHECK(At(replica).wake < kNever, "{} of {} choices are left and no replica goes on",
             question_.job.size() - sink_.count(), question_.job.size());
    now_ = At(replica).wake;
    if (now_ > question_.most_seconds) {
      total_.stopped = true;
      break;
    }
    Act(replica);
  }
  total_.seconds = now_;
  total_.together_saves /= static_cast<double>(replicas_.size());
  for (const auto& replica : replicas_) {
    const EngineStats stats = replica->choices.stats();
    total_.output_tokens += stats.output_tokens;
    total_.preemptions += stats.preemptions;
    total_.recomputed_tokens += stats.recomputed_tokens;
  }
  return total_;
}

int Job::Next() const {
  const auto next =
      std::ranges::min_element(replicas_, {}, [](const auto& replica) { return replica->wake; });
  return static_cast<int>(next - replicas_.begin());
}

void Job::Act(int replica) {
  Replica& self = At(replica);
  bool planned = false;
  if (self.state == State::kEnds) {
    Flight& oldest = self.flights.front();
    if (oldest.left > 0) {
      // Nothing has changed that its plan would see.
      oldest.GoOn();
      self.untold += oldest.load.rows();
      std::rotate(self.flights.begin(), self.flights.begin() + 1, self.flights.end());
      planned = true;
    } else {
      End(replica);
    }
  }
  self.state = State::kBorder;
  while (self.state == State::kBorder) {
    if (!std::exchange(planned, false) && !PlanNext(replica)) return;
    Take(replica);
  }
}

// At a step's border. False: no step begins, and the replica's state says for what it waits.
bool Job::PlanNext(int replica) {
  Replica& self = At(replica);
  if (Receive(replica)) return false;
  Settle(self);
  self.choices.loans().Reclaim();
  if (board_) {
    HandOver(replica);
    if (Receive(replica)) return false;
  }
  if (!self.generates()) TakeRequests(replica);
  if (self.of.steals && Ended(replica)) GiveAway(replica);
  if (self.choices.idle()) {
    AskForWork(replica);
    if (GroupOf(replica).rule) {
      Offer(replica, {.ended = true});
    } else {
      self.state = State::kIdle;
      self.wake = kNever;
      if (board_) LeaveContext();
    }
    return false;
  }
  const bool alone = self.flights.empty();
  if (static_cast<int>(self.flights.size()) < self.most_in_flight() &&
      (Begin(replica, /*share=*/true) || (alone && Begin(replica, /*share=*/false))))
    return true;
  if (!alone) {
    AwaitEnd(self);
    return false;
  }
  FB_CHECK(self.choices.loans().count() > 0, "{} plans nothing while {} choices run and {} wait",
           question_.policy->name(), self.choices.num_running(), self.choices.num_waiting());
  self.wake = now_ + kLoanGlance;
  if (board_ && !self.generates()) {
    // Who takes what it lends calls it.
    self.state = State::kIdle;
    self.wake = kNever;
  }
  return false;
}

// The step that was planned last.
void Job::Take(int replica) {
  Replica& self = At(replica);
  Flight& flight = self.flights.back();
  flight.offer.step = static_cast<uint64_t>(self.begun);
  flight.offer.wanted = self.of.mode.Of(flight.offer.rows, self.begun);
  if (GroupOf(replica).rule) return Offer(replica, flight.offer);
  Enqueue(replica, Price(self.of, flight, flight.offer.wanted, {}), flight.offer.wanted);
}

void Job::TakeRequests(int replica) {
  Replica& self = At(replica);
  const auto tell = [&] {
    self.told = self.choices.load();
    self.untold = 0;
    queue_.SetLoad(replica, self.told);
  };
  if (queue_.ended(replica)) return;
  // What the others have computed in equal steps.
  for (int other = 0; other < static_cast<int>(replicas_.size()); ++other) {
    Replica& each = At(other);
    if (each.untold == 0 || each.generates()) continue;
    each.told.tokens -= std::exchange(each.untold, 0);
    queue_.SetLoad(other, each.told);
  }
  while (!queue_.ended(replica) && self.choices.WantsRequests()) {
    tell();
    std::optional<engine::TakenRequest> taken =
        queue_.Next(replica, self.begun, *question_.policy, self.choices.idle());
    if (!taken) return;
    self.choices.Take(
        MakeRequestState(std::move(taken->request), context_, taken->expected_output));
  }
  // Others may ask before it does.
  if (replicas_.size() > 1) tell();
}

bool Job::Receive(int replica) {
  Replica& self = At(replica);
  double seconds = 0;
  for (engine::Gift& gift : std::exchange(self.inbox, {})) {
    for (const engine::Choices::Adopted& adopted : self.choices.Adopt(gift)) {
      const schedule::StealPrices& prices = self.of.choices.steal;
      seconds += prices.move_seconds +
                 static_cast<double>(adopted.loan->computed) * prices.kv_token_seconds;
      self.choices.Resume(adopted);
    }
    for (const auto& loan : gift.loans) loan->over = true;
    if (board_) Call(gift.from);
  }
  if (seconds > 0) self.wake = now_ + seconds;
  return seconds > 0;
}

// At the border of a replica with a role: it gives what it has begun, or takes what it has room
// for.
void Job::HandOver(int replica) {
  Replica& self = At(replica);
  if (!self.generates()) {
    board_->Put(self.choices.HandOver());
    return CallTakers();
  }
  for (engine::Gift& gift : board_->Take(replica, self.choices.room())) {
    queue_.Move(gift.from, replica);
    self.inbox.push_back(std::move(gift));
  }
  CallTakers();
}

// Where no context replica has work, nor gets any: nothing more is handed over.
void Job::LeaveContext() {
  for (const auto& replica : replicas_) {
    if (!replica->generates() && (replica->state != State::kIdle || !replica->choices.idle()))
      return;
  }
  if (!queue_.ended(0)) return;
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    if (!At(replica).generates()) board_->Leave(replica);
  }
  CallTakers();
}

// Generation replicas look on the board at their next borders: who takes what lies there first, and
// all when there will be no more.
void Job::CallTakers() {
  if (const int taker = board_->taker(); taker >= 0) Call(taker);
  if (!board_->done() || std::exchange(all_handed_over_, true)) return;
  for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
    if (At(replica).generates()) Call(replica);
  }
}

void Job::Call(int replica) {
  Replica& called = At(replica);
  for (Flight& flight : called.flights) flight.left = 0;
  if (called.state != State::kIdle) return;
  called.state = State::kBorder;
  called.wake = now_;
}

void Job::AskForWork(int replica) {
  Replica& self = At(replica);
  if (!self.of.steals || !Ended(replica) || std::exchange(self.asks, true)) return;
  // The others look what they have for it when their steps end.
  for (int other = FirstOf(replica); other < FirstOf(replica) + self.of.replicas; ++other) {
    for (Flight& flight : At(other).flights) flight.left = 0;
  }
}

void Job::GiveAway(int replica) {
  Replica& self = At(replica);
  const int first = FirstOf(replica);
  int to = -1, askers = 0;
  for (int other = first; other < first + self.of.replicas; ++other) {
    if (!At(other).asks || other == replica) continue;
    if (to < 0) to = other;
    ++askers;
  }
  if (to < 0) return;
  std::vector<engine::Gift> gifts = self.choices.GiveAway(askers);
  if (gifts.empty()) return;
  Replica& taker = At(to);
  taker.asks = false;
  for (engine::Gift& gift : gifts) {
    queue_.Move(replica, to);
    taker.inbox.push_back(std::move(gift));
  }
  if (engine::GroupRule* const rule = GroupOf(to).rule.get()) {
    rule->Wake(taker.in_group);
    if (taker.state == State::kAsks) Ask(to);
  } else {
    taker.state = State::kBorder;
    taker.wake = now_;
  }
}

bool Job::Begin(int replica, bool share) {
  Replica& self = At(replica);
  Flight flight;
  do {
    const schedule::StepView& view =
        self.choices.View(share, static_cast<int64_t>(std::llround(now_ * 1e6)));
    self.of.policy->Plan(view, &plan_);
    if (plan_.run.empty() && plan_.admit.empty()) return false;
    const bool all = plan_.run.size() == view.running.size();
    self.choices.Apply(plan_, std::llround(now_ * 1e9), &flight.rows);
    self.choices.tier_moves().Clear();
    flight.left = all && plan_.admit.empty() && plan_.preempt.empty() ? kStepsToLook : 0;
    // Choices alone may have come back from below: they run in the next plan.
  } while (flight.rows.empty());
  self.choices.TakeIds();
  for (const ChoiceRows& rows : flight.rows) {
    flight.load.sums.Add(rows.begin, rows.count());
    flight.load.sampled += rows.end == rows.sequence->known() ? 1 : 0;
    if (!rows.is_decode()) flight.offer.prefill_rows += static_cast<int32_t>(rows.count());
  }
  flight.offer.rows = static_cast<int32_t>(flight.load.rows());
  if (flight.left > 0) CountEqual(self, replica, &flight);
  // What this step has taken the others cannot have.
  for (Flight& other : self.flights) {
    if (other.left > 0) CountEqual(self, replica, &other);
  }
  self.flights.push_back(std::move(flight));
  return true;
}

void Job::CountEqual(Replica& self, int replica, Flight* flight) {
  const kv::GroupBooks& book = self.choices.book();
  const engine::ChoicesOptions& options = self.of.choices;
  const int64_t state_every = options.kept_states > 0 ? options.state_every : 0,
                available = book.available_blocks() / self.most_in_flight();
  if (flight->equal < 0) {
    flight->equal = EqualSteps(flight->rows, book, kAllBlocks, state_every);
    flight->blocks = BlocksTaken(flight->rows, book, flight->equal);
  }
  flight->left = flight->blocks <= available
                     ? flight->equal
                     : EqualSteps(flight->rows, book, available, state_every);
  // Others may leave requests, or be out of work, when they next look; and lengths that are
  // foreseen change.
  const bool may_take = !self.generates() && !queue_.ended(replica) && self.choices.WantsRequests();
  const bool foresees = options.lengths && self.choices.num_waiting() > 0;
  const bool may_give =
      self.of.steals && Ended(replica) &&
      std::ranges::any_of(replicas_, [](const auto& other) { return other->asks; });
  if (may_take || foresees || may_give) flight->left = std::min(flight->left, kStepsToLook);
}

void Job::Settle(Replica& self) {
  for (Flight& flight : self.flights) {
    if (flight.taken > 0) self.choices.Advance(flight.rows, std::exchange(flight.taken, 0), 0);
  }
}

void Job::End(int replica) {
  Replica& self = At(replica);
  Settle(self);
  const Flight flight = std::move(self.flights.front());
  self.flights.pop_front();
  self.untold += flight.load.rows();
  for (const ChoiceRows& rows : flight.rows) {
    self.choices.Commit(rows);
    if (rows.end == rows.sequence->known()) self.choices.Append(rows.sequence, 0, 0);
    self.choices.CloseIfEnded(rows, &finished_);
  }
  if (finished_.empty()) return;
  for (RequestResult& result : finished_) queue_.Finish(replica, std::move(result));
  finished_.clear();
  // There is room for those that wait.
  if (self.choices.num_waiting() == 0) return;
  for (Flight& other : self.flights) other.left = 0;
}

void Job::Offer(int replica, const engine::StepOffer& offer) {
  Replica& self = At(replica);
  self.state = State::kAsks;
  self.wake = kNever;
  GroupOf(replica).rule->Offer(self.in_group, offer);
  Ask(replica);
}

void Job::Ask(int replica) {
  Group& group = GroupOf(replica);
  if (const auto round = group.rule->Ask(At(replica).in_group)) Answer(replica, *round);
  // Those that this one's coming has answered.
  for (const int woken : std::exchange(group.woken, {})) {
    const int other = FirstOf(replica) + woken;
    if (other != replica && At(other).state == State::kAsks) Ask(other);
  }
}

void Job::Answer(int replica, const engine::Round& round) {
  Replica& self = At(replica);
  const bool serves = self.choices.idle();
  if (round.turn == engine::Turn::kStep && !serves)
    return Enqueue(replica, SecondsOf(replica, round), round.mode);
  self.state = round.turn == engine::Turn::kDone ? State::kIdle : State::kBorder;
  self.wake = now_;
  if (round.turn == engine::Turn::kDone) self.wake = kNever;
  if (round.turn == engine::Turn::kStep) self.wake = Pass(self, SecondsOf(replica, round));
}

// Who meets waits on each stage for the slowest.
const std::vector<double>& Job::SecondsOf(int replica, const engine::Round& round) {
  const ForeseeQuestion& of = At(replica).of;
  if (!round.mode.meets()) {
    Flight& flight = At(replica).flights.back();
    const std::vector<double>& seconds = Price(of, flight, round.mode, {});
    if (!flight.again) flight.saves = SavedTogether(of, flight);
    total_.together_saves += flight.saves;
    return seconds;
  }
  Group& group = GroupOf(replica);
  if (std::exchange(group.round, round.number) == round.number) return group.seconds;
  price::RowsOfAll all;
  for (const int32_t rows : round.rows) {
    all.rows += rows;
    all.ranks += rows > 0 ? 1 : 0;
  }
  std::ranges::fill(group.seconds, 0);
  for (int other = 0; other < of.replicas; ++other) {
    if (round.rows[static_cast<size_t>(other)] == 0) continue;
    const std::vector<double>& seconds =
        Price(of, At(FirstOf(replica) + other).flights.back(), round.mode, all);
    for (size_t stage = 0; stage < seconds.size(); ++stage)
      group.seconds[stage] = std::max(group.seconds[stage], seconds[stage]);
  }
  return group.seconds;
}

const std::vector<double>& Job::Price(const ForeseeQuestion& of, Flight& flight,
                                      const StepMode& mode, const price::RowsOfAll& all) {
  if (flight.priced && flight.priced->mode == mode && flight.priced->all.rows == all.rows &&
      flight.priced->all.ranks == all.ranks)
    return flight.seconds;
  // Two prices stand for equal steps: of the first and of the last.
  const double times = flight.left == 0 ? 1 : 0.5 * static_cast<double>(flight.left + 1);
  PricedStep& step = flight.priced.emplace(PricedStep{flight.load, mode, all, times});
  const auto stages = static_cast<size_t>(of.stages);
  flight.seconds.resize(stages);
  flight.growth.assign(stages, 0);
  of.price(step, flight.seconds);
  if (flight.left == 0) return flight.seconds;
  // Contexts grow evenly, and prices nearly so.
  step.load.sums.decode_context += flight.left * step.load.sums.decode_rows;
  of.price(step, flight.growth);
  for (size_t stage = 0; stage < stages; ++stage) {
    flight.growth[stage] =
        (flight.growth[stage] - flight.seconds[stage]) / static_cast<double>(flight.left);
  }
  return flight.seconds;
}

// As if all had as many rows as this replica, and none waited for another.
double Job::SavedTogether(const ForeseeQuestion& of, const Flight& flight) {
  const layout::GroupOptions& group = *of.agreement;
  if (!group.by_load || flight.load.rows() > group.most_rows) return 0;
  const price::RowsOfAll all{flight.load.rows() * of.replicas, of.replicas};
  std::vector<double> together(flight.seconds.size());
  of.price({flight.load, group.together, all, /*times=*/0}, together);
  double saves = 0;
  for (size_t stage = 0; stage < together.size(); ++stage)
    saves += flight.seconds[stage] - together[stage];
  return std::max(0.0, saves);
}

double Job::Pass(Replica& self, const std::vector<double>& seconds) const {
  double at = now_;
  for (size_t stage = 0; stage < seconds.size(); ++stage)
    at = self.stage_free[stage] = std::max(at, self.stage_free[stage]) + seconds[stage];
  return at;
}

void Job::Enqueue(int replica, const std::vector<double>& seconds, const StepMode& mode) {
  Replica& self = At(replica);
  Flight& flight = self.flights.back();
  flight.ends = Pass(self, seconds);
  ++self.begun;
  ++total_.steps;
  total_.steps_together += mode.meets() ? 1 : 0;
  // Where an equal step had no other beside it, it has none now.
  if (flight.again || static_cast<int>(self.flights.size()) == self.most_in_flight())
    return AwaitEnd(self);
  self.state = State::kBorder;
  self.wake = now_;
}

void Job::AwaitEnd(Replica& self) const {
  self.state = State::kEnds;
  self.wake = std::max(now_, self.flights.front().ends);
}

}  // namespace

JobForecast Foresee(const ForeseeQuestion& question) { return Job(question).Run(); }

}  // namespace forebay::choose
