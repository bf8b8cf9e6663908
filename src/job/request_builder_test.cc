#include "job/request_builder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "job/testing/fake_engine.h"
#include "job/testing/fake_pipeline.h"

namespace forebay::job {
namespace {

// For the fake engine, whose context is of 300 tokens.
BuiltLine Build(std::string text) {
  FakeEngine engine;
  FakePipeline pipeline;
  RequestParser parser({.vocab_size = FakePipeline::kVocabulary}, pipeline, &engine);
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

}  // namespace
}  // namespace forebay::job
