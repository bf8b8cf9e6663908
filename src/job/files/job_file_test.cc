#include "job/files/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>

#include "job/testing/files.h"

namespace forebay::job {
namespace {

using ::testing::HasSubstr;

TEST(ResultIdTest, RoundTrips) {
  const ResultId id{7, {1, 0xfedcba9876543210, 3, UINT64_MAX}};
  const std::string text = FormatResultId(id);
  EXPECT_EQ(text,
            "batch_req_7_0000000000000001-fedcba9876543210-0000000000000003-ffffffffffffffff");
  const auto back = ParseResultId(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->line, 7);
  EXPECT_EQ(back->hash, id.hash);
}

TEST(ResultIdTest, RefusesEverythingElse) {
  const std::string good = FormatResultId({12, {1, 2, 3, 4}});
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(ParseResultId(good.substr(0, i))) << i;
    std::string bad = good;
    bad[i] = bad[i] == 'Z' ? 'Y' : 'Z';
    EXPECT_FALSE(ParseResultId(bad)) << bad;
  }
  EXPECT_FALSE(ParseResultId(good + "0"));
  EXPECT_FALSE(ParseResultId(
      "batch_req_0_0000000000000001-0000000000000002-0000000000000003-0000000000000004"));
  EXPECT_FALSE(ParseResultId(
      "batch_req_-1_0000000000000001-0000000000000002-0000000000000003-0000000000000004"));
  EXPECT_FALSE(ParseResultId(
      "batch_req_01_0000000000000001-0000000000000002-0000000000000003-0000000000000004"));
  EXPECT_FALSE(ParseResultId(
      "batch_req_1_000000000000000A-0000000000000002-0000000000000003-0000000000000004"));
  EXPECT_FALSE(ParseResultId(
      "batch_req_99999999999999999999_0000000000000001-0000000000000002-0000000000000003-4"));
}

TEST(HasherTest, PiecesDoNotMatterAndEveryByteDoes) {
  const std::string text = "a line of some thirty-odd bytes, with \0 inside";
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      base::Hasher hasher;
      hasher.Update(text.substr(0, a));
      hasher.Update(text.substr(a, b - a));
      hasher.Update(text.substr(b));
      ASSERT_EQ(hasher.Finish(), base::HashBytes(text)) << a << " " << b;
    }
    std::string other = text;
    if (a < text.size()) {
      other[a] ^= 1;
      EXPECT_NE(base::HashBytes(other), base::HashBytes(text)) << a;
    }
  }
  EXPECT_NE(base::HashBytes(""), base::HashBytes(std::string(1, '\0')));
  EXPECT_NE(base::HashBytes("a"), base::HashBytes(std::string("a\0", 2)));
}

TEST(LineSplitterTest, CutsDoNotMatter) {
  const std::string text = "one\r\n\n \t\r\ntwo\r\r\n{\"x\"}\n\n\r\nlast\r";
  for (size_t step = 1; step <= text.size(); ++step) {
    LineIndex index;
    LineSplitter splitter(&index, 0);
    for (size_t i = 0; i < text.size(); i += step)
      splitter.Update(std::string_view(text).substr(i, step));
    splitter.Finish();
    EXPECT_EQ(splitter.lines(), 8u);
    ASSERT_EQ(index.size(), 4u) << step;
    const std::string_view expected[] = {"one", "two\r", "{\"x\"}", "last"};
    const uint32_t lines[] = {0, 3, 4, 7};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(index[i].line, lines[i]);
      EXPECT_EQ(text.substr(index[i].offset, index[i].length), expected[i]);
      EXPECT_EQ(index[i].hash, base::HashBytes(expected[i]));
    }
  }
}

TEST(JobFileTest, ReadsLinesAndFindsThem) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "in.jsonl";
  WriteFile(path, "\xEF\xBB\xBF{\"a\":1}\r\n\n{\"b\":2}");
  auto file = JobFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->size(), 2u);
  EXPECT_EQ(file->physical_lines(), 3u);
  std::string text;
  ASSERT_TRUE(file->Read(0, &text).ok());
  EXPECT_EQ(text, "{\"a\":1}");
  ASSERT_TRUE(file->Read(1, &text).ok());
  EXPECT_EQ(text, "{\"b\":2}");
  EXPECT_EQ(file->Find(0), 0u);
  EXPECT_EQ(file->Find(1), std::nullopt);
  EXPECT_EQ(file->Find(2), 1u);
  EXPECT_EQ(file->Find(3), std::nullopt);
  EXPECT_EQ(file->Find(-1), std::nullopt);
  EXPECT_TRUE(file->SameFile(path));
  EXPECT_FALSE(file->SameFile(folder / "out.jsonl"));

  WriteFile(path, "\xEF\xBB\xBF{\"a\":3}\r\n\n{\"b\":2}");
  const base::Status changed = file->Read(0, &text);
  EXPECT_EQ(changed.code(), kInputChanged);
  EXPECT_THAT(changed.message(), HasSubstr("line 1 changed"));
  WriteFile(path, "");
  EXPECT_EQ(file->Read(1, &text).code(), kInputChanged);
}

TEST(JobFileTest, EmptyFilesHaveNoLines) {
  const base::TemporaryFolder folder;
  for (const std::string_view content :
       {"", "\n", "\xEF\xBB\xBF", "\xEF\xBB\xBF\r\n", "  \n\t\n\r"}) {
    WriteFile(folder / "in.jsonl", content);
    auto file = JobFile::Open(folder / "in.jsonl");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->size(), 0u) << content;
  }
}

TEST(JobFileTest, RefusesWhatCannotBeReadTwice) {
  const base::TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const std::pair<std::string, std::string> cases[] = {{folder / "missing", "No such file"},
                                                       {folder / "", "is a folder"},
                                                       {folder / "pipe", "read twice"},
                                                       {"/dev/null", "read twice"}};
  for (const auto& [path, message] : cases) {
    const auto file = JobFile::Open(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.status().code(), kInputUnreadable);
    EXPECT_THAT(file.status().message(), HasSubstr(message));
  }
}

TEST(JobFileTest, AMillionShortLinesTakeThirtyTwoBytesEach) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "in.jsonl";
  {
    std::ofstream out(path, std::ios::binary);
    for (int i = 0; i < 1'000'000; ++i) out << "{}\n";
  }
  const struct mallinfo2 before = mallinfo2();
  auto file = JobFile::Open(path);
  const struct mallinfo2 after = mallinfo2();
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size(), 1'000'000u);
  EXPECT_EQ(file->Find(999'999), 999'999u);
  EXPECT_LT(after.uordblks + after.hblkhd, before.uordblks + before.hblkhd + 32'000'000);
}

TEST(JobFileTest, WhatIsNoFileOfLinesIsNamed) {
  base::TemporaryFolder folder;
  const auto refusal = [&](const std::string& name, const std::string& content) {
    const auto file = JobFile::Open(folder.Write(name, content));
    if (file.ok()) return std::string("ok");
    EXPECT_EQ(file.status().code(), kInputUnreadable);
    return file.status().message();
  };
  using namespace std::string_literals;
  EXPECT_THAT(refusal("a", "\xFF\xFE{\0\"\0"s), HasSubstr("is UTF-16; expected UTF-8"));
  EXPECT_THAT(refusal("a", "\x1F\x8B\x08"), HasSubstr("is compressed (gzip)"));
  EXPECT_THAT(refusal("a", "[\n {\"prompt\": \"x\"}\n]\n"), HasSubstr("is a JSON array"));
  EXPECT_THAT(refusal("a", "{\n  \"prompt\": \"x\"\n}\n"), HasSubstr("is JSON over several lines"));
  EXPECT_THAT(refusal("a", "{\"prompt\":\"x\"}\r{\"prompt\":\"y\"}\r"),
              HasSubstr("end in CR alone"));
  EXPECT_THAT(refusal("a.csv", "prompt\nhi\n"), HasSubstr("is a table: forebay.run_table"));
  EXPECT_THAT(refusal("a", "prompt,answer\nhi,there\n"),
              HasSubstr("is a table: forebay.run_table"));
  EXPECT_THAT(refusal("a", "PAR1\x15"), HasSubstr("is a Parquet table: forebay.run_table"));
  for (const char* fine :
       {"", "\n\n{\"prompt\":\"x\"}", "\xEF\xBB\xBF{}\n", "[1]\n{}\n", "nonsense\n{}", "[\n"})
    EXPECT_EQ(refusal("a", fine), "ok") << fine;
}

}  // namespace
}  // namespace forebay::job
