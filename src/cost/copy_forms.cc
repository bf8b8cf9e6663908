#include "cost/copy_forms.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cost/model.h"

namespace forebay::cost {

CopyForm SaturatingForm(std::span<const CopyPoint> points, double change) {
  FB_CHECK(points.size() >= 2, "a form of {} points", points.size());
  const auto rate = [&](size_t i) { return points[i].bytes / points[i].seconds; };
  size_t saturated = 0;
  while (saturated + 1 < points.size() && rate(saturated + 1) > (1 + change) * rate(saturated))
    ++saturated;
  // The mean over those that are saturated.
  double bytes = 0, seconds = 0;
  for (const CopyPoint& point : points.subspan(saturated)) {
    bytes += point.bytes;
    seconds += point.seconds;
  }
  return [rate = bytes / seconds, threshold = points[saturated].bytes](double size) {
    return std::max(size, threshold) / rate;
  };
}

CopyForm LinearForm(std::span<const CopyPoint> points) {
  FB_CHECK(points.size() >= 2, "a form of {} points", points.size());
  return [kept = std::vector<CopyPoint>(points.begin(), points.end())](double size) {
    const auto next =
        std::ranges::find_if(kept, [&](const CopyPoint& point) { return point.bytes >= size; });
    const auto at =
        static_cast<size_t>(std::clamp<int64_t>(next - kept.begin(), 1, std::ssize(kept) - 1));
    const CopyPoint &a = kept[at - 1], &b = kept[at];
    const double rate = (b.bytes - a.bytes) / (b.seconds - a.seconds);
    return std::max(0.0, a.seconds + (size - a.bytes) / rate);
  };
}

// Null: nobody has measured copies by their sizes.
static const UtilisationTable* HostCopyTable(const DeviceProfile& device) {
  const UtilisationTable* const table = device.Find(TableOp::kCopy, NumberFormat::kBF16);
  return table != nullptr && table->axes[0].size() >= 2 ? table : nullptr;
}

bool HasHostCurve(const DeviceProfile& device) { return HostCopyTable(device) != nullptr; }

CopyForm HostCopies(const DeviceProfile& device) {
  const UtilisationTable* const table = HostCopyTable(device);
  if (table == nullptr) {
    return [latency = device.link_latency_s, rate = HostRate(device)](double bytes) {
      return bytes > 0 ? latency + bytes / rate : 0.0;
    };
  }
  const size_t stride = table->axes[1].size() * table->axes[2].size();
  std::vector<CopyPoint> points;
  for (size_t i = 0; i < table->axes[0].size(); ++i) {
    const double seconds = std::exp(table->log_seconds[i * stride]);
    points.push_back(
        {table->axes[0][i], points.empty() ? seconds : std::max(seconds, points.back().seconds)});
  }
  return [form = LinearForm(points)](double bytes) { return bytes > 0 ? form(bytes) : 0.0; };
}

FormError HeldOutError(std::span<const CopyPoint> points,
                       const std::function<CopyForm(std::span<const CopyPoint>)>& fit) {
  FB_CHECK(points.size() >= 3, "{} points", points.size());
  std::vector<CopyPoint> fitted;
  for (size_t i = 0; i < points.size(); i += 2) fitted.push_back(points[i]);
  const CopyForm form = fit(fitted);
  FormError error;
  for (size_t out = 1; out + 1 < points.size(); out += 2) {
    const double off = std::abs(form(points[out].bytes) / points[out].seconds - 1);
    error.mean += off / static_cast<double>(fitted.size() - 1);
    error.most = std::max(error.most, off);
  }
  return error;
}

}  // namespace forebay::cost
