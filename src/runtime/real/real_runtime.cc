#include "runtime/real/real_runtime.h"

#include <errno.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/flush_denormals.h"

namespace forebay::runtime {
namespace {

TimeNs MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * TimeNs{1'000'000'000} + now.tv_nsec;
}

// One futex word. Set touches the event only in its exchange, so a woken waiter may destroy it; a
// wake-up of memory that is gone is a spurious one for whoever waits there, which every futex user
// expects.
class FutexEvent final : public Event {
 public:
  void Set() override {
    if (state_.exchange(kSet) == kAwaited) Futex(FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
  }

  void Reset() override {
    uint32_t expected = kSet;
    // A word that says awaited stays so: its waiters are to be woken by the next Set.
    state_.compare_exchange_strong(expected, kUnset);
  }

  bool IsSet() const override { return state_.load(std::memory_order_acquire) == kSet; }

  bool Wait(TimeNs timeout) override {
    // About 2 us: shorter than a sleep and its wake-up (bench/dispatch_bench).
    for (int i = 0; i < 64; ++i) {
      if (IsSet()) return true;
      _mm_pause();
    }
    const TimeNs deadline = DeadlineAfter(MonotonicNow(), timeout);
    for (;;) {
      uint32_t state = kUnset;
      // Set wakes only where the word says that somebody waits; the kernel looks at the word once
      // more before it sleeps, so that no Set is lost between.
      if (!state_.compare_exchange_strong(state, kAwaited) && state == kSet) return true;
      if (deadline != kForever && MonotonicNow() >= deadline) return false;
      const timespec until{deadline / 1'000'000'000, deadline % 1'000'000'000};
      Futex(FUTEX_WAIT_BITSET_PRIVATE, kAwaited, deadline == kForever ? nullptr : &until);
    }
  }

 private:
  static constexpr uint32_t kUnset = 0, kSet = 1, kAwaited = 2;

  void Futex(int operation, uint32_t value, const timespec* until) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&state_), operation, value, until, nullptr,
            FUTEX_BITSET_MATCH_ANY);
  }

  std::atomic<uint32_t> state_{kUnset};
};

void PinToCore(const TaskOptions& options) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(options.core, &cores);
  if (const int error = pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores); error != 0) {
    base::Log(base::LogLevel::kWarning, fmt::format("task {} is not pinned to core {}: {}",
                                                    options.name, options.core, strerror(error)));
  }
}

class ThreadTask final : public Task {
 public:
  ThreadTask(TaskOptions options, std::function<void()> body)
      : thread_([options = std::move(options), body = std::move(body)] {
          // the kernel's limit
          pthread_setname_np(pthread_self(), options.name.substr(0, 15).c_str());
          if (options.core >= 0) PinToCore(options);
          SetFlushDenormals(options.flush_denormals);
          body();
        }) {}
  ~ThreadTask() override { Join(); }
  void Join() override {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

// Tasks wait for each other, so that none can be left out, and those that run cannot be recalled.
// The process ends in order; what a job has committed stays.
[[noreturn]] void EndWithoutThread(const std::string& task, const char* reason) {
  const base::Status status(
      kThreadUnavailable,
      fmt::format("no thread for the task {}: {}; expected room for it, see `ulimit -u`, "
                  "`ulimit -v` and the container's limit of processes, or lower --threads",
                  task, reason));
  base::Log(base::LogLevel::kError, status.ToString());
  std::_Exit(1);
}

class RealRuntime final : public Runtime {
 public:
  TimeNs Now() const override { return MonotonicNow(); }

  void Sleep(TimeNs duration) override {
    // Who polls sleeps for microseconds; the kernel lets a thread's timers be 50 us late.
    static thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1'000UL);
    (void)slack;
    const TimeNs deadline = DeadlineAfter(Now(), duration);
    const timespec until{deadline / 1'000'000'000, deadline % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }

  void Yield() override { sched_yield(); }

  std::unique_ptr<Task> Spawn(TaskOptions options, std::function<void()> body) override {
    try {
      return std::make_unique<ThreadTask>(options, std::move(body));
    } catch (const std::system_error& error) {
      EndWithoutThread(options.name, error.what());
    }
  }

  std::unique_ptr<Event> NewEvent(std::string name) override {
    return std::make_unique<FutexEvent>();
  }

  bool is_virtual() const override { return false; }
};

}  // namespace

std::unique_ptr<Runtime> CreateRealRuntime() { return std::make_unique<RealRuntime>(); }

}  // namespace forebay::runtime
