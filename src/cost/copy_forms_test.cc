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

// What the copies of plans take on a device is what was measured of it, and in between; where
// nobody did, its link says it.
TEST(CopyForms, HostCopiesOfADevice) {
  DeviceProfile cpu{.kind = DeviceKind::kCpu, .copy_bytes_per_core_s = 1e9, .link_latency_s = 5e-6};
  EXPECT_NEAR(HostCopies(cpu)(1e6), 1.005e-3, 1e-9);
  UtilisationTable table{.op = TableOp::kCopy};
  table.axes = {{{1e4, 1e6, 1e8}, {1, 2}, {1}}};
  table.Prepare({4e-6, 9e-6, 1e-4, 2e-4, 2e-2, 4e-2});
  cpu.tables.push_back(table);
  const CopyForm form = HostCopies(cpu);
  EXPECT_EQ(form(0), 0);
  EXPECT_NEAR(form(1e6), 1e-4, 1e-9);
  EXPECT_NEAR(form(50.5e6), 1.005e-2, 1e-6);
  DeviceProfile gpu = cpu;
  gpu.kind = DeviceKind::kGpu;
  gpu.host_bytes_per_s = 25e9;
  gpu.link_efficiency = 1;
  EXPECT_NEAR(HostCopies(gpu)(1e6), 1e-4, 1e-9);
  gpu.tables.clear();
  EXPECT_NEAR(HostCopies(gpu)(25e6), 1.005e-3, 1e-9);
}

}  // namespace
}  // namespace forebay::cost
