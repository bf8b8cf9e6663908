// The tables of built-in names.
#pragma once

#include <span>

#include "text/jinja/runtime.h"

namespace forebay::text::jinja {

inline const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

// str.isupper and str.islower: a cased character, and none of the other case.
bool IsCase(std::string_view text, bool upper);
template <bool upper>
Value IsCaseMethod(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("isupper", args, {});
  rt.ChargeBytes(8 * self.text().size());
  return Value::Bool(IsCase(self.text(), upper));
}

std::span<const Builtin> TextFilters();
std::span<const Builtin> ListFilters();

// Follows a path such as "function.name" or 0 from an item, as `attribute=` arguments do.
Value FollowPath(Runtime& rt, const Value& item, const Value& path);

}  // namespace forebay::text::jinja
