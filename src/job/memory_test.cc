// How much the parsers of this folder allocate, counted by replacing operator new.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/testing/allocation_counter.h"
#include "job/files/results_scan.h"
#include "job/lines/line_parser.h"
#include "job/request_builder.h"
#include "job/testing/fake_engine.h"
#include "job/testing/fake_pipeline.h"

namespace forebay::job {
namespace {

std::string Repeat(const std::string& head, const std::string& unit, size_t bytes,
                   const std::string& tail) {
  std::string text = head;
  text.reserve(bytes + head.size() + tail.size() + unit.size());
  while (text.size() < bytes) text += unit;
  return text + tail;
}

TEST(MemoryTest, ALineCostsSixteenTimesItsSizeAtMost) {
  constexpr size_t kBytes = 8 << 20;
  const std::string chat = R"({"messages":[{"role":"u","content":)";
  const std::string cases[] = {
      Repeat("{\"prompt\":[1", ",1", kBytes, "]}"),
      Repeat("{\"prompt\":[[1]", ",[1]", kBytes, "]}"),
      Repeat("{\"prompt\":[\"\"", ",\"\"", kBytes, "]}"),
      Repeat("{\"prompt\":\"", "a", kBytes, "\"}"),
      Repeat("{\"prompt\":\"", "\\n", kBytes, "\"}"),
      Repeat("{\"prompt\":\"x\",\"stop\":[\"a\"", ",\"a\"", kBytes, "]}"),
      Repeat("{\"prompt\":\"x\",\"stop_token_ids\":[1", ",1", kBytes, "]}"),
      Repeat("{\"prompt\":\"x\",\"logit_bias\":{\"1\":0", ",\"1\":0", kBytes, "}}"),
      Repeat("{\"prompt\":\"x\",\"a\":0", ",\"a\":0", kBytes, "}"),
      Repeat(chat + "\"", "a", kBytes, "\"}]}"),
      Repeat(chat + "\"", "\\u0001", kBytes, "\"}]}"),
      Repeat(chat + "[\"\"", ",\"\"", kBytes, "]}]}"),
      Repeat(R"({"messages":[{"role":"u","content":"x","v":[1e9)", ",1e9", kBytes, "]}]}"),
      Repeat(R"({"messages":[{"role":"u"})", R"(,{"role":"u"})", kBytes, "]}"),
      Repeat(R"({"messages":[{"role":"u","tool_calls":[{"function":{"arguments":"[]"}})",
             R"(,{"function":{"arguments":"[]"}})", kBytes, "]}]}"),
      Repeat(R"({"messages":[{"role":"u","tool_calls":[{"function":{"arguments":")", "[],", kBytes,
             "\"}}]}]}"),
      Repeat("", "[", kBytes, ""),
      Repeat("", "{\"a\":", kBytes, ""),
  };
  for (const std::string& original : cases) {
    std::string text = original;
    text.reserve(text.size() + 64);
    LineParser parser({.vocab_size = 10});
    ParsedLine line;
    const size_t taken = base::PeakBytes([&] { (void)parser.Parse(&text, &line); });
    EXPECT_LE(taken, base::AllocationLimit(text.size())) << original.substr(0, 80);
  }
}

// A text that many others follow, or are compared with, is long once.
TEST(MemoryTest, ALongTextCostsNoMoreForEachTextBesideIt) {
  const std::string text = '"' + std::string(8 << 10, 'a') + '"',
                    others = Repeat("[\"b\"", ",\"b\"", 2000, "]");
  FakeEngine engine;  // its context is of 300 tokens
  FakePipeline pipeline;
  RequestRules rules{.vocab_size = FakePipeline::kVocabulary};
  rules.labels = std::make_shared<const Labels>(Labels{.names = {"relevant"}});
  for (const std::string& more : {std::string(), std::string(R"(,"truncate_prompt_tokens":50)")}) {
    for (const std::string& line :
         {fmt::format(R"({{"prompt":{},"continuations":{}{}}})", text, others, more),
          fmt::format(R"({{"query":{},"documents":{}{}}})", text, others, more)}) {
      RequestParser parser(rules, pipeline, &engine);
      std::string given = line;
      BuiltLine built;
      const size_t taken = base::PeakBytes([&] { built = parser.Parse(&given, 0); });
      EXPECT_LE(taken, base::AllocationLimit(line.size())) << line.substr(0, 20) << more;
      if (!more.empty()) {
        EXPECT_FALSE(built.error);
        EXPECT_EQ(built.request.prompts.size(), 500u);
      } else {
        ASSERT_TRUE(built.error);
        EXPECT_EQ(built.error->code, "context_length_exceeded");
      }
    }
  }
}

TEST(MemoryTest, ScanningResultsCostsSixteenTimesTheLargestLineAtMost) {
  constexpr size_t kBytes = 4 << 20;
  const std::string id = FormatResultId({1, {}});
  const std::string cases[] = {
      Repeat(
          "{\"id\":\"" + id + "\",\"custom_id\":null,\"response\":{\"status_code\":200,\"body\":[1",
          ",1", kBytes, "]}}\n"),
      Repeat("{\"id\":\"batch_req_", "[", kBytes, "\n"),
      Repeat("", std::string(1, '\0'), kBytes, ""),
      Repeat("", "\n", kBytes, ""),
  };
  for (const std::string& content : cases) {
    const ScanExpectation expected{
        .path = "out.jsonl", .num_lines = 1, .find = [](int64_t) { return LineKey{}; }};
    size_t position = 0;
    const ByteSource source = [&](char* buffer, size_t size) -> int64_t {
      const size_t count = content.copy(buffer, size, position);
      position += count;
      return static_cast<int64_t>(count);
    };
    const size_t taken = base::PeakBytes([&] { EXPECT_TRUE(ScanResults(source, expected).ok()); });
    EXPECT_LE(taken, base::AllocationLimit(content.size())) << content.substr(0, 80);
  }
}

}  // namespace
}  // namespace forebay::job
