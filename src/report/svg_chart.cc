#include "report/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace forebay::report {
namespace {

// In the units of the viewBox; small, so that text stays readable where a phone shrinks the whole.
constexpr double kWidth = 420, kHeight = 150, kLeft = 42, kRight = 8, kTop = 8, kBottom = 20;
constexpr double kLaneHeight = 16, kLaneGap = 3, kBarHeight = 17;

// 1, 2 or 5 times a power of ten, so that about `count` of them make `range`.
double NiceStep(double range, int count) {
  const double raw = range / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * 1.0001) return factor * power;
  }
  return 10 * power;
}

struct TimeUnit {
  const char* name;
  double seconds;
};
TimeUnit UnitOf(double seconds) {
  if (seconds < 1) return {"ms", 1e-3};
  if (seconds < 300) return {"s", 1};
  return seconds < 3 * 3600 ? TimeUnit{"min", 60} : TimeUnit{"h", 3600};
}

std::string Open(double height) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:g} {:g}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\">", kWidth,
      height);
}

std::string Text(double x, double y, const char* anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     EscapeHtml(text));
}

std::string Rule(double x1, double y1, double x2, double y2) {
  return fmt::format("<path class=\"rule\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", x1, y1, x2, y2);
}

// Ticks from kTop down to `bottom`, times below.
std::string TimeAxis(double seconds, double bottom) {
  const TimeUnit unit = UnitOf(seconds);
  const double range = seconds / unit.seconds, step = NiceStep(range, 5);
  std::string out;
  for (int i = 0; i * step <= range * 1.0001; ++i) {
    const double x = kLeft + i * step / range * (kWidth - kLeft - kRight);
    out += Rule(x, kTop, x, bottom);
    const bool last = (i + 1) * step > range * 1.0001;
    out += Text(x, bottom + 13, "middle",
                last ? fmt::format("{:g} {}", i * step, unit.name) : fmt::format("{:g}", i * step));
  }
  return out;
}

// Ticks from kTop down to `bottom`, values below.
std::string ValueAxis(double most, double bottom) {
  const double step = NiceStep(most, 5);
  std::string out;
  for (int i = 0; i * step <= most * 1.0001; ++i) {
    const double x = kLeft + i * step / most * (kWidth - kLeft - kRight);
    out += Rule(x, kTop, x, bottom) + Text(x, bottom + 13, "middle", ShortNumber(i * step));
  }
  return out;
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string ShortNumber(double value) {
  constexpr std::pair<double, const char*> kUnits[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [size, name] : kUnits) {
    if (std::abs(value) >= size) return fmt::format("{:.3g}{}", value / size, name);
  }
  return fmt::format("{:.3g}", value);
}

SvgChart::SvgChart(double seconds, double top) : seconds_(seconds > 0 ? seconds : 1) {
  const double range = top > 0 && std::isfinite(top) ? top : 1;
  step_ = NiceStep(range, 4);
  top_ = std::ceil(range / step_ - 1e-9) * step_;
}

double SvgChart::X(size_t i, size_t count) const {
  return kLeft +
         (static_cast<double>(i) + 0.5) / static_cast<double>(count) * (kWidth - kLeft - kRight);
}

double SvgChart::Y(double value) const {
  return kHeight - kBottom - std::clamp(value / top_, 0.0, 1.0) * (kHeight - kTop - kBottom);
}

void SvgChart::AppendPoints(std::span<const double> values, bool backwards,
                            std::string* path) const {
  for (size_t k = 0; k < values.size(); ++k) {
    const size_t i = backwards ? values.size() - 1 - k : k;
    *path += fmt::format("{}{:.1f} {:.1f}", path->empty() ? "M" : "L", X(i, values.size()),
                         Y(values[i]));
  }
}

void SvgChart::Line(std::span<const double> values, std::string_view css_class) {
  std::string path;
  AppendPoints(values, false, &path);
  body_ += fmt::format("<path class=\"line {}\" d=\"{}\"/>", css_class, path);
}

void SvgChart::Band(std::span<const double> low, std::span<const double> high,
                    std::string_view css_class) {
  std::string path;
  AppendPoints(high, false, &path);
  AppendPoints(low, true, &path);
  body_ += fmt::format("<path class=\"{}\" d=\"{}Z\"/>", css_class, path);
}

std::string SvgChart::Finish() const {
  std::string out = Open(kHeight) + TimeAxis(seconds_, kHeight - kBottom);
  for (int i = 0; i * step_ <= top_ * 1.0001; ++i) {
    out += Rule(kLeft, Y(i * step_), kWidth - kRight, Y(i * step_));
    out += Text(kLeft - 4, Y(i * step_) + 3.5, "end", ShortNumber(i * step_));
  }
  return out + body_ + "</svg>";
}

std::string DrawShares(const Distribution& values) {
  const std::vector<Distribution::Point> points = values.Points();
  const double most = points.empty() || points.back().value <= 0 ? 1 : points.back().value;
  const double bottom = kHeight - kBottom;
  const auto y = [&](double share) { return bottom - share * (bottom - kTop); };
  std::string out = Open(kHeight) + ValueAxis(most, bottom);
  for (const int percent : {0, 50, 100}) {
    const double at = y(percent / 100.0);
    out += Rule(kLeft, at, kWidth - kRight, at) +
           Text(kLeft - 5, at + 3.5, "end", fmt::format("{} %", percent));
  }
  double below = 0;
  std::string path = fmt::format("M{:.1f} {:.1f}", kLeft, bottom);
  for (const Distribution::Point& point : points) {
    const double x = kLeft + point.value / most * (kWidth - kLeft - kRight);
    path += fmt::format("L{:.1f} {:.1f}L{:.1f} {:.1f}", x, y(below), x, y(point.share));
    below = point.share;
  }
  return out + fmt::format("<path class=\"line a\" d=\"{}\"/></svg>", path);
}

std::string DrawLanes(double seconds, std::span<const SvgLane> lanes) {
  const double bottom = kTop + static_cast<double>(lanes.size()) * (kLaneHeight + kLaneGap);
  std::string out = Open(bottom + kBottom) + TimeAxis(seconds > 0 ? seconds : 1, bottom);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    const double base = kTop + static_cast<double>(lane + 1) * (kLaneHeight + kLaneGap) - kLaneGap;
    const size_t count = lanes[lane].lower.size();
    const auto x = [&](size_t i) {
      return kLeft +
             static_cast<double>(i) / static_cast<double>(count) * (kWidth - kLeft - kRight);
    };
    out += Text(kLeft - 4, base - 4, "end", lanes[lane].name);
    std::string lower = fmt::format("M{:.1f} {:.1f}", kLeft, base), upper, back;
    for (size_t i = 0; i < count; ++i) {
      const double a = base - kLaneHeight * std::clamp(lanes[lane].lower[i], 0.0, 1.0);
      const double b =
          base - kLaneHeight * std::clamp(lanes[lane].lower[i] + lanes[lane].upper[i], 0.0, 1.0);
      lower += fmt::format("L{:.1f} {:.1f}", x(i), a);
      upper += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x(i), b);
      back.insert(0, fmt::format("L{:.1f} {:.1f}", x(i), a));
    }
    if (count == 0) continue;
    out += fmt::format("<path class=\"a\" d=\"{}L{:.1f} {:.1f}Z\"/><path class=\"b\" d=\"{}{}Z\"/>",
                       lower, x(count - 1), base, upper, back);
  }
  return out + "</svg>";
}

std::string DrawBars(std::span<const SvgBar> bars) {
  constexpr double kBarLeft = 110, kBarRight = 120;
  double most = 0;
  for (const SvgBar& bar : bars) most = std::max(most, bar.value);
  std::string out = Open(kTop + kBarHeight * static_cast<double>(bars.size()));
  double y = kTop;
  for (const SvgBar& bar : bars) {
    const double width = most > 0 ? bar.value / most * (kWidth - kBarLeft - kBarRight) : 0;
    out += Text(kBarLeft - 4, y + 11, "end", bar.name);
    out +=
        fmt::format("<rect class=\"a\" x=\"{:g}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:g}\"/>",
                    kBarLeft, y + 1, width, kBarHeight - 4);
    out += Text(kBarLeft + width + 4, y + 11, "start", bar.text);
    y += kBarHeight;
  }
  return out + "</svg>";
}

std::string DrawStacks(std::span<const SvgStack> stacks) {
  constexpr double kBarLeft = 90, kBarRight = 70;
  double most = 0;
  for (const SvgStack& stack : stacks)
    most = std::max(most, std::accumulate(stack.parts.begin(), stack.parts.end(), 0.0));
  std::string out = Open(kTop + kBarHeight * static_cast<double>(stacks.size()));
  double y = kTop;
  for (const SvgStack& stack : stacks) {
    out += Text(kBarLeft - 4, y + 11, "end", stack.name);
    double x = kBarLeft;
    for (size_t i = 0; i < stack.parts.size() && most > 0; ++i) {
      const double width = stack.parts[i] / most * (kWidth - kBarLeft - kBarRight);
      if (width < 0.05) continue;
      out += fmt::format(
          "<rect class=\"k{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:g}\"/>", i, x,
          y + 1, width, kBarHeight - 4);
      x += width;
    }
    out += Text(x + 4, y + 11, "start", stack.text);
    y += kBarHeight;
  }
  return out + "</svg>";
}

std::string DrawColumns(std::span<const double> values) {
  const double top = std::max(1e-300, *std::ranges::max_element(values)),
               bottom = kHeight - kBottom;
  const double pitch = (kWidth - kLeft - kRight) / static_cast<double>(values.size());
  const double step = NiceStep(top, 4);
  std::string out = Open(kHeight);
  const auto y = [&](double value) { return bottom - value / top * (bottom - kTop); };
  for (int i = 0; i * step <= top * 1.0001; ++i) {
    out += Rule(kLeft, y(i * step), kWidth - kRight, y(i * step));
    out += Text(kLeft - 4, y(i * step) + 3.5, "end", ShortNumber(i * step));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    out += fmt::format(
        "<rect class=\"a\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\"/>",
        kLeft + static_cast<double>(i) * pitch, y(values[i]), 0.9 * pitch, bottom - y(values[i]));
  }
  out += Text(kLeft, bottom + 13, "start", "0");
  out += Text(kWidth - kRight, bottom + 13, "end", fmt::format("{}", values.size() - 1));
  return out + "</svg>";
}

}  // namespace forebay::report
