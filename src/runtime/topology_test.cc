#include "runtime/topology.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace forebay::runtime {
namespace {

using Files = std::map<std::string, std::string>;

// A folder that stands for "/".
class FakeRoot {
 public:
  explicit FakeRoot(const Files& files) {
    for (const auto& [name, text] : files) {
      const std::filesystem::path path = root_ + name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << text;
    }
  }
  ~FakeRoot() { std::filesystem::remove_all(root_); }
  Topology Read() const { return ReadTopology(root_); }

 private:
  const std::string root_ = testing::TempDir() + "forebay_topology_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
};

constexpr const char* kMeminfo =
    "MemTotal:        8000 kB\nMemFree:  1 kB\nMemAvailable:    6000 kB\n";

TEST(Topology, ReadsThisMachine) {
  const Topology topology = ReadTopology();
  EXPECT_GE(topology.usable_cores, 1);
  EXPECT_LE(topology.usable_cores, static_cast<int>(topology.cores.size()));
  EXPECT_GT(topology.available_memory, 0u);
  EXPECT_LE(topology.available_memory, topology.total_memory);
}

TEST(Topology, WithoutCgroupsTakesMeminfo) {
  const Topology topology = FakeRoot(Files{{"/proc/meminfo", kMeminfo}}).Read();
  EXPECT_EQ(topology.total_memory, 8000u * 1024);
  EXPECT_EQ(topology.available_memory, 6000u * 1024);
}

TEST(Topology, TakesTheTightestCgroupAbove) {
  const Topology topology =
      FakeRoot(Files{{"/proc/meminfo", kMeminfo},
                     {"/proc/self/cgroup", "0::/outer/inner\n"},
                     {"/sys/fs/cgroup/outer/inner/memory.max", "max\n"},
                     {"/sys/fs/cgroup/outer/memory.max", "4096000\n"},
                     {"/sys/fs/cgroup/outer/memory.current", "3000000\n"},
                     {"/sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 1000000\n"},
                     {"/sys/fs/cgroup/outer/inner/cpu.max", "50000 100000\n"}})
          .Read();
  EXPECT_EQ(topology.total_memory, 4096000u);
  EXPECT_EQ(topology.available_memory, 2096000u);
  EXPECT_EQ(topology.usable_cores, 1);
}

TEST(Topology, ReadsVersionOne) {
  const Topology topology =
      FakeRoot(Files{{"/proc/meminfo", kMeminfo},
                     {"/proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/job\n"},
                     {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n"},
                     {"/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1200000\n"},
                     {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
                     {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}})
          .Read();
  EXPECT_EQ(topology.total_memory, 1000000u);
  EXPECT_EQ(topology.available_memory, 0u);
  EXPECT_EQ(topology.usable_cores, 1);
}

TEST(Topology, UnlimitedQuotaIsNoLimit) {
  const Topology free = FakeRoot(Files{{"/proc/meminfo", kMeminfo}}).Read();
  const Topology unlimited = FakeRoot(Files{{"/proc/meminfo", kMeminfo},
                                            {"/proc/self/cgroup", "0::/\n"},
                                            {"/sys/fs/cgroup/cpu.max", "max 100000\n"},
                                            {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                                            {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}})
                                 .Read();
  EXPECT_EQ(unlimited.usable_cores, free.usable_cores);
}

}  // namespace
}  // namespace forebay::runtime
