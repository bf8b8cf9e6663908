#include "device/sim/links.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace forebay::device {
namespace {

constexpr double kPsPerSecond = 1e12;
// Two shares that differ by rounding alone are one share.
constexpr double kSameShare = 1 + 1e-12;
// A flow ends on a whole picosecond, up to one too late: far less than this part of its bytes.
constexpr double kTolerance = 1e-6;

}  // namespace

int Links::Add(double bytes_per_s) {
  FB_CHECK(bytes_per_s > 0 && std::isfinite(bytes_per_s) && flows_.empty(),
           "a link of {} bytes/s beside {} flows", bytes_per_s, flows_.size());
  links_.push_back({.capacity = bytes_per_s / kPsPerSecond});
  return static_cast<int>(links_.size()) - 1;
}

void Links::Start(TimePs now, TimePs begin, int source, int target, uint64_t bytes, uint64_t tag) {
  FB_CHECK(source != target && begin >= now && now >= carried_until_, "a flow over links {} and {} from {} on", source,
           target, begin);
  Flow& flow = flows_.emplace_back(Flow{.source = source,
                                        .target = target,
                                        .moving = begin == now,
                                        .remaining = static_cast<double>(bytes),
                                        .rate = 0,
                                        .new_rate = 0,
                                        .since = now,
                                        .due = begin == now ? kNever : begin,
                                        .bytes = bytes,
                                        .tag = tag});
  if (flow.moving && !FillGap(flow)) changed_ = true;
  FindNext();
}

// A flow that takes the place of one over the same two links takes its fair rate too: nothing else changes.
bool Links::FillGap(Flow& flow) {
  for (Gap& gap : gaps_) {
    if (gap.source != flow.source || gap.target != flow.target) continue;
    flow.rate = gap.rate;
    flow.due = flow.since + static_cast<TimePs>(std::ceil(flow.remaining / flow.rate));
    gap = gaps_.back();
    gaps_.pop_back();
    return true;
  }
  return false;
}

bool Links::Pop(TimePs now, uint64_t* tag) {
  FB_CHECK(now == next_ && now >= carried_until_, "no flow is due at {} ps but at {}", now, next_);
  const auto flow = std::ranges::find_if(flows_, [now](const Flow& flow) { return flow.due == now; });
  FB_CHECK(flow != flows_.end(), "a flow that was due at {} ps is gone", now);
  if (!flow->moving) {
    flow->moving = true;
    flow->since = now;
    flow->due = kNever;
    if (!FillGap(*flow)) changed_ = true;
    FindNext();
    return false;
  }
  const double moved = flow->rate * static_cast<double>(now - flow->since);
  FB_CHECK(moved >= flow->remaining - 1e-3 - kTolerance * static_cast<double>(flow->bytes) &&
               moved <= flow->remaining + 2 * flow->rate + 1e-3 + kTolerance * static_cast<double>(flow->bytes),
           "a flow of {} bytes ends after {} of the last {}", flow->bytes, moved, flow->remaining);
  *tag = flow->tag;
  for (const int link : {flow->source, flow->target}) links_[link].finished += static_cast<double>(flow->bytes);
  if (sharing_ == LinkSharing::kFair) {
    gaps_.push_back({flow->source, flow->target, flow->rate});
  } else {
    changed_ = true;
  }
  flows_.erase(flow);
  FindNext();
  return true;
}

bool Links::Settle(TimePs now) {
  if (!changed_ && gaps_.empty()) return false;
  changed_ = false;
  gaps_.clear();
  ++num_settles_;
  Carry(now);
  sharing_ == LinkSharing::kFair ? ShareFairly() : ShareInOrder();
  for (Link& link : links_) link.load = 0;
  for (Flow& flow : flows_) {
    if (!flow.moving) continue;
    for (const int link : {flow.source, flow.target}) links_[link].load += flow.new_rate;
    if (flow.new_rate == flow.rate && flow.due != kNever) continue;
    flow.remaining = std::max(0.0, flow.remaining - flow.rate * static_cast<double>(now - flow.since));
    flow.since = now;
    flow.rate = flow.new_rate;
    flow.due = flow.rate > 0 ? now + static_cast<TimePs>(std::ceil(flow.remaining / flow.rate)) : kNever;
  }
  FindNext();
  return true;
}

// Water-filling: the link with the least left for each of its open flows is the bottleneck of those flows; they get
// that share, and what they take is gone from their other links.
void Links::ShareFairly() {
  open_links_.clear();
  open_flows_.clear();
  for (Link& link : links_) link.open = 0;
  for (Flow& flow : flows_) {
    flow.new_rate = 0;
    if (!flow.moving) continue;
    open_flows_.push_back(&flow);
    for (const int number : {flow.source, flow.target}) {
      if (links_[number].open++ == 0) open_links_.push_back(&links_[number]);
    }
  }
  for (Link* link : open_links_) link->left = link->capacity, link->share = link->left / link->open;
  while (!open_flows_.empty()) {
    double share = std::numeric_limits<double>::infinity();
    for (const Link* link : open_links_) share = std::min(share, link->share);
    for (Link* link : open_links_) link->full = link->share <= share * kSameShare;
    std::erase_if(open_flows_, [&](Flow* flow) {
      Link &source = links_[flow->source], &target = links_[flow->target];
      if (!source.full && !target.full) return false;
      flow->new_rate = share;
      for (Link* link : {&source, &target}) {
        link->left = std::max(0.0, link->left - share);
        --link->open;
        link->touched = true;
      }
      return true;
    });
    std::erase_if(open_links_, [](Link* link) {
      if (link->touched && link->open > 0) link->share = link->left / link->open;
      link->touched = false;
      return link->open == 0;
    });
  }
}

void Links::ShareInOrder() {
  for (Link& link : links_) link.left = link.capacity;
  for (Flow& flow : flows_) {
    flow.new_rate = flow.moving ? std::min(links_[flow.source].left, links_[flow.target].left) : 0;
    links_[flow.source].left -= flow.new_rate;
    links_[flow.target].left -= flow.new_rate;
  }
}

void Links::Carry(TimePs now) {
  for (Link& link : links_) link.carried += link.load * static_cast<double>(now - carried_until_);
  carried_until_ = now;
}

void Links::FindNext() {
  next_ = kNever;
  for (const Flow& flow : flows_) next_ = std::min(next_, flow.due);
}

void Links::CheckInvariants() const {
  std::vector<double> moved(links_.size()), fastest(links_.size());
  for (const Flow& flow : flows_) {
    if (!flow.moving) continue;
    const double done = static_cast<double>(flow.bytes) - flow.remaining +
                        flow.rate * static_cast<double>(carried_until_ - flow.since);
    for (const int link : {flow.source, flow.target}) {
      moved[link] += done;
      fastest[link] = std::max(fastest[link], flow.rate);
    }
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    FB_CHECK(link.load <= link.capacity * (1 + 1e-9), "link {} carries {} of {}", i, link.load, link.capacity);
    FB_CHECK(std::abs(link.carried - link.finished - moved[i]) <= kTolerance * link.carried + 1,
             "link {} has carried {} bytes, its flows moved {}", i, link.carried, link.finished + moved[i]);
  }
  if (sharing_ != LinkSharing::kFair) return;
  for (const Flow& flow : flows_) {
    const auto limits = [&](int link) {
      return links_[link].load >= links_[link].capacity * (1 - 1e-9) && flow.rate >= fastest[link] * (1 - 1e-9);
    };
    FB_CHECK(!flow.moving || limits(flow.source) || limits(flow.target), "a flow over links {} and {} could be faster",
             flow.source, flow.target);
  }
}

}  // namespace forebay::device
