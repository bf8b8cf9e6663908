#include "base/file_kind.h"

#include <gtest/gtest.h>

namespace forebay::base {
namespace {

using namespace std::string_literals;

TEST(FileKind, IsToldByTheFirstBytes) {
  const std::pair<std::string, const char*> cases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n", "Git LFS"},
      {"\x1F\x8B\x08\x00"s, "gzip"},
      {"\x28\xB5\x2F\xFD"s, "zstd"},
      {"BZh91AY", "bzip2"},
      {"PK\x03\x04\x14", "zip"},
      {"PAR1\x15\x04", "Parquet"},
      {"ARROW1\0\0"s, "Arrow"},
      {"\n <!DOCTYPE html><html>", "HTML"},
      {"<HTML>", "HTML"},
      {"\xFF\xFE{\0"s, "UTF-16"},
      {"\xFE\xFF\0{"s, "UTF-16"},
      {"{\0\"\0a\0\"\0"s, "UTF-16"},
      {"\0{\0\"\0a\0\""s, "UTF-16"},
  };
  for (const auto& [begin, word] : cases) {
    const auto kind = ForeignKind(begin);
    ASSERT_TRUE(kind) << word;
    EXPECT_NE(kind->find(word), std::string::npos) << *kind;
    EXPECT_EQ(CheckKind("f", begin).code(), kFileKindWrong);
  }
}

TEST(FileKind, WhatIsExpectedIsNotForeign) {
  for (const std::string& begin :
       {""s, "{"s, "{\"a\": 1}"s, "[1]"s, "GGUF\3\0\0\0"s, "\xEF\xBB\xBF{"s, "version 2"s, "<p>"s,
        "\x40\0\0\0\0\0\0\0{}"s}) {
    EXPECT_FALSE(ForeignKind(begin)) << begin;
    EXPECT_TRUE(CheckKind("f", begin).ok());
  }
}

}  // namespace
}  // namespace forebay::base
