// Fork and join for work outside of steps (loading, checking): plain threads on any runtime's host.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace forebay::runtime {

// Hands out 0, 1, 2, ... to any thread.
class Tickets {
 public:
  int64_t Next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> next_{0};
};

// Runs `body` on at most `num_threads` threads (0: one a usable core), the caller's included, and
// returns when all are done. Where the system gives fewer threads, fewer do it.
void ParallelFor(int num_threads, const std::function<void(Tickets&)>& body);

}  // namespace forebay::runtime
