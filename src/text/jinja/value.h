// The values of the template language: Python's, as far as chat templates see them. A Value is 16
// bytes, copied freely, immutable but for namespaces and iterators, and valid as long as the arena
// behind it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "text/jinja/arena.h"

namespace forebay::text::jinja {

struct DictObject;
struct NamespaceObject;
struct IteratorObject;
struct MethodObject;
struct MacroObject;
struct LoopObject;
struct JoinerObject;
struct CyclerObject;
struct Builtin;
struct MixedString;

enum class Kind : uint8_t {
  kUndefined,  // holds what was looked up, for the error message
  kNone,
  kBool,
  kInt,
  kBigInt,  // an integer beyond 64 bits: its decimal digits, for printing and comparing only
  kFloat,
  kString,
  kList,
  kTuple,
  kRange,
  kDictView,  // dict.keys(), .values(), .items()
  kDict,
  kIterator,  // what map, select, reverse, ... return: read once
  kNamespace,
  kFunction,
  kMethod,
  kMacro,
  kLoop,
  kJoiner,
  kCycler,
};

// Who wrote a character: the template and the operator, or the request.
enum class Origin : uint8_t { kTemplate, kRequest, kMixed };

// Why an undefined value is undefined.
enum class Missing : uint8_t { kName, kAttribute, kElement, kParameter, kUnsafe, kOther };

// Which of a dict's three views; of a tuple, that it is a pair of groupby, whose items have names.
enum class View : uint8_t { kItems, kKeys, kValues, kGroup };

class Value {
 public:
  constexpr Value()
      : kind_(Kind::kUndefined), tag_(static_cast<uint8_t>(Missing::kOther)), chars_("") {}

  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value) { return Int(Kind::kBool, value); }
  static Value Int(int64_t value) { return Int(Kind::kInt, value); }
  static Value Float(double value) {
    Value v(Kind::kFloat);
    v.float_ = value;
    return v;
  }
  // `digits` as in JSON, without leading zeros; must outlive the value.
  static Value BigInt(std::string_view digits) { return Chars(Kind::kBigInt, 0, digits); }
  // Borrows `text`, which is UTF-8. REQUIRES: origin is not kMixed.
  static Value String(std::string_view text, Origin origin = Origin::kTemplate) {
    return Chars(Kind::kString, static_cast<uint8_t>(origin), text);
  }
  static Value String(const MixedString* mixed, uint32_t size) {
    Value v = Pointer(Kind::kString, mixed);
    v.tag_ = static_cast<uint8_t>(Origin::kMixed);
    v.size_ = size;
    return v;
  }
  // `name` is what was looked up in an object of kind `owner`. Borrows `name`.
  static Value Undefined(Missing why, std::string_view name, Kind owner = Kind::kNone) {
    Value v = Chars(Kind::kUndefined, static_cast<uint8_t>(why), name);
    v.owner_ = owner;
    return v;
  }
  // REQUIRES: kind is kList, kTuple, kRange or kDictView. Borrows `items`. `view` is for dict
  // views and pairs of groupby.
  static Value Array(Kind kind, std::span<const Value> items, View view = View::kItems) {
    Value v(kind);
    v.tag_ = static_cast<uint8_t>(view);
    v.size_ = static_cast<uint32_t>(items.size());
    v.items_ = items.data();
    return v;
  }
  static Value Dict(const DictObject* dict) { return Pointer(Kind::kDict, dict); }
  static Value Iterator(IteratorObject* it) { return Pointer(Kind::kIterator, it); }
  static Value Namespace(NamespaceObject* ns) { return Pointer(Kind::kNamespace, ns); }
  static Value Function(const Builtin* function) { return Pointer(Kind::kFunction, function); }
  static Value Method(const MethodObject* method) { return Pointer(Kind::kMethod, method); }
  static Value Macro(const MacroObject* macro) { return Pointer(Kind::kMacro, macro); }
  static Value Loop(LoopObject* loop) { return Pointer(Kind::kLoop, loop); }
  static Value Joiner(JoinerObject* joiner) { return Pointer(Kind::kJoiner, joiner); }
  static Value Cycler(CyclerObject* cycler) { return Pointer(Kind::kCycler, cycler); }

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  // Kinds whose items() can be read.
  bool IsArray() const { return kind_ >= Kind::kList && kind_ <= Kind::kDictView; }

  bool boolean() const { return int_ != 0; }
  int64_t integer() const { return int_; }  // a bool has one too
  double number() const { return float_; }
  // The text of a string or a big integer; for an undefined value, the name looked up.
  std::string_view text() const;
  Origin origin() const { return static_cast<Origin>(tag_); }
  const MixedString* mixed() const { return static_cast<const MixedString*>(pointer_); }
  View view() const { return static_cast<View>(tag_); }
  Missing missing() const { return static_cast<Missing>(tag_); }
  Kind owner() const { return owner_; }
  std::span<const Value> items() const { return {items_, size_}; }
  const DictObject& dict() const { return *static_cast<const DictObject*>(pointer_); }
  IteratorObject& iterator() const {
    return *static_cast<IteratorObject*>(const_cast<void*>(pointer_));
  }
  NamespaceObject& ns() const {
    return *static_cast<NamespaceObject*>(const_cast<void*>(pointer_));
  }
  const Builtin& function() const { return *static_cast<const Builtin*>(pointer_); }
  const MethodObject& method() const { return *static_cast<const MethodObject*>(pointer_); }
  const MacroObject& macro() const { return *static_cast<const MacroObject*>(pointer_); }
  LoopObject& loop() const { return *static_cast<LoopObject*>(const_cast<void*>(pointer_)); }
  JoinerObject& joiner() const { return *static_cast<JoinerObject*>(const_cast<void*>(pointer_)); }
  CyclerObject& cycler() const { return *static_cast<CyclerObject*>(const_cast<void*>(pointer_)); }
  const void* identity() const { return pointer_; }

 private:
  constexpr explicit Value(Kind kind) : kind_(kind), int_(0) {}
  static Value Int(Kind kind, int64_t value) {
    Value v(kind);
    v.int_ = value;
    return v;
  }
  static Value Chars(Kind kind, uint8_t tag, std::string_view text) {
    Value v(kind);
    v.tag_ = tag;
    v.size_ = static_cast<uint32_t>(text.size());
    v.chars_ = text.data();
    return v;
  }
  static Value Pointer(Kind kind, const void* pointer) {
    Value v(kind);
    v.pointer_ = pointer;
    return v;
  }

  Kind kind_;
  uint8_t tag_ = 0;
  Kind owner_ = Kind::kNone;
  uint32_t size_ = 0;
  union {
    int64_t int_;
    double float_;
    const char* chars_;
    const Value* items_;
    const void* pointer_;
  };
};
static_assert(sizeof(Value) == 16);

// A string of both origins: it starts as the template's, and changes over at each flip (a byte
// offset; rising).
struct MixedString {
  const char* chars;
  std::span<const uint32_t> flips;
};

inline std::string_view Value::text() const {
  if (kind_ == Kind::kString && origin() == Origin::kMixed) return {mixed()->chars, size_};
  return {chars_, size_};
}

struct DictEntry {
  Value key, value;
};

// In insertion order. `by_key` lists the entries in the order of their keys; empty for small ones.
struct DictObject {
  std::span<const DictEntry> entries;
  std::span<const uint32_t> by_key;
};

// Later duplicates of a key replace the value of the first one, as in Python. Takes over `entries`.
Value MakeDict(Arena& arena, std::span<DictEntry> entries);
// The value at a key, or null. Any hashable key; others are simply not there.
const Value* Find(const DictObject& dict, const Value& key);
const Value* Find(const DictObject& dict, std::string_view key);

struct NamespaceObject {
  std::span<DictEntry> entries;  // the first `size` are in use
  size_t size = 0;
};
const Value* Find(const NamespaceObject& ns, std::string_view name);
void Assign(Arena& arena, NamespaceObject& ns, const Value& name, const Value& value);

struct IteratorObject {
  std::span<const Value> items;
  bool spent = false;
};

// joiner(separator): nothing when it is called first, then the separator.
struct JoinerObject {
  Value separator;
  bool called = false;
};

// cycler(items...): one after the other, from the first again.
struct CyclerObject {
  std::span<const Value> items;
  size_t at = 0;
};

struct Arguments {
  std::span<const Value> positional;
  std::span<const DictEntry> named;  // keys are strings
  Value caller;                      // the macro that a call block passes, or undefined
};

// The name that Python's error messages use, "str" or "jinja2.utils.Namespace".
std::string_view TypeName(const Value& value);
std::string_view TypeName(Kind kind);

}  // namespace forebay::text::jinja
