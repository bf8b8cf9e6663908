// Runs kernels in tests and benchmarks without a device: a team of threads with the WorkerContext
// of the contract.
#pragma once

#include <xmmintrin.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "device/operation.h"

namespace forebay::kernels::testing {

// Persistent workers that spin, then yield; between kernels they sleep. The caller is worker 0.
// Denormals are flushed while a kernel runs.
class Team {
 public:
  explicit Team(int num_workers, uint64_t scratch_bytes = 4 << 20)
      : num_workers_(num_workers),
        scratch_(new (std::align_val_t{64}) std::byte[num_workers * scratch_bytes]) {
    for (int worker = 0; worker < num_workers; ++worker) {
      auto context = std::make_unique<Context>(*this);
      context->worker = worker;
      context->num_workers = num_workers;
      context->scratch = scratch_.get() + worker * scratch_bytes;
      context->scratch_bytes = scratch_bytes;
      context->ticket = &ticket_;
      contexts_.push_back(std::move(context));
    }
    for (int worker = 1; worker < num_workers; ++worker)
      threads_.emplace_back([this, worker] { Loop(worker); });
  }
  ~Team() {
    stop_ = true;
    Begin();
    for (std::thread& thread : threads_) thread.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Calls `kernel` once on each worker, all at the same time; returns when all are done.
  void Run(const std::function<void(const device::WorkerContext&)>& kernel) {
    kernel_ = &kernel;
    ticket_ = 0;
    done_ = 0;
    Begin();
    Call(0);
    Await([this] { return done_.load() == num_workers_; });
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  struct Context : device::WorkerContext {
    explicit Context(Team& team) : team(&team) {}
    void Barrier() const override {
      const int64_t round = team->barrier_round_.load();
      if (team->arrived_.fetch_add(1) + 1 == team->num_workers_) {
        team->arrived_ = 0;
        team->barrier_round_.fetch_add(1);
      } else {
        Await([&] { return team->barrier_round_.load() != round; });
      }
    }
    Team* team;
  };

  template <typename Condition>
  static void Await(const Condition& condition) {
    for (int spins = 0; !condition(); ++spins) {
      if (spins < 100) {
        _mm_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

  void Begin() {
    round_.fetch_add(1);
    round_.notify_all();
  }

  void Call(int worker) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u);  // FTZ, DAZ
    (*kernel_)(*contexts_[worker]);
    _mm_setcsr(saved);
    done_.fetch_add(1);
  }
  void Loop(int worker) {
    for (int64_t seen = 0;;) {
      round_.wait(seen);
      ++seen;
      if (stop_) return;
      Call(worker);
    }
  }

  const int num_workers_;
  const std::unique_ptr<std::byte[], Free> scratch_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::vector<std::thread> threads_;
  const std::function<void(const device::WorkerContext&)>* kernel_ = nullptr;
  std::atomic<int64_t> ticket_{0}, round_{0}, barrier_round_{0};
  std::atomic<int> done_{0}, arrived_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace forebay::kernels::testing
