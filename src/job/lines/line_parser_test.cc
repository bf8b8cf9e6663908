#include "job/lines/line_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <set>
#include <sstream>

#include "base/json.h"
#include "job/lines/parameter_page.h"
#include "job/testing/files.h"
#include "testing/test_data.h"

namespace forebay::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

RequestRules Rules() { return {.model_names = {"tiny"}, .vocab_size = 1000}; }

struct Parsed {
  ParsedLine line;
  std::optional<LineError> error;
};

Parsed Parse(std::string text, RequestRules rules = Rules()) {
  LineParser parser(std::move(rules));
  Parsed parsed;
  parsed.error = parser.Parse(&text, &parsed.line);
  return parsed;
}

ParsedLine Good(const std::string& text, RequestRules rules = Rules()) {
  Parsed parsed = Parse(text, std::move(rules));
  EXPECT_FALSE(parsed.error) << text << ": " << parsed.error->message;
  return parsed.line;
}

std::string Chat(const std::string& members) {
  return R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"hi"}])" +
         (members.empty() ? "" : "," + members) + "}}";
}
std::string Completion(const std::string& members) {
  return R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{"prompt":"hi")" +
         (members.empty() ? "" : "," + members) + "}}";
}
std::string Prompt(const std::string& prompt) { return "{\"prompt\":" + prompt + "}"; }
std::string Messages(const std::string& messages) { return "{\"messages\":" + messages + "}"; }

RequestRules WithDefaults(const std::string& json) {
  RequestRules rules = Rules();
  rules.job_defaults = *JobDefaults::Parse(json);
  return rules;
}

TEST(LineParserTest, ValuesOfAWholeJobHoldWhereALineSaysNothing) {
  const RequestRules rules =
      WithDefaults(R"({"max_tokens": 32, "temperature": 0, "echo": true, "n": 3})");
  const ParsedLine silent = Good(Completion(""), rules);
  EXPECT_EQ(silent.sampling.max_tokens, 32);
  EXPECT_EQ(silent.sampling.temperature, 0);
  EXPECT_EQ(silent.n, 3);
  EXPECT_TRUE(silent.echo);
  const ParsedLine says = Good(Completion(R"("max_tokens":7,"n":1,"temperature":null)"), rules);
  EXPECT_EQ(says.sampling.max_tokens, 7);
  EXPECT_EQ(says.n, 1);
  EXPECT_EQ(says.sampling.temperature, 0);
  // What belongs to one endpoint is for its lines, and another name of a value is the value.
  const ParsedLine chat = Good(Chat(R"("max_completion_tokens":5)"),
                               WithDefaults(R"({"max_tokens": 32, "best_of": 1})"));
  EXPECT_EQ(chat.sampling.max_tokens, 5);
  EXPECT_EQ(Good(Prompt("[1,2]"), rules).sampling.max_tokens, 32);
}

TEST(JobDefaultsTest, WhatNoLineCouldHaveIsRefused) {
  EXPECT_TRUE(JobDefaults::Parse("").ok());
  EXPECT_TRUE(JobDefaults::Parse("{}").ok());
  EXPECT_TRUE(JobDefaults::Parse(R"({"encoding_format": "base64", "normalize": false})").ok());
  for (const auto& [json, says] :
       {std::pair(R"([1])", "no object"), std::pair(R"({"max_tokens")", "--defaults"),
        std::pair(R"({"prompt": "x"})", "`prompt` is a line's own"),
        std::pair(R"({"input": "x"})", "`input` is a line's own"),
        std::pair(R"({"text_1": "x"})", "`text_1` is a line's own"),
        std::pair(R"({"text_2": "x"})", "`text_2` is a line's own"),
        std::pair(R"({"query": "x"})", "`query` is a line's own"),
        std::pair(R"({"documents": ["x"]})", "`documents` is a line's own"),
        std::pair(R"({"encoding_format": "hex"})", "`encoding_format` is \"hex\""),
        std::pair(R"({"top_n": -1})", "`top_n` is -1"),
        std::pair(R"({"max_tokns": 3})", "`max_tokns` is no request parameter"),
        std::pair(R"({"temperature": "hot"})", "temperature"),
        std::pair(R"({"top_p": 2})", "top_p")}) {
    const auto refused = JobDefaults::Parse(json);
    EXPECT_EQ(refused.status().code(), kDefaultsInvalid) << json;
    EXPECT_THAT(refused.status().message(), HasSubstr(says));
  }
}

// As batch files of other services have them.
TEST(LineParserTest, FindsTheEndpointInUrlsOfAllKinds) {
  const auto line = [](const std::string& url, const std::string& body) {
    return R"({"custom_id":"c",)" + url + R"("body":)" + body + "}";
  };
  const std::string chat = R"({"messages":[{"role":"user","content":"hi"}]})",
                    completion = R"({"prompt":"x"})";
  for (const char* url : {"/v1/chat/completions", "/chat/completions", "/v1/chat/completions/",
                          "https://api.example.com/v1/chat/completions"})
    EXPECT_EQ(Good(line("\"url\":\"" + std::string(url) + "\",", chat)).endpoint, Endpoint::kChat);
  EXPECT_EQ(Good(line(R"("url":"/completions",)", completion)).endpoint, Endpoint::kCompletion);
  EXPECT_EQ(Good(line("", chat)).endpoint, Endpoint::kChat);
  EXPECT_EQ(Good(line(R"("url":null,)", completion)).endpoint, Endpoint::kCompletion);
  for (const char* url : {"/v1/models", "https://api.example.com", "", "chat/completions"})
    EXPECT_EQ(Parse(line("\"url\":\"" + std::string(url) + "\",", chat)).error->code,
              "invalid_url");
  EXPECT_EQ(Parse(line("", "{}")).error->code, "missing_required_parameter");
  EXPECT_EQ(Parse(line("", R"({"messages":[],"prompt":"x"})")).error->param, "url");
}

TEST(LineParserTest, ALineThatIsNoJsonKeepsItsCustomId) {
  const std::string half =
      R"({"body":{"custom_id":"inner","prompt":"\ud83d"},"custom_id" : "a\u00e9"})";
  Parsed parsed = Parse(half);
  EXPECT_THAT(parsed.error->message, HasSubstr("half a character"));
  EXPECT_EQ(parsed.line.custom_id, "a\u00e9");
  parsed = Parse(R"({"custom_id":"x","prompt":"\ud83d\ude00 \\ud83d"])");
  EXPECT_THAT(parsed.error->message, testing::Not(HasSubstr("half a character")));
  EXPECT_EQ(parsed.line.custom_id, "x");
  parsed = Parse(R"({"custom_id":"x","prompt":"a","temperature":NaN})");
  EXPECT_THAT(parsed.error->message, HasSubstr("NaN and Infinity are no numbers of JSON"));
  parsed = Parse(R"({"custom_id":"x","prompt":"NaN, -Infinity",})");
  EXPECT_THAT(parsed.error->message, testing::Not(HasSubstr("no numbers")));
  for (const char* none :
       {R"({"custom_id":"x)", R"({"custom_id":7,})", R"([{"custom_id":"x"},])", R"({"custom_id")"})
    EXPECT_EQ(Parse(none).line.custom_id, std::nullopt) << none;
}

TEST(LineParserTest, AMarkAtTheBeginOfALineIsNoText) {
  EXPECT_EQ(Good("\xEF\xBB\xBF{\"prompt\":\"x\"}").prompts.size(), 1u);
}

TEST(LineParserTest, NamesOfOtherProgramsAreToldOurs) {
  for (const auto& [name, words] : {std::pair("extra_body", "beside the others"),
                                    {"max_new_tokens", "expected `max_tokens`"},
                                    {"do_sample", "`temperature` 0 is greedy"}}) {
    const Parsed parsed = Parse(fmt::format(R"({{"prompt":"x","{}":{{}}}})", name));
    EXPECT_EQ(parsed.error->code, "unknown_parameter");
    EXPECT_EQ(parsed.error->param, name);
    EXPECT_THAT(parsed.error->message, HasSubstr(words));
  }
}

TEST(LineParserTest, ReadsTheForms) {
  ParsedLine line = Good(Chat(""));
  EXPECT_EQ(line.custom_id, "c");
  EXPECT_EQ(line.endpoint, Endpoint::kChat);
  EXPECT_EQ(line.chat.messages, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(line.chat.tools, "");
  EXPECT_TRUE(line.chat.add_generation_prompt);
  EXPECT_EQ(line.sampling.max_tokens, -1);
  EXPECT_EQ(line.sampling.logprobs, -1);

  line = Good(Completion(""));
  EXPECT_EQ(line.endpoint, Endpoint::kCompletion);
  EXPECT_EQ(std::get<std::string>(line.prompts.at(0)), "hi");
  EXPECT_EQ(line.sampling.max_tokens, -1);
  EXPECT_EQ(line.sampling.default_max_tokens, 16);
  EXPECT_TRUE(line.add_special_tokens);

  line = Good(R"({"prompt":["a","b"],"max_tokens":3})");
  EXPECT_EQ(line.custom_id, std::nullopt);
  EXPECT_EQ(line.prompts.size(), 2u);
  line = Good(
      R"({"custom_id":"x","messages":[{"role":"odd one","content":null}],"prompt":null,"temperature":null})");
  EXPECT_EQ(line.custom_id, "x");
  EXPECT_EQ(line.endpoint, Endpoint::kChat);

  EXPECT_THAT(std::get<std::vector<int32_t>>(Good(Prompt("[1,2,999]")).prompts.at(0)),
              ElementsAre(1, 2, 999));
  line = Good(Prompt("[[1],[2,3]]"));
  EXPECT_THAT(std::get<std::vector<int32_t>>(line.prompts.at(1)), ElementsAre(2, 3));
}

TEST(LineParserTest, ReadsEveryParameter) {
  const ParsedLine line = Good(Completion(
      R"("model":"tiny","temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"presence_penalty":-2,"frequency_penalty":2,
         "repetition_penalty":1.5,"logit_bias":{"7":-100,"3":1.5,"7":100},"seed":-5,"max_tokens":0,"min_tokens":0,
         "stop":["a","bc"],"stop_token_ids":[4,5],"ignore_eos":true,"include_stop_str_in_output":true,
         "skip_special_tokens":false,"n":2,"best_of":2,"echo":true,"logprobs":5,"return_token_ids":true,
         "return_tokens_as_token_ids":true,"add_special_tokens":false,"user":7,"metadata":{"a":1},"store":true,
         "service_tier":"auto","stream":false,"suffix":"","use_beam_search":false,"length_penalty":1)"));
  EXPECT_EQ(line.service, Service::kInteractive);
  EXPECT_EQ(Good(Completion(R"("service_tier":"flex")")).service, Service::kBatch);
  EXPECT_EQ(Good(Completion("")).service, std::nullopt);
  const SamplingParams& s = line.sampling;
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.top_p, 0.25f);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.125f);
  EXPECT_EQ(s.presence_penalty, -2.0f);
  EXPECT_EQ(s.frequency_penalty, 2.0f);
  EXPECT_EQ(s.repetition_penalty, 1.5f);
  EXPECT_THAT(s.logit_bias, ElementsAre(Pair(3, 1.5f), Pair(7, 100.0f)));
  EXPECT_EQ(s.seed, -5);
  EXPECT_EQ(s.max_tokens, 0);
  EXPECT_THAT(s.stop, ElementsAre("a", "bc"));
  EXPECT_THAT(s.stop_token_ids, ElementsAre(4, 5));
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_TRUE(s.include_stop_str_in_output);
  EXPECT_FALSE(s.skip_special_tokens);
  EXPECT_EQ(line.n, 2);
  EXPECT_TRUE(line.echo);
  EXPECT_EQ(s.logprobs, 5);
  EXPECT_EQ(s.prompt_logprobs, 5);
  EXPECT_TRUE(line.return_token_ids);
  EXPECT_TRUE(line.return_tokens_as_token_ids);
  EXPECT_FALSE(line.add_special_tokens);

  const ParsedLine chat = Good(Chat(
      R"("logprobs":true,"top_logprobs":3,"max_completion_tokens":9,"tools":[{"type":"function","function":{"name":"f"}}],
         "tool_choice":"auto","chat_template_kwargs":{"think":false,"x":1.0},"add_generation_prompt":false,
         "continue_final_message":true,"add_special_tokens":true,"top_k":-1,"stop":"x","prompt_logprobs":0,
         "response_format":{"type":"text"},"modalities":["text"],"parallel_tool_calls":true)"));
  EXPECT_EQ(chat.sampling.logprobs, 3);
  EXPECT_EQ(chat.sampling.prompt_logprobs, 0);
  EXPECT_EQ(chat.sampling.max_tokens, 9);
  EXPECT_EQ(chat.sampling.top_k, 0);
  EXPECT_THAT(chat.sampling.stop, ElementsAre("x"));
  EXPECT_EQ(chat.chat.tools, R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(chat.chat.chat_template_kwargs, R"({"think":false,"x":1.0})");
  EXPECT_FALSE(chat.chat.add_generation_prompt);
  EXPECT_TRUE(chat.chat.continue_final_message);
  EXPECT_TRUE(chat.chat.add_special_tokens);
  EXPECT_EQ(Good(Chat("\"logprobs\":true")).sampling.logprobs, 0);
  EXPECT_EQ(Good(Chat("\"logprobs\":false,\"top_logprobs\":0")).sampling.logprobs, -1);
}

TEST(LineParserTest, TheLastOfRepeatedMembersCounts) {
  EXPECT_EQ(Good(Completion(R"("n":"bad","n":3)")).n, 3);
  EXPECT_EQ(Good(Completion(R"("n":3,"n":null)")).n, 1);
  EXPECT_EQ(Good(R"({"custom_id":1,"custom_id":"b","prompt":"x"})").custom_id, "b");
}

TEST(LineParserTest, DefaultsOfTheModelHold) {
  RequestRules rules = Rules();
  rules.defaults.temperature = 0.25f;
  rules.defaults.default_max_tokens = 77;
  EXPECT_EQ(Good(Chat(""), rules).sampling.temperature, 0.25f);
  EXPECT_EQ(Good(Chat(""), rules).sampling.max_tokens, -1);
  EXPECT_EQ(Good(Chat(""), rules).sampling.default_max_tokens, 77);
  EXPECT_EQ(Good(Completion(""), rules).sampling.default_max_tokens, 16);
  EXPECT_EQ(Good(Chat("\"temperature\":1"), rules).sampling.temperature, 1.0f);
}

TEST(LineParserTest, MaxLogprobsBoundsAndOpensTheVocabulary) {
  RequestRules rules = Rules();
  rules.max_logprobs = 2;
  EXPECT_TRUE(Parse(Completion("\"logprobs\":3"), rules).error);
  EXPECT_TRUE(Parse(Completion("\"logprobs\":-1"), rules).error);
  rules.max_logprobs = -1;
  EXPECT_EQ(Good(Completion("\"logprobs\":-1"), rules).sampling.logprobs, kAllLogprobs);
  EXPECT_EQ(Good(Completion("\"logprobs\":1000"), rules).sampling.logprobs, 1000);
  EXPECT_TRUE(Parse(Completion("\"logprobs\":1001"), rules).error);
  EXPECT_EQ(Good(Chat("\"logprobs\":true,\"top_logprobs\":-1"), rules).sampling.logprobs,
            kAllLogprobs);
}

TEST(LineParserTest, MessagesKeepTheirMeaning) {
  EXPECT_EQ(
      Good(
          Messages(
              R"([{"role":"u","content":"x","big":18446744073709551615,"f":1e30,"g":[1,-2.5,true,null,{}],"content":"y"}])"))
          .chat.messages,
      R"([{"role":"u","content":"x","big":18446744073709551615,"f":1e+30,"g":[1,-2.5,true,null,{}],"content":"y"}])");
}

struct BadLine {
  std::string text;
  std::string message;  // a part of it
  std::string param;
  std::string code;
  int status = 400;
};

std::vector<BadLine> BadLines() {
  const std::string kType = "invalid_type", kValue = "invalid_value",
                    kUnsupported = "unsupported_parameter";
  std::vector<BadLine> bad = {
      // The line.
      {"", "no valid JSON", "", "json_invalid"},
      {"{", "no valid JSON", "", "json_invalid"},
      {"nonsense", "no valid JSON", "", "json_invalid"},
      {"{\"prompt\":\"x\"} {}", "no valid JSON", "", "json_invalid"},
      {"{\"prompt\":\"x\",}", "no valid JSON", "", "json_invalid"},
      {"{\"prompt\":\"\xff\"}", "no valid JSON", "", "json_invalid"},
      {"{\"prompt\":\"\\ud800\"}", "no valid JSON", "", "json_invalid"},
      {"{\"prompt\":\"x\",\"seed\":99999999999999999999999}", "no valid JSON", "", "json_invalid"},
      {"{\"prompt\":NaN}", "no valid JSON", "", "json_invalid"},
      {std::string(5000, '['), "no valid JSON", "", "json_invalid"},
      {"[1]", "the line is an array; expected an object", "", kType},
      {"7", "the line is 7; expected an object", "", kType},
      {"null", "the line is null", "", kType},
      {"\"text\"", "the line is \"text\" (a string)", "", kType},
      {"{}", "none of `body`, `messages`, `prompt`, `input`, `text_1` and `query`", "messages",
       kValue},
      {R"({"prompt":"x","messages":[{"role":"u","content":"x"}]})", "both `messages` and `prompt`",
       "messages", kValue},
      // The envelope.
      {R"({"custom_id":7,"prompt":"x"})", "`custom_id` is 7; expected a string", "custom_id",
       kType},
      {R"({"method":"POST","url":"/v1/completions","body":{"prompt":"x"}})",
       "`custom_id` is missing", "custom_id", "missing_required_parameter"},
      {R"({"custom_id":"c","method":"GET","url":"/v1/completions","body":{"prompt":"x"}})",
       "`method` is \"GET\" (a string); expected \"POST\"", "method", kValue},
      {R"({"custom_id":"c","method":1,"url":"/v1/completions","body":{"prompt":"x"}})",
       "`method` is 1", "method", kType},
      {R"({"custom_id":"c","body":{"n":1}})", "`url` is missing", "url",
       "missing_required_parameter"},
      {R"({"custom_id":"c","url":3,"body":{"prompt":"x"}})", "`url` is 3", "url", kType},
      {R"({"custom_id":"c","url":"/v1/moderations","body":{"input":"x"}})",
       "`url` is \"/v1/moderations\"", "url", "invalid_url", 404},
      {R"({"custom_id":"c","url":"/v1/completions"})", "`body` is missing", "body",
       "missing_required_parameter"},
      {R"({"custom_id":"c","url":"/v1/completions","body":[]})",
       "`body` is an array; expected an object", "body", kType},
      {R"({"custom_id":"c","url":"/v1/completions","body":{"prompt":"x"},"Body":1})",
       "unknown member `Body`", "Body", "unknown_parameter"},
      {R"({"custom_id":"c","url":"/v1/completions","body":{}})", "`prompt` is missing", "prompt",
       "missing_required_parameter"},
      {R"({"custom_id":"c","url":"/v1/chat/completions","body":{"model":"tiny"}})",
       "`messages` is missing", "messages", "missing_required_parameter"},
      {R"({"custom_id":"c","url":"/v1/chat/completions","body":{"prompt":"x"}})",
       "`prompt` belongs to /v1/completions and /v1/score with `continuations`, not to "
       "/v1/chat/completions",
       "prompt", kUnsupported},
      {R"({"custom_id":"c","url":"/v1/completions","body":{"prompt":"x","messages":[]}})",
       "`messages` belongs to /v1/chat", "messages", kUnsupported},
      // Model and prompts.
      {Completion("\"model\":\"gpt-9\""), "the model `gpt-9` does not exist; this job runs `tiny`",
       "model", "model_not_found", 404},
      {Completion("\"model\":4"), "`model` is 4", "model", kType},
      {Prompt("5"), "`prompt` is 5; expected a string, a list", "prompt", kType},
      {Prompt("{}"), "`prompt` is an object", "prompt", kType},
      {Prompt("true"), "`prompt` is true (a boolean)", "prompt", kType},
      {Prompt("[]"), "`prompt` is empty", "prompt", kValue},
      {Prompt("[[]]"), "prompt[0] is empty", "prompt", kValue},
      {Prompt("[[1],[]]"), "prompt[1] is empty", "prompt", kValue},
      {Prompt("[\"a\",1]"), "prompt[1] is 1, but prompt[0] is \"a\"", "prompt", kValue},
      {Prompt("[\"a\",[1]]"), "prompt[1] is an array", "prompt", kValue},
      {Prompt("[1,\"a\"]"), "`prompt` is \"a\" (a string); expected token ids (integers)", "prompt",
       kType},
      {Prompt("[1,2.5]"), "`prompt` is 2.5; expected token ids", "prompt", kType},
      {Prompt("[true]"), "`prompt` is true (a boolean)", "prompt", kType},
      {Prompt("[null]"), "`prompt` is null", "prompt", kType},
      {Prompt("[{}]"), "`prompt` is an object", "prompt", kType},
      {Prompt("[-1]"), "`prompt` is -1; expected token ids from 0 to 999", "prompt", kValue},
      {Prompt("[1000]"), "`prompt` is 1000", "prompt", kValue},
      {Prompt("[18446744073709551615]"), "`prompt` is 18446744073709551615", "prompt", kValue},
      {Prompt("[[1],[[2]]]"), "`prompt` is an array", "prompt", kType},
      // Messages.
      {Messages("{}"), "`messages` is an object; expected an array", "messages", kType},
      {Messages("\"hi\""), "`messages` is \"hi\"", "messages", kType},
      {Messages("[]"), "`messages` is empty", "messages", kValue},
      {Chat("\"tools\":{}"), "`tools` is an object", "tools", kType},
      {Chat("\"tools\":[1]"), "`tools` holds 1", "tools", kValue},
      {Chat("\"tool_choice\":\"required\""), "`tool_choice` is \"required\"", "tool_choice",
       kUnsupported},
      {Chat("\"tool_choice\":{\"type\":\"function\"}"), "`tool_choice` is an object", "tool_choice",
       kUnsupported},
      {Chat("\"chat_template_kwargs\":[]"), "`chat_template_kwargs` is an array",
       "chat_template_kwargs", kType},
      {Chat("\"continue_final_message\":true"), "are both true", "continue_final_message", kValue},
      {Chat("\"echo\":true"), "`echo` is not supported in chat", "echo", kUnsupported},
      // Numbers, each by type and by range.
      {Completion("\"temperature\":\"hot\""),
       "`temperature` is \"hot\" (a string); expected a number from 0 to 2", "temperature", kType},
      {Completion("\"temperature\":true"), "`temperature` is true", "temperature", kType},
      {Completion("\"temperature\":-0.1"), "`temperature` is -0.1", "temperature", kValue},
      {Completion("\"temperature\":2.01"), "`temperature` is 2.01", "temperature", kValue},
      {Completion("\"temperature\":1e300"), "`temperature` is 1e+300", "temperature", kValue},
      {Completion("\"top_p\":-0.1"), "`top_p` is -0.1; expected a number from 0 to 1", "top_p",
       kValue},
      {Completion("\"top_p\":1.1"), "`top_p` is 1.1", "top_p", kValue},
      {Completion("\"top_p\":[]"), "`top_p` is an array", "top_p", kType},
      {Completion("\"top_k\":-2"), "`top_k` is -2; expected an integer of at least -1", "top_k",
       kValue},
      {Completion("\"top_k\":1.5"), "`top_k` is 1.5", "top_k", kType},
      {Completion("\"top_k\":1e17"), "`top_k` is 1e+17", "top_k", kType},
      {Completion("\"top_k\":3000000000"), "`top_k` is 3000000000", "top_k", kValue},
      {Completion("\"min_p\":1.5"), "`min_p` is 1.5; expected a number from 0 to 1", "min_p",
       kValue},
      {Completion("\"min_p\":-1"), "`min_p` is -1", "min_p", kValue},
      {Completion("\"presence_penalty\":-2.5"), "from -2 to 2", "presence_penalty", kValue},
      {Completion("\"presence_penalty\":\"1\""), "`presence_penalty` is \"1\"", "presence_penalty",
       kType},
      {Completion("\"frequency_penalty\":3"), "`frequency_penalty` is 3", "frequency_penalty",
       kValue},
      {Completion("\"repetition_penalty\":0"), "expected a number above 0", "repetition_penalty",
       kValue},
      {Completion("\"repetition_penalty\":1e30"),
       "`repetition_penalty` is 1e+30; expected a number above 0, at most 2147483647",
       "repetition_penalty", kValue},
      {Completion("\"repetition_penalty\":-1"), "`repetition_penalty` is -1", "repetition_penalty",
       kValue},
      {Completion("\"n\":0"), "`n` is 0; expected an integer from 1 to 128", "n", kValue},
      {Completion("\"n\":129"), "`n` is 129", "n", kValue},
      {Completion("\"n\":1.5"), "`n` is 1.5", "n", kType},
      {Completion("\"n\":true"), "`n` is true", "n", kType},
      {Completion("\"n\":\"1\""), "`n` is \"1\"", "n", kType},
      {Completion("\"best_of\":2"), "`best_of` is 2; it can be equal to `n`", "best_of",
       kUnsupported},
      {Completion("\"max_tokens\":-1"), "`max_tokens` is -1; expected an integer of at least 0",
       "max_tokens", kValue},
      {Completion("\"max_tokens\":0"), "`max_tokens` is 0; expected an integer of at least 1",
       "max_tokens", kValue},
      {Completion("\"max_tokens\":99999999999"), "`max_tokens` is 99999999999", "max_tokens",
       kValue},
      {Completion("\"max_tokens\":\"many\""), "`max_tokens` is \"many\"", "max_tokens", kType},
      {Chat("\"max_completion_tokens\":0"), "`max_completion_tokens` is 0", "max_completion_tokens",
       kValue},
      {Chat("\"max_tokens\":3,\"max_completion_tokens\":4"),
       "`max_tokens` is 3 and `max_completion_tokens` is 4", "max_tokens", kValue},
      {Completion("\"min_tokens\":17"),
       "`min_tokens` is 17; expected at most `max_tokens`, which is 16", "min_tokens", kValue},
      {Completion("\"min_tokens\":-1"), "`min_tokens` is -1", "min_tokens", kValue},
      {Completion("\"seed\":1.5"), "`seed` is 1.5", "seed", kType},
      {Completion("\"seed\":\"x\""), "`seed` is \"x\"", "seed", kType},
      {Completion("\"seed\":18446744073709551615"), "`seed` is 18446744073709551615", "seed",
       kValue},
      {Completion("\"echo\":1"), "`echo` is 1; expected true or false", "echo", kType},
      {Completion("\"ignore_eos\":\"no\""), "`ignore_eos` is \"no\"", "ignore_eos", kType},
      {Completion("\"return_token_ids\":0"), "`return_token_ids` is 0", "return_token_ids", kType},
      // Logprobs.
      {Completion("\"logprobs\":true"), "`logprobs` is true (a boolean); expected an integer",
       "logprobs", kType},
      {Completion("\"logprobs\":21"),
       "`logprobs` is 21; expected an integer from 0 to 20 (--max-logprobs)", "logprobs", kValue},
      {Completion("\"logprobs\":-1"), "`logprobs` is -1", "logprobs", kValue},
      {Completion("\"top_logprobs\":1"), "`top_logprobs` belongs to", "top_logprobs", kUnsupported},
      {Chat("\"logprobs\":3"), "`logprobs` is 3; expected true or false", "logprobs", kType},
      {Chat("\"top_logprobs\":3"), "without `logprobs`", "top_logprobs", kValue},
      {Chat("\"logprobs\":true,\"top_logprobs\":21"), "`top_logprobs` is 21", "top_logprobs",
       kValue},
      {Chat("\"logprobs\":true,\"top_logprobs\":1.5"), "`top_logprobs` is 1.5", "top_logprobs",
       kType},
      // Maps and lists.
      {Completion("\"logit_bias\":[]"), "`logit_bias` is an array", "logit_bias", kType},
      {Completion("\"logit_bias\":{\"x\":1}"), "`logit_bias` has the key \"x\"", "logit_bias",
       kValue},
      {Completion("\"logit_bias\":{\"-1\":1}"), "the key \"-1\"", "logit_bias", kValue},
      {Completion("\"logit_bias\":{\"1000\":1}"), "expected token ids from 0 to 999", "logit_bias",
       kValue},
      {Completion("\"logit_bias\":{\"1\":101}"),
       "`logit_bias` is 101; expected numbers from -100 to 100", "logit_bias", kValue},
      {Completion("\"logit_bias\":{\"1\":\"a\"}"), "`logit_bias` is \"a\"", "logit_bias", kType},
      {Completion("\"logit_bias\":{\"1\":true}"), "`logit_bias` is true", "logit_bias", kType},
      {Completion("\"stop\":5"), "`stop` is 5; expected a string or a list of strings", "stop",
       kType},
      {Completion("\"stop\":[\"a\",null]"), "`stop` is null", "stop", kType},
      {Completion("\"stop\":\"\""), "expected stop strings that are not empty", "stop", kValue},
      {Completion("\"stop\":[\"\"]"), "expected stop strings that are not empty", "stop", kValue},
      {Completion("\"stop_token_ids\":5"), "`stop_token_ids` is 5", "stop_token_ids", kType},
      {Completion("\"stop_token_ids\":[5.5]"), "`stop_token_ids` is 5.5", "stop_token_ids", kType},
      {Completion("\"stop_token_ids\":[1000]"), "`stop_token_ids` is 1000", "stop_token_ids",
       kValue},
      // Not supported, and unknown.
      {Completion("\"stream\":true"), "parameter `stream` is not supported; it can be false alone",
       "stream", kUnsupported},
      {Chat("\"response_format\":{\"type\":\"json_object\"}"),
       "parameter `response_format` is not supported", "response_format", kUnsupported},
      {Chat("\"response_format\":\"json\""), "`response_format` is \"json\"", "response_format",
       kType},
      {Chat("\"functions\":[]"), "parameter `functions` is not supported", "functions",
       kUnsupported},
      {Chat("\"truncate_prompt_tokens\":0"),
       "`truncate_prompt_tokens` is 0; expected an integer of at least 1, or -1",
       "truncate_prompt_tokens", kValue},
      {Chat("\"truncate_prompt_tokens\":\"5\""), "`truncate_prompt_tokens` is \"5\"",
       "truncate_prompt_tokens", kType},
      {Chat("\"allowed_token_ids\":[]"), "`allowed_token_ids` is empty", "allowed_token_ids",
       kValue},
      {Chat("\"allowed_token_ids\":[1000]"), "`allowed_token_ids` is 1000", "allowed_token_ids",
       kValue},
      {Chat("\"allowed_token_ids\":7"), "`allowed_token_ids` is 7", "allowed_token_ids", kType},
      {Chat("\"bad_words\":\"a\""), "`bad_words` is \"a\"", "bad_words", kType},
      {Chat("\"bad_words\":[\"a\",\" \"]"), "expected a list of strings, none empty", "bad_words",
       kValue},
      {Chat("\"documents\":[{},\"a\"]"), "documents[1] is \"a\" (a string); expected an object",
       "documents", kType},
      {Chat("\"documents\":\"a\""), "`documents` is \"a\" (a string); expected an array of objects",
       "documents", kType},
      {Chat("\"input\":\"a\""), "`input` belongs to /v1/embeddings and /v1/classify, not to",
       "input", kUnsupported},
      {Chat("\"reasoning_effort\":\"most\""), "`reasoning_effort` is \"most\"", "reasoning_effort",
       kValue},
      {Chat("\"parallel_tool_calls\":1"), "`parallel_tool_calls` is 1", "parallel_tool_calls",
       kType},
      // Likelihoods.
      {Completion("\"prompt_logprobs_from\":3"), "is given without `prompt_logprobs`",
       "prompt_logprobs_from", kValue},
      {Completion("\"prompt_logprobs\":0,\"prompt_logprobs_from\":0"),
       "`prompt_logprobs_from` is 0", "prompt_logprobs_from", kValue},
      {R"({"prompt":"a","continuations":[]})", "`continuations` is empty", "continuations", kValue},
      {R"({"prompt":"a","continuations":"b"})", "`continuations` is \"b\"", "continuations", kType},
      {R"({"prompt":"a","continuations":[3]})", "`continuations` is 3", "continuations", kType},
      {R"({"prompt":"a","continuations":[[1]]})", "are not both text", "continuations", kValue},
      {R"({"prompt":["a","b"],"continuations":["c"]})", "`prompt` holds 2 prompts", "prompt",
       kValue},
      {R"({"continuations":["c"]})", "`prompt` is missing", "prompt", "missing_required_parameter"},
      {R"({"prompt":"a","continuations":["c"],"temperature":1})",
       "`temperature` belongs to /v1/chat/completions and /v1/completions, not to /v1/score",
       "temperature", kUnsupported},
      {R"({"custom_id":"c","url":"/v1/score","body":{"prompt":"a"}})", "`continuations` is missing",
       "continuations", "missing_required_parameter"},
      {R"({"custom_id":"c","url":"/v1/score","body":{"text_1":"a","continuations":["b"]}})",
       "`text_1` belongs to /v1/score with `text_1`, not to /v1/score with `continuations`",
       "text_1", kUnsupported},
      // Vectors and scores.
      {R"({"query":"a"})", "`documents` is missing; expected a list of strings", "documents",
       "missing_required_parameter"},
      {R"({"documents":["a"]})", "`query` is missing; expected a string", "query",
       "missing_required_parameter"},
      {R"({"text_2":["a"]})", "`text_1` is missing; expected text or token ids", "text_1",
       "missing_required_parameter"},
      {R"({"query":"a","documents":[]})", "`documents` is empty; expected a list of strings",
       "documents", kValue},
      {R"({"query":"a","documents":["b",[5]]})", "documents[1] is an array; expected a string",
       "documents", kType},
      {R"({"query":["a"],"documents":["b"]})", "`query` is an array; expected a string", "query",
       kType},
      {R"({"text_1":"a","text_2":"b","return_token_ids":true})",
       "/v1/score with `continuations`, not to /v1/score with `text_1`", "return_token_ids",
       kUnsupported},
      {R"({"input":"a","encoding_format":"hex"})",
       "`encoding_format` is \"hex\" (a string); expected \"float\" or \"base64\"",
       "encoding_format", kValue},
      {Completion("\"suffix\":\"x\""), "parameter `suffix` is not supported", "suffix",
       kUnsupported},
      {Completion("\"use_beam_search\":true"), "parameter `use_beam_search` is not supported",
       "use_beam_search", kUnsupported},
      {Completion("\"length_penalty\":2"), "it can be 1.0 alone", "length_penalty", kUnsupported},
      {Completion("\"priority\":-1"), "parameter `priority` is not supported", "priority",
       kUnsupported},
      {Completion("\"temprature\":1"), "unknown parameter `temprature`", "temprature",
       "unknown_parameter"},
      {R"({"prompt":"x","bogus":[]})", "unknown parameter `bogus`", "bogus", "unknown_parameter"},
      {R"({"prompt":"x","":1})", "unknown parameter ``", "", "unknown_parameter"},
  };
  std::string many = "[\"a\"";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  bad.push_back({Prompt(many + "]"), "more than 2048 prompts", "prompt", kValue});
  bad.push_back(
      {R"({"query":"a","documents":)" + many + "]}", "more than 2048 texts", "documents", kValue});
  bad.push_back(
      {R"({"text_1":"a","text_2":)" + many + "]}", "more than 2048 texts", "text_2", kValue});
  bad.push_back({R"({"prompt":)" + many.substr(0, 400) + R"(],"n":128})",
                 "choices; expected at most 4096", "n", kValue});
  return bad;
}

TEST(LineParserTest, AWholeFloatIsAnInteger) {
  const ParsedLine line = Good(
      R"({"prompt":[5.0,6],"max_tokens":256.0,"n":2.0,"top_k":-1.0,"seed":42.0,"logprobs":3.0,"stop_token_ids":[7.0]})");
  EXPECT_THAT(std::get<std::vector<int32_t>>(line.prompts.at(0)), ElementsAre(5, 6));
  EXPECT_EQ(line.sampling.max_tokens, 256);
  EXPECT_EQ(line.n, 2);
  EXPECT_EQ(line.sampling.top_k, 0);
  EXPECT_EQ(line.sampling.seed, 42);
  EXPECT_EQ(line.sampling.logprobs, 3);
  EXPECT_THAT(line.sampling.stop_token_ids, ElementsAre(7));
}

TEST(LineParserTest, ContinuationsAreALineOfTheirOwn) {
  for (
      const char* text :
      {R"({"prompt":[5,6],"continuations":[[7],[8,9]],"return_token_ids":true})",
       R"({"custom_id":"c","url":"/v1/score","body":{"prompt":[[5,6]],"continuations":[[7],[8,9]]}})",
       R"({"custom_id":"c","body":{"prompt":[5,6],"continuations":[[7],[8,9]]}})"}) {
    const ParsedLine line = Good(text);
    EXPECT_EQ(line.endpoint, Endpoint::kLikelihood);
    EXPECT_THAT(std::get<std::vector<int32_t>>(line.continuations.at(1)), ElementsAre(8, 9));
    EXPECT_EQ(line.sampling.max_tokens, 0);
    EXPECT_EQ(line.sampling.prompt_logprobs, 0);
  }
}

TEST(LineParserTest, VectorsOfTexts) {
  ParsedLine line = Good(R"({"input":[[5],[6,7]],"dimensions":8,"encoding_format":"base64"})");
  EXPECT_EQ(line.endpoint, Endpoint::kEmbedding);
  EXPECT_EQ(line.prompts.size(), 2u);
  EXPECT_EQ(line.vectors.dimensions, 8);
  EXPECT_TRUE(line.vectors.base64);
  EXPECT_EQ(line.sampling.max_tokens, 0);
  line = Good(R"({"custom_id":"c","url":"/v1/score","body":{"text_2":["a","b"],"text_1":"q"}})");
  EXPECT_EQ(line.endpoint, Endpoint::kScore);
  EXPECT_EQ(line.vectors.queries, 1);
  EXPECT_EQ(std::get<std::string>(line.prompts.at(0)), "q");
  line = Good(R"({"documents":["a","b"],"query":"q","top_n":1})");
  EXPECT_EQ(line.endpoint, Endpoint::kRerank);
  EXPECT_EQ(std::get<std::string>(line.prompts.at(0)), "q");
  EXPECT_EQ(line.prompts.size(), 3u);
}

// The query is none of them.
TEST(LineParserTest, AsManyTextsAsALineMayHold) {
  std::string texts = "[\"a\"";
  for (int i = 1; i < 2048; ++i) texts += ",\"a\"";
  texts += "]";
  EXPECT_EQ(Good(R"({"query":"q","documents":)" + texts + "}").prompts.size(), 2049u);
  EXPECT_EQ(Good(R"({"text_1":"q","text_2":)" + texts + "}").prompts.size(), 2049u);
  EXPECT_EQ(Good(R"({"text_1":)" + texts + R"(,"text_2":)" + texts + "}").prompts.size(), 4096u);
}

TEST(LineParserTest, LinesForAHead) {
  const auto with = [](std::vector<std::string> names) {
    RequestRules rules = Rules();
    rules.labels = std::make_shared<const Labels>(Labels{.names = std::move(names)});
    return rules;
  };
  const std::string classify =
      R"({"custom_id":"c","url":"/v1/classify","body":{"input":["a","b"],"use_activation":false}})";
  const std::string score = R"({"text_1":"q","text_2":["a","b"]})";
  ParsedLine line = Good(classify, with({"x", "y"}));
  EXPECT_EQ(line.endpoint, Endpoint::kClassify);
  EXPECT_FALSE(line.vectors.activation);
  EXPECT_FALSE(line.vectors.pairs());
  EXPECT_TRUE(Good(score, with({"x"})).vectors.pairs());
  EXPECT_FALSE(Good(score).vectors.pairs());
  const auto code = [](const std::string& text, RequestRules rules) {
    return Parse(text, std::move(rules)).error.value_or(LineError{}).code;
  };
  EXPECT_EQ(code(classify, Rules()), "head_missing");
  EXPECT_EQ(code(score, with({"x", "y"})), "head_has_labels");
  EXPECT_EQ(code(R"({"input":"a"})", with({"x"})), "pooling_missing");
  for (const auto& [text, param] : {std::pair(R"({"text_1":[1],"text_2":[2]})", "text_1"),
                                    std::pair(R"({"text_1":"a","text_2":[2]})", "text_2")}) {
    const Parsed parsed = Parse(text, with({"x"}));
    ASSERT_TRUE(parsed.error) << text;
    EXPECT_EQ(parsed.error->code, "invalid_value");
    EXPECT_EQ(parsed.error->param, param);
  }
}

TEST(LineParserTest, WhatMayBeDrawn) {
  const ParsedLine line = Good(
      Chat(R"("allowed_token_ids":[9,3,9],"bad_words":["a"," b"],"truncate_prompt_tokens":-1,)"
           R"("documents":[{"text":"x"}],"reasoning_effort":"low","parallel_tool_calls":false)"));
  EXPECT_THAT(line.sampling.allowed_token_ids, ElementsAre(3, 9));
  EXPECT_THAT(line.bad_words, ElementsAre("a", " b"));
  EXPECT_EQ(line.truncate_prompt_tokens, -1);
  EXPECT_EQ(line.chat.documents, R"([{"text":"x"}])");
  EXPECT_EQ(line.chat.reasoning_effort, "low");
}

TEST(LineParserTest, HintsThatAskForNothingAreIgnored) {
  for (const char* hint :
       {R"("prompt_cache_key":"k")", R"("safety_identifier":"s")",
        R"("prompt_cache_retention":"24h")", R"("request_id":"r")", R"("cache_salt":"s")",
        R"("stream":false,"stream_options":{"include_usage":true},"stream_interval":8)",
        R"("priority":0.0)", R"("skip_reading_prefix_cache":true)",
        R"("routed_experts_prompt_start":0)"}) {
    Good(Chat(hint));
    Good(Completion(hint));
  }
  Good(Chat("\"include_reasoning\":true"));
  Good(Chat("\"documents\":[]"));
}

TEST(LineParserTest, SeveralNamesAreServed) {
  RequestRules rules = Rules();
  rules.model_names = {"one", "org/two"};
  for (const char* name : {"one", "some/one", "org/two", "/models/one.gguf"})
    Good(Completion(fmt::format("\"model\":\"{}\"", name)), rules);
  for (const char* name : {"two", "three"}) {
    LineParser parser(rules);
    std::string text = Completion(fmt::format("\"model\":\"{}\"", name));
    ParsedLine line;
    const auto error = parser.Parse(&text, &line);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->message, HasSubstr("this job runs `one`, `org/two`"));
  }
  rules.model_names.push_back("*");
  Good(Completion("\"model\":\"anything\""), rules);
}

TEST(LineParserTest, RefusesBadLines) {
  for (const BadLine& bad : BadLines()) {
    const Parsed parsed = Parse(bad.text);
    ASSERT_TRUE(parsed.error) << bad.text.substr(0, 300);
    EXPECT_THAT(parsed.error->message, HasSubstr(bad.message)) << bad.text.substr(0, 300);
    EXPECT_EQ(parsed.error->param, bad.param) << bad.text.substr(0, 300);
    EXPECT_EQ(parsed.error->code, bad.code) << bad.text.substr(0, 300);
    EXPECT_EQ(parsed.error->http_status, bad.status) << bad.text.substr(0, 300);
  }
}

TEST(LineParserTest, AnErrorKeepsTheCustomId) {
  EXPECT_EQ(Parse(Completion("\"n\":0")).line.custom_id, "c");
  EXPECT_EQ(Parse(R"({"custom_id":"mine","bogus":1,"prompt":"x"})").line.custom_id, "mine");
  EXPECT_EQ(Parse("{\"custom_id\":\"a\"").line.custom_id, "a");
}

TEST(LineParserTest, AnUnknownParameterThatIsLongIsCut) {
  const Parsed parsed = Parse(R"({"prompt":"x",")" + std::string(100'000, 'a') + R"(":1})");
  ASSERT_TRUE(parsed.error);
  EXPECT_LT(parsed.error->message.size(), 100u);
}

TEST(LineParserTest, TheDocumentListsEveryParameter) {
  const std::string page = ReadWhole(TestData() + "/../docs/formats/requests.md");
  EXPECT_EQ(*FillParameters(page), page) << "forebay docs docs/formats/requests.md";
  std::multiset<std::string> documented, known;
  std::istringstream document(page);
  for (std::string row; std::getline(document, row);) {
    if (row.starts_with("| `")) documented.insert(row.substr(3, row.find('`', 3) - 3));
  }
  for (const Parameter& parameter : Parameters()) known.emplace(parameter.name);
  EXPECT_EQ(documented, known);
  EXPECT_FALSE(FillParameters("no marks").ok());
}

TEST(LineParserTest, ALongLineLeavesNoLargeParserBehind) {
  LineParser parser(Rules());
  std::string text = Prompt("\"" + std::string(8 << 20, 'a') + "\"");
  ParsedLine line;
  const auto held = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const size_t before = held();
  ASSERT_FALSE(parser.Parse(&text, &line));
  line = ParsedLine();
  text = std::string();
  EXPECT_LT(held(), before + (1 << 20));
}

}  // namespace
}  // namespace forebay::job
