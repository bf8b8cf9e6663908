// What may follow `is`.
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace forebay::text::jinja {
namespace {

template <bool (*holds)(const Value&)>
Value KindTest(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("a test", args, {});
  return Value::Bool(holds(self));
}

template <CompareOp op>
Value CompareTest(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("a comparison", args, {nullptr});
  return Value::Bool(Compare(rt, op, self, p.Required(0)));
}

bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsMissing(const Value& v) { return v.IsUndefined(); }
bool IsNone(const Value& v) { return v.Is(Kind::kNone); }
bool IsBool(const Value& v) { return v.Is(Kind::kBool); }
bool IsTrue(const Value& v) { return v.Is(Kind::kBool) && v.boolean(); }
bool IsFalse(const Value& v) { return v.Is(Kind::kBool) && !v.boolean(); }
bool IsInt(const Value& v) { return v.Is(Kind::kInt) || v.Is(Kind::kBigInt); }
bool IsFloat(const Value& v) { return v.Is(Kind::kFloat); }
bool IsText(const Value& v) { return v.IsString(); }
bool IsMapping(const Value& v) { return v.Is(Kind::kDict); }
bool IsSequence(const Value& v) {
  return v.IsUndefined() || v.IsString() || v.Is(Kind::kDict) ||
         (v.IsArray() && !v.Is(Kind::kDictView));
}
bool IsCallable(const Value& v) {
  return v.Is(Kind::kFunction) || v.Is(Kind::kMethod) || v.Is(Kind::kMacro) || v.Is(Kind::kLoop) ||
         v.Is(Kind::kJoiner) || v.IsUndefined();
}
bool Never(const Value&) { return false; }

Value SameTest(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("sameas", args, {nullptr});
  const Value& other = p.Required(0);
  if (self.kind() != other.kind()) return Value::Bool(false);
  const bool is_plain = IsNumber(self) || self.IsString() || IsNone(self);
  if (is_plain) return Value::Bool(Equals(self, other, &rt));
  if (self.IsArray()) return Value::Bool(self.items().data() == other.items().data());
  return Value::Bool(self.identity() == other.identity());
}

template <int remainder>
Value ParityTest(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("odd or even", args, {});
  const Value rest = Binary(rt, BinaryOp::kMod, self, Value::Int(2));
  return Value::Bool(Equals(rest, Value::Int(remainder)));
}

Value DivisibleTest(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("divisibleby", args, {"num"});
  return Value::Bool(Equals(Binary(rt, BinaryOp::kMod, self, p.Required(0)), Value::Int(0)));
}

template <bool upper>
Value CaseTest(Runtime& rt, const Value& self, const Arguments& args) {
  return IsCaseMethod<upper>(rt, ToString(rt, self), args);
}

template <const Builtin* (*find)(std::string_view)>
Value NameTest(Runtime& rt, const Value& self, const Arguments& args) {
  const Parameters p("a test for names", args, {});
  return Value::Bool(self.IsString() && find(self.text()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"!=", CompareTest<CompareOp::kNe>},
    {"<", CompareTest<CompareOp::kLt>},
    {"<=", CompareTest<CompareOp::kLe>},
    {"==", CompareTest<CompareOp::kEq>},
    {">", CompareTest<CompareOp::kGt>},
    {">=", CompareTest<CompareOp::kGe>},
    {"boolean", KindTest<IsBool>},
    {"callable", KindTest<IsCallable>},
    {"defined", KindTest<IsDefined>},
    {"divisibleby", DivisibleTest},
    {"eq", CompareTest<CompareOp::kEq>},
    {"equalto", CompareTest<CompareOp::kEq>},
    {"escaped", KindTest<Never>},
    {"even", ParityTest<0>},
    {"false", KindTest<IsFalse>},
    {"filter", NameTest<FindFilter>},
    {"float", KindTest<IsFloat>},
    {"ge", CompareTest<CompareOp::kGe>},
    {"greaterthan", CompareTest<CompareOp::kGt>},
    {"gt", CompareTest<CompareOp::kGt>},
    {"in", CompareTest<CompareOp::kIn>},
    {"integer", KindTest<IsInt>},
    {"iterable", KindTest<IsIterable>},
    {"le", CompareTest<CompareOp::kLe>},
    {"lessthan", CompareTest<CompareOp::kLt>},
    {"lower", CaseTest<false>},
    {"lt", CompareTest<CompareOp::kLt>},
    {"mapping", KindTest<IsMapping>},
    {"ne", CompareTest<CompareOp::kNe>},
    {"none", KindTest<IsNone>},
    {"number", KindTest<IsNumber>},
    {"odd", ParityTest<1>},
    {"sameas", SameTest},
    {"sequence", KindTest<IsSequence>},
    {"string", KindTest<IsText>},
    {"test", NameTest<FindTest>},
    {"true", KindTest<IsTrue>},
    {"undefined", KindTest<IsMissing>},
    {"upper", CaseTest<true>},
};

}  // namespace

const Builtin* FindTest(std::string_view name) { return FindIn(kTests, name); }

}  // namespace forebay::text::jinja
