// Expressions.
#include <fmt/core.h>

#include <array>
#include <utility>

#include "text/jinja/interpreter.h"
#include "text/jinja/print.h"

namespace forebay::text::jinja {

Value Interpreter::Eval(const Expr& e) {
  const Depth depth(this);
  switch (e.kind) {
    case ExprKind::kConst: return e.constant;
    case ExprKind::kName: return Lookup(e.name);
    case ExprKind::kList: return EvalArray(e, Kind::kList);
    case ExprKind::kTuple: return EvalArray(e, Kind::kTuple);
    case ExprKind::kDict: return EvalDict(e);
    case ExprKind::kAttribute: return GetAttribute(rt_, Eval(*e.a), e.constant);
    case ExprKind::kItem: {
      const Value object = Eval(*e.a);
      return GetItem(rt_, object, Eval(*e.b));
    }
    case ExprKind::kSlice: return EvalSlice(e);
    case ExprKind::kCall: return EvalCall(e, Value());
    case ExprKind::kFilter: return EvalBuiltin(e, "filter");
    case ExprKind::kTest: return EvalBuiltin(e, "test");
    case ExprKind::kNot: return Value::Bool(!Truth(Eval(*e.a)));
    case ExprKind::kNegate: return Negate(Eval(*e.a));
    case ExprKind::kPositive: {
      const Value v = Eval(*e.a);
      if (!IsNumber(v)) return Negate(v);  // fails with the right words
      return v.Is(Kind::kBool) ? Value::Int(v.integer()) : v;
    }
    case ExprKind::kAnd: {
      const Value left = Eval(*e.a);
      return Truth(left) ? Eval(*e.b) : left;
    }
    case ExprKind::kOr: {
      const Value left = Eval(*e.a);
      return Truth(left) ? left : Eval(*e.b);
    }
    case ExprKind::kCondition:
      if (Truth(Eval(*e.b))) return Eval(*e.a);
      if (e.c != nullptr) return Eval(*e.c);
      return Value::Undefined(Missing::kOther,
                              "the inline if-expression evaluated to false and no else is defined");
    case ExprKind::kCompare: return EvalCompare(e);
    case ExprKind::kBinary: return EvalSum(e);
    case ExprKind::kConcat: return EvalConcat(e);
  }
  return Value();
}

// a + b + c + ... leans left; it is walked without recursion, and runs of text are joined once.
Value Interpreter::EvalSum(const Expr& e) {
  static constexpr size_t kMost = 32;
  std::array<const Expr*, kMost> chain;
  size_t size = 0;
  const Expr* first = &e;
  while (size < kMost && first->kind == ExprKind::kBinary && first->op == BinaryOp::kAdd) {
    chain[size++] = first;
    first = first->a;
  }
  if (size < 2) {
    const Value left = Eval(*e.a);
    return Binary(rt_, e.op, left, Eval(*e.b));
  }
  Value sum = Eval(*first);
  while (size > 0) {
    Value next = Eval(*chain[--size]->b);
    if (!sum.IsString() || !next.IsString() || size == 0) {
      sum = Binary(rt_, BinaryOp::kAdd, sum, next);
      continue;
    }
    TextBuilder text(rt_);
    text.Append(sum);
    text.Append(next);
    bool all_text = true;
    while (size > 0 && all_text) {
      next = Eval(*chain[--size]->b);
      all_text = next.IsString();
      if (all_text) text.Append(next);
    }
    sum = text.Finish(rt_);
    if (!all_text) sum = Binary(rt_, BinaryOp::kAdd, sum, next);
  }
  return sum;
}

Value Interpreter::EvalCompare(const Expr& e) {
  Value left = Eval(*e.items[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Value right = Eval(*e.items[i + 1]);
    if (!Compare(rt_, e.ops[i], left, right)) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Value Interpreter::EvalArray(const Expr& e, Kind kind) {
  const std::span<Value> items = rt_.arena.NewArray<Value>(e.items.size());
  for (size_t i = 0; i < items.size(); ++i) items[i] = Eval(*e.items[i]);
  return Value::Array(kind, items);
}

Value Interpreter::EvalDict(const Expr& e) {
  const std::span<DictEntry> entries = rt_.arena.NewArray<DictEntry>(e.items.size() / 2);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Value key = Eval(*e.items[2 * i]);
    if (key.Is(Kind::kList) || key.Is(Kind::kDict))
      FailType(fmt::format("unhashable type: '{}'", TypeName(key)));
    entries[i] = {key, Eval(*e.items[2 * i + 1])};
  }
  rt_.Charge(entries.size());
  return MakeDict(rt_.arena, entries);
}

Value Interpreter::EvalConcat(const Expr& e) {
  TextBuilder text(rt_);
  for (const Expr* item : e.items) Print(rt_, Eval(*item), &text);
  return text.Finish(rt_);
}

Value Interpreter::EvalSlice(const Expr& e) {
  const Value object = Eval(*e.a);
  Value bounds[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (e.items[i] != nullptr) bounds[i] = Eval(*e.items[i]);
  }
  return Slice(rt_, object, bounds[0], bounds[1], bounds[2]);
}

Arguments Interpreter::EvalArguments(const CallArguments& arguments) {
  const std::span<const Value> star =
      arguments.star != nullptr ? Iterate(rt_, Eval(*arguments.star)) : std::span<const Value>();
  const std::span<Value> positional =
      rt_.arena.NewArray<Value>(arguments.positional.size() + star.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    positional[i] = Eval(*arguments.positional[i]);
  std::copy(star.begin(), star.end(),
            positional.begin() + static_cast<ptrdiff_t>(arguments.positional.size()));
  std::span<const DictEntry> more;
  if (arguments.double_star != nullptr) {
    const Value dict = Eval(*arguments.double_star);
    if (!dict.Is(Kind::kDict))
      FailType(fmt::format("argument after ** must be a mapping, not {}", TypeName(dict)));
    more = dict.dict().entries;
    for (const DictEntry& entry : more) {
      if (!entry.key.IsString()) FailType("keywords must be strings");
    }
  }
  const std::span<DictEntry> named =
      rt_.arena.NewArray<DictEntry>(arguments.named.size() + more.size());
  for (size_t i = 0; i < arguments.named.size(); ++i)
    named[i] = {arguments.named[i].name, Eval(*arguments.named[i].value)};
  std::copy(more.begin(), more.end(),
            named.begin() + static_cast<ptrdiff_t>(arguments.named.size()));
  rt_.Charge(positional.size() + named.size());
  return {positional, named, Value()};
}

Value Interpreter::EvalBuiltin(const Expr& e, std::string_view what) {
  const Value subject = e.a != nullptr ? Eval(*e.a) : captured_;
  const Arguments args = e.arguments != nullptr ? EvalArguments(*e.arguments) : Arguments();
  if (e.builtin == nullptr)
    Fail(kTemplateRuntime, fmt::format("no {} named '{}'", what, e.constant.text()));
  return e.builtin->call(rt_, subject, args);
}

Value Interpreter::EvalCall(const Expr& e, const Value& caller) {
  const Value callee = Eval(*e.a);
  Arguments args = EvalArguments(*e.arguments);
  args.caller = caller;
  return Call(callee, args);
}

Value Interpreter::Call(const Value& callee, const Arguments& args) {
  switch (callee.kind()) {
    case Kind::kFunction: return callee.function().call(rt_, Value(), args);
    case Kind::kMethod: return callee.method().builtin->call(rt_, callee.method().self, args);
    case Kind::kMacro: return CallMacro(callee.macro(), args);
    case Kind::kLoop: return CallLoop(callee.loop(), args);
    case Kind::kJoiner: {
      const Parameters p("joiner", args, {});
      JoinerObject& joiner = callee.joiner();
      return std::exchange(joiner.called, true) ? joiner.separator : Value::String("");
    }
    case Kind::kUndefined: FailUndefined(callee);
    default: FailType(fmt::format("'{}' object is not callable", TypeName(callee)));
  }
}

}  // namespace forebay::text::jinja
