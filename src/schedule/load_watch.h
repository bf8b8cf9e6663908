// Whether replicas that share weights should take their steps together: at a low load, where
// waiting for the busiest of them costs less than pulling weights. Pure; its owner holds a lock.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace forebay::schedule {

// The load at which steps are taken together.
struct LoadRule {
  // Rows below which a step that is alike on all replicas is taken together (B_th); infinite: each
  // step is.
  double threshold = 0;
  // A step together lasts as long as its busiest replica, so the threshold falls as the loads
  // differ: with a mean of `rows` steps are taken together while the busiest replica has at most
  // (1 + spread) times the mean. Descending rows, ascending spreads; rows 0: nothing is known.
  struct Tolerated {
    double rows = 0, spread = 0;
  };
  std::array<Tolerated, 4> tolerated{};
  // Steps of each working replica in a row, with a load below the threshold, before the replicas
  // meet.
  int patience = 64;

  // The threshold where the busiest replica has (1 + spread) times the mean.
  double Threshold(double spread) const;
};

class LoadWatch {
 public:
  // Times the threshold: a load up to there keeps replicas together, so that the mode does not
  // flap.
  static constexpr double kBackToPull = 1.25;

  // `rule` outlives the watch.
  explicit LoadWatch(const LoadRule& rule) : rule_(rule) {}

  // The rows of the latest step of each live replica, 0 for an idle one. Call it when a replica has
  // come to its step's border, or when all have.
  void See(std::span<const int32_t> rows);
  // The load has been low for `patience` steps of each replica that works. The steps that they are
  // in when it becomes low count.
  bool calm() const { return calm_steps_ >= rule_.patience * working_; }
  // The load is so high that replicas should go on alone.
  bool high() const { return mean_rows_ > kBackToPull * threshold(); }
  // Counts calm steps from here on.
  void Restart() { calm_steps_ = 0; }

  // The running mean of (most rows / mean rows - 1) over the replicas with rows. Steps too large to
  // be taken together do not count.
  double spread() const { return spread_; }
  // The rows a replica below which the load is low.
  double threshold() const { return rule_.Threshold(spread_); }

 private:
  const LoadRule& rule_;
  double spread_ = 0;
  int looks_ = 0;           // looks at the spread, up to the number that counts
  int64_t calm_steps_ = 0;  // calm steps of all replicas, in a row
  int64_t working_ = 0;
  double mean_rows_ = 0;  // of a live replica
};

}  // namespace forebay::schedule
