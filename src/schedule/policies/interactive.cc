// People beside a batch: who waits for an answer goes first, in rows, in room and in time, and the
// batch takes what is left. Like "continuous" where one service runs alone; see docs/scheduling.md.
#include <algorithm>
#include <limits>
#include <optional>

#include "schedule/packing.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

// Up to where rows are added to a step: while it takes no longer than this, or has no more rows.
struct StepBound {
  double seconds = std::numeric_limits<double>::infinity();
  int64_t rows = 0;
};

// Deadlines after one and up to another; -kNoDeadline is after none.
struct Due {
  double after = -kNoDeadline, until = kNoDeadline;
};

// A plan in the making. Rows go first to interactive choices that decode, then to their prompts,
// then to batch choices in the same way, of which hurried ones come first.
class Fill {
 public:
  Fill(const StepView& view, StepPlan* plan)
      : view_(view), limits_(view.limits), plan_(plan), held_(view) {
    plan->marks.assign(view.running.size(), false);
  }

  void Plan() {
    LookAtBatches();
    if (!KeepGrowing()) return;
    Decode(Service::kInteractive, {});
    const StepBound people = OfPeople();
    // Beside people who decode a batch has its one row, whatever prompts of theirs would fill.
    const bool any_batch = batches_ > 0 || first_batch_ < view_.waiting.size();
    kept_rows_ = decodes_interactive_ && any_batch ? 1 : 0;
    RunPrompts(Service::kInteractive, people);
    AdmitInteractive(people);
    kept_rows_ = 0;
    const StepBound batch = OfBatch();
    const double hurried = view_.hurried_until;
    if (hurried > -kNoDeadline) {
      RunBatches({.until = hurried}, batch);
      AdmitHurried(batch);
    }
    RunBatches({.after = hurried}, batch);
    if (plan_->preempt.empty()) AdmitBatch(batch);
  }

 private:
  bool gone(size_t index) const { return plan_->marks[index]; }
  int64_t places() const {
    return limits_.max_num_seqs - std::ssize(view_.running) + std::ssize(plan_->preempt) -
           std::ssize(plan_->admit);
  }
  double Seconds(const StepRows& rows) const {
    return view_.price_factor * view_.prices->Seconds(rows);
  }
  bool Within(const StepBound& bound, const StepRows& rows) const {
    return view_.prices == nullptr || rows.rows <= bound.rows ||
           bound.seconds == std::numeric_limits<double>::infinity() ||
           Seconds(rows) <= bound.seconds;
  }

  double TargetSeconds() const {
    return TargetItlSeconds(limits_.target_itl_seconds, view_.prices, view_.price_factor);
  }
  // A target that cannot be kept holds no prompt up for ever.
  StepBound OfPeople() const {
    StepBound bound;
    const double target = TargetSeconds();
    if (decodes_interactive_ && target > 0)
      bound = {.seconds = target, .rows = rows_.rows + limits_.block_tokens};
    return bound;
  }
  // Of rows of batches at least one goes, so that these never stand still. Beside a prompt alone
  // they fill no longer a step than without people.
  StepBound OfBatch() const {
    StepBound bound;
    const double target = TargetSeconds();
    if (decodes_interactive_) {
      if (target > 0) bound = {.seconds = target, .rows = rows_.rows + 1};
    } else if (limits_.max_step_seconds > 0 && view_.prices != nullptr) {
      bound = {.seconds = limits_.max_step_seconds,
               .rows = std::max(rows_.rows + 1, view_.prices->rate_rows())};
    }
    return bound;
  }

  // Preempts until there are blocks for one more row of each that stays. False: nothing can run,
  // since choices of other steps hold the blocks.
  bool KeepGrowing() {
    int64_t needed = 0;
    for (const RunningView& choice : view_.running) {
      const int64_t blocks = NextRowBlocks(choice, limits_);
      needed += blocks;
      if (choice.decoding) next_rows_ += blocks;
    }
    while (needed > held_.Available(view_)) {
      int32_t victim = Victim(Service::kBatch);
      if (victim < 0) victim = Victim(Service::kInteractive);
      if (victim < 0) return false;
      needed -= NextRowBlocks(view_.running[static_cast<size_t>(victim)], limits_);
      Preempt(victim);
    }
    return true;
  }
  // The latest of the latest deadline, never the first of all, which can come to its end; -1: none.
  int32_t Victim(Service service, double due_after = -kNoDeadline) const {
    int32_t victim = -1;
    for (size_t i = 1; i < view_.running.size(); ++i) {
      const RunningView& choice = view_.running[i];
      if (gone(i) || choice.service != service || choice.deadline <= due_after) continue;
      if (victim < 0 || choice.deadline >= view_.running[static_cast<size_t>(victim)].deadline)
        victim = static_cast<int32_t>(i);
    }
    return victim;
  }
  // REQUIRES: the step has no rows of it.
  void Preempt(int32_t victim) {
    const RunningView& choice = view_.running[static_cast<size_t>(victim)];
    plan_->marks[static_cast<size_t>(victim)] = true;
    plan_->preempt.push_back(victim);
    held_.GiveBack(choice, limits_);
    if (choice.decoding) next_rows_ -= NextRowBlocks(choice, limits_);
    if (choice.service == Service::kBatch) --batches_;
  }
  // For an interactive choice, to which all batch choices but one give way, or for a batch choice
  // by those due after it. False: none is left to give way.
  bool PreemptOne(double due_after = -kNoDeadline) {
    const bool for_people = due_after == -kNoDeadline;
    const int32_t victim = Victim(Service::kBatch, due_after);
    if (victim < 0 || (for_people && batches_ == 1)) return false;
    Preempt(victim);
    return true;
  }
  // Preempts until `fits()`. False: it never does, and nobody gave way.
  template <typename Fits>
  bool MakeRoom(double due_after, const Fits& fits) {
    const size_t preempted = plan_->preempt.size();
    const HeldBlocks held = held_;
    const int64_t next_rows = next_rows_, batches = batches_;
    while (!fits()) {
      if (PreemptOne(due_after)) continue;
      for (size_t i = preempted; i < plan_->preempt.size(); ++i)
        plan_->marks[static_cast<size_t>(plan_->preempt[i])] = false;
      plan_->preempt.resize(preempted);
      held_ = held;
      next_rows_ = next_rows;
      batches_ = batches;
      return false;
    }
    return true;
  }

  // Blocks for rows of this step, but for those that decoding choices need.
  int64_t free_blocks() const { return held_.Available(view_) - taken_ - next_rows_; }
  int64_t rows_left() const { return limits_.max_num_batched_tokens - rows_.rows - kept_rows_; }

  // The least deadline after this one of the service's choices that stay; nothing: there is none.
  std::optional<double> NextDeadline(Service service, double after) const {
    std::optional<double> next;
    for (size_t i = 0; i < view_.running.size(); ++i) {
      const RunningView& choice = view_.running[i];
      if (choice.service == service && !gone(i) && choice.deadline > after)
        next = std::min(next.value_or(kNoDeadline), choice.deadline);
    }
    return next;
  }
  // Calls `plan` for the choices of the service that stay, by deadline, those of one deadline in
  // order of admission, until it returns false.
  template <typename PlanOne>
  void ForEach(Service service, const Due& due, const PlanOne& plan) {
    for (auto deadline = NextDeadline(service, due.after); deadline && *deadline <= due.until;
         deadline = NextDeadline(service, *deadline)) {
      for (size_t i = 0; i < view_.running.size(); ++i) {
        const RunningView& choice = view_.running[i];
        if (choice.service != service || gone(i) || choice.deadline != *deadline) continue;
        if (!plan(static_cast<int32_t>(i), choice)) return;
      }
    }
  }

  void RunBatches(const Due& due, const StepBound& bound) {
    Decode(Service::kBatch, bound, due);
    // Later ones have not had their rows yet.
    if (due.until == kNoDeadline) next_rows_ = 0;
    RunPrompts(Service::kBatch, bound, due);
  }

  void Decode(Service service, const StepBound& bound, const Due& due = {}) {
    ForEach(service, due, [&](int32_t index, const RunningView& choice) {
      if (!choice.decoding) return true;
      const StepRows with = rows_.With(choice.computed_tokens, 1, true);
      if (rows_left() <= 0 || !Within(bound, with)) return false;
      const int64_t blocks = NextRowBlocks(choice, limits_);
      plan_->run.push_back({index, 1});
      taken_ += blocks;
      next_rows_ -= blocks;
      rows_ = with;
      decodes_interactive_ |= service == Service::kInteractive;
      return true;
    });
  }

  // The most rows from `begin` on that keep the step within the bound, of `left` up to the
  // prompt's end.
  int64_t RowsWithin(const StepBound& bound, int64_t begin, int64_t left) const {
    const auto fits = [&](int64_t count) {
      return Within(bound, rows_.With(begin, count, count == left));
    };
    int64_t most = std::min(left, rows_left());
    if (most <= 0 || fits(most)) return most;
    int64_t rows = 0;
    while (most - rows > 1) {
      const int64_t middle = rows + (most - rows) / 2;
      (fits(middle) ? rows : most) = middle;
    }
    return rows;
  }

  void RunPrompts(Service service, const StepBound& bound, const Due& due = {}) {
    ForEach(service, due, [&](int32_t index, const RunningView& choice) {
      if (choice.decoding) return true;
      if (rows_left() <= 0) return false;
      const int64_t left = choice.known_tokens - choice.computed_tokens;
      // It waits for a step in which more of it fits.
      if (rows_left() < LeastRows(left, limits_)) return true;
      const int64_t rows = RowsWithin(bound, choice.computed_tokens, left);
      const auto room = [&] {
        return (choice.reserved_blocks + free_blocks()) * limits_.block_tokens -
               choice.computed_tokens;
      };
      while (service == Service::kInteractive && room() < rows && PreemptOne()) {
      }
      const int64_t chunk = std::min(rows, room());
      if (chunk <= 0) return true;
      plan_->run.push_back({index, static_cast<int32_t>(chunk)});
      taken_ += MissingBlocks(choice.computed_tokens + chunk, choice.reserved_blocks, limits_);
      rows_ = rows_.With(choice.computed_tokens, chunk, chunk == left);
      return true;
    });
  }

  // What all may come to hold within a block more, of what there is.
  int64_t Promised() const {
    int64_t blocks = available() + view_.later_blocks;
    for (size_t i = 0; i < view_.running.size(); ++i) {
      if (!gone(i)) blocks -= ReachBlocks(view_.running[i], limits_.block_tokens, limits_);
    }
    for (const RunningView& choice : view_.elsewhere)
      blocks -= ReachBlocks(choice, limits_.block_tokens, limits_);
    for (const RowsOf& entry : plan_->admit)
      blocks -= ReachBlocks(view_.waiting[static_cast<size_t>(entry.index)], limits_.block_tokens,
                            limits_);
    return blocks;
  }
  int64_t available() const {
    return plan_->preempt.empty() ? view_.available_blocks : held_.Available(view_);
  }
  // Rows of the step that one which waits may have; of whole prompts all or none, but the first
  // goes whatever the bound.
  int64_t WaitingRows(const StepBound& bound, const WaitingView& choice) const {
    const int64_t left = choice.known_tokens - choice.cached_tokens,
                  rows = RowsWithin(bound, choice.cached_tokens, left);
    if (!limits_.whole_prompts || rows == left) return rows;
    return rows_.rows == 0 && left <= rows_left() ? left : 0;
  }
  // Whether rows of it were planned. `spare_blocks` stay free beside it.
  bool Admit(size_t index, int64_t rows, int64_t spare_blocks) {
    const WaitingView& choice = view_.waiting[index];
    const int64_t held = choice.held_tokens / limits_.block_tokens,
                  left = choice.known_tokens - choice.cached_tokens,
                  wants = ReachBlocks(choice, limits_.block_tokens, limits_);
    if (promised_ - spare_blocks < wants) return false;
    const int64_t now = available() - taken_ - next_rows_;
    const int64_t chunk =
        std::min(rows, (held + now) * limits_.block_tokens - choice.cached_tokens);
    if (chunk <= 0 || rows_left() < LeastRows(left, limits_)) return false;
    if (limits_.whole_prompts && chunk < left) return false;
    promised_ -= wants;
    taken_ += MissingBlocks(choice.cached_tokens + chunk, held, limits_);
    plan_->admit.push_back({static_cast<int32_t>(index), static_cast<int32_t>(chunk)});
    rows_ = rows_.With(choice.cached_tokens, chunk, chunk == left);
    return true;
  }

  void AdmitInteractive(const StepBound& bound) {
    const size_t waiting = view_.waiting.size();
    for (; next_waiting_ < waiting && view_.waiting[next_waiting_].service == Service::kInteractive;
         ++next_waiting_) {
      const WaitingView& choice = view_.waiting[next_waiting_];
      const int64_t left = choice.known_tokens - choice.cached_tokens,
                    rows = WaitingRows(bound, choice);
      if (rows <= 0 || rows_left() < LeastRows(left, limits_)) return;
      const Held left_over = ForABatch();
      const bool admitted = MakeRoom(-kNoDeadline, [&] {
        promised_ = Promised();
        return places() > left_over.choices && Admit(next_waiting_, rows, left_over.blocks);
      });
      if (!admitted) return;
    }
  }
  // What people leave to the first batch choice that waits while none runs: batches never stand
  // still.
  Held ForABatch() const {
    const bool people_run = people_ > 0 || !plan_->admit.empty();
    if (batches_ > 0 || !people_run || first_batch_ == view_.waiting.size()) return {};
    return {1, ReachBlocks(view_.waiting[first_batch_], limits_.block_tokens, limits_)};
  }

  // The room that interactive choices held at most of late, and hold no more, stays free of
  // batches; but one of these always runs.
  void LookAtBatches() {
    spare_ = view_.interactive_peak;
    for (const std::vector<RunningView>* choices : {&view_.running, &view_.elsewhere}) {
      for (const RunningView& choice : *choices) {
        if (choice.service == Service::kBatch) {
          ++batches_;
        } else {
          ++people_;
          --spare_.choices;
          spare_.blocks -= choice.reserved_blocks;
        }
      }
    }
    spare_ = spare_.MostOf({});
    const auto first_batch =
        std::ranges::find(view_.waiting, Service::kBatch, &WaitingView::service);
    first_batch_ = static_cast<size_t>(first_batch - view_.waiting.begin());
  }
  // Whether the next that waits was admitted, beside which `spare` stays free.
  bool AdmitBeside(const Held& spare, int64_t rows) {
    if (places() <= 0) return false;
    const bool first = batches_ == 0;
    if (!first && places() + view_.more_places <= spare.choices) return false;
    if (!Admit(next_waiting_, rows, first ? 0 : spare.blocks)) return false;
    ++batches_;
    return true;
  }

  // Batch choices that are late or will be begin before all others: where the room of people would
  // be in the way, or there is none, a later deadline gives way.
  void AdmitHurried(const StepBound& bound) {
    if (!plan_->preempt.empty()) return;
    for (; next_waiting_ < view_.waiting.size(); ++next_waiting_) {
      const WaitingView& choice = view_.waiting[next_waiting_];
      if (choice.service != Service::kBatch || choice.deadline > view_.hurried_until) return;
      const int64_t left = choice.known_tokens - choice.cached_tokens,
                    rows = WaitingRows(bound, choice);
      if (rows <= 0 || rows_left() < LeastRows(left, limits_)) return;
      const size_t preempted = plan_->preempt.size();
      const bool admitted = MakeRoom(view_.hurried_until, [&] {
        promised_ = Promised();
        // Where others gave way it takes their room.
        const bool theirs = plan_->preempt.size() > preempted;
        return AdmitBeside(theirs ? Held() : spare_, rows);
      });
      if (!admitted) return;
    }
  }

  void AdmitBatch(const StepBound& bound) {
    // While people wait no batch choice begins but the first.
    const bool people_wait = next_waiting_ < first_batch_;
    if (people_wait && batches_ > 0) return;
    next_waiting_ = std::max(next_waiting_, first_batch_);
    promised_ = Promised();
    for (; next_waiting_ < view_.waiting.size(); ++next_waiting_) {
      const int64_t rows = WaitingRows(bound, view_.waiting[next_waiting_]);
      if (rows <= 0 || !AdmitBeside(spare_, rows) || people_wait) return;
    }
  }

  const StepView& view_;
  const Limits& limits_;
  StepPlan* const plan_;
  HeldBlocks held_;
  StepRows rows_;            // planned
  int64_t kept_rows_ = 0;    // that prompts of people leave to batches
  int64_t taken_ = 0;        // blocks that these take
  int64_t next_rows_ = 0;    // blocks of decoding choices that are not planned yet
  int64_t promised_ = 0;     // what is left of Promised()
  size_t next_waiting_ = 0;  // the first that was not admitted
  size_t first_batch_ = 0;   // of those that wait
  Held spare_;               // room that batches leave to people
  // Choices that hold blocks, of this step or another, and those admitted.
  int64_t batches_ = 0;
  int64_t people_ = 0;  // without those admitted
  bool decodes_interactive_ = false;
};

class Interactive final : public Policy {
 public:
  std::string_view name() const override { return "interactive"; }
  bool orders_services() const override { return true; }

  void Plan(const StepView& view, StepPlan* plan) const override {
    plan->Begin();
    Fill(view, plan).Plan();
  }

  // People go to the replica that has the fewest of them.
  Taking HandOut(const QueueView& view) const override {
    if (view.next_service == Service::kBatch) return Policy::HandOut(view);
    return view.held_interactive <= view.least_held_interactive ? Taking::kNext : Taking::kNothing;
  }
};

}  // namespace

std::unique_ptr<Policy> MakeInteractive() { return std::make_unique<Interactive>(); }

}  // namespace forebay::schedule
