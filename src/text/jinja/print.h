// How values become text: Python's str and repr, and json.dumps.
#pragma once

#include <string>

#include "text/jinja/text_builder.h"

namespace forebay::text::jinja {

// str(v), appended or as a string value.
void Print(Runtime& rt, const Value& v, TextBuilder* out);
Value ToString(Runtime& rt, const Value& v);
// repr(v).
void PrintRepr(Runtime& rt, const Value& v, TextBuilder* out, int depth = 0);
Value ReprString(Runtime& rt, const Value& v);
// repr of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
std::string FormatFloat(double value);

struct JsonStyle {
  bool indented = false;
  std::string indent;  // the indent of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
void PrintJson(Runtime& rt, const Value& v, const JsonStyle& style, TextBuilder* out);

}  // namespace forebay::text::jinja
