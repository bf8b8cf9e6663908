#include "profile/measure_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace forebay::profile {
namespace {

// Half-way between the least monotone times above and the greatest below, along the axis with this
// stride.
void MakeMonotone(size_t length, size_t stride, size_t count, std::vector<double>* log_seconds) {
  std::vector<double> upper(*log_seconds), lower(*log_seconds);
  for (size_t i = 0; i < count; ++i) {
    if (i / stride % length > 0) upper[i] = std::max(upper[i], upper[i - stride]);
    const size_t j = count - 1 - i;
    if (j / stride % length + 1 < length) lower[j] = std::min(lower[j], lower[j + stride]);
  }
  for (size_t i = 0; i < count; ++i) (*log_seconds)[i] = (upper[i] + lower[i]) / 2;
}

double AxisPoint(const std::vector<double>& axis, double grain, base::Rng* rng) {
  if (grain == 0 || axis.size() == 1) return axis[rng->Below(axis.size())];
  const double from = std::log(axis.front()), to = std::log(axis.back());
  const double x = std::exp(from + rng->Uniform() * (to - from));
  return std::clamp(std::round(x / grain) * grain, axis.front(), axis.back());
}

cost::Residual ResidualOf(const TableSpec& spec, const cost::UtilisationTable& table,
                          int held_out) {
  base::Rng rng(7);
  std::vector<double> errors;
  for (int i = 0; i < held_out; ++i) {
    cost::Point point;
    for (int d = 0; d < 3; ++d) point[d] = AxisPoint(spec.axes[d], spec.grain[d], &rng);
    errors.push_back(std::abs(table.Lookup(point).seconds / spec.seconds(point) - 1));
  }
  std::ranges::sort(errors);
  if (errors.empty()) return {};
  return {errors[errors.size() / 2], errors[errors.size() * 9 / 10], held_out};
}

}  // namespace

cost::UtilisationTable MeasureTable(const TableSpec& spec, int held_out) {
  cost::UtilisationTable table;
  table.op = spec.op;
  table.format = spec.format;
  table.head_dim = spec.head_dim;
  table.mark = cost::Mark::kMeasured;
  table.source = "forebay profile";
  table.axes = spec.axes;
  const auto& [first, second, third] = spec.axes;
  const size_t count = first.size() * second.size() * third.size();
  std::vector<double> seconds(count);
  // In an order that a passing disturbance does not follow: every so many points, without a common
  // factor.
  size_t step = 7919 % count + 1;
  while (std::gcd(step, count) != 1) ++step;
  for (size_t i = 0, at = 0; i < count; ++i) {
    const size_t c = at % third.size(), b = at / third.size() % second.size(),
                 a = at / third.size() / second.size();
    seconds[at] = std::log(spec.seconds({first[a], second[b], third[c]}));
    at = (at + step) % count;
  }
  MakeMonotone(first.size(), second.size() * third.size(), count, &seconds);
  if (cost::IsAttention(spec.op)) MakeMonotone(second.size(), third.size(), count, &seconds);
  for (double& s : seconds) s = std::exp(s);
  table.Prepare(std::move(seconds));
  table.residual = ResidualOf(spec, table, held_out);
  return table;
}

}  // namespace forebay::profile
