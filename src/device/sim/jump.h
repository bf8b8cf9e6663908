// Times of streams that repeat bodies in which they meet each other, worked out without events. A
// body takes each stream from its end of the body before. Once all streams need the same time for a
// body, they need it for all further ones, and the rest is a product. Times are whole picoseconds,
// so the product is exact.
#pragma once

#include <cstdint>
#include <vector>

#include "device/sim/sim_work.h"

namespace forebay::device {

class Jump {
 public:
  static constexpr size_t kMaxMembers = 64;

  struct Member {
    int stream = 0;
    std::vector<SimStep> steps;
    TimePs begin = 0;
    // What has been worked out: the stream is at `step` of `body`, which it may start at `time`;
    // since its begin it ran and stood at awaits for so long.
    TimePs time = 0, ran = 0, stood = 0;
    int64_t body = 0;
    size_t step = 0;

   private:
    friend class Jump;
    bool stopped = false;
    uint64_t met = 0;  // the members on whose begins `time` depends
    // at the begin of `body`
    TimePs time_before = 0, ran_before = 0, stood_before = 0;
  };
  // A counter by which members meet.
  struct Meeting {
    int counter = -1;
    uint64_t latest = 0;  // the value that was posted last, or the one before the first

   private:
    friend class Jump;
    struct Post {
      TimePs time;
      uint64_t met;
    };
    uint64_t first = 0;       // the first body's first value
    uint64_t awaits = 0;      // in a body
    uint64_t growth = 0;      // posts of a body
    uint64_t done = 0;        // posts of the body that is worked out
    std::vector<Post> posts;  // in that body
  };

  // Begins anew; members are added before Finish. Nothing allocates in a steady state.
  void Clear();
  Member& Add();

  std::vector<Member>& members() { return members_; }
  const std::vector<Meeting>& meetings() const { return meetings_; }
  int64_t times() const { return times_; }

  // Works out `times` > 0 bodies of every member. False: it cannot be told from the members alone,
  // since they post and await unequally, or since one could end before another has begun.
  bool Finish(int64_t times);
  // Works out where members are at `now`: the step at which each is has not ended. False: that was
  // done before. REQUIRES: Finish, and `now` at or after every begin.
  bool StopAt(TimePs now);

 private:
  bool FindMeetings();
  bool Run(TimePs limit);
  bool Advance(Member& member, TimePs limit);
  bool Repeats() const;

  std::vector<Member> members_;
  std::vector<Member> spare_;  // for the memory of their steps
  std::vector<Meeting> meetings_;
  std::vector<int> meeting_of_;  // by counter; -1: none
  int64_t times_ = 0;
  bool was_stopped_ = false;
};

}  // namespace forebay::device
