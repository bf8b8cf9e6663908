// Who computes which line of a job that many workers share: the books of the one that hands out
// lines and takes results. Pure: events go in, with the time at which they happened; what to do
// comes out. No clock, no thread, no I/O.
//
// A worker asks for lines and gets a lease; it asks for the next before it has done the last.
// Results come back line by line. The lines of a worker that died, or was silent for too long, are
// leased to others; at the end workers without work get lines that others are late with. The first
// result of a line counts, each later one is compared with it.
//
// Invariants (CheckInvariants):
//  1. A line is open, leased, or done. Of a leased line at least one worker that lives holds a
//     lease; of an open one none does.
//  2. A line becomes done once, and stays so.
//  3. A line at which kMostDeaths workers died is done with an error. Only workers that held no
//     other line count for the last death, so that no line is blamed for its neighbours.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace forebay::job {

struct LeaseOptions {
  int64_t least_lines = 32;  // a lease has; fewer at the job's end
  int64_t most_lines = 256;
  int64_t silent_after_ns = 30'000'000'000;  // a worker that says nothing is given up
  // Open lines for each worker below which the end has begun: leases get smaller, the longest lines
  // come first, and nobody gets more than its part of what is left.
  int64_t end_lines = 128;
};

// What the book says to do.
struct LeaseAction {
  enum class Kind : uint8_t {
    kLease,    // send `lines` to `worker`
    kWait,     // nothing for `worker` now: it is told when there is
    kKeep,     // the result of `line` is its first: keep it
    kCompare,  // `line` has one already: the two must be the same answer
    kRefuse,   // `worker` was never given `line`: drop the result
    kFail,     // too many workers died at `line`: its result is an error (worker_died)
    kGiveUp,   // `worker` was silent for too long
  };
  Kind kind;
  int64_t worker = -1;
  int64_t line = -1;
  std::vector<int64_t> lines;
};

class LeaseBook {
 public:
  static constexpr int kMostDeaths = 3;

  // How long a line takes, in any unit; the same whenever it is asked. Asked at the job's end, for
  // lines that are open then.
  using LengthOf = std::function<uint32_t(int64_t line)>;

  // Lines are 0 to `done`.size() - 1 in the input's order; `done`: those that have results already.
  LeaseBook(LengthOf length_of, const std::vector<bool>& done, const LeaseOptions& options);

  // Events. Workers have names of their own (>= 0) that are not used again. `now_ns` never goes
  // back.
  //
  // The worker is there: lines are parted among all that are.
  void Join(int64_t worker, int64_t now_ns);
  // It has less to do than it likes.
  std::vector<LeaseAction> Ask(int64_t worker, int64_t now_ns);
  std::vector<LeaseAction> Finish(int64_t worker, int64_t line, int64_t now_ns);
  // It lives.
  std::vector<LeaseAction> Hear(int64_t worker, int64_t now_ns);
  // It left of its own will: nobody died at its lines.
  std::vector<LeaseAction> Leave(int64_t worker, int64_t now_ns);
  std::vector<LeaseAction> Die(int64_t worker, int64_t now_ns);
  // Time went by.
  std::vector<LeaseAction> Tick(int64_t now_ns);

  int64_t num_lines() const { return static_cast<int64_t>(lines_.size()); }
  int64_t num_done() const { return num_done_; }
  bool complete() const { return num_done_ == num_lines(); }
  int64_t num_workers() const { return static_cast<int64_t>(workers_.size()); }
  // Lines that the worker has yet to answer.
  int64_t held(int64_t worker) const;
  // FB_CHECKs the invariants; walks through everything.
  void CheckInvariants() const;

 private:
  enum class State : uint8_t { kOpen, kLeased, kDone };
  struct Line {
    uint32_t length = 0;  // from when it is among `longest_`
    State state = State::kOpen;
    uint8_t deaths = 0;
    uint8_t holders = 0;
    bool failed = false;  // done with an error: later results are not looked at
  };
  struct Worker {
    std::set<int64_t> held;
    int64_t heard_ns = 0;
    bool waits = false;  // it asked, and there was nothing
  };

  Worker& At(int64_t worker, int64_t now_ns);
  void Open(int64_t line);
  // Takes lines out of what is open, for `worker`; nothing where there is none for it.
  std::vector<int64_t> TakeOpen(const Worker& worker);
  void AddToLongest(int64_t line);
  std::vector<int64_t> TakeLate(int64_t worker);
  std::optional<LeaseAction> Grant(int64_t worker);
  // Ends the worker; `died`: at the lines that it held.
  void End(int64_t worker, bool died, std::vector<LeaseAction>* actions);
  // Those that wait get what there is.
  void Serve(std::vector<LeaseAction>* actions);
  bool at_end() const;

  const LengthOf length_of_;
  const LeaseOptions options_;
  std::vector<Line> lines_;
  std::map<int64_t, int64_t> open_;  // begin -> end of runs of open lines that nobody died at twice
  std::set<std::pair<uint32_t, int64_t>> longest_;  // at the end, instead of open_: length, line
  bool end_began_ = false;
  std::set<int64_t> suspects_;  // open lines that are leased alone
  int64_t num_open_ = 0;        // lines in open_ or longest_
  int64_t num_done_ = 0;
  std::map<int64_t, Worker> workers_;
  // What workers held that were given up, since its results may still come.
  std::unordered_map<int64_t, std::set<int64_t>> gone_;
};

}  // namespace forebay::job
