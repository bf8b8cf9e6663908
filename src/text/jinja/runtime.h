// What every built-in needs while a template renders: memory, a step budget, the clock.
#pragma once

#include <cstdint>
#include <ctime>

#include "text/jinja/value.h"

namespace forebay::text::jinja {

// Bounds on one render. A step is about 50 ns: a node evaluated, an item made, 32 bytes copied or
// searched.
struct Limits {
  uint64_t steps = 50'000'000;
  size_t memory_bytes = size_t{256} << 20;
  size_t output_bytes = size_t{64} << 20;
  // Nested statements, expressions and macro calls; a level takes up to 500 bytes of stack.
  int depth = 600;
};

inline constexpr int kMaxValueDepth = 200;  // lists and dicts nest so deep, wherever one recurses
inline constexpr int64_t kMaxRange = 100'000;

class Runtime {
 public:
  Runtime(Arena& arena, const Limits& limits, const std::tm& now)
      : arena(arena), limits(limits), now(now), steps_left_(limits.steps) {}

  void Charge(uint64_t steps) {
    if (steps > steps_left_)
      Fail(kTemplateLimit,
           "rendering takes too long: more than " + std::to_string(limits.steps) + " steps");
    steps_left_ -= steps;
  }
  void ChargeBytes(size_t bytes) { Charge(bytes / 32); }

  // Copies `text`; a mixed origin counts as the request's.
  Value NewString(std::string_view text, Origin origin = Origin::kTemplate) {
    ChargeBytes(text.size());
    return Value::String(arena.Copy(text), origin == Origin::kTemplate ? origin : Origin::kRequest);
  }
  Value NewArray(Kind kind, std::span<const Value> items) {
    Charge(items.size());
    return Value::Array(kind, arena.CopyArray(items));
  }
  Value NewIterator(std::span<const Value> items) {
    Charge(items.size());
    return Value::Iterator(arena.New(IteratorObject{arena.CopyArray(items)}));
  }

  Arena& arena;
  const Limits limits;
  const std::tm now;

 private:
  uint64_t steps_left_;
};

// A named thing that templates call: a filter, a test, a global function, a method. Filters and
// tests find what they are applied to in `self`, methods their object; functions ignore it.
struct Builtin {
  std::string_view name;
  Value (*call)(Runtime& rt, const Value& self, const Arguments& args);
};

struct MethodObject {
  const Builtin* builtin;
  Value self;
};

// Null where there is none of that name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
const Builtin* FindStringMethod(std::string_view name);
const Builtin* FindMethod(Kind kind, std::string_view name);

// Binds arguments to parameters, by position or name; what is not given is null.
class Parameters {
 public:
  // Fails unless every argument finds a place. Null names are positional only.
  Parameters(std::string_view function, const Arguments& args,
             std::initializer_list<const char*> names);

  const Value* operator[](size_t i) const { return found_[i]; }
  // The argument, or an error that names the parameter.
  const Value& Required(size_t i) const;
  int64_t Integer(size_t i, int64_t fallback) const;
  bool Truthy(size_t i, bool fallback) const;

 private:
  static constexpr size_t kMost = 6;
  std::string_view function_;
  const char* names_[kMost] = {};
  const Value* found_[kMost] = {};
};

}  // namespace forebay::text::jinja
