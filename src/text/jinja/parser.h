// Template text to Program.
#pragma once

#include <memory>
#include <string>

#include "text/jinja/ast.h"

namespace forebay::text::jinja {

inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

base::Result<std::unique_ptr<const Program>> ParseTemplate(std::string_view source);

}  // namespace forebay::text::jinja
