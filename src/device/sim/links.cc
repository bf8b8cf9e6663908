#include "device/sim/links.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace forebay::device {
namespace {

// Levels that differ by less than this part are one level.
constexpr double kSame = 1e-12;
// A flow ends on a whole picosecond, up to one too late: far less than this part of its bytes.
constexpr double kTolerance = 1e-6;

constexpr double kNone = std::numeric_limits<double>::infinity();

}  // namespace

int Links::Add(double bytes_per_s) {
  const size_t active = flows_.size() - free_.size();
  FB_CHECK(bytes_per_s > 0 && std::isfinite(bytes_per_s) && active == 0,
           "a link of {} bytes/s beside {} flows", bytes_per_s, active);
  links_.push_back({.capacity = bytes_per_s / kPsPerSecond});
  return static_cast<int>(links_.size()) - 1;
}

void Links::Start(TimePs now, TimePs begin, int source, int target, uint64_t bytes, uint64_t tag) {
  FB_CHECK(source != target && begin >= now && now >= settled_at_,
           "a flow over links {} and {} from {} on", source, target, begin);
  if (free_.empty()) {
    free_.push_back(static_cast<int>(flows_.size()));
    flows_.emplace_back();
    due_.push_back(kNever);
  }
  const int number = free_.back();
  free_.pop_back();
  if (sharing_ == LinkSharing::kFifo) order_.push_back(number);
  flows_[number] = {.pair = PairOf(source, target),
                    .active = true,
                    .moving = false,
                    .remaining = static_cast<double>(bytes),
                    .rate = 0,
                    .since = now,
                    .bytes = bytes,
                    .tag = tag};
  // Until its first byte a flow takes nothing of its links; its begin is an event like its end.
  if (begin == now) return BeginToMove(number, now);
  due_[number] = begin;
  next_known_ = false;
}

int Links::PairOf(int source, int target) {
  pair_at_.resize(links_.size() * links_.size(), -1);
  int& pair = pair_at_[static_cast<size_t>(source) * links_.size() + static_cast<size_t>(target)];
  if (pair < 0) {
    pair = static_cast<int>(pairs_.size());
    pairs_.push_back({.source = source, .target = target});
  }
  return pair;
}

void Links::BeginToMove(int number, TimePs now) {
  Flow& flow = flows_[number];
  flow.moving = true;
  flow.since = now;
  due_[number] = kNever;
  pairs_[flow.pair].flows.push_back(number);
  next_known_ = false;
  Change(flow.pair);
}

void Links::Change(int pair) {
  if (!std::exchange(pairs_[pair].changed, true)) changed_pairs_.push_back(pair);
}

// Puts the pair on its links' lists or takes it off, as it has flows or not; the links' levels
// change then, and only then.
void Links::List(Pair& pair, int number) {
  if (pair.listed == !pair.flows.empty()) return;
  pair.listed = !pair.listed;
  for (const int link : {pair.source, pair.target}) {
    std::vector<int>& pairs = links_[link].pairs;
    if (pair.listed) {
      pairs.push_back(number);
    } else {
      *std::ranges::find(pairs, number) = pairs.back();
      pairs.pop_back();
    }
    Queue(link);
  }
}

TimePs Links::next() {
  if (next_known_) return next_;
  next_known_ = true;
  next_ = kNever;
  for (size_t flow = 0; flow < due_.size(); ++flow) {
    if (due_[flow] < next_) next_ = due_[flow], next_flow_ = flow;
  }
  return next_;
}

bool Links::Pop(TimePs now, uint64_t* tag) {
  FB_CHECK(now == next() && now >= settled_at_, "no flow is due at {} ps but at {}", now, next_);
  const int number = static_cast<int>(next_flow_);
  Flow& flow = flows_[number];
  if (!flow.moving) {
    BeginToMove(number, now);
    return false;
  }
  const double moved = flow.rate * static_cast<double>(now - flow.since);
  FB_CHECK(moved >= flow.remaining - 1e-3 - kTolerance * static_cast<double>(flow.bytes) &&
               moved <= flow.remaining + 2 * flow.rate + 1e-3 +
                            kTolerance * static_cast<double>(flow.bytes),
           "a flow of {} bytes ends after {} of the last {}", flow.bytes, moved, flow.remaining);
  *tag = flow.tag;
  Pair& pair = pairs_[flow.pair];
  for (const int link : {pair.source, pair.target})
    links_[link].finished += static_cast<double>(flow.bytes);
  *std::ranges::find(pair.flows, number) = pair.flows.back();
  pair.flows.pop_back();
  Change(flow.pair);
  flow.active = false;
  if (sharing_ == LinkSharing::kFifo) order_.erase(std::ranges::find(order_, number));
  free_.push_back(number);
  due_[number] = kNever;
  next_known_ = false;
  return true;
}

std::span<const int> Links::Settle(TimePs now) {
  changed_.clear();
  if (changed_pairs_.empty()) return changed_;
  settled_at_ = now;
  for (const int pair : changed_pairs_) List(pairs_[pair], pair);
  sharing_ == LinkSharing::kFair ? ShareFairly(now) : ShareInOrder(now);
  for (const int pair : changed_pairs_) pairs_[pair].changed = false;
  changed_pairs_.clear();
  queue_.clear();
  next_known_ = false;
  return changed_;
}

void Links::Queue(int link) {
  if (!std::exchange(links_[link].queued, true)) queue_.push_back(link);
}

// Max-min fair rates are a pair's lower level of two, where each link's level is right for the
// levels of the others (LevelOf). From the links where pairs came or went the levels are put
// right one by one, as far as changes reach: the lowest level is right once its neighbours were
// looked at, then the next.
void Links::ShareFairly(TimePs now) {
  for (size_t i = 0; i < queue_.size(); ++i) {
    const int number = queue_[i];
    Link& link = links_[number];
    link.queued = false;
    const double level = LevelOf(number);
    if (level == link.level || std::abs(level - link.level) <= kSame * std::min(level, link.level))
      continue;
    link.level = level;
    for (const int pair : link.pairs) Queue(OtherLink(pair, number));
    FB_CHECK(i < 1000 * links_.size(), "the levels of {} links do not settle", links_.size());
  }
  for (const int number : queue_) {
    for (const int each : links_[number].pairs) {
      Pair& pair = pairs_[each];
      const double rate = std::min(links_[pair.source].level, links_[pair.target].level);
      if (std::exchange(pair.rate, rate) != rate) Change(each);
    }
  }
  for (const int each : changed_pairs_) {
    const Pair& pair = pairs_[each];
    for (const int flow : pair.flows)
      SetRate(flow, pair.rate / static_cast<double>(pair.flows.size()), now);
  }
  for (const int number : queue_) SetLoad(number, now);
}

// The v at which pairs of rate min(v, level of their other link) fill the link.
double Links::LevelOf(int number) const {
  const Link& link = links_[number];
  const size_t count = link.pairs.size();
  if (count == 0) return kNone;
  double level = link.capacity / static_cast<double>(count);
  for (size_t limited_before = 0;;) {
    double left = link.capacity;
    size_t limited = 0;
    for (const int pair : link.pairs) {
      const double other = links_[OtherLink(pair, number)].level;
      // Pairs that their other link holds lower leave what they do not take to the rest.
      if (other < level * (1 - kSame)) left -= other, ++limited;
    }
    if (limited == limited_before) return level;
    // All are held by their other links: this one limits nobody.
    if (limited == count) return kNone;
    limited_before = limited;
    level = left / static_cast<double>(count - limited);
  }
}

void Links::ShareInOrder(TimePs now) {
  for (const int number : queue_) links_[number].queued = false;
  for (Link& link : links_) link.left = link.capacity;
  for (const int number : order_) {
    const Flow& flow = flows_[number];
    if (!flow.moving) continue;
    Link &source = links_[pairs_[flow.pair].source], &target = links_[pairs_[flow.pair].target];
    double rate = std::min(source.left, target.left);
    if (rate < kSame * source.capacity) rate = 0;  // rounding left it
    source.left -= rate;
    target.left -= rate;
    SetRate(number, rate, now);
  }
  for (size_t number = 0; number < links_.size(); ++number) SetLoad(static_cast<int>(number), now);
}

void Links::SetRate(int number, double rate, TimePs now) {
  Flow& flow = flows_[number];
  // An end that is known stays as it is: reckoned again, roundings would add up.
  if (rate == flow.rate && due_[number] != kNever) return;
  flow.remaining =
      std::max(0.0, flow.remaining - flow.rate * static_cast<double>(now - flow.since));
  flow.since = now;
  flow.rate = rate;
  due_[number] = rate > 0 ? now + WholePs(flow.remaining / rate) : kNever;
}

double Links::LoadOf(const Pair& pair) const {
  double load = 0;
  for (const int flow : pair.flows) load += flows_[flow].rate;
  return load;
}

void Links::SetLoad(int number, TimePs now) {
  Link& link = links_[number];
  double load = 0;
  for (const int pair : link.pairs) load += LoadOf(pairs_[pair]);
  if (std::abs(load - link.load) <= kSame * link.load) return;
  changed_.push_back(number);
  link.carried += link.load * static_cast<double>(now - link.since);
  link.since = now;
  link.load = load;
}

void Links::Observe(TimePs now, std::vector<FlowState>* flows,
                    std::vector<Carried>* carried) const {
  flows->clear();
  for (size_t number = 0; number < flows_.size(); ++number) {
    const Flow& flow = flows_[number];
    if (!flow.active) continue;
    flows->push_back(
        {.stream = static_cast<int>(flow.tag >> 32),
         .pair = flow.pair,
         .due_in = due_[number] == kNever ? kNever : due_[number] - now,
         .remaining = flow.remaining - flow.rate * static_cast<double>(now - flow.since)});
  }
  std::ranges::sort(*flows);
  carried->clear();
  for (const Link& link : links_) carried->push_back({CarriedBy(link, now), link.finished});
}

void Links::Skip(TimePs now, TimePs time, int64_t times, std::span<const Carried> before) {
  const auto more = static_cast<double>(times);
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    link.carried += more * (CarriedBy(link, now) - before[i].bytes);
    link.finished += more * (link.finished - before[i].finished);
    link.since += time;
  }
  for (Flow& flow : flows_) flow.since += time;
  for (TimePs& due : due_) due += due == kNever ? 0 : time;
  settled_at_ += time;
  next_known_ = false;
}

void Links::CheckInvariants() const {
  std::vector<double> moved(links_.size()), fastest(links_.size());
  for (const Flow& flow : flows_) {
    if (!flow.active || !flow.moving) continue;
    const double done = static_cast<double>(flow.bytes) - flow.remaining +
                        flow.rate * static_cast<double>(settled_at_ - flow.since);
    for (const int link : {pairs_[flow.pair].source, pairs_[flow.pair].target}) moved[link] += done;
  }
  for (const Pair& pair : pairs_) {
    for (const int link : {pair.source, pair.target})
      fastest[link] = std::max(fastest[link], LoadOf(pair));
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    FB_CHECK(link.load <= link.capacity * (1 + 1e-9), "link {} carries {} of {}", i, link.load,
             link.capacity);
    const double carried = CarriedBy(link);
    FB_CHECK(std::abs(carried - link.finished - moved[i]) <= kTolerance * carried + 1,
             "link {} has carried {} bytes, its flows moved {}", i, carried,
             link.finished + moved[i]);
  }
  if (sharing_ != LinkSharing::kFair) return;
  for (const Pair& pair : pairs_) {
    const auto limits = [&](int link) {
      return links_[link].load >= links_[link].capacity * (1 - 1e-9) &&
             LoadOf(pair) >= fastest[link] * (1 - 1e-9);
    };
    FB_CHECK(pair.flows.empty() || limits(pair.source) || limits(pair.target),
             "the flows over links {} and {} could be faster", pair.source, pair.target);
  }
}

}  // namespace forebay::device
