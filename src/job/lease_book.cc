#include "job/lease_book.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace forebay::job {
namespace {

using Kind = LeaseAction::Kind;

constexpr int kMostHolders = 2;
// A line at which so many died is leased alone.
constexpr int kSuspectDeaths = LeaseBook::kMostDeaths - 1;

}  // namespace

LeaseBook::LeaseBook(LengthOf length_of, const std::vector<bool>& done, const LeaseOptions& options)
    : length_of_(std::move(length_of)), options_(options), lines_(done.size()) {
  for (size_t i = 0; i < done.size(); ++i) {
    if (done[i]) {
      lines_[i].state = State::kDone;
      ++num_done_;
    } else {
      Open(static_cast<int64_t>(i));
    }
  }
}

int64_t LeaseBook::held(int64_t worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? 0 : static_cast<int64_t>(found->second.held.size());
}

LeaseBook::Worker& LeaseBook::At(int64_t worker, int64_t now_ns) {
  Worker& found = workers_[worker];
  found.heard_ns = now_ns;
  return found;
}

void LeaseBook::Open(int64_t line) {
  Line& entry = lines_[static_cast<size_t>(line)];
  entry.state = State::kOpen;
  // It may be the line that kills: it goes alone, so that no other is blamed with it.
  if (entry.deaths >= kSuspectDeaths) {
    suspects_.insert(line);
    return;
  }
  ++num_open_;
  if (end_began_) {
    AddToLongest(line);
    return;
  }
  const auto next = open_.lower_bound(line);
  const auto before = next == open_.begin() ? open_.end() : std::prev(next);
  const bool joins_next = next != open_.end() && next->first == line + 1;
  const int64_t end = joins_next ? next->second : line + 1;
  if (joins_next) open_.erase(next);
  if (before != open_.end() && before->second == line) {
    before->second = end;
  } else {
    open_.emplace(line, end);
  }
}

void LeaseBook::AddToLongest(int64_t line) {
  Line& entry = lines_[static_cast<size_t>(line)];
  entry.length = length_of_(line);
  longest_.emplace(entry.length, line);
}

bool LeaseBook::at_end() const {
  return num_open_ <= options_.end_lines * std::max<int64_t>(1, num_workers());
}

std::vector<int64_t> LeaseBook::TakeOpen(const Worker& worker) {
  std::vector<int64_t> taken;
  const int64_t share = num_open_ / std::max<int64_t>(1, num_workers());
  if (!end_began_ && at_end()) {
    end_began_ = true;
    for (const auto& [begin, end] : open_) {
      for (int64_t line = begin; line < end; ++line) AddToLongest(line);
    }
    open_.clear();
  }
  if (end_began_ && num_open_ > 0) {
    // At the end the longest first and few at a time, so that workers end together. Who asks first
    // does not take what is left: it may have room for all of it.
    const int64_t part = (num_lines() - num_done_ + num_workers() - 1) / num_workers();
    const int64_t size = std::min(std::clamp<int64_t>(share / 2, 1, options_.least_lines),
                                  part - static_cast<int64_t>(worker.held.size()));
    while (!longest_.empty() && static_cast<int64_t>(taken.size()) < size)
      taken.push_back(longest_.extract(std::prev(longest_.end())).value().second);
    num_open_ -= static_cast<int64_t>(taken.size());
    std::ranges::sort(taken);
  } else if (num_open_ > 0) {
    // A quarter of a share: the rest is for who is faster.
    const int64_t size = std::clamp(share / 4, options_.least_lines, options_.most_lines);
    const auto run = open_.extract(open_.begin());
    const int64_t begin = run.key(), end = std::min(run.mapped(), begin + size);
    if (end < run.mapped()) open_.emplace(end, run.mapped());
    for (int64_t line = begin; line < end; ++line) taken.push_back(line);
    num_open_ -= end - begin;
  } else if (!suspects_.empty() && worker.held.empty()) {
    taken.push_back(suspects_.extract(suspects_.begin()).value());
  }
  return taken;
}

std::vector<int64_t> LeaseBook::TakeLate(int64_t worker) {
  std::vector<int64_t> taken;
  for (const auto& [other, from] : workers_) {
    if (other == worker) continue;
    std::vector<int64_t> late;
    for (const int64_t line : from.held) {
      const Line& entry = lines_[static_cast<size_t>(line)];
      if (entry.state == State::kLeased && entry.holders < kMostHolders &&
          entry.deaths < kSuspectDeaths)
        late.push_back(line);
    }
    if (late.size() > taken.size()) taken = std::move(late);
  }
  // The later half: what its holder may not have begun.
  taken.erase(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2));
  if (static_cast<int64_t>(taken.size()) > options_.least_lines)
    taken.erase(taken.begin(), taken.end() - options_.least_lines);
  return taken;
}

std::optional<LeaseAction> LeaseBook::Grant(int64_t worker) {
  Worker& to = workers_.at(worker);
  const bool alone = std::ranges::any_of(to.held, [&](int64_t line) {
    return lines_[static_cast<size_t>(line)].deaths >= kSuspectDeaths;
  });
  std::vector<int64_t> taken;
  // Who holds a suspect gets nothing beside it.
  if (!alone) taken = TakeOpen(to);
  if (taken.empty() && to.held.empty() && suspects_.empty()) taken = TakeLate(worker);
  to.waits = taken.empty();
  if (taken.empty()) return std::nullopt;
  for (const int64_t line : taken) {
    Line& entry = lines_[static_cast<size_t>(line)];
    entry.state = State::kLeased;
    ++entry.holders;
    to.held.insert(line);
  }
  return LeaseAction{.kind = Kind::kLease, .worker = worker, .lines = std::move(taken)};
}

void LeaseBook::Serve(std::vector<LeaseAction>* actions) {
  for (const auto& [worker, entry] : workers_) {
    if (!entry.waits) continue;
    if (auto lease = Grant(worker)) actions->push_back(std::move(*lease));
  }
}

void LeaseBook::Join(int64_t worker, int64_t now_ns) { At(worker, now_ns); }

std::vector<LeaseAction> LeaseBook::Ask(int64_t worker, int64_t now_ns) {
  At(worker, now_ns);
  std::vector<LeaseAction> actions;
  auto lease = Grant(worker);
  actions.push_back(lease ? std::move(*lease) : LeaseAction{.kind = Kind::kWait, .worker = worker});
  return actions;
}

std::vector<LeaseAction> LeaseBook::Finish(int64_t worker, int64_t line, int64_t now_ns) {
  std::vector<LeaseAction> actions;
  const auto found = workers_.find(worker);
  if (found != workers_.end()) found->second.heard_ns = now_ns;
  const bool holds = found != workers_.end() && found->second.held.erase(line) > 0;
  const auto gone = gone_.find(worker);
  // Given up as silent, it may have gone on all the same: its results are as good.
  const bool held_once = !holds && gone != gone_.end() && gone->second.erase(line) > 0;
  const auto act = [&](Kind kind) {
    actions.push_back({.kind = kind, .worker = worker, .line = line});
  };
  if (!holds && !held_once) {
    act(Kind::kRefuse);
    return actions;
  }
  Line& entry = lines_[static_cast<size_t>(line)];
  if (holds) --entry.holders;
  if (entry.failed) {
    act(Kind::kRefuse);
  } else if (entry.state == State::kDone) {
    act(Kind::kCompare);
  } else {
    if (entry.state == State::kOpen) {
      // The result is of a worker that was given up, before another one had the line.
      if (suspects_.erase(line) == 0) {
        --num_open_;
        if (end_began_) {
          longest_.erase({entry.length, line});
        } else {
          const auto run = std::prev(open_.upper_bound(line));
          const int64_t begin = run->first, end = run->second;
          open_.erase(run);
          if (begin < line) open_.emplace(begin, line);
          if (line + 1 < end) open_.emplace(line + 1, end);
        }
      }
    }
    entry.state = State::kDone;
    ++num_done_;
    act(Kind::kKeep);
  }
  Serve(&actions);
  return actions;
}

std::vector<LeaseAction> LeaseBook::Hear(int64_t worker, int64_t now_ns) {
  const auto found = workers_.find(worker);
  if (found != workers_.end()) found->second.heard_ns = now_ns;
  return {};
}

void LeaseBook::End(int64_t worker, bool died, std::vector<LeaseAction>* actions) {
  const auto node = workers_.extract(worker);
  if (node.empty()) return;
  const std::set<int64_t>& held = node.mapped().held;
  for (const int64_t line : held) {
    Line& entry = lines_[static_cast<size_t>(line)];
    --entry.holders;
    if (entry.state != State::kLeased) continue;
    // The last death that fails a line counts only where it was alone: of several nobody knows
    // which it was.
    if (died && (held.size() == 1 || entry.deaths + 1 < kMostDeaths)) ++entry.deaths;
    if (entry.deaths >= kMostDeaths) {
      entry.state = State::kDone;
      entry.failed = true;
      ++num_done_;
      actions->push_back({.kind = Kind::kFail, .worker = worker, .line = line});
    } else if (entry.holders == 0) {
      Open(line);
    }
  }
  if (!held.empty()) gone_[worker].insert(held.begin(), held.end());
}

std::vector<LeaseAction> LeaseBook::Leave(int64_t worker, int64_t) {
  std::vector<LeaseAction> actions;
  End(worker, false, &actions);
  Serve(&actions);
  return actions;
}

std::vector<LeaseAction> LeaseBook::Die(int64_t worker, int64_t) {
  std::vector<LeaseAction> actions;
  End(worker, true, &actions);
  // No word comes from the dead.
  gone_.erase(worker);
  Serve(&actions);
  return actions;
}

std::vector<LeaseAction> LeaseBook::Tick(int64_t now_ns) {
  std::vector<LeaseAction> actions;
  std::vector<int64_t> silent;
  for (const auto& [worker, entry] : workers_) {
    if (now_ns - entry.heard_ns > options_.silent_after_ns) silent.push_back(worker);
  }
  for (const int64_t worker : silent) {
    actions.push_back({.kind = Kind::kGiveUp, .worker = worker});
    End(worker, true, &actions);
  }
  if (!silent.empty()) Serve(&actions);
  return actions;
}

void LeaseBook::CheckInvariants() const {
  std::vector<int> holders(lines_.size());
  for (const auto& [worker, entry] : workers_) {
    bool suspect = false;
    for (const int64_t line : entry.held) {
      ++holders[static_cast<size_t>(line)];
      suspect = suspect || lines_[static_cast<size_t>(line)].deaths >= kMostDeaths;
    }
    FB_CHECK(!suspect, "worker {} holds a line at which too many died", worker);
  }
  std::vector<bool> open(lines_.size());
  int64_t num_open = 0, num_done = 0, last = -1;
  const auto add = [&](int64_t line) {
    FB_CHECK(!open[static_cast<size_t>(line)], "line {} is open twice", line);
    open[static_cast<size_t>(line)] = true;
  };
  for (const auto& [begin, end] : open_) {
    FB_CHECK(last < begin && begin < end, "runs of open lines meet at {}", begin);
    last = end;
    for (int64_t line = begin; line < end; ++line, ++num_open) add(line);
  }
  for (const auto& [length, line] : longest_) {
    add(line);
    ++num_open;
  }
  FB_CHECK(num_open == num_open_, "{} lines are open, {} by the count", num_open, num_open_);
  for (const int64_t line : suspects_) add(line);
  for (size_t line = 0; line < lines_.size(); ++line) {
    const Line& entry = lines_[line];
    FB_CHECK(holders[line] == entry.holders && holders[line] <= kMostHolders,
             "line {} is held by {} workers, {} by its count", line, holders[line], entry.holders);
    FB_CHECK(open[line] == (entry.state == State::kOpen), "line {} is open and is not", line);
    if (entry.state == State::kOpen) FB_CHECK(holders[line] == 0, "line {} is open and held", line);
    if (entry.state == State::kLeased) FB_CHECK(holders[line] > 0, "line {} is lost", line);
    num_done += entry.state == State::kDone;
  }
  FB_CHECK(num_done == num_done_, "{} lines are done, {} by the count", num_done, num_done_);
}

}  // namespace forebay::job
