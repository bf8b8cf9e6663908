// Whether the load of replicas that share weights is that of steps which they take together: by the
// rows of their latest steps, and by how far these are apart, since who meets waits for the one
// with most. Pure; whoever has it holds a lock.
#pragma once

#include <span>

#include "layout/group_options.h"

namespace forebay::engine {

class LoadWatch {
 public:
  explicit LoadWatch(const layout::GroupOptions& options) : options_(options) {}

  // The rows of the latest step of each live replica, 0 of one without; one of them has come to its
  // step's border, or all have.
  void See(std::span<const int32_t> rows);
  // The load has been low for long enough, in steps of each replica that works: many of them do not
  // shorten it. The steps that they are in when it becomes low count.
  bool calm() const { return calm_steps_ >= options_.patience * working_; }
  // It is so high that replicas should go on alone.
  bool high() const;
  // Calm steps are counted from here on.
  void Restart() { calm_steps_ = 0; }

  // The running mean of by what part the busiest replica's rows exceed the mean, of those with
  // rows; of steps whose load does not rule out by itself that they are taken together.
  double spread() const { return spread_; }
  // The rows a replica below which the load is low.
  double threshold() const { return options_.Threshold(spread_); }

 private:
  const layout::GroupOptions& options_;
  double spread_ = 0;
  int looks_ = 0;           // at the spread, up to as many as count
  int64_t calm_steps_ = 0;  // calm steps of all replicas, in a row
  int64_t working_ = 0;
  double mean_rows_ = 0;  // of a live replica
};

}  // namespace forebay::engine
