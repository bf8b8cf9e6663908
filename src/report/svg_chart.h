// A chart over time as inline SVG: axes, bands, areas, lines. Colours are CSS classes of the page
// around it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/distribution.h"

namespace forebay::report {

// `text` with &, <, > and quotes as entities.
std::string EscapeHtml(std::string_view text);
// 12345678 -> "12.3M", 0.25 -> "0.25".
std::string ShortNumber(double value);

// The values of equal stretches of time, drawn as steps of a staircase would be without its
// corners: through the middles.
class SvgChart {
 public:
  // `top`: the axis reaches at least it.
  SvgChart(double seconds, double top);

  void Line(std::span<const double> values, std::string_view css_class);
  // Between two lines.
  void Band(std::span<const double> low, std::span<const double> high, std::string_view css_class);
  // The finished element.
  std::string Finish() const;

 private:
  double X(size_t i, size_t count) const;
  double Y(double value) const;
  void AppendPoints(std::span<const double> values, bool backwards, std::string* path) const;

  const double seconds_;
  double step_ = 1, top_ = 1;  // distance of ticks; the axis' end
  std::string body_;
};

// The cumulative distribution of values: their share in percent upwards, values to the right.
std::string DrawShares(const Distribution& values);

// One lane a replica: the height of `lower` and of `upper` on top of it are parts of the lane's.
struct SvgLane {
  std::string name;
  std::vector<double> lower, upper;
};
std::string DrawLanes(double seconds, std::span<const SvgLane> lanes);

// Horizontal bars: name, value, and what is written beside it.
struct SvgBar {
  std::string name;
  double value = 0;
  std::string text;
};
std::string DrawBars(std::span<const SvgBar> bars);

// Horizontal bars of parts one behind the other; part i has the CSS class "k<i>".
struct SvgStack {
  std::string name;
  std::vector<double> parts;
  std::string text;  // behind the bar
};
std::string DrawStacks(std::span<const SvgStack> stacks);

// A column a value, the values' numbers below.
std::string DrawColumns(std::span<const double> values);

}  // namespace forebay::report
