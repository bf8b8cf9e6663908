#include "cost/copy_forms.h"

#include <gtest/gtest.h>

namespace forebay::cost {
namespace {

constexpr double kRate = 25e9;

std::vector<CopyPoint> Points(const CopyForm& seconds) {
  std::vector<CopyPoint> points;
  for (double bytes = 4096; bytes < 100e6; bytes *= 4) points.push_back({bytes, seconds(bytes)});
  return points;
}
FormError Saturating(std::span<const CopyPoint> points) {
  return HeldOutError(points, [](auto others) { return SaturatingForm(others); });
}
FormError Linear(std::span<const CopyPoint> points) { return HeldOutError(points, LinearForm); }

TEST(CopyForms, EachForetellsItsOwnKind) {
  const auto latency = Points([](double bytes) { return 10e-6 + bytes / kRate; });
  EXPECT_LT(Linear(latency).most, 1e-9);
  EXPECT_GT(Saturating(latency).most, 0.1);
  const CopyForm form = LinearForm(latency);
  EXPECT_NEAR(form(0), 10e-6, 1e-12);
  EXPECT_NEAR(form(1e9), 10e-6 + 1e9 / kRate, 1e-9);

  // Sizes that are all at the threshold or above it.
  const auto threshold = Points([](double bytes) { return std::max(bytes, 4096.0) / kRate; });
  EXPECT_LT(Saturating(threshold).most, 1e-9);
  EXPECT_NEAR(SaturatingForm(threshold)(1), 4096 / kRate, 1e-15);
  // Below the threshold any copy takes as long.
  const auto flat = Points([](double bytes) { return std::max(bytes, 1e6) / kRate; });
  EXPECT_NEAR(SaturatingForm(flat)(4096) / flat[0].seconds, 1, 0.06);
}

TEST(CopyForms, WhatNothingForetellsIsSeen) {
  auto points = Points([](double bytes) { return 10e-6 + bytes / kRate; });
  points[3].seconds *= 2;
  EXPECT_NEAR(Linear(points).most, 0.5, 0.2);
  EXPECT_LT(Linear(points).mean, Linear(points).most);
}

}  // namespace
}  // namespace forebay::cost
