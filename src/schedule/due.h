// Which batches will miss their deadlines, by what is left of them and the rate of the last
// minutes. Pure: time is what callers say.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace forebay::schedule {

inline constexpr double kNoDeadline = std::numeric_limits<double>::infinity();

// What is left of batch choices or requests of one deadline.
struct DueWork {
  double deadline = kNoDeadline;  // seconds from the run's begin
  double tokens = 0;              // of prompts and outputs, to be computed
  double longest_output = 0;      // tokens that one choice has yet to generate
};

// What steps did for batches. An observation loses weight with the time of later ones: after two
// minutes it has a third.
class BatchRate {
 public:
  // A step took so long and had so many rows of batches. One without any says nothing.
  void Observe(double seconds, int64_t batch_rows);
  double tokens_per_second() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }
  double step_seconds() const { return steps_ > 0 ? seconds_ / steps_ : 0; }

 private:
  double seconds_ = 0, steps_ = 0, tokens_ = 0;
};

// The latest deadline among those that will be missed, or that leave less than a fifth of the time
// to spare: forecasts err, and what is late cannot be made good. Batches are served by deadline, so
// one is done when all that is due by then is, and its longest output after that at most, of which
// each token takes a step (Graham's bound). -kNoDeadline: there is none, or no step was observed.
double HurriedUntil(std::vector<DueWork> work, const BatchRate& rate, double now_seconds);

}  // namespace forebay::schedule
