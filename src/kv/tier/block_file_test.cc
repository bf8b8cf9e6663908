// What a file on a disk must be, and what becomes of it.
#include "kv/tier/block_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "base/testing/temporary_folder.h"
#include "base/units.h"

namespace forebay::kv {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Aligned memory.
struct Buffer {
  explicit Buffer(size_t bytes, int value)
      : data(static_cast<std::byte*>(std::aligned_alloc(kFileAlignment, bytes))), bytes(bytes) {
    std::memset(data, value, bytes);
  }
  ~Buffer() { std::free(data); }
  std::span<std::byte> span() const { return {data, bytes}; }
  std::byte* const data;
  const size_t bytes;
};

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// In the folder of the build, which is on a disk.
class BlockFileTest : public testing::Test {
 protected:
  const base::TemporaryFolder folder_{std::filesystem::current_path()};
  const std::string path_ = folder_ / "kv";
};

TEST_F(BlockFileTest, AJobsFileHasNoNameAndAKeptOneHas) {
  for (const FileLife life : {FileLife::kJob, FileLife::kKept}) {
    {
      auto file = OpenBlockFile(path_, 64 * base::kKiB, life);
      if (!file.ok() && file.status().message().find("O_DIRECT") != std::string::npos)
        GTEST_SKIP() << file.status().message();
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      EXPECT_EQ(IsThere(path_), life == FileLife::kKept);
      const Buffer written(8192, 7), read(8192, 0);
      ASSERT_TRUE((*file)->Write(16384, written.span()).ok());
      ASSERT_TRUE((*file)->Read(16384, read.span()).ok());
      EXPECT_EQ(std::memcmp(written.data, read.data, 8192), 0);
      const base::Status beyond = (*file)->Read(64 * base::kKiB - 4096, read.span());
      EXPECT_EQ(beyond.code(), kKvFileIo);
      EXPECT_THAT(beyond.message(),
                  AllOf(HasSubstr(path_), HasSubstr("61440"), HasSubstr("the file ends before")));
    }
    EXPECT_EQ(IsThere(path_), life == FileLife::kKept);
  }
}

TEST_F(BlockFileTest, WhatCannotServeIsRefusedWithItsReason) {
  const auto refused = [](const std::string& path, uint64_t bytes = 1 << 20) {
    return OpenBlockFile(path, bytes, FileLife::kJob).status();
  };
  const base::Status no_folder = refused(folder_ / "none/kv");
  EXPECT_EQ(no_folder.code(), kKvFileInvalid);
  EXPECT_THAT(no_folder.message(),
              AllOf(HasSubstr("none/kv"), HasSubstr("No such file or directory")));
  const base::Status memory = refused("/dev/shm/forebay_kv_file_test");
  EXPECT_EQ(memory.code(), kKvFileInvalid);
  EXPECT_THAT(memory.message(), HasSubstr("lies in memory (tmpfs)"));
  EXPECT_FALSE(IsThere("/dev/shm/forebay_kv_file_test"));

  // Files of /proc have no O_DIRECT.
  const base::Status cached = OpenBlockFile("/proc/self/comm", 1 << 20, FileLife::kKept).status();
  EXPECT_EQ(cached.code(), kKvFileInvalid);
  EXPECT_THAT(cached.message(), AllOf(HasSubstr("/proc/self/comm"), HasSubstr("no O_DIRECT")));

  struct statvfs space {};
  ASSERT_EQ(statvfs(folder_.path().c_str(), &space), 0);
  const base::Status full = refused(path_, (space.f_bavail + 1024) * space.f_frsize * 2);
  EXPECT_EQ(full.code(), kKvFileNoSpace);
  EXPECT_THAT(full.message(), AllOf(HasSubstr(path_), HasSubstr("the disk has")));
  EXPECT_FALSE(IsThere(path_));

  close(open(path_.c_str(), O_CREAT | O_WRONLY, 0600));
  const base::Status there = refused(path_);
  EXPECT_EQ(there.code(), kKvFileInvalid);
  EXPECT_THAT(there.message(), HasSubstr("the file is there already"));
}

TEST_F(BlockFileTest, AKeptFileIsOneProcessesAtATime) {
  {
    const auto first = OpenBlockFile(path_, 1 << 20, FileLife::kKept);
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    const base::Status second = OpenBlockFile(path_, 1 << 20, FileLife::kKept).status();
    EXPECT_EQ(second.code(), kKvFileLocked);
    EXPECT_THAT(second.message(), HasSubstr(path_));
  }
  EXPECT_TRUE(OpenBlockFile(path_, 1 << 20, FileLife::kKept).ok());
}

}  // namespace
}  // namespace forebay::kv
