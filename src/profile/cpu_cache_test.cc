#include "profile/cpu_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace forebay::profile {
namespace {

class KeptProfileTest : public testing::Test {
 protected:
  KeptProfileTest()
      : folder_(testing::TempDir() + "/kept_profile_" + std::to_string(getpid()) + "/cache") {
    std::filesystem::remove_all(folder_);
  }
  ~KeptProfileTest() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

  // What zen5 would be if it read memory so fast.
  base::Result<cost::DeviceProfile> Get(const CpuAtHand& cpu, double bytes_per_s) {
    const auto kept = KeptProfile(folder_, cpu, [&](const std::string& name) {
      ++measured_;
      auto profile = cost::LoadProfile("zen5");
      profile->name = name;
      profile->memory_bytes_per_s = bytes_per_s;
      return profile;
    });
    return kept.ok() ? cost::LoadProfile(*kept) : kept.status();
  }
  std::string path() const { return folder_ + "/cpu-avx512bf16-1of2.json"; }

  const CpuAtHand cpu_{"A (family 25, model 17)", "avx512bf16", 1, 2};
  std::string folder_;
  std::atomic<int> measured_ = 0;
};

TEST_F(KeptProfileTest, IsMeasuredOnce) {
  const auto first = Get(cpu_, 3.3333333333e10), second = Get(cpu_, 7e10);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(measured_, 1);
  EXPECT_EQ(first->name, "cpu-avx512bf16-1of2");
  EXPECT_EQ(first->memory_bytes_per_s, second->memory_bytes_per_s);
  EXPECT_EQ(first->description, second->description);
  EXPECT_EQ(first->tables.size(), second->tables.size());
}

TEST_F(KeptProfileTest, IsMeasuredAnewWhereWhatLiesThereIsNotThatOfThisCpu) {
  ASSERT_TRUE(Get(cpu_, 5e10).ok());
  CpuAtHand other = cpu_;
  other.name = "B (family 25, model 17)";
  EXPECT_EQ(Get(other, 6e10)->memory_bytes_per_s, 6e10);
  EXPECT_EQ(Get(other, 7e10)->memory_bytes_per_s, 6e10);
  EXPECT_EQ(measured_, 2);

  // The profile of another version, under the same name.
  std::ifstream kept(path());
  std::string text(std::istreambuf_iterator<char>(kept), {});
  const size_t version = text.find("measured by forebay ");
  ASSERT_NE(version, std::string::npos);
  std::ofstream(path()) << text.substr(0, version) << "measured by forebay 0.0.0-other"
                        << text.substr(text.find('"', version));
  EXPECT_TRUE(cost::LoadProfile(path()).ok());
  EXPECT_EQ(Get(other, 8e10)->memory_bytes_per_s, 8e10);

  for (const size_t size : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 2}) {
    std::filesystem::resize_file(path(), size);
    EXPECT_EQ(Get(other, 9e10)->memory_bytes_per_s, 9e10) << size;
    EXPECT_EQ(Get(other, 1e10)->memory_bytes_per_s, 9e10) << size;
  }
  EXPECT_EQ(measured_, 7);
}

TEST_F(KeptProfileTest, NothingIsKeptOfMeasurementsThatMakeNoProfile) {
  for (int trial = 1; trial <= 2; ++trial) {
    EXPECT_EQ(Get(cpu_, -1).status().code(), cost::kProfileInvalid);
    EXPECT_FALSE(std::filesystem::exists(path()));
    EXPECT_EQ(measured_, trial);
  }
  EXPECT_TRUE(Get(cpu_, 5e10).ok());
}

TEST_F(KeptProfileTest, OfSeveralOneMeasures) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_TRUE(Get(cpu_, 5e10).ok()); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(measured_, 1);
}

TEST_F(KeptProfileTest, NothingIsMeasuredForAFolderThatCannotBeWritten) {
  folder_ = "/dev/null/cache";
  EXPECT_EQ(Get(cpu_, 5e10).status().code(), base::kIoError);
  EXPECT_EQ(measured_, 0);
}

TEST(CacheFolder, IsTheUsers) {
  setenv("HOME", "/home/a", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(CacheFolder(), "/home/a/.cache/forebay");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(CacheFolder(), "/home/a/.cache/forebay");
  setenv("XDG_CACHE_HOME", "/c", 1);
  EXPECT_EQ(CacheFolder(), "/c/forebay");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(CacheFolder(), "/tmp/forebay-" + std::to_string(getuid()));
}

}  // namespace
}  // namespace forebay::profile
