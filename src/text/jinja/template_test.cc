#include "text/jinja/template.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "testing/test_data.h"
#include "text/jinja/json_reader.h"

namespace forebay::text::jinja {
namespace {

std::string RenderOrError(std::string_view source, std::string_view variables_json = "{}",
                          const Limits& limits = {}) {
  Arena arena(limits.memory_bytes);
  const base::Result<Value> variables = ReadJson(arena, variables_json);
  if (!variables.ok()) return variables.status().ToString();
  std::vector<Binding> bindings = {{"bos_token", Value::String("<s>")},
                                   {"eos_token", Value::String("</s>")}};
  for (const DictEntry& entry : variables->dict().entries)
    bindings.push_back({entry.key.text(), entry.value});
  const base::Result<Template> parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status().ToString();
  std::tm now = {};
  now.tm_year = 126;
  now.tm_mon = 2;
  now.tm_mday = 7;
  now.tm_hour = 14;
  now.tm_min = 5;
  now.tm_sec = 9;
  now.tm_wday = 6;
  now.tm_yday = 65;
  const base::Result<Rendered> rendered = parsed->Render(arena, bindings, now, limits);
  return rendered.ok() ? rendered->text : rendered.status().ToString();
}

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

// tests/templates/jinja_cases.jsonl: the first line holds the variables; then one template a line,
// "t", with what Jinja 3.1.6 makes of it in the environment that transformers sets up, "r", which
// is absent where it fails.
TEST(TemplateTest, AgreesWithJinja) {
  const std::string cases = *base::ReadFile(TestData() + "/templates/jinja_cases.jsonl");
  Arena arena(size_t{16} << 20);
  std::string_view rest = cases;
  const auto next_line = [&] {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + 1);
    return line;
  };
  // Cut out as text, so that integers beyond 64 bits come through.
  std::string_view variables = next_line();
  variables.remove_prefix(variables.find(':') + 1);
  variables.remove_suffix(1);
  int count = 0;
  while (!rest.empty()) {
    const Value line = *ReadJson(arena, next_line());
    const std::string source(Find(line.dict(), "t")->text());
    const std::string actual = RenderOrError(source, variables);
    if (const Value* expected = Find(line.dict(), "r")) {
      EXPECT_EQ(actual, expected->text()) << source;
    } else {
      EXPECT_TRUE(Contains(actual, "[template_")) << source << "\n" << actual;
    }
    ++count;
  }
  EXPECT_GT(count, 700);
}

TEST(TemplateTest, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> kCases[] = {
      {"a\nb {{ x.y }}", "template line 2: 'x' is undefined [template_runtime]"},
      {"{% for i in [1] %}\n\n{{ i + 'a' }}\n{% endfor %}",
       "template line 3: unsupported operand type(s) for +: 'int' and 'str' [template_runtime]"},
      {"\n{% if %}", "template line 2: expected an expression, found %} [template_syntax]"},
      {"{% for x in [1] %}\n",
       "template line 1: for is not closed: the template ends without endfor [template_syntax]"},
      {"\n\n{{ 'a", "template line 3: a string is not closed [template_syntax]"},
      {"{% include 'x' %}",
       "template line 1: 'include' is not supported in chat templates [template_syntax]"},
      {"{{ x | nosuch }}", "template line 1: no filter named 'nosuch' [template_runtime]"},
      {"{{ [].append(1) }}",
       "template line 1: access to attribute 'append' of 'list' object is unsafe. "
       "[template_security]"},
      {"{{ raise_exception('Roles\nalternate') }}", "Roles\nalternate [template_raised]"},
      {"{% break %}", "template line 1: 'break' outside a loop [template_syntax]"},
      {"\xff", "the template is not valid UTF-8 [template_syntax]"},
  };
  for (const auto& [source, expected] : kCases)
    EXPECT_EQ(RenderOrError(source), expected) << source;
}

std::string Repeated(std::string_view part, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += part;
  return out;
}

TEST(TemplateTest, BoundsEverything) {
  const std::string sources[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
      "{{ range(100001) }}",
      "{{ range(-9223372036854775807, 9223372036854775807) }}",
      "{{ 'a' * 9223372036854775807 }}",
      "{{ [1] * 9223372036854775807 }}",
      "{{ '%99999999d' % 1 }}",
      "{{ '{:99999999}'.format(1) }}",
      "{{ 'a'.center(9999999999) }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 2 ** 64 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(x) %}{{ caller(x) }}{% endmacro %}{% macro g() %}{% call(y) f(1) %}{{ g() }}{% "
      "endcall %}{% endmacro %}{{ g() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}{{ ns.x }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor "
      "%}{{ ns.x | tojson }}",
      "{% set ns = namespace(x=[], y=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% set "
      "ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
      "{{ " + Repeated("a.b", 5000) + " }}{{" + Repeated("[0]", 5000) + " }}",
      "{{ x" + Repeated("[0]", 5000) + " }}",
      "{{ 1" + Repeated(" - 1", 5000) + " }}",
  };
  for (const std::string& source : sources) {
    const std::string result = RenderOrError(source);
    EXPECT_TRUE(Contains(result, "[template_limit]") || Contains(result, "[template_syntax]"))
        << source.substr(0, 100) << "\n"
        << result.substr(0, 200);
  }
  // Too deep to parse.
  for (const char* open : {"(", "[", "{1:", "not ", "-", "1 if ", "f("}) {
    EXPECT_TRUE(Contains(RenderOrError("{{ " + Repeated(open, 100'000) + " }}"), "[template_"))
        << open;
  }
  EXPECT_TRUE(Contains(RenderOrError(Repeated("{% if 1 %}", 50'000)), "[template_syntax]"));
  EXPECT_TRUE(Contains(RenderOrError("{% if 1 %}" + Repeated("{% elif 1 %}", 50'000)),
                       "[template_syntax]"));
  EXPECT_TRUE(Contains(RenderOrError(std::string((size_t{1} << 20) + 1, 'x')), "[template_limit]"));
  // Long is not deep.
  EXPECT_EQ(RenderOrError("{{ ''" + Repeated(" + 'a'", 700) + " }}"), std::string(700, 'a'));
  Limits tight;
  tight.steps = 1000;
  EXPECT_TRUE(Contains(RenderOrError("{% for i in range(999) %}{{ i }}{% endfor %}", "{}", tight),
                       "1000 steps"));
}

TEST(TemplateTest, FindsInLinearTime) {
  const std::string text = "{\"a\":\"" + std::string(2'000'000, 'a') + "\",\"b\":\"" +
                           std::string(1'000'000, 'a') + "b\"}";
  EXPECT_EQ(RenderOrError("{{ b in a }}{{ a.find(b) }}{{ a.count(b) }}{{ a.split(b) | length }}{{ "
                          "a.replace(b, '') | length }}"
                          "{{ a.rfind(b) }}",
                          text),
            "False-1012000000-1");
}

// --- Shapes of templates that models ship with, in our own words.

constexpr std::string_view kTurns =
    R"({"messages":[{"role":"system","content":" be brief "},{"role":"user","content":"hi"},{"role":"assistant","content":"<think>\nhm\n</think>\n\nyo"},{"role":"user","content":"more"}],"add_generation_prompt":true})";

TEST(ModelShapesTest, HeadersAndTrim) {
  EXPECT_EQ(
      RenderOrError("{% set loop_messages = messages %}{% for message in loop_messages %}{% set "
                    "content = '<|h|>' + message['role'] + "
                    "'<|/h|>\n\n'+ message['content'] | trim + '<|e|>' %}{% if loop.index0 == 0 "
                    "%}{% set content = bos_token + content %}"
                    "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ "
                    "'<|h|>assistant<|/h|>\n\n' }}{% endif %}",
                    kTurns),
      "<s><|h|>system<|/h|>\n\nbe "
      "brief<|e|><|h|>user<|/h|>\n\nhi<|e|><|h|>assistant<|/h|>\n\n<think>\nhm\n</think>\n\nyo<|e|>"
      "<|h|>user<|/h|>\n\nmore<|e|><|h|>assistant<|/h|>\n\n");
}

TEST(ModelShapesTest, InstructionPairsWithASystemText) {
  EXPECT_EQ(
      RenderOrError("{%- if messages[0]['role'] == 'system' -%}{%- set sys = "
                    "messages[0]['content'] | trim -%}{%- set rest = messages[1:] -%}"
                    "{%- else -%}{%- set sys = '' -%}{%- set rest = messages -%}{%- endif -%}\n"
                    "{%- for m in rest -%}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) "
                    "-%}{{ raise_exception('turns') }}{%- endif -%}"
                    "{%- if m.role == 'user' -%}{%- if loop.first and sys -%}{{ bos_token ~ '[I] "
                    "<<S>>' ~ sys ~ '<</S>> ' ~ m.content ~ ' [/I]' }}"
                    "{%- else -%}{{ bos_token ~ '[I] ' ~ m.content ~ ' [/I]' }}{%- endif -%}"
                    "{%- else -%}{{ ' ' ~ m.content.split('</think>')[-1].lstrip('\\n') ~ ' ' ~ "
                    "eos_token }}{%- endif -%}{%- endfor -%}",
                    kTurns),
      "<s>[I] <<S>>be brief<</S>> hi [/I] yo </s><s>[I] more [/I]");
}

TEST(ModelShapesTest, LastQuestionByNamespace) {
  EXPECT_EQ(RenderOrError(
                "{%- set ns = namespace(open=true, last=messages|length - 1) %}{%- for m in "
                "messages[::-1] %}"
                "{%- set i = (messages|length - 1) - loop.index0 %}{%- if ns.open and m.role == "
                "'user' %}{%- set ns.open = false %}"
                "{%- set ns.last = i %}{%- endif %}{%- endfor %}{{ ns.last }}"
                "{%- for m in messages if m.role == 'assistant' %}{%- set c = m.content %}"
                "{{- '|' + c.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') "
                "+ '|' + c.split('</think>')[-1].lstrip('\\n') }}"
                "{%- endfor %}",
                kTurns),
            "3|hm|yo");
}

TEST(ModelShapesTest, SchemaByRecursiveMacro) {
  EXPECT_EQ(
      RenderOrError(
          "{%- macro show(s, depth=0) -%}{%- if s.type == 'object' -%}{\n{%- for k, v in "
          "s.properties | dictsort %}\n"
          "{{ '  ' * (depth + 1) }}{{ k }}{{ '' if k in s.get('required', []) else '?' }}: {{ "
          "show(v, depth + 1) }}"
          "{{- ',' if not loop.last }}{%- endfor %}\n{{ '  ' * depth }}}"
          "{%- elif s.type == 'array' -%}{{ show(s['items'], depth) }}[]"
          "{%- elif s.enum is defined -%}{{ s.enum | map('tojson') | join(' | ') }}"
          "{%- else -%}{{ s.type }}{%- endif -%}{%- endmacro -%}{{ show(schema) }}",
          R"({"schema":{"type":"object","required":["b"],"properties":{"b":{"type":"array","items":{"type":"string"}},"a":{"type":"object","properties":{"e":{"enum":["x",1]}}}}}})"),
      "{  a?: {    e?: \"x\" | 1  },  b: string[]}");
}

// --- JSON.

std::string ReadAndPrint(std::string_view json) {
  Arena arena(size_t{64} << 20);
  const base::Result<Value> value = ReadJson(arena, json);
  if (!value.ok()) return value.status().code().name;
  const std::string wrapped = "{\"v\":" + std::string(json) + "}";
  return RenderOrError("{{ v | tojson }}", wrapped);
}

TEST(ReadJsonTest, ReadsAndRefuses) {
  const std::pair<const char*, const char*> kCases[] = {
      {"1", "1"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"1e400", "Infinity"},
      {"1e-400", "0.0"},
      {"1E5", "100000.0"},
      {"9223372036854775807", "9223372036854775807"},
      {"9223372036854775808", "9223372036854775808"},
      {"-123456789012345678901234567890", "-123456789012345678901234567890"},
      {R"("\u00e9\ud83d\ude00\n\/")", R"("é😀\n/")"},
      {R"({"a":1,"b":2,"a":3})", R"({"a": 3, "b": 2})"},
      {" [ 1 , [ ] , { } , null , true , false ] ", "[1, [], {}, null, true, false]"},
      {"01", "json_invalid"},
      {"1.", "json_invalid"},
      {".5", "json_invalid"},
      {"1e", "json_invalid"},
      {"-", "json_invalid"},
      {"+1", "json_invalid"},
      {"[1,]", "json_invalid"},
      {"{\"a\":1,}", "json_invalid"},
      {"{a:1}", "json_invalid"},
      {"[1", "json_invalid"},
      {"\"a", "json_invalid"},
      {"\"\n\"", "json_invalid"},
      {R"("\x")", "json_invalid"},
      {R"("\ud800")", "json_invalid"},
      {R"("\udc00\ud800")", "json_invalid"},
      {R"("\ud800\u0041")", "json_invalid"},
      {R"("\u12")", "json_invalid"},
      {"nul", "json_invalid"},
      {"NaN", "json_invalid"},
      {"", "json_invalid"},
      {"1 2", "json_invalid"},
      {"\"\xff\"", "json_invalid"},
      {"[1 2]", "json_invalid"},
      {"{\"a\" 1}", "json_invalid"},
      {"\\", "json_invalid"},
  };
  for (const auto& [json, expected] : kCases) EXPECT_EQ(ReadAndPrint(json), expected) << json;
  EXPECT_EQ(ReadAndPrint(Repeated("[", 200) + Repeated("]", 200)), "template_limit");
  EXPECT_EQ(ReadAndPrint(Repeated("[", 100'000)), "template_limit");
}

TEST(ReadJsonTest, LargeObjectsAreFound) {
  std::string json = "{\"d\":{";
  for (int i = 0; i < 100; ++i) json += fmt::format("\"k{}\":{},", i % 90, i);
  json += "\"z\":1}}";
  EXPECT_EQ(RenderOrError("{{ d.k0 }} {{ d.k9 }} {{ d.k10 }} {{ d.k89 }} {{ d.z }} {{ d.k90 is "
                          "defined }} {{ d | length }} {{ d | first }}",
                          json),
            "90 99 10 89 1 False 91 k0");
}

TEST(ReadJsonTest, MemoryStaysWithinSixteenBytesAByte) {
  for (const std::string_view item :
       {"0,", "[],", "{},", "\"\",", "\"a\",", "[0],", "{\"\":0},", "\"\\n\",", "[[[[0]]]],"}) {
    const std::string json = "[" + Repeated(item, 400'000) + "0]";
    Arena arena(16 * json.size() + (size_t{4} << 20));
    const base::Result<Value> value = ReadJson(arena, json);
    EXPECT_TRUE(value.ok()) << item << value.status().ToString();
  }
}

}  // namespace
}  // namespace forebay::text::jinja
