// The `loop` variable of a for statement.
#pragma once

#include "text/jinja/value.h"

namespace forebay::text::jinja {

struct Statement;
struct Frame;

struct LoopObject {
  std::span<const Value> items;
  size_t index0 = 0;
  int depth0 = 0;
  Value last_changed;  // the argument tuple of the last call of loop.changed
  bool asked_changed = false;
  const Statement* statement = nullptr;  // set in a recursive loop, which can be called
  Frame* frame = nullptr;
};

}  // namespace forebay::text::jinja
