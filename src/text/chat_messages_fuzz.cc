// libFuzzer: the bytes are a request's messages, rendered by a template that uses most of what
// templates use.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forebay::text;
  static const auto* chat = new forebay::base::Result<ChatTemplate>(ChatTemplate::Create(
      "{% for m in messages %}{{ '<' ~ m.role ~ '>' }}{% if m.content is string %}{{ m.content | "
      "trim | replace('a', 'bb') }}"
      "{{ m.content[1:-1:2] }}{{ m.content.split('x') | join('|') }}{{ m.content | title }}{{ "
      "m.content | indent }}"
      "{% elif m.content %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{{ m | "
      "tojson(indent=1, sort_keys=true) }}{{ m }}"
      "{% for k, v in m | dictsort %}{{ k ~ v }}{% endfor %}{{ m == messages[0] }}{% endfor %}",
      {}));
  static const auto* texts = new forebay::base::Result<ChatTemplate>(ChatTemplate::Create(
      "{% for m in messages %}{% for t in m.tool_calls %}{{ 'call ' + t.function.arguments }}{% "
      "endfor %}{% endfor %}",
      {}));
  ChatInput input;
  input.messages_json = {reinterpret_cast<const char*>(data), size};
  for (const MessageStyle style : {MessageStyle::kOpenAi, MessageStyle::kAsGiven}) {
    for (const bool open : {false, true}) {
      input.style = style;
      input.continue_final_message = open;
      (void)(*texts)->Render(input);
      const auto rendered = (*chat)->Render(input);
      if (!rendered.ok()) continue;
      size_t next = 0;
      for (const RenderedSegment& s : rendered->segments) {
        FB_CHECK(s.offset == next && s.length > 0, "segment at {} does not follow {}", s.offset,
                 next);
        next += s.length;
      }
      FB_CHECK(next == rendered->text.size(), "segments cover {} of {} bytes", next,
               rendered->text.size());
    }
  }
  return 0;
}
