#include "runtime/virtual/virtual_runtime.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/flush_denormals.h"
#include "runtime/virtual/fiber.h"

namespace forebay::runtime {
namespace {

// Pages are committed when touched, so the size costs address space alone.
constexpr size_t kStackBytes = 8 << 20;

}  // namespace

// A task's flow of control. It outlives the Task object if that is destroyed last, and the other
// way round.
struct VirtualRuntime::Strand {
  enum class State : uint8_t { kRunnable, kWaiting, kEnded };

  int64_t id = 0;
  std::string name;
  State state = State::kRunnable;
  WaitPoint wait_point;
  TimeNs deadline = kForever;
  std::vector<Strand*> joiners;
  std::unique_ptr<Fiber> fiber;
};

class VirtualTask final : public Task {
 public:
  VirtualTask(VirtualRuntime& runtime, VirtualRuntime::Strand* strand)
      : runtime_(runtime), strand_(strand) {}
  ~VirtualTask() override {
    if (runtime_.deadlocked_) return;  // the runtime gives the strand up
    Join();
    std::erase_if(runtime_.strands_,
                  [this](const auto& strand) { return strand.get() == strand_; });
  }
  void Join() override { runtime_.Join(strand_); }

 private:
  VirtualRuntime& runtime_;
  VirtualRuntime::Strand* const strand_;
};

class VirtualEvent final : public Event {
 public:
  VirtualEvent(VirtualRuntime& runtime, std::string name)
      : runtime_(runtime), name_(std::move(name)) {}
  ~VirtualEvent() override {
    FB_CHECK(waiters_.empty() || runtime_.deadlocked_,
             "event '{}' is destroyed while {} tasks wait for it", name_, waiters_.size());
  }

  void Set() override {
    set_ = true;
    for (VirtualRuntime::Strand* waiter : waiters_) runtime_.MakeRunnable(waiter);
    waiters_.clear();
  }
  void Reset() override { set_ = false; }
  bool IsSet() const override { return set_; }

  bool Wait(TimeNs timeout) override {
    const TimeNs deadline = DeadlineAfter(runtime_.Now(), timeout);
    runtime_.Yield();
    // Somebody else may have reset it between the wake and this task's turn.
    while (!set_) {
      if (runtime_.Now() >= deadline) return false;
      VirtualRuntime::Strand* const self = runtime_.running_;
      waiters_.push_back(self);
      runtime_.Block({"event", &name_}, deadline);
      std::erase(waiters_, self);
    }
    // as on a real machine, others may act between what a task has seen and what it does next
    runtime_.Yield();
    return true;
  }

 private:
  VirtualRuntime& runtime_;
  const std::string name_;
  bool set_ = false;
  std::vector<VirtualRuntime::Strand*> waiters_;
};

VirtualRuntime::VirtualRuntime(uint64_t seed) : seed_(seed), rng_(base::Mix64(seed)) {}

VirtualRuntime::~VirtualRuntime() {
  if (!deadlocked_) return;
  for (auto& strand : strands_) {
    Fiber* const fiber = strand->fiber.release();
    if (strand->state == Strand::State::kEnded) {
      delete fiber;
    } else {
      Fiber::Abandon(fiber);
    }
  }
}

base::Status VirtualRuntime::Run(std::function<void()> body) {
  FB_CHECK(running_ == nullptr, "Run inside Run");
  FB_CHECK(!deadlocked_, "Run after a deadlock");
  outside_ = std::make_unique<Strand>();
  outside_->fiber = std::make_unique<Fiber>();
  Strand* const main = AddStrand({.name = "main"}, std::move(body));
  running_ = outside_.get();
  SwitchAway();  // comes back when no strand can run
  running_ = nullptr;
  const bool all_ended = std::ranges::all_of(
      strands_, [](const auto& strand) { return strand->state == Strand::State::kEnded; });
  if (!all_ended) {
    deadlocked_ = true;
    return DeadlockReport();
  }
  std::erase_if(strands_, [main](const auto& strand) { return strand.get() == main; });
  return base::Status::Ok();
}

VirtualRuntime::Strand* VirtualRuntime::AddStrand(TaskOptions options, std::function<void()> body) {
  Strand* const strand = strands_.emplace_back(std::make_unique<Strand>()).get();
  strand->id = next_id_++;
  strand->name = std::move(options.name);
  strand->fiber = std::make_unique<Fiber>(
      kStackBytes,
      [this, flush_denormals = options.flush_denormals, body = std::move(body)]() mutable {
        SetFlushDenormals(flush_denormals);
        body();
        // What it holds is destroyed by its own task, before anybody who joins goes on.
        body = nullptr;
        End();
      });
  runnable_.push_back(strand);
  return strand;
}

void VirtualRuntime::End() {
  Strand* const self = running_;
  self->state = Strand::State::kEnded;
  for (Strand* joiner : self->joiners) MakeRunnable(joiner);
  self->joiners.clear();
  Strand* const next = Choose();
  running_ = next != nullptr ? next : outside_.get();
  Fiber::SwitchForever(*self->fiber, *running_->fiber);
}

void VirtualRuntime::SwitchAway() {
  Strand* const self = running_;
  Strand* const next = Choose();
  running_ = next != nullptr ? next : outside_.get();
  // The choice may fall on the strand that gave way.
  if (running_ != self) Fiber::Switch(*self->fiber, *running_->fiber);
}

VirtualRuntime::Strand* VirtualRuntime::Choose() {
  // Time advances when nobody can run, and only then: what a task does takes none.
  if (runnable_.empty()) WakeExpired();
  if (runnable_.empty()) return nullptr;
  const size_t index = rng_.Below(runnable_.size());
  Strand* const chosen = runnable_[index];
  runnable_[index] = runnable_.back();
  runnable_.pop_back();
  ++num_switches_;
  trace_hash_ = base::Combine64(base::Combine64(trace_hash_, chosen->id), now_);
  return chosen;
}

void VirtualRuntime::WakeExpired() {
  TimeNs earliest = kForever;
  bool anybody_waits = false;
  for (const auto& strand : strands_) {
    if (strand->state != Strand::State::kWaiting) continue;
    anybody_waits = true;
    earliest = std::min(earliest, strand->deadline);
  }
  // The device plane may wake a task earlier than any deadline. Where nobody waits nobody would be
  // woken, and it must not run on forever.
  if (timed_work_ != nullptr && anybody_waits) earliest = timed_work_->RunUntil(earliest);
  if (earliest == kForever) return;
  now_ = std::max(now_, earliest);
  for (const auto& strand : strands_) {
    if (strand->state == Strand::State::kWaiting && strand->deadline == earliest)
      MakeRunnable(strand.get());
  }
}

void VirtualRuntime::SetTimedWork(TimedWork* work) {
  FB_CHECK(work == nullptr || timed_work_ == nullptr,
           "a second simulated device plane on one runtime");
  timed_work_ = work;
}

void VirtualRuntime::MakeRunnable(Strand* strand) {
  if (strand->state != Strand::State::kWaiting) return;  // its deadline came first
  strand->state = Strand::State::kRunnable;
  runnable_.push_back(strand);
}

void VirtualRuntime::Block(WaitPoint wait_point, TimeNs deadline) {
  FB_CHECK(running_ != nullptr, "waiting for {} '{}' outside Run", wait_point.what,
           *wait_point.name);
  running_->state = Strand::State::kWaiting;
  running_->wait_point = wait_point;
  running_->deadline = deadline;
  SwitchAway();
}

void VirtualRuntime::Sleep(TimeNs duration) {
  if (duration <= 0) return Yield();
  Block({"the end of a sleep of", &running_->name}, DeadlineAfter(now_, duration));
}

void VirtualRuntime::Yield() {
  FB_CHECK(running_ != nullptr, "a task's call outside Run");
  runnable_.push_back(running_);
  SwitchAway();
}

std::unique_ptr<Task> VirtualRuntime::Spawn(TaskOptions options, std::function<void()> body) {
  FB_CHECK(running_ != nullptr, "Spawn outside Run");
  auto task = std::make_unique<VirtualTask>(*this, AddStrand(std::move(options), std::move(body)));
  Yield();
  return task;
}

std::unique_ptr<Event> VirtualRuntime::NewEvent(std::string name) {
  return std::make_unique<VirtualEvent>(*this, std::move(name));
}

void VirtualRuntime::Join(Strand* strand) {
  while (strand->state != Strand::State::kEnded) {
    strand->joiners.push_back(running_);
    Block({"the end of task", &strand->name}, kForever);
  }
}

base::Status VirtualRuntime::DeadlockReport() const {
  std::string message = fmt::format("deadlock at {} ns of virtual time, seed {}", now_, seed_);
  for (const auto& strand : strands_) {
    if (strand->state == Strand::State::kEnded) continue;
    message += fmt::format("; task '{}' waits for {} '{}'", strand->name, strand->wait_point.what,
                           *strand->wait_point.name);
  }
  return {kDeadlock, std::move(message)};
}

}  // namespace forebay::runtime
