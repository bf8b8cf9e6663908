// A chat template: Jinja as transformers runs it (trim_blocks, lstrip_blocks, the immutable
// sandbox, loop controls, {% generation %}, tojson without HTML escapes), in the subset that chat
// templates use.
//
// What is left out: include, import, extends and block; arithmetic beyond 64-bit integers; Markup
// (`safe` and `escape` return plain text); filters that are random or for HTML pages. They fail,
// they are not ignored.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/runtime.h"

namespace forebay::text::jinja {

struct Program;

struct Binding {
  std::string_view name;
  Value value;
};

struct Rendered {
  std::string text;
  // The byte offsets at which the origin changes, rising; the text starts as the template's own.
  std::vector<uint32_t> flips;
};

class Template {
 public:
  // Errors: kTemplateSyntax, with the line; kTemplateLimit.
  static base::Result<Template> Parse(std::string_view source);
  Template(Template&&);
  Template& operator=(Template&&);
  ~Template();

  // Threads may render one template at once. `arena` holds what the bindings refer to and takes
  // what the render makes; its limit bounds the memory. Errors: kTemplateRaised with the template's
  // own message; kTemplateRuntime, kTemplateSecurity and kTemplateLimit with the line.
  base::Result<Rendered> Render(Arena& arena, std::span<const Binding> bindings, const std::tm& now,
                                const Limits& limits = {}) const;

  // Filters and tests that it names and nobody knows: "filter 'x'".
  const std::vector<std::string>& missing() const;
  // True if the template mentions the name anywhere.
  bool Uses(std::string_view name) const;
  // True if it loops over a message's content, so that content may stay a list of parts.
  bool IteratesContent() const;

 private:
  explicit Template(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

}  // namespace forebay::text::jinja
