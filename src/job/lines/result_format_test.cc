#include "job/lines/result_format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "job/testing/fake_pipeline.h"

namespace forebay::job {
namespace {

constexpr ResultId kId{7, {0xab, 2, 3, 4}};
const std::string kIdText =
    "batch_req_7_00000000000000ab-0000000000000002-0000000000000003-0000000000000004";

// Probabilities fall by halves: rank r has logprob -r.
PositionLogprobs Position(std::vector<int32_t> top, int32_t chosen) {
  PositionLogprobs position{.chosen = chosen};
  for (const int32_t token : top) {
    const auto rank = static_cast<int32_t>(position.top.size()) + 1;
    position.top.push_back({token, static_cast<float>(-rank), rank});
  }
  return position;
}

Choice MakeChoice(int32_t index, const std::string& text, FinishReason reason) {
  Choice choice{.index = index, .text = text, .finish_reason = reason};
  for (const char c : text) choice.tokens.push_back(static_cast<unsigned char>(c));
  return choice;
}

std::string Format(const ParsedLine& line, const std::vector<std::vector<int32_t>>& prompts,
                   const RequestResult& result, bool digests = false,
                   const TokenText& text = FakePipeline()) {
  std::string out;
  AppendResult({"tiny", "pair-bf16", digests}, kId, 1700000000, {line, prompts, result}, text,
               &out);
  simdjson::dom::parser parser;
  EXPECT_TRUE(base::ParseJson(parser, out).ok()) << out;
  return out;
}

std::string Around(const std::string& custom_id, const std::string& body) {
  return "{\"id\":\"" + kIdText + "\",\"custom_id\":" + custom_id +
         ",\"response\":{\"status_code\":200,\"request_id\":\"req_7_00000000000000ab\",\"body\":" +
         body + "},\"error\":null}";
}

const std::string kChatHead =
    R"({"id":"chatcmpl-7-00000000000000ab","object":"chat.completion","created":1700000000,"model":"tiny","choices":)";
const std::string kCompletionHead =
    R"({"id":"cmpl-7-00000000000000ab","object":"text_completion","created":1700000000,"model":"tiny","choices":)";
const std::string kUsage =
    R"("usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}},"system_fingerprint":"pair-bf16")";

RequestResult Result(std::vector<Choice> choices) {
  return {.id = 6,
          .choices = std::move(choices),
          .prompt_tokens = 3,
          .completion_tokens = 2,
          .cached_tokens = 1};
}

TEST(ResultFormatTest, Chat) {
  const ParsedLine line{.custom_id = "a \"b\"", .endpoint = Endpoint::kChat};
  EXPECT_EQ(
      Format(line, {}, Result({MakeChoice(0, "hé", FinishReason::kLength)})),
      Around(R"("a \"b\"")",
             kChatHead +
                 R"([{"index":0,"message":{"role":"assistant","content":"hé","refusal":null},)"
                 R"("logprobs":null,"finish_reason":"length","stop_reason":null}],)" +
                 kUsage + "}"));
}

TEST(ResultFormatTest, NamesTheTierThatWasAskedFor) {
  ParsedLine line{.endpoint = Endpoint::kChat};
  for (const auto& [service, tier] :
       {std::pair(Service::kBatch, "flex"), std::pair(Service::kInteractive, "default")}) {
    line.service = service;
    EXPECT_NE(Format(line, {}, Result({MakeChoice(0, "h", FinishReason::kLength)}))
                  .find(fmt::format(R"(}},"service_tier":"{}","system_fingerprint":)", tier)),
              std::string::npos);
  }
}

TEST(ResultFormatTest, ChatWithEverything) {
  ParsedLine line{.endpoint = Endpoint::kChat};
  line.sampling.logprobs = 2;
  line.report_prompt_logprobs = 1;
  line.return_token_ids = true;
  Choice choice = MakeChoice(0, "ab", FinishReason::kStop);
  choice.stop_string = "!";
  choice.digest = 0x1234;
  choice.logprobs = {Position({'x', 'y', 'a'}, 2), Position({'b', 0xC3}, 0)};
  RequestResult result = Result({choice});
  result.prompt_logprobs = {{{}, Position({'q', 'h', 'i'}, 2)}};
  EXPECT_EQ(
      Format(line, {{256, 'i'}}, result, true),
      Around(
          "null",
          kChatHead +
              R"([{"index":0,"message":{"role":"assistant","content":"ab","refusal":null},"logprobs":{"content":[)"
              R"({"token":"a","logprob":-3,"bytes":[97],"top_logprobs":[{"token":"x","logprob":-1,"bytes":[120]},{"token":"y","logprob":-2,"bytes":[121]}]},)"
              R"({"token":"b","logprob":-1,"bytes":[98],"top_logprobs":[{"token":"b","logprob":-1,"bytes":[98]},{"token":"�","logprob":-2,"bytes":[195]}]}],"refusal":null},)"
              R"("finish_reason":"stop","stop_reason":"!","token_ids":[97,98],"digest":"0000000000001234"}],)" +
              kUsage +
              R"(,"prompt_logprobs":[null,{"113":{"logprob":-1,"rank":1,"decoded_token":"q"},"105":{"logprob":-3,"rank":3,"decoded_token":"i"}}],)"
              R"("prompt_token_ids":[256,105]})"));
}

TEST(ResultFormatTest, Completions) {
  ParsedLine line{.custom_id = "c", .prompts = {"p", "q"}, .n = 2};
  line.return_token_ids = true;
  Choice stopped = MakeChoice(3, "b", FinishReason::kStop);
  stopped.stop_token = 98;
  EXPECT_EQ(
      Format(line, {{'p'}, {'q'}}, Result({MakeChoice(0, "a", FinishReason::kStop), stopped})),
      Around(
          "\"c\"",
          kCompletionHead +
              R"([{"index":0,"text":"a","logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":[97],"prompt_token_ids":[112]},)"
              R"({"index":3,"text":"b","logprobs":null,"finish_reason":"stop","stop_reason":98,"token_ids":[98],"prompt_token_ids":[113]}],)" +
              kUsage + "}"));
}

TEST(ResultFormatTest, EchoWithLogprobs) {
  // The begin token, which the text prompt does not show, has no width; neither has a special token
  // in the output.
  ParsedLine line{.prompts = {"né"}, .echo = true};
  line.sampling.logprobs = line.sampling.prompt_logprobs = 1;
  Choice choice = MakeChoice(0, "ab", FinishReason::kLength);
  choice.tokens = {'a', 256, 'b'};
  choice.logprobs = {Position({'a'}, 0), Position({'z', 256}, 1), Position({'b'}, 0)};
  RequestResult result = Result({choice});
  result.prompt_logprobs = {{{}, Position({'n'}, 0), Position({0xC3}, 0), Position({0xA9}, 0)}};
  EXPECT_EQ(
      Format(line, {{256, 'n', 0xC3, 0xA9}}, result),
      Around(
          "null",
          kCompletionHead +
              R"([{"index":0,"text":"néab","logprobs":{"text_offset":[0,0,1,2,2,3,3],"token_logprobs":[null,-1,-1,-1,-1,-2,-1],)"
              R"("tokens":["<s>","n","�","�","a","<s>","b"],)"
              R"("top_logprobs":[null,{"n":-1},{"�":-1},{"�":-1},{"a":-1},{"z":-1,"<s>":-2},{"b":-1}]},)"
              R"("finish_reason":"length","stop_reason":null}],)" +
              kUsage + "}"));
  // Given as ids, the prompt's text is that of all its tokens; nothing is generated.
  line.prompts = {std::vector<int32_t>{256, 'n'}};
  line.sampling.logprobs = line.sampling.prompt_logprobs = 0;
  result = Result({Choice{}});
  result.prompt_logprobs = {{{}, Position({'x', 'n'}, 1)}};
  EXPECT_EQ(
      Format(line, {{256, 'n'}}, result),
      Around(
          "null",
          kCompletionHead +
              R"([{"index":0,"text":"<s>n","logprobs":{"text_offset":[0,3],"token_logprobs":[null,-2],"tokens":["<s>","n"],)"
              R"("top_logprobs":[null,{"n":-2}]},"finish_reason":"length","stop_reason":null}],)" +
              kUsage + "}"));
}

TEST(ResultFormatTest, EchoWithoutLogprobs) {
  const ParsedLine line{.prompts = {"so "}, .echo = true};
  EXPECT_EQ(
      Format(line, {{'s', 'o', ' '}}, Result({MakeChoice(0, "it", FinishReason::kStop)})),
      Around(
          "null",
          kCompletionHead +
              R"([{"index":0,"text":"so it","logprobs":null,"finish_reason":"stop","stop_reason":null}],)" +
              kUsage + "}"));
}

TEST(ResultFormatTest, TokensAsIdsAndFoldersWithoutATokenizer) {
  ParsedLine line{.endpoint = Endpoint::kChat};
  line.sampling.logprobs = 1;
  line.return_tokens_as_token_ids = true;
  Choice choice{.tokens = {65}, .logprobs = {Position({65}, 0)}};
  const std::string head =
      kChatHead +
      R"([{"index":0,"message":{"role":"assistant","content":"","refusal":null},"logprobs":{"content":[)";
  const std::string tail =
      R"(]}],"refusal":null},"finish_reason":"length","stop_reason":null}],)" + kUsage + "}";
  const std::string with = R"({"token":"token_id:65","logprob":-1,"bytes":[65])",
                    without = R"({"token":"token_id:65","logprob":-1,"bytes":null)";
  EXPECT_EQ(Format(line, {}, Result({choice})),
            Around("null", head + with + R"(,"top_logprobs":[)" + with + "}" + tail));
  EXPECT_EQ(Format(line, {}, Result({choice}), false, NoTokenizer()),
            Around("null", head + without + R"(,"top_logprobs":[)" + without + "}" + tail));
  line.return_tokens_as_token_ids = false;
  EXPECT_EQ(Format(line, {}, Result({choice}), false, NoTokenizer()),
            Around("null", head + without + R"(,"top_logprobs":[)" + without + "}" + tail));
}

TEST(ResultFormatTest, TokensThatReadAlikeShowOnce) {
  ParsedLine line{.prompts = {"x"}};
  line.sampling.logprobs = 3;
  Choice choice = MakeChoice(0, "a", FinishReason::kLength);
  choice.logprobs = {Position({0xC3, 0xC3, 'a'}, 2)};
  choice.logprobs[0].top[2].logprob = -INFINITY;
  EXPECT_NE(
      Format(line, {}, Result({choice}))
          .find(R"("token_logprobs":[-9999],"tokens":["a"],"top_logprobs":[{"�":-1,"a":-9999}])"),
      std::string::npos);
}

TEST(ResultFormatTest, Errors) {
  std::string out;
  AppendErrorResult(
      kId, std::nullopt,
      {.http_status = 404, .message = "no \"x\"", .param = "model", .code = "model_not_found"},
      &out);
  EXPECT_EQ(
      out,
      "{\"id\":\"" + kIdText +
          "\",\"custom_id\":null,\"response\":{\"status_code\":404,\"request_id\":\"req_7_"
          "00000000000000ab\",\"body\":"
          R"({"error":{"message":"no \"x\"","type":"invalid_request_error","param":"model","code":"model_not_found"}}},"error":null})");
  out.clear();
  AppendErrorResult(
      kId, "id",
      ToLineError({.http_status = 500, .error_type = "server_error", .error_message = "m"}), &out);
  EXPECT_NE(out.find(R"("custom_id":"id","response":{"status_code":500)"), std::string::npos);
  EXPECT_NE(out.find(R"({"error":{"message":"m","type":"server_error","param":null,"code":null}})"),
            std::string::npos);
}

// Programs that split texts at Unicode's line ends must not cut a result.
TEST(ResultFormatTest, LineSeparatorsAreEscaped) {
  const std::string odd = "a\u2028b\u2029c\u0085d\u00a0";
  const ParsedLine line{.custom_id = odd};
  const RequestResult result{.choices = {MakeChoice(0, odd, FinishReason::kStop)}};
  std::string refusal;
  AppendErrorResult(kId, odd, {.message = odd}, &refusal);
  for (const std::string& text : {Format(line, {{1}}, result), refusal}) {
    for (const char* raw : {"\u2028", "\u2029", "\u0085"})
      EXPECT_EQ(text.find(raw), text.npos) << text;
    EXPECT_NE(text.find("a\\u2028b\\u2029c\\u0085d\u00a0"), text.npos) << text;
  }
}

}  // namespace
}  // namespace forebay::job
