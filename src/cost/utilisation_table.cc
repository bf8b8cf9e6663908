#include "cost/utilisation_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace forebay::cost {
namespace {

struct Cell {
  size_t index;
  double weight;  // the share of index + 1
};

Cell Locate(const std::vector<double>& axis, const std::vector<double>& log_axis, double x) {
  if (x >= axis.back()) return {axis.size() - 1, 0};
  const size_t index =
      static_cast<size_t>(std::upper_bound(axis.begin(), axis.end(), x) - axis.begin()) - 1;
  if (x == axis[index]) return {index, 0};
  return {index, (std::log(x) - log_axis[index]) / (log_axis[index + 1] - log_axis[index])};
}

}  // namespace

UtilisationTable::Found UtilisationTable::Lookup(const Point& wanted) const {
  Found found{0, wanted, How::kExact};
  Cell cells[3];
  for (int d = 0; d < 3; ++d) {
    found.point[d] = std::clamp(wanted[d], axes[d].front(), axes[d].back());
    cells[d] = Locate(axes[d], log_axes[d], found.point[d]);
    if (found.point[d] != wanted[d]) {
      found.how = How::kHeld;
    } else if (cells[d].weight > 0 && found.how == How::kExact) {
      found.how = How::kInterpolated;
    }
  }
  double log_time = 0;
  for (int corner = 0; corner < 8; ++corner) {
    double weight = 1;
    size_t at = 0;
    for (int d = 0; d < 3; ++d) {
      const bool upper = corner >> d & 1;
      weight *= upper ? cells[d].weight : 1 - cells[d].weight;
      at = at * axes[d].size() + cells[d].index + upper;
    }
    if (weight > 0) log_time += weight * log_seconds[at];
  }
  found.seconds = std::exp(log_time);
  return found;
}

void UtilisationTable::Prepare(std::vector<double> seconds) {
  const size_t inner = axes[2].size();
  const size_t plane = axes[1].size() * inner;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (i >= plane) seconds[i] = std::max(seconds[i], seconds[i - plane]);
    if ((IsAttention(op) || op == TableOp::kExperts) && i % plane >= inner)
      seconds[i] = std::max(seconds[i], seconds[i - inner]);
  }
  floor_seconds = *std::min_element(seconds.begin(), seconds.end());
  for (double& s : seconds) s = std::log(s);
  log_seconds = std::move(seconds);
  for (int d = 0; d < 3; ++d) {
    log_axes[d].clear();
    for (double x : axes[d]) log_axes[d].push_back(std::log(x));
  }
}

}  // namespace forebay::cost
