// Attributes, items, slices and iteration.
#include <algorithm>

#include "text/jinja/loop.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace forebay::text::jinja {
namespace {

// Attributes that Python has and the immutable sandbox withholds.
bool IsUnsafe(Kind kind, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__") && name.size() > 4) return true;
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (kind == Kind::kList)
    return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (kind == Kind::kDict)
    return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

Value LoopAttribute(const LoopObject& loop, std::string_view name, bool* found) {
  const auto length = static_cast<int64_t>(loop.items.size());
  const auto index = static_cast<int64_t>(loop.index0);
  *found = true;
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem") {
    return index > 0 ? loop.items[loop.index0 - 1]
                     : Value::Undefined(Missing::kOther, "there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? loop.items[loop.index0 + 1]
                              : Value::Undefined(Missing::kOther, "there is no next item");
  }
  *found = false;
  return Value();
}

// What Python's getattr finds; null kind kUndefined with found == false where it raises
// AttributeError.
Value PythonAttribute(Runtime& rt, const Value& v, std::string_view name, bool* found) {
  *found = true;
  if (v.Is(Kind::kLoop)) {
    const Value value = LoopAttribute(v.loop(), name, found);
    if (*found) return value;
    *found = true;
  }
  if (v.Is(Kind::kNamespace)) {
    if (const Value* value = Find(v.ns(), name)) return *value;
  }
  if (v.Is(Kind::kTuple) && v.view() == View::kGroup) {
    if (name == "grouper") return v.items()[0];
    if (name == "list") return v.items()[1];
  }
  if (v.Is(Kind::kCycler) && name == "current") return v.cycler().items[v.cycler().at];
  if (const Builtin* method = FindMethod(v.kind(), name))
    return Value::Method(rt.arena.New(MethodObject{method, v}));
  if (IsUnsafe(v.kind(), name)) return Value::Undefined(Missing::kUnsafe, name, v.kind());
  *found = false;
  return Value();
}

// v[key], or found == false where Python raises TypeError or LookupError.
Value PythonItem(Runtime& rt, const Value& v, const Value& key, bool* found) {
  *found = true;
  if (v.Is(Kind::kDict)) {
    if (const Value* value = Find(v.dict(), key)) return *value;
  } else if ((v.IsArray() && !v.Is(Kind::kDictView)) && IsInteger(key)) {
    const auto size = static_cast<int64_t>(v.items().size());
    const int64_t i = key.integer() < 0 ? key.integer() + size : key.integer();
    if (i >= 0 && i < size) return v.items()[static_cast<size_t>(i)];
  } else if (v.IsString() && IsInteger(key)) {
    const std::string_view text = v.text();
    rt.ChargeBytes(text.size());
    const auto size = static_cast<int64_t>(CountChars(text));
    int64_t i = key.integer() < 0 ? key.integer() + size : key.integer();
    if (i >= 0 && i < size) {
      size_t at = 0;
      for (; i > 0; --i) at += CharLength(text[at]);
      return Substring(rt.arena, v, at, at + CharLength(text[at]));
    }
  }
  *found = false;
  return Value();
}

// Python's slice.indices: the first index and how many follow.
struct Steps {
  int64_t start, count;
};
Steps SliceSteps(int64_t size, const Value& start, const Value& stop, int64_t step) {
  const auto bound = [&](const Value& v, int64_t absent) {
    if (v.Is(Kind::kNone)) return absent;
    if (v.IsUndefined()) FailUndefined(v);
    if (!IsInteger(v))
      FailType("slice indices must be integers or None or have an __index__ method");
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const int64_t i =
        v.integer() < 0 ? std::max<int64_t>(v.integer(), -size - 1) + size : v.integer();
    return std::clamp(i, low, high);
  };
  const int64_t first = bound(start, step > 0 ? 0 : size - 1);
  const int64_t end = bound(stop, step > 0 ? size : -1);
  if (step > 0) return {first, end > first ? (end - first - 1) / step + 1 : 0};
  return {first, first > end ? (first - end - 1) / -step + 1 : 0};
}

}  // namespace

Value GetAttribute(Runtime& rt, const Value& v, const Value& name) {
  if (v.IsUndefined()) FailUndefined(v);
  bool found = false;
  Value value = PythonAttribute(rt, v, name.text(), &found);
  if (!found) value = PythonItem(rt, v, name, &found);
  return found ? value : Value::Undefined(Missing::kAttribute, name.text(), v.kind());
}

Value GetItem(Runtime& rt, const Value& v, const Value& key) {
  if (v.IsUndefined()) FailUndefined(v);
  bool found = false;
  Value value = PythonItem(rt, v, key, &found);
  if (found) return value;
  if (!key.IsString())
    return Value::Undefined(Missing::kElement, ReprString(rt, key).text(), v.kind());
  value = PythonAttribute(rt, v, key.text(), &found);
  return found ? value : Value::Undefined(Missing::kAttribute, key.text(), v.kind());
}

Value Slice(Runtime& rt, const Value& v, const Value& start, const Value& stop,
            const Value& step_value) {
  if (v.IsUndefined()) FailUndefined(v);
  if (!v.IsString() && (!v.IsArray() || v.Is(Kind::kDictView))) {
    FailType("'" + std::string(TypeName(v)) + "' object has no slices");
  }
  int64_t step = 1;
  if (!step_value.Is(Kind::kNone)) {
    if (!IsInteger(step_value))
      FailType("slice indices must be integers or None or have an __index__ method");
    step = std::clamp<int64_t>(step_value.integer(), -int64_t{1} << 40, int64_t{1} << 40);
    if (step == 0) Fail(kTemplateRuntime, "slice step cannot be zero");
  }
  const auto size_of = [&](size_t size) {
    return SliceSteps(static_cast<int64_t>(size), start, stop, step);
  };
  if (!v.IsString()) {
    const Steps steps = size_of(v.items().size());
    if (step == 1) {
      const auto items =
          v.items().subspan(static_cast<size_t>(steps.start), static_cast<size_t>(steps.count));
      return Value::Array(v.kind(), items);
    }
    rt.Charge(static_cast<uint64_t>(steps.count));
    const std::span<Value> items = rt.arena.NewArray<Value>(static_cast<size_t>(steps.count));
    for (size_t i = 0; i < items.size(); ++i) {
      items[i] = v.items()[static_cast<size_t>(steps.start + static_cast<int64_t>(i) * step)];
    }
    return Value::Array(v.kind(), items);
  }
  const std::string_view text = v.text();
  rt.ChargeBytes(text.size());
  if (step == 1 && IsAscii(text)) {
    const Steps steps = size_of(text.size());
    return Substring(rt.arena, v, static_cast<size_t>(steps.start),
                     static_cast<size_t>(steps.start + steps.count));
  }
  rt.ChargeBytes(8 * text.size());
  const std::vector<uint32_t> offsets = CharOffsets(text);
  const Steps steps = size_of(offsets.size() - 1);
  if (step == 1) {
    return Substring(rt.arena, v, offsets[static_cast<size_t>(steps.start)],
                     offsets[static_cast<size_t>(steps.start + steps.count)]);
  }
  rt.Charge(static_cast<uint64_t>(steps.count));
  TextBuilder out(rt);
  for (int64_t i = 0; i < steps.count; ++i) {
    const auto at = static_cast<size_t>(steps.start + i * step);
    out.Append(v, offsets[at], offsets[at + 1]);
  }
  return out.Finish(rt);
}

bool IsIterable(const Value& v) {
  return v.IsUndefined() || v.IsString() || v.IsArray() || v.Is(Kind::kDict) ||
         v.Is(Kind::kIterator) || v.Is(Kind::kLoop);
}

std::span<const Value> Iterate(Runtime& rt, const Value& v) {
  if (v.IsArray()) {
    rt.Charge(v.items().size());
    return v.items();
  }
  if (v.Is(Kind::kDict)) {
    const std::span<const DictEntry> entries = v.dict().entries;
    rt.Charge(entries.size());
    const std::span<Value> keys = rt.arena.NewArray<Value>(entries.size());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = entries[i].key;
    return keys;
  }
  if (v.IsString()) {
    const std::string_view text = v.text();
    const size_t count = CountChars(text);
    rt.Charge(count);
    const std::span<Value> chars = rt.arena.NewArray<Value>(count);
    for (size_t i = 0, at = 0; i < count; ++i) {
      const size_t next = at + CharLength(text[at]);
      chars[i] = Substring(rt.arena, v, at, next);
      at = next;
    }
    return chars;
  }
  if (v.Is(Kind::kIterator)) {
    IteratorObject& it = v.iterator();
    const std::span<const Value> items = it.spent ? std::span<const Value>() : it.items;
    it.spent = true;
    rt.Charge(items.size());
    return items;
  }
  if (v.IsUndefined()) {
    if (v.missing() == Missing::kUnsafe) FailUndefined(v);
    return {};
  }
  FailType("'" + std::string(TypeName(v)) + "' object is not iterable");
}

}  // namespace forebay::text::jinja
