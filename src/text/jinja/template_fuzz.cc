// libFuzzer: the bytes are a template, rendered with a fixed conversation and with limits that keep
// a run short.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/jinja/json_reader.h"
#include "text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forebay::text::jinja;
  const auto parsed = Template::Parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  static constexpr std::string_view kVariables =
      R"({"messages":[{"role":"system","content":"é <b>"},{"role":"user","content":[{"type":"text","text":"x\ny"}]},)"
      R"({"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"n":12345678901234567890,"d":1e-7}}}]}],)"
      R"("tools":[{"type":"function"}],"n":3,"f":2.5,"t":true})";
  Limits limits;
  limits.steps = 50'000;
  limits.memory_bytes = size_t{8} << 20;
  limits.output_bytes = size_t{1} << 20;
  Arena arena(limits.memory_bytes);
  const auto variables = ReadJson(arena, kVariables);
  std::vector<Binding> bindings;
  for (const DictEntry& entry : variables->dict().entries)
    bindings.push_back({entry.key.text(), entry.value});
  const auto rendered = parsed->Render(arena, bindings, {}, limits);
  if (!rendered.ok()) return 0;
  for (size_t i = 0; i < rendered->flips.size(); ++i) {
    FB_CHECK(rendered->flips[i] < rendered->text.size() &&
                 (i == 0 || rendered->flips[i - 1] < rendered->flips[i]),
             "origin {} of {} is out of order", i, rendered->flips.size());
  }
  parsed->IteratesContent();
  return 0;
}
