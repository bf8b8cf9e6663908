#include "weights/formats/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

// The address sanitizer leaves SIGBUS alone, as a process without it does.
extern "C" const char* __asan_default_options();
const char* __asan_default_options() { return "handle_sigbus=0"; }

namespace forebay::weights {
namespace {

TEST(MappedFileTest, AFileThatShrinksReadsAsZerosAndIsFoundOut) {
  constexpr size_t kBytes = 100'000;
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("forebay-mapped-{}", getpid()))
          .string();
  std::ofstream(path, std::ios::binary) << std::string(kBytes, 'x');
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  auto other = MappedFile::Open(path);
  const MappedFile moved = std::move(*file);
  EXPECT_TRUE(moved.CheckUnchanged().ok());
  ASSERT_EQ(truncate(path.c_str(), 10), 0);
  EXPECT_EQ(moved.bytes()[0], std::byte{'x'});
  for (const size_t at : {size_t{5000}, size_t{50'000}, kBytes - 1})
    EXPECT_EQ(moved.bytes()[at], std::byte{0});
  EXPECT_EQ(other->bytes()[kBytes - 1], std::byte{0});
  EXPECT_EQ(moved.CheckUnchanged().code(), kFileChanged);
  std::filesystem::remove(path);
}

TEST(MappedFileDeathTest, OtherFaultsKeepTheirEffect) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("forebay-mapped-{}", getpid()))
          .string();
  std::ofstream(path, std::ios::binary) << std::string(100'000, 'x');
  EXPECT_EXIT(
      {
        static_cast<void>(MappedFile::Open(path));  // and closed again: nothing is guarded
        raise(SIGBUS);
        _exit(0);
      },
      testing::KilledBySignal(SIGBUS), "");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace forebay::weights
