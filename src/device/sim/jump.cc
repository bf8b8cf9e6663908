#include "device/sim/jump.h"

#include <algorithm>
#include <utility>

namespace forebay::device {

void Jump::Clear() {
  was_stopped_ = false;
  while (!members_.empty()) {
    spare_.push_back(std::move(members_.back()));
    members_.pop_back();
  }
}

Jump::Member& Jump::Add() {
  if (spare_.empty()) return members_.emplace_back();
  members_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  return members_.back();
}

// Each counter is posted by one member and awaited by one, as often, with values one higher each.
bool Jump::FindMeetings() {
  for (const Meeting& meeting : meetings_) meeting_of_[static_cast<size_t>(meeting.counter)] = -1;
  size_t count = 0;
  const auto find = [&](const SimStep& step) -> Meeting& {
    const auto counter = static_cast<size_t>(step.counter);
    if (counter >= meeting_of_.size()) meeting_of_.resize(counter + 1, -1);
    if (meeting_of_[counter] < 0) {
      meeting_of_[counter] = static_cast<int>(count);
      if (count == meetings_.size()) meetings_.emplace_back();
      Meeting& meeting = meetings_[count++];
      meeting.counter = step.counter;
      meeting.first = step.value;
      meeting.awaits = meeting.growth = 0;
    }
    return meetings_[static_cast<size_t>(meeting_of_[counter])];
  };
  bool fits = true;
  for (const Member& member : members_) {
    for (const SimStep& step : member.steps) {
      if (step.kind == SimStep::Kind::kRun) continue;
      Meeting& meeting = find(step);
      uint64_t& named = step.kind == SimStep::Kind::kPost ? meeting.growth : meeting.awaits;
      fits &= step.value == meeting.first + named++;
    }
  }
  meetings_.resize(count);
  for (Meeting& meeting : meetings_) {
    fits &= meeting.growth == meeting.awaits;
    meeting.posts.resize(meeting.growth);
  }
  return fits;
}

bool Jump::Finish(int64_t times) {
  times_ = times;
  return members_.size() <= kMaxMembers && FindMeetings() && Run(kNever);
}

bool Jump::StopAt(TimePs now) {
  if (std::exchange(was_stopped_, true)) return false;
  (void)Run(now);
  return true;
}

// What a run that ends after `limit`, or an await of what is posted after it, holds stays there.
bool Jump::Run(TimePs limit) {
  const uint64_t all =
      members_.size() == kMaxMembers ? ~uint64_t{0} : (uint64_t{1} << members_.size()) - 1;
  uint64_t bit = 1;
  for (Member& member : members_) {
    member.time = member.begin;
    member.ran = member.stood = 0;
    member.body = 0;
    member.step = 0;
    member.stopped = false;
    member.met = std::exchange(bit, bit << 1);
  }
  // Values grow by one from `first` on: nothing has been posted yet.
  for (Meeting& meeting : meetings_) meeting.latest = meeting.first - 1;
  for (int64_t body = 0; body < times_; ++body) {
    for (Meeting& meeting : meetings_) meeting.done = 0;
    for (Member& member : members_) {
      member.time_before = member.time;
      member.ran_before = member.ran;
      member.stood_before = member.stood;
    }
    bool moved = true;
    while (moved) {
      moved = false;
      for (Member& member : members_) {
        if (!member.stopped && member.body == body) moved |= Advance(member, limit);
      }
    }
    bool goes_on = false;
    for (Member& member : members_) {
      member.stopped |= member.body == body;
      goes_on |= !member.stopped;
      // They wait for each other, or one would not wait for all.
      if (limit == kNever && (member.stopped || member.met != all)) return false;
    }
    if (!goes_on) return true;
    // Where all members took the same time for the body they stand to each other as before it, and
    // will after each that follows: the rest is multiplied.
    if (limit != kNever || !Repeats()) continue;
    const int64_t others = times_ - 1 - body;
    for (Member& member : members_) {
      member.time += others * (member.time - member.time_before);
      member.ran += others * (member.ran - member.ran_before);
      member.stood += others * (member.stood - member.stood_before);
      member.body = times_;
    }
    for (Meeting& meeting : meetings_)
      meeting.latest += static_cast<uint64_t>(others) * meeting.growth;
    return true;
  }
  return true;
}

bool Jump::Repeats() const {
  const TimePs first = members_[0].time - members_[0].time_before;
  return std::ranges::all_of(members_, [first](const Member& member) {
    return member.time - member.time_before == first;
  });
}

// To the end of the body, or until something holds it; returns whether it got on.
bool Jump::Advance(Member& member, TimePs limit) {
  const size_t first = member.step;
  for (; member.step < member.steps.size(); ++member.step) {
    const SimStep& step = member.steps[member.step];
    if (step.kind == SimStep::Kind::kRun) {
      // What would end after the limit is under way there.
      if (step.work.alone > limit - member.time) {
        member.stopped = true;
        break;
      }
      member.time += step.work.alone;
      member.ran += step.work.alone;
      continue;
    }
    Meeting& meeting =
        meetings_[static_cast<size_t>(meeting_of_[static_cast<size_t>(step.counter)])];
    const uint64_t place = step.value - meeting.first;
    if (step.kind == SimStep::Kind::kPost) {
      meeting.posts[place] = {member.time, member.met};
      meeting.done = place + 1;
      ++meeting.latest;
      continue;
    }
    // Its poster has not come so far: the others are looked at first.
    if (meeting.done <= place) break;
    const Meeting::Post& post = meeting.posts[place];
    // Who has waited for somebody has waited for all that this one had waited for.
    member.met |= post.met;
    if (post.time > member.time) {
      member.stood += post.time - member.time;
      member.time = post.time;
    }
  }
  if (member.step < member.steps.size()) return member.step > first;
  member.step = 0;
  ++member.body;
  return true;
}

}  // namespace forebay::device
