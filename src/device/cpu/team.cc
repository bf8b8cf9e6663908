#include "device/cpu/team.h"

#include <sched.h>

#include <utility>

namespace forebay::device {

Team::Team(runtime::Runtime& runtime, const TeamOptions& options)
    : num_workers_(options.num_workers), spin_(options.spin), cores_(options.num_workers) {
  const uint64_t share = options.scratch.size() / num_workers_ / 64 * 64;
  for (int worker = 0; worker < num_workers_; ++worker) {
    Context& context = contexts_.emplace_back(*this);
    context.worker = worker;
    context.num_workers = num_workers_;
    context.scratch = options.scratch.data() + worker * share;
    context.scratch_bytes = share;
    context.ticket = &ticket_;
    bells_.push_back(
        std::make_unique<Bell>(runtime, fmt::format("bell of {} worker {}", options.name, worker)));
    cores_[worker] = -1;
  }
  for (int worker = 1; worker < num_workers_; ++worker) {
    helpers_.push_back(runtime.Spawn({.name = fmt::format("{} worker {}", options.name, worker),
                                      .core = options.cores.empty() ? -1 : options.cores[worker],
                                      .flush_denormals = true},
                                     [this, worker] { Help(worker); }));
  }
}

Team::~Team() {
  Dispatch(nullptr);
  helpers_.clear();
}

void Team::Run(const Operation& operation) {
  ticket_.store(0, std::memory_order_relaxed);
  if (num_workers_ == 1) return operation.run(operation.args.data(), contexts_[0]);
  // Relaxed: helpers come to it behind the epoch, which orders them.
  unfinished_.store(num_workers_ - 1, std::memory_order_relaxed);
  Dispatch(&operation);
  NoteCore(0);
  operation.run(operation.args.data(), contexts_[0]);
  bells_[0]->WaitUntil(SpinOf(0), [this] { return unfinished_.load() == 0; });
}

void Team::Dispatch(const Operation* operation) {
  operation_ = operation;
  epoch_.store(epoch_.load(std::memory_order_relaxed) + 1);
  RingOthers(0);
}

void Team::Help(int worker) {
  for (uint64_t seen = 0;; ++seen) {
    bells_[worker]->WaitUntil(SpinOf(worker), [this, seen] { return epoch_.load() != seen; });
    const Operation* const operation = operation_;
    if (operation == nullptr) return;
    NoteCore(worker);
    operation->run(operation->args.data(), contexts_[worker]);
    // Worker 0 waits for the last alone.
    if (unfinished_.fetch_sub(1) == 1) bells_[0]->Ring();
  }
}

// The last to arrive opens the barrier for the others.
void Team::Barrier(int worker) {
  if (num_workers_ == 1) return;
  const uint64_t passed = barriers_.load();
  if (arrived_.fetch_add(1) + 1 == num_workers_) {
    // Before the barrier opens: the first to pass may arrive at the next one at once.
    arrived_.store(0, std::memory_order_relaxed);
    barriers_.store(passed + 1);
    RingOthers(worker);
  } else {
    bells_[worker]->WaitUntil(SpinOf(worker),
                              [this, passed] { return barriers_.load() != passed; });
  }
}

void Team::NoteCore(int worker) {
  const int core = sched_getcpu();
  if (cores_[worker].load(std::memory_order_relaxed) != core)
    cores_[worker].store(core, std::memory_order_relaxed);
}

runtime::TimeNs Team::SpinOf(int worker) {
  if (spin_ == 0) return 0;
  NoteCore(worker);
  const int core = cores_[worker].load(std::memory_order_relaxed);
  for (int other = 0; other < num_workers_; ++other) {
    // Spinning would keep the teammate on the same core from the work that is waited for.
    if (other != worker && cores_[other].load(std::memory_order_relaxed) == core) return 0;
  }
  return spin_;
}

void Team::RingOthers(int worker) {
  for (int other = 0; other < num_workers_; ++other) {
    if (other != worker) bells_[other]->Ring();
  }
}

}  // namespace forebay::device
