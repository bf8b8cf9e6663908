// Error codes of the template engine, and how they travel inside it.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace forebay::text::jinja {

// The template's text is not in our subset of Jinja; the message gives the line.
inline constexpr base::ErrorCode kTemplateSyntax{"template_syntax"};
// The template called raise_exception; the message is exactly its argument.
inline constexpr base::ErrorCode kTemplateRaised{"template_raised"};
// An operation that Python would refuse too: an undefined value used, wrong types, a division by
// zero.
inline constexpr base::ErrorCode kTemplateRuntime{"template_runtime"};
// An attribute that the sandbox keeps from templates, list.append for one.
inline constexpr base::ErrorCode kTemplateSecurity{"template_security"};
// A bound on steps, memory, output, nesting or integers was met.
inline constexpr base::ErrorCode kTemplateLimit{"template_limit"};

// Thrown inside the engine only; Template::Parse, Template::Render and ReadJson catch it and return
// the Status.
struct Failure {
  base::Status status;
};

[[noreturn]] inline void Fail(base::ErrorCode code, std::string message) {
  throw Failure{base::Status(code, std::move(message))};
}

}  // namespace forebay::text::jinja
