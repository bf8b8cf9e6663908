#include "device/cpu/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/units.h"

namespace forebay::device {
namespace {

using base::kGiB;
using base::kMiB;
using testing::HasSubstr;

uint64_t ResidentBytes() {
  uint64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * 4096;
}

TEST(CpuArena, RegionsAreAlignedZeroedAndNamed) {
  CpuArena arena(3, 16 * kMiB);
  const Region* a = arena.Allocate("a", 5).value();
  const Region* b = arena.Allocate("b", 4 * kMiB + 1).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data) % (2 * kMiB), 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data) % (2 * kMiB), 0u);
  for (uint64_t i = 0; i < b->bytes; i += 4096) ASSERT_EQ(b->data[i], std::byte{0});
  std::memset(b->data, 1, b->bytes);
  EXPECT_EQ(b->rank, 3);
  EXPECT_EQ(b->id, 1);
  EXPECT_EQ(arena.regions()[1]->name, "b");
  EXPECT_EQ(arena.used(), 4096 + 4 * kMiB + 4096);
}

TEST(CpuArena, BudgetIsHardAndTheErrorListsAllRegions) {
  CpuArena arena(0, 8 * kMiB);
  ASSERT_TRUE(arena.Allocate("weights", 5 * kMiB).ok());
  ASSERT_TRUE(arena.Allocate("kv", 2 * kMiB).ok());
  const base::Status status = arena.Allocate("logits", kMiB + 1).status();
  EXPECT_EQ(status.code(), kArenaFull);
  for (const char* part : {"'logits' needs 1.0 MiB (1048577 bytes)", "budget of 8.0 MiB",
                           "only 1.0 MiB", "'weights' 5.0 MiB", "'kv' 2.0 MiB"}) {
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
  EXPECT_EQ(arena.Allocate("absurd", UINT64_MAX).status().code(), kArenaFull);
  EXPECT_TRUE(arena.Allocate("logits", kMiB).ok());
  EXPECT_EQ(arena.used(), arena.budget());
  EXPECT_TRUE(arena.Allocate("a pool of no layers", 0).ok());
  EXPECT_EQ(arena.used(), arena.budget());
}

TEST(CpuArena, CommitsOnlyWhatIsTouched) {
  CpuArena arena(0, 4 * kGiB);
  const uint64_t before = ResidentBytes();
  const Region* region = arena.Allocate("large", 3 * kGiB).value();
  region->data[0] = std::byte{1};
  EXPECT_LT(ResidentBytes() - before, 64 * kMiB);
}

TEST(CpuArenaDeathTest, TheByteBehindARegionFaults) {
  CpuArena arena(0, 8 * kMiB);
  std::byte* const data = arena.Allocate("a", 8192).value()->data;
  data[8191] = std::byte{1};
  EXPECT_DEATH(data[8192] = std::byte{1}, "");
}

TEST(RegionCutter, CutsAlignedPiecesInOrder) {
  CpuArena arena(0, kMiB);
  RegionCutter cutter(*arena.Allocate("a", 1000).value());
  std::byte* const first = cutter.Cut(10);
  const tensor::TensorView second = cutter.Cut(tensor::DType::kF32, {3, 5});
  EXPECT_EQ(second.data - first, 64);
  EXPECT_EQ(second.bytes(), 60u);
  EXPECT_EQ(cutter.used(), 124u);
  EXPECT_EQ(cutter.Cut(1, 256) - first, 256);
  EXPECT_DEATH(cutter.Cut(1000), "do not fit");
}

}  // namespace
}  // namespace forebay::device
