#include "job/request_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "job/testing/fake_engine.h"
#include "job/testing/fake_pipeline.h"

namespace forebay::job {
namespace {

// For the fake engine, whose context is of 300 tokens.
BuiltLine Build(std::string text, std::shared_ptr<const Labels> labels = nullptr) {
  FakeEngine engine;
  FakePipeline pipeline;
  RequestParser parser({.vocab_size = FakePipeline::kVocabulary, .labels = std::move(labels)},
                       pipeline, &engine);
  return parser.Parse(&text, 0);
}

TEST(RequestParserTest, LogprobsOfAPromptFromAPositionOn) {
  const std::string from = R"("prompt_logprobs":0,"prompt_logprobs_from":3})";
  for (const char* prompts :
       {R"({"prompt":["water","river"],)", R"({"messages":[{"role":"user","content":"x"}],)"}) {
    const BuiltLine built = Build(prompts + from);
    ASSERT_FALSE(built.error) << built.error->message;
    EXPECT_EQ(built.request.prompt_logprobs_from,
              std::vector<int32_t>(built.request.prompts.size(), 3));
  }
}

// A text that is too long is told by the name that the line has for it, and by its place.
TEST(RequestParserTest, ATextThatIsTooLongHasTheNameThatTheLineHasForIt) {
  const std::string x(400, 'x'), long_text = "\"" + x + "\"";
  const auto one_label = std::make_shared<const Labels>(Labels{.names = {"relevant"}});
  struct Case {
    std::string line, param, place;
    std::shared_ptr<const Labels> labels = nullptr;
  };
  const std::vector<Case> cases = {
      {R"({"input":)" + long_text + "}", "input", "the prompt"},
      {R"({"input":["a","b",)" + long_text + "]}", "input", "input[2]: "},
      {R"({"custom_id":"c","url":"/v1/classify","body":{"input":["a",)" + long_text + "]}}",
       "input", "input[1]: ", one_label},
      {R"({"text_1":)" + long_text + R"(,"text_2":["a","b"]})", "text_1", "the prompt"},
      {R"({"text_1":"q","text_2":["a",)" + long_text + "]}", "text_2", "text_2[1]: "},
      {R"({"text_1":["q",)" + long_text + R"(],"text_2":["a","b"]})", "text_1", "text_1[1]: "},
      {R"({"text_1":"q","text_2":["a",)" + long_text + "]}", "text_2", "text_2[1]: ", one_label},
      {R"({"query":)" + long_text + R"(,"documents":["a"]})", "query", "the prompt"},
      {R"({"query":"q","documents":["a",)" + long_text + "]}", "documents", "documents[1]: "},
      {R"({"query":"q","documents":["a",)" + long_text + "]}", "documents",
       "documents[1]: ", one_label},
      {R"({"prompt":["a",)" + long_text + "]}", "prompt", "prompt[1]: "},
      {R"({"prompt":"a","continuations":[)" + long_text + "]}", "prompt", "the prompt"},
      {R"({"messages":[{"role":"u","content":)" + long_text + "}]}", "messages", "the prompt"},
  };
  for (const Case& each : cases) {
    const BuiltLine built = Build(each.line, each.labels);
    ASSERT_TRUE(built.error) << each.line;
    EXPECT_EQ(built.error->code, "context_length_exceeded") << each.line;
    EXPECT_EQ(built.error->param, each.param) << each.line;
    EXPECT_THAT(built.error->message, testing::StartsWith(each.place)) << each.line;
  }
}

TEST(RequestParserTest, AllowedTokensThatBadWordsBan) {
  const std::string asked = R"({"prompt":"a","bad_words":["b","cd"],"allowed_token_ids":)";
  const BuiltLine banned = Build(asked + "[98]}");
  ASSERT_TRUE(banned.error);
  EXPECT_EQ(banned.error->param, "allowed_token_ids");
  EXPECT_THAT(banned.error->message, testing::HasSubstr("only tokens that `bad_words` bans"));
  // "cd" is a word of two tokens.
  EXPECT_FALSE(Build(asked + "[98,99]}").error);
}

// The fake tokenizer's tokens are bytes.
TEST(RequestParserTest, ATruncatedPromptLeavesRoomForItsAnswer) {
  const std::string x(400, 'x');
  const auto length = [&](const std::string& begin, const std::string& rest) {
    const BuiltLine built = Build("{" + begin + R"(,"truncate_prompt_tokens":-1)" + rest + "}");
    EXPECT_FALSE(built.error) << built.error->message;
    return built.error ? 0 : built.request.prompts[0].size();
  };
  const std::string chat = R"("messages":[{"role":"u","content":")" + x + "\"}]",
                    prompt = R"("prompt":")" + x + "\"", input = R"("input":")" + x + "\"";
  EXPECT_EQ(length(chat, ""), 299u);
  EXPECT_EQ(length(chat, R"(,"max_tokens":40)"), 260u);
  EXPECT_EQ(length(prompt, ""), 284u);  // completions have 16 tokens
  EXPECT_EQ(length(prompt, R"(,"max_tokens":0,"echo":true)"), 300u);
  EXPECT_EQ(length(input, ""), 300u);
}

}  // namespace
}  // namespace forebay::job
