#include "device/sim/links.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace forebay::device {
namespace {

constexpr double kPsPerSecond = 1e12;
// Two shares that differ by rounding alone are one share.
constexpr double kSameShare = 1 + 1e-12;
// A flow ends on a whole picosecond, up to one too late: far less than this part of its bytes.
constexpr double kTolerance = 1e-6;

constexpr double kNone = std::numeric_limits<double>::infinity();

}  // namespace

int Links::Add(double bytes_per_s) {
  FB_CHECK(bytes_per_s > 0 && std::isfinite(bytes_per_s) && order_.empty(),
           "a link of {} bytes/s beside {} flows", bytes_per_s, order_.size());
  links_.push_back({.capacity = bytes_per_s / kPsPerSecond});
  return static_cast<int>(links_.size()) - 1;
}

void Links::Start(TimePs now, TimePs begin, int source, int target, uint64_t bytes, uint64_t tag) {
  FB_CHECK(source != target && begin >= now && now >= settled_at_, "a flow over links {} and {} from {} on", source,
           target, begin);
  if (free_.empty()) {
    free_.push_back(static_cast<int>(flows_.size()));
    flows_.emplace_back();
    due_.push_back(kNever);
  }
  const int number = free_.back();
  free_.pop_back();
  order_.push_back(number);
  flows_[number] = {.source = source, .target = target, .moving = false, .remaining = static_cast<double>(bytes),
                    .rate = 0, .since = now, .bytes = bytes, .tag = tag, .new_rate = 0};
  if (begin == now) return BeginToMove(number, now);
  due_[number] = begin;
  if (begin < next_) next_ = begin, next_flow_ = number;
}

void Links::BeginToMove(int number, TimePs now) {
  Flow& flow = flows_[number];
  flow.moving = true;
  flow.since = now;
  due_[number] = kNever;
  for (const int link : {flow.source, flow.target}) {
    links_[link].flows.push_back(number);
    if (!std::exchange(links_[link].in_use, true)) in_use_.push_back(link);
  }
  next_known_ = false;
  if (!FillGap(number)) changed_ = true;
}

// A flow that takes the place of one over the same two links takes its fair rate too: nothing else changes.
bool Links::FillGap(int number) {
  Flow& flow = flows_[number];
  for (Gap& gap : gaps_) {
    if (gap.source != flow.source || gap.target != flow.target) continue;
    flow.rate = gap.rate;
    due_[number] = flow.since + WholePs(flow.remaining / flow.rate);
    gap = gaps_.back();
    gaps_.pop_back();
    return true;
  }
  return false;
}

TimePs Links::next() {
  if (next_known_) return next_;
  next_known_ = true;
  next_ = kNever;
  for (size_t number = 0; number < due_.size(); ++number) {
    if (due_[number] < next_) next_ = due_[number], next_flow_ = static_cast<int>(number);
  }
  return next_;
}

bool Links::Pop(TimePs now, uint64_t* tag) {
  FB_CHECK(now == next() && now >= settled_at_, "no flow is due at {} ps but at {}", now, next_);
  const int number = next_flow_;
  Flow& flow = flows_[number];
  if (!flow.moving) {
    BeginToMove(number, now);
    return false;
  }
  const double moved = flow.rate * static_cast<double>(now - flow.since);
  FB_CHECK(moved >= flow.remaining - 1e-3 - kTolerance * static_cast<double>(flow.bytes) &&
               moved <= flow.remaining + 2 * flow.rate + 1e-3 + kTolerance * static_cast<double>(flow.bytes),
           "a flow of {} bytes ends after {} of the last {}", flow.bytes, moved, flow.remaining);
  *tag = flow.tag;
  for (const int link : {flow.source, flow.target}) {
    links_[link].finished += static_cast<double>(flow.bytes);
    std::vector<int>& flows = links_[link].flows;
    *std::ranges::find(flows, number) = flows.back();
    flows.pop_back();
  }
  if (sharing_ == LinkSharing::kFair) {
    gaps_.push_back({flow.source, flow.target, flow.rate});
  } else {
    changed_ = true;
  }
  order_.erase(std::ranges::find(order_, number));
  free_.push_back(number);
  due_[number] = kNever;
  next_known_ = false;
  return true;
}

bool Links::Settle(TimePs now) {
  if (!changed_ && gaps_.empty()) return false;
  changed_ = false;
  gaps_.clear();
  ++num_settles_;
  Open();
  sharing_ == LinkSharing::kFair ? ShareFairly() : ShareInOrder();
  ApplyRates(now);
  return true;
}

void Links::Open() {
  shares_.resize(in_use_.size());
  for (size_t place = 0; place < in_use_.size(); ++place) {
    Link& link = links_[in_use_[place]];
    link.new_load = 0;
    link.left = link.capacity;
    link.open = static_cast<int>(link.flows.size());
    link.place = static_cast<int>(place);
    shares_[place] = link.open > 0 ? link.left / link.open : kNone;
  }
  for (const int number : order_) flows_[number].new_rate = -1;
}

// Water-filling: the link with the least left for each of its open flows is the bottleneck of those flows; they get
// that share, and what they take is gone from their other links.
void Links::ShareFairly() {
  for (;;) {
    double least = kNone;
    for (const double share : shares_) least = std::min(least, share);
    if (least == kNone) return;
    for (size_t place = 0; place < shares_.size(); ++place) {
      if (shares_[place] <= least * kSameShare) GiveToAll(in_use_[place], least);
    }
  }
}

void Links::GiveToAll(int link, double share) {
  for (const int number : links_[link].flows) {
    Flow& flow = flows_[number];
    if (flow.new_rate >= 0) continue;
    flow.new_rate = share;
    links_[link].new_load += share;
    Link& other = links_[flow.source == link ? flow.target : flow.source];
    other.new_load += share;
    other.left = std::max(0.0, other.left - share);
    shares_[other.place] = --other.open > 0 ? other.left / other.open : kNone;
  }
  shares_[links_[link].place] = kNone;
}

void Links::ShareInOrder() {
  for (const int number : order_) {
    Flow& flow = flows_[number];
    if (!flow.moving) continue;
    Link &source = links_[flow.source], &target = links_[flow.target];
    flow.new_rate = std::min(source.left, target.left);
    for (Link* link : {&source, &target}) link->left -= flow.new_rate, link->new_load += flow.new_rate;
  }
}

void Links::ApplyRates(TimePs now) {
  std::erase_if(in_use_, [&](int number) {
    Link& link = links_[number];
    if (link.new_load != link.load) {
      link.carried += link.load * static_cast<double>(now - link.since);
      link.since = now;
      link.load = link.new_load;
    }
    link.in_use = !link.flows.empty();
    return !link.in_use;
  });
  settled_at_ = now;
  next_known_ = true;
  next_ = kNever;
  for (const int number : order_) {
    Flow& flow = flows_[number];
    if (flow.moving && (flow.new_rate != flow.rate || due_[number] == kNever)) {
      flow.remaining = std::max(0.0, flow.remaining - flow.rate * static_cast<double>(now - flow.since));
      flow.since = now;
      flow.rate = flow.new_rate;
      due_[number] = flow.rate > 0 ? now + WholePs(flow.remaining / flow.rate) : kNever;
    }
    if (due_[number] < next_) next_ = due_[number], next_flow_ = number;
  }
}

void Links::CheckInvariants() const {
  std::vector<double> moved(links_.size()), fastest(links_.size());
  for (const int number : order_) {
    const Flow& flow = flows_[number];
    if (!flow.moving) continue;
    const double done = static_cast<double>(flow.bytes) - flow.remaining +
                        flow.rate * static_cast<double>(settled_at_ - flow.since);
    for (const int link : {flow.source, flow.target}) {
      moved[link] += done;
      fastest[link] = std::max(fastest[link], flow.rate);
    }
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    FB_CHECK(link.load <= link.capacity * (1 + 1e-9), "link {} carries {} of {}", i, link.load, link.capacity);
    const double carried = CarriedBy(link);
    FB_CHECK(std::abs(carried - link.finished - moved[i]) <= kTolerance * carried + 1,
             "link {} has carried {} bytes, its flows moved {}", i, carried, link.finished + moved[i]);
  }
  if (sharing_ != LinkSharing::kFair) return;
  for (const int number : order_) {
    const Flow& flow = flows_[number];
    const auto limits = [&](int link) {
      return links_[link].load >= links_[link].capacity * (1 - 1e-9) && flow.rate >= fastest[link] * (1 - 1e-9);
    };
    FB_CHECK(!flow.moving || limits(flow.source) || limits(flow.target), "a flow over links {} and {} could be faster",
             flow.source, flow.target);
  }
}

}  // namespace forebay::device
