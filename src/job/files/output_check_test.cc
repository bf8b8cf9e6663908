#include "job/files/output_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "job/testing/files.h"

namespace forebay::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

base::Status Check(std::vector<NamedPath> outputs, std::vector<NamedPath> inputs = {}) {
  return CheckOutputs(outputs, inputs);
}

TEST(OutputCheckTest, FilesOfTheirOwnPassAndNothingIsTouched) {
  const base::TemporaryFolder folder;
  WriteFile(folder / "old", "kept");
  WriteFile(folder / "in", "input");
  EXPECT_TRUE(Check({{"-o", folder / "old"}, {"--summary", folder / "new"}, {"--steps", ""}},
                    {{"-i", folder / "in"}})
                  .ok());
  EXPECT_EQ(ReadWhole(folder / "old"), "kept");
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  EXPECT_TRUE(Check({{"--summary", "/dev/null"}, {"--steps", "/dev/null"}}).ok());
  EXPECT_EQ(Check({{"--summary", "-"}}).code(), base::kInvalidArgument) << "it is no file";
}

TEST(OutputCheckTest, OneFileByTwoNamesIsRefused) {
  const base::TemporaryFolder folder;
  WriteFile(folder / "file", "x");
  std::filesystem::create_directory(folder / "sub");
  std::filesystem::create_symlink(folder / "file", folder / "link");
  std::filesystem::create_hard_link(folder / "file", folder / "hard");
  std::filesystem::create_symlink("new", folder / "link-to-new");
  std::filesystem::create_directory_symlink(folder / "sub", folder / "sub-link");
  const std::pair<std::string, std::string> cases[] = {
      {"file", "file"},        {"file", "link"},
      {"file", "hard"},        {"link", "hard"},
      {"file", "sub/../file"}, {"new", "new"},
      {"new", "link-to-new"},  {"sub/new", "sub-link/new"},
  };
  for (const auto& [one, other] : cases) {
    const std::string a = folder / one, b = folder / other;
    for (const base::Status& status :
         {Check({{"--summary", a}, {"-o", b}}), Check({{"-o", b}}, {{"--summary", a}})}) {
      EXPECT_EQ(status.code(), kOutputTaken) << one << " " << other;
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("-o " + b + " would overwrite"), HasSubstr("--summary " + a)));
    }
  }
}

TEST(OutputCheckTest, AFileOfTheModelsFolderIsRefused) {
  const base::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model/nested");
  WriteFile(folder / "blob", "weights");
  std::filesystem::create_symlink(folder / "blob", folder / "model/nested/weights");
  EXPECT_EQ(Check({{"--report", folder / "blob"}}, {{"-m", folder / "model"}}).code(),
            kOutputTaken);
  EXPECT_TRUE(Check({{"--report", folder / "model/report"}}, {{"-m", folder / "model"}}).ok());
}

TEST(OutputCheckTest, WhatCannotBeWrittenIsFoundOut) {
  const base::TemporaryFolder folder;
  constexpr base::ErrorCode kOwn{"own"};
  WriteFile(folder / "file", "x");
  for (const std::string& path : {folder / "none/file", folder / "", folder / "file/inside"}) {
    const base::Status status = Check({{"--summary", path}});
    EXPECT_EQ(status.code(), base::kIoError) << path;
    EXPECT_THAT(status.message(), HasSubstr("--summary " + path + ": cannot be written: "));
    EXPECT_EQ(Check({{"-o", path, kOwn}}).code(), kOwn);
  }
}

}  // namespace
}  // namespace forebay::job
