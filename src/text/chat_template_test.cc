#include "text/chat_template.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "base/json.h"
#include "testing/test_data.h"
#include "text/jinja/json_reader.h"
#include "text/jinja/print.h"
#include "text/jinja/template.h"

namespace forebay::text {
namespace {

using base::Result;
using jinja::Arena;
using jinja::Kind;
using jinja::Value;

const std::string kGolden = TestData() + "/golden/templates/";

ChatTemplate MakeTemplate(std::string source) {
  Result<ChatTemplate> made =
      ChatTemplate::Create(std::move(source), {{{"bos_token", "<s>"}, {"eos_token", "</s>"}}, ""});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

// The rendered text with the request's parts in ⟦ ⟧.
std::string Marked(const RenderedText& rendered) {
  std::string out;
  size_t next = 0;
  for (const RenderedSegment& s : rendered.segments) {
    EXPECT_EQ(s.offset, next);
    EXPECT_GT(s.length, 0u);
    next = s.offset + s.length;
    const std::string text = rendered.text.substr(s.offset, s.length);
    out += s.trusted ? text : "⟦" + text + "⟧";
  }
  EXPECT_EQ(next, rendered.text.size());
  return out;
}

std::string RenderMarked(const std::string& source, std::string_view messages,
                         std::string_view kwargs = "") {
  const ChatTemplate chat = MakeTemplate(source);
  ChatInput input;
  input.messages_json = messages;
  input.kwargs_json = kwargs;
  input.style = MessageStyle::kAsGiven;
  const Result<RenderedText> rendered = chat.Render(input);
  return rendered.ok() ? Marked(*rendered) : rendered.status().ToString();
}

std::string ErrorOf(const ChatTemplate& chat, const ChatInput& input) {
  const Result<RenderedText> rendered = chat.Render(input);
  return rendered.ok() ? "ok: " + rendered->text : rendered.status().code().name;
}

class GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, MatchesTransformers) {
  const std::string name = GetParam();
  Arena context_arena(size_t{1} << 20);
  const std::string context_json = *base::ReadFile(kGolden + "context.json");
  const Value context = *jinja::ReadJson(context_arena, context_json);
  const auto text_of = [&](const char* key) {
    return std::string(Find(context.dict(), key)->text());
  };
  Result<ChatTemplate> chat = ChatTemplate::Create(
      *base::ReadFile(kGolden + name + ".jinja"),
      {{{"bos_token", text_of("bos_token")}, {"eos_token", text_of("eos_token")}}, ""});
  ASSERT_TRUE(chat.ok()) << chat.status().ToString();

  const std::string cases = *base::ReadFile(kGolden + name + ".jsonl");
  size_t count = 0;
  for (size_t begin = 0; begin < cases.size(); ++count) {
    const size_t end = cases.find('\n', begin);
    const std::string_view line = std::string_view(cases).substr(begin, end - begin);
    begin = end + 1;
    SCOPED_TRACE(fmt::format("{} case {}", name, count));
    // base::ParseJson would refuse the integers of more than 64 bits in some cases.
    Arena arena(size_t{64} << 20);
    const Value golden = *jinja::ReadJson(arena, line);
    const auto field = [&](const char* key) { return Find(golden.dict(), key); };
    jinja::Runtime runtime(arena, {}, {});
    const auto json = [&](const char* key) {
      jinja::TextBuilder out(runtime);
      jinja::PrintJson(runtime, *field(key), {}, &out);
      return out.text();
    };
    const std::string messages = json("messages"), tools = json("tools"), kwargs = json("kwargs");
    ChatInput input;
    input.messages_json = messages;
    input.tools_json = tools;
    input.kwargs_json = kwargs;
    input.add_generation_prompt = field("add_generation_prompt")->boolean();
    input.style = MessageStyle::kAsGiven;
    input.now = *ParseClock(text_of("now"));
    const Result<RenderedText> rendered = chat->Render(input);
    if (const Value* expected = field("rendered")) {
      ASSERT_TRUE(rendered.ok()) << rendered.status().ToString();
      EXPECT_EQ(rendered->text, expected->text());
      Marked(*rendered);
    } else {
      ASSERT_FALSE(rendered.ok()) << rendered->text;
      const bool raised = field("error")->text() == "TemplateError";
      EXPECT_EQ(rendered.status().code() == jinja::kTemplateRaised, raised);
      // Ours has the line before it, where it is not the template's own.
      if (raised)
        EXPECT_EQ(rendered.status().message(), field("error_message")->text());
      else
        EXPECT_TRUE(rendered.status().message().ends_with(field("error_message")->text()))
            << rendered.status().message() << " instead of " << field("error_message")->text();
    }
  }
  EXPECT_EQ(count, 40u);
}

INSTANTIATE_TEST_SUITE_P(Templates, GoldenTest,
                         testing::Values("filters", "generation", "grouped-tools", "header-tools",
                                         "macros", "parts", "scopes", "strict-turns", "thinking",
                                         "whitespace"));

// --- Origins: what the request wrote stays marked, whatever a template does to it.

TEST(OriginTest, SurvivesEveryOperation) {
  const std::string messages =
      R"([{"role":"user","content":"a<|im_end|>b","tool_calls":[{"k":"<|im_end|>"}]}])";
  const std::pair<const char*, const char*> kCases[] = {
      {"<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>",
       "<|im_start|>⟦user⟧\n⟦a<|im_end|>b⟧<|im_end|>"},
      {"{{ 'x' + m.content + 'y' }}", "x⟦a<|im_end|>b⟧y"},
      {"{{ 'x' ~ m.content ~ 1 }}", "x⟦a<|im_end|>b⟧1"},
      {"{{ ('[' + m.content + ']')[1:-1] }}", "⟦a<|im_end|>b⟧"},
      {"{{ ('[' + m.content + ']')[:4] }}", "[⟦a<|⟧"},
      {"{{ ('[' + m.content + ']')[::-1] }}", "]⟦b>|dne_mi|<a⟧["},
      {"{{ ('[' + m.content + ']')[1] }}", "⟦a⟧"},
      {"{{ (' ' + m.content + ' ') | trim }}", "⟦a<|im_end|>b⟧"},
      {"{{ m.content.strip('ab') }}", "⟦<|im_end|>⟧"},
      {"{{ m.content | upper }}{{ m.content.lower() }}{{ m.content | title }}",
       "⟦A<|IM_END|>Ba<|im_end|>bA<|im_end|>b⟧"},
      {"{{ m.content | replace('a', 'A') }}", "A⟦<|im_end|>b⟧"},
      {"{{ 'x-y' | replace('-', m.content) }}", "x⟦a<|im_end|>b⟧y"},
      {"{{ m.content.replace('<|im_end|>', '') }}", "⟦ab⟧"},
      {"{{ m.content.split('|')[1] }}", "⟦im_end⟧"},
      {"{{ m.content.partition('|')[1] }}", "|"},
      {"{{ ['x', m.content] | join(', ') }}", "x, ⟦a<|im_end|>b⟧"},
      {"{{ 'x'.join([m.content, m.content]) }}", "⟦a<|im_end|>b⟧x⟦a<|im_end|>b⟧"},
      {"{{ m.content | tojson }}", "\"⟦a<|im_end|>b⟧\""},
      {"{{ {'k': m.content} | tojson }}", "{\"k\": \"⟦a<|im_end|>b⟧\"}"},
      {"{{ m.tool_calls | tojson }}", "[{\"⟦k⟧\": \"⟦<|im_end|>⟧\"}]"},
      {"{{ m.tool_calls }}", "[{'⟦k⟧': '⟦<|im_end|>⟧'}]"},
      {"{{ m.content | list }}",
       "['⟦a⟧', '⟦<⟧', '⟦|⟧', '⟦i⟧', '⟦m⟧', '⟦_⟧', '⟦e⟧', '⟦n⟧', '⟦d⟧', '⟦|⟧', '⟦>⟧', '⟦b⟧']"},
      {"{{ '<%s>' % m.content }}", "<⟦a<|im_end|>b⟧>"},
      {"{{ '%s' | format(m.content) }}", "⟦a<|im_end|>b⟧"},
      {"{{ '<{}>'.format(m.content) }}", "<⟦a<|im_end|>b⟧>"},
      {"{{ m.content.format() }}", "⟦a<|im_end|>b⟧"},
      {"{{ m.content | indent(2, true) }}", "  ⟦a<|im_end|>b⟧"},
      {"{{ m.content | e }}", "⟦a&lt;|im_end|&gt;b⟧"},
      {"{{ m.content | center(14) }}", " ⟦a<|im_end|>b⟧ "},
      {"{{ m.content | truncate(9, true, '', 0) }}", "⟦a<|im_end⟧"},
      {"{{ m.content | urlencode }}", "⟦a%3C%7Cim_end%7C%3Eb⟧"},
      {"{{ m.content * 2 }}", "⟦a<|im_end|>ba<|im_end|>b⟧"},
      {"{{ m.content | first }}{{ m.content | last }}", "⟦ab⟧"},
      {"{% for c in m.content[:2] %}{{ c }}.{% endfor %}", "⟦a⟧.⟦<⟧."},
      {"{% set x %}[{{ m.content }}]{% endset %}{{ x }}", "[⟦a<|im_end|>b⟧]"},
      {"{% macro f(t) %}({{ t }}){% endmacro %}{{ f(m.content) }}", "(⟦a<|im_end|>b⟧)"},
      {"{% filter trim %} {{ m.content }} {% endfilter %}", "⟦a<|im_end|>b⟧"},
      {"{% set ns = namespace(t='') %}{% set ns.t = ns.t + m.content %}{{ ns.t }}",
       "⟦a<|im_end|>b⟧"},
      {"{{ m | items | list | first }}", "('⟦role⟧', '⟦user⟧')"},
      {"{{ messages | map(attribute='content') | map('upper') | join }}", "⟦A<|IM_END|>B⟧"},
      {"{{ kw }}{{ bos_token }}", "⟦<s>⟧<s>"},
      {"{{ strftime_now(kw) }}", "⟦<s>⟧"},
  };
  for (const auto& [source, expected] : kCases) {
    EXPECT_EQ(RenderMarked("{% set m = messages[0] %}" + std::string(source), messages,
                           R"({"kw":"<s>"})"),
              expected)
        << source;
  }
}

TEST(OriginTest, OperatorsKwargsAreTrusted) {
  const Result<ChatTemplate> chat =
      ChatTemplate::Create("{{ a }}{{ b }}", {{}, R"({"a":"<x>","b":"<x>"})"});
  ChatInput input;
  input.messages_json = R"([{"role":"user","content":"q"}])";
  input.kwargs_json = R"({"b":"<y>"})";
  EXPECT_EQ(Marked(*chat->Render(input)), "<x>⟦<y>⟧");
}

// --- Messages.

TEST(ChatMessagesTest, ErrorsNameTheirPlace) {
  const ChatTemplate chat = MakeTemplate("{{ messages[0].content }}");
  const std::pair<const char*, const char*> kCases[] = {
      {"{}", "chat_messages_invalid"},
      {"[]", "chat_messages_invalid"},
      {"null", "chat_messages_invalid"},
      {"", "chat_messages_invalid"},
      {"[1]", "chat_messages_invalid"},
      {R"([{"content":"x"}])", "chat_messages_invalid"},
      {R"([{"role":7,"content":"x"}])", "chat_messages_invalid"},
      {R"([{"role":"user","content":7}])", "chat_messages_invalid"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "chat_messages_invalid"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "chat_messages_invalid"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}])",
       "chat_content_unsupported"},
      {R"([{"role":"user","tool_calls":[{"function":{"arguments":"{"}}]}])", "json_invalid"},
      {"[", "json_invalid"},
      {R"([{"role":"user","content":"a"}] x)", "json_invalid"},
      {R"([{"role":"user","content":"a"}])", "ok: a"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"},"c"]}])",
       "ok: a\nb\nc"},
      {R"([{"role":"user","content":[]}])", "ok: "},
      {R"([{"role":"critic","content":null}])", "ok: "},
  };
  for (const auto& [messages, expected] : kCases) {
    ChatInput input;
    input.messages_json = messages;
    EXPECT_EQ(ErrorOf(chat, input), expected) << messages;
  }
  ChatInput input;
  input.messages_json = R"([{"role":"user","content":"a"}])";
  input.tools_json = "{}";
  EXPECT_EQ(ErrorOf(chat, input), "chat_tools_invalid");
  input.tools_json = "null";
  input.kwargs_json = R"({"messages":[]})";
  EXPECT_EQ(ErrorOf(chat, input), "chat_kwargs_invalid");
  input.kwargs_json = "[]";
  EXPECT_EQ(ErrorOf(chat, input), "chat_kwargs_invalid");
  const ChatTemplate raising = MakeTemplate("{{ raise_exception('no ' ~ messages[0].role) }}");
  input.kwargs_json = "";
  EXPECT_EQ(raising.Render(input).status().ToString(), "no user [template_raised]");
}

TEST(ChatMessagesTest, PartsStayWhereTheTemplateLoopsOverThem) {
  const char* kLooping[] = {
      "{% for p in messages[0].content %}{{ p.text }};{% endfor %}",
      "{% for m in messages %}{% set c = m['content'] %}{% if c is not string %}{% for p in c %}{{ "
      "p.text }};{% endfor %}{% endif %}{% endfor %}",
      "{% macro body(x) %}{% for p in x %}{{ p.text }};{% endfor %}{% endmacro %}{{ "
      "body(messages[0].content) }}",
  };
  ChatInput input;
  input.messages_json =
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])";
  for (const char* source : kLooping) {
    const ChatTemplate chat = MakeTemplate(source);
    EXPECT_TRUE(chat.iterates_content()) << source;
    EXPECT_EQ(chat.Render(input)->text, "a;b;") << source;
  }
  const ChatTemplate plain = MakeTemplate("{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_FALSE(plain.iterates_content());
  EXPECT_EQ(Marked(*plain.Render(input)), "⟦a\nb⟧");
}

TEST(ChatMessagesTest, ArgumentsInAStringBecomeAnObject) {
  const ChatTemplate chat =
      MakeTemplate("{{ messages[0].tool_calls[0].function.arguments | tojson }}");
  ChatInput input;
  input.messages_json =
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"x\":12345678901234567890123}"}}]}])";
  EXPECT_EQ(chat.Render(input)->text, R"({"x": 12345678901234567890123})");
  input.style = MessageStyle::kAsGiven;
  EXPECT_EQ(chat.Render(input)->text, R"("{\"x\":12345678901234567890123}")");
}

TEST(ChatMessagesTest, TheLastMessageStaysOpen) {
  ChatInput input;
  input.messages_json =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"so far "}])";
  input.continue_final_message = true;
  const ChatTemplate plain = MakeTemplate("{% for m in messages %}<{{ m.content }}>{% endfor %}");
  EXPECT_EQ(Marked(*plain.Render(input)), "<⟦q⟧><⟦so far ⟧");
  const ChatTemplate trimming =
      MakeTemplate("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}");
  EXPECT_EQ(trimming.Render(input)->text, "<q><so far");
  const ChatTemplate silent = MakeTemplate("{{ messages[0].content }}");
  EXPECT_EQ(ErrorOf(silent, input), "chat_messages_invalid");
  input.add_generation_prompt = true;
  EXPECT_EQ(ErrorOf(plain, input), "chat_messages_invalid");
}

// Messages in which an assistant called a function; `call` holds the members of "function" beside
// its name.
std::string Called(const std::string& call) {
  return R"([{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[)"
         R"({"id":"c","type":"function","function":{"name":"f")" +
         call + R"(}}]},{"role":"tool","tool_call_id":"c","content":"r"}])";
}

TEST(ChatTemplateTest, ArgumentsHaveOneFormForATemplate) {
  const std::string begin = "{% for m in messages %}{% for t in m.tool_calls %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const ChatTemplate objects = MakeTemplate(
      begin + "{% for k, v in t.function.arguments.items() %}{{ k ~ '=' ~ v }};{% endfor %}" + end);
  const ChatTemplate texts = MakeTemplate(begin + "{{ 'call ' + t.function.arguments }}" + end);
  const ChatTemplate both = MakeTemplate(begin + "{{ t.function.arguments | tojson }}" + end);
  const auto render = [](const ChatTemplate& chat, const std::string& call) {
    const std::string messages = Called(call);
    const auto rendered = chat.Render({.messages_json = messages});
    return rendered.ok() ? rendered->text : rendered.status().ToString();
  };
  const std::string given[] = {R"(,"arguments":"{\"city\":\"Bonn\"}")",
                               R"(,"arguments":{"city": "Bonn"})"};
  EXPECT_EQ(render(objects, given[0]), "city=Bonn;");
  EXPECT_EQ(render(objects, given[1]), "city=Bonn;");
  EXPECT_EQ(render(texts, given[0]), R"(call {"city":"Bonn"})");  // as it was given
  EXPECT_EQ(render(texts, given[1]), R"(call {"city": "Bonn"})");
  EXPECT_EQ(render(both, given[0]), R"({"city": "Bonn"})");
  for (const char* none :
       {"", R"(,"arguments":null)", R"(,"arguments":"")", R"(,"arguments":"null")",
        R"(,"arguments":{})", R"(,"arguments":"{}")"}) {
    EXPECT_EQ(render(objects, none), "") << none;
    EXPECT_EQ(render(texts, none), "call {}") << none;
    EXPECT_EQ(render(both, none), "{}") << none;
  }
  // What is no JSON is the request's fault where an object is wanted.
  EXPECT_NE(render(objects, R"(,"arguments":"{")").find("json_invalid"), std::string::npos);
  EXPECT_EQ(render(texts, R"(,"arguments":"{")"), "call {");
}

TEST(ChatTemplateTest, ATemplateThatChecksTurnsIsAskedInSeveralWays) {
  // It wants an answer to each call, and a content; both forms fail without.
  const ChatTemplate strict = MakeTemplate(
      "{% for m in messages %}{% if m.tool_calls %}{% if messages | length < 3 %}{{ "
      "raise_exception('no answer') }}{% endif %}{{ m.content + m.tool_calls[0].function.arguments "
      "}}{% endif %}{% endfor %}");
  const auto rendered = strict.Render(
      {.messages_json =
           R"([{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":[{"function":{"arguments":"{}"}}]},{"role":"tool","content":"r"}])"});
  ASSERT_TRUE(rendered.ok()) << rendered.status().ToString();
  EXPECT_EQ(rendered->text, "a{}");
}

// As DeepSeek's: text alone, behind a content that is text too.
TEST(ChatTemplateTest, ATemplateThatAddsToTheContentOfACallGetsOne) {
  const ChatTemplate adds = MakeTemplate(
      "{% for m in messages %}{% if 'tool_calls' in m %}{% for t in m.tool_calls %}{% if "
      "m['content'] is none %}none{% else %}{{ 'A' + m['content'] + '<' + t['function']['name'] + "
      "' ' + t['function']['arguments'] + '>' }}{% endif %}{% endfor %}{% else %}{{ m['content'] "
      "}};{% endif %}{% endfor %}");
  const std::string messages = Called(R"(,"arguments":"{\"a\": 1}")");
  EXPECT_EQ(adds.Render({.messages_json = messages})->text, "q;A<f {\"a\": 1}>r;");
  const ChatTemplate asks = MakeTemplate(
      "{% for m in messages %}{{ m.content is defined }}{% for t in m.tool_calls %}{{ "
      "t.function.arguments }}{% endfor %}{% endfor %}");
  EXPECT_EQ(asks.Render({.messages_json = messages})->text.substr(0, 9), "TrueFalse");
}

TEST(ChatTemplateTest, MembersThatClientsWriteEmptyAreDropped) {
  const ChatTemplate chat = MakeTemplate("{% for k in messages[0] %}{{ k }};{% endfor %}");
  const auto keys = [&](const std::string& more) {
    return chat.Render({.messages_json = R"([{"role":"assistant","content":"")" + more + "}]"})
        ->text;
  };
  EXPECT_EQ(keys(R"(,"tool_calls":[],"function_call":{},"refusal":"","audio":null)"),
            "role;content;");
  EXPECT_EQ(keys(R"(,"tool_calls":[{}],"refusal":"no","name":"")"),
            "role;content;tool_calls;refusal;name;");
}

TEST(ChatTemplateTest, ReadsTheTemplatesOfATokenizerConfig) {
  EXPECT_EQ(FindChatTemplates(R"({"chat_template":"x"})")->plain->text, "x");
  EXPECT_FALSE(FindChatTemplates("{}")->plain);
  EXPECT_FALSE(FindChatTemplates(R"({"chat_template":null})")->plain);
  const auto list = FindChatTemplates(
      R"({"chat_template":[{"name":"tool_use","template":"t"},{"name":7},{"name":"default","template":"d"},{"name":"rag","template":"r"}]})");
  EXPECT_EQ(list->plain->text, "d");
  EXPECT_EQ(list->plain->where, "tokenizer_config.json, default");
  EXPECT_EQ(list->with_tools->text, "t");
  EXPECT_EQ(list->names, (std::vector<std::string>{"tool_use", "default", "rag"}));
  EXPECT_FALSE(FindChatTemplates(R"({"chat_template":[{"name":"rag","template":"r"}]})")->plain);
  EXPECT_EQ(FindChatTemplates("{").status().code().name, std::string("json_invalid"));
}

TEST(ChatTemplateTest, TellsWhetherItReadsTheClock) {
  EXPECT_TRUE(MakeTemplate("{{ strftime_now('%Y') }}").uses_clock());
  EXPECT_FALSE(MakeTemplate("{{ messages }}").uses_clock());
  EXPECT_EQ(ParseClock("2026-02-28T24:00:00").status().code().name,
            std::string("invalid_argument"));
  EXPECT_EQ(ParseClock("2026-02-30T00:00:00").status().code().name,
            std::string("invalid_argument"));
  EXPECT_EQ(ParseClock("2026-02-28").status().code().name, std::string("invalid_argument"));
  EXPECT_EQ(ParseClock("2026-03-07T14:05:09")->tm_wday, 6);
}

TEST(ChatTemplateTest, ThreadsRenderAtOnce) {
  const ChatTemplate chat =
      MakeTemplate("{% for m in messages %}{{ m.role ~ m.content | tojson }}{% endfor %}{{ k }}");
  std::vector<std::thread> threads;
  std::vector<int> wrong(2);
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      const std::string text(1 + static_cast<size_t>(t), 'x');
      const std::string messages = R"([{"role":"user","content":")" + text + R"("}])";
      for (int i = 0; i < 500; ++i) {
        ChatInput input;
        input.messages_json = messages;
        wrong[static_cast<size_t>(t)] += chat.Render(input)->text != "user\"" + text + "\"";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(2));
}

TEST(ChatTemplateTest, SpeedOfATenMessageChat) {
  const ChatTemplate chat = MakeTemplate(
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
      "message['content'] + '<|im_end|>' + '\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  std::string messages = "[";
  for (int i = 0; i < 10; ++i) {
    messages += fmt::format(
        "{}{{\"role\":\"{}\",\"content\":\"Turn {}: the gate at the weir stays open until the "
        "river falls.\"}}",
        i == 0 ? "" : ",", i % 2 == 0 ? "user" : "assistant", i);
  }
  messages += "]";
  ChatInput input;
  input.messages_json = messages;
  input.add_generation_prompt = true;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const std::clock_t start = std::clock();
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(chat.Render(input).ok());
    best = std::max(best, 1000.0 * CLOCKS_PER_SEC / static_cast<double>(std::clock() - start));
  }
  fmt::print("{:.0f} renders/s of a chat of 10 messages\n", best);
}

}  // namespace
}  // namespace forebay::text
