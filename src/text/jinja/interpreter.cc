#include "text/jinja/interpreter.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/print.h"

namespace forebay::text::jinja {

class Interpreter::Scope {
 public:
  Scope(Interpreter* interpreter, Frame* parent)
      : interpreter_(interpreter), outer_(interpreter->frame_) {
    interpreter_->frame_ = interpreter_->rt_.arena.New(Frame{parent});
  }
  ~Scope() { interpreter_->frame_ = outer_; }
  // Forgets the variables, for the next turn of a loop.
  void Renew() {
    Frame*& frame = interpreter_->frame_;
    if (frame->captured) frame = interpreter_->rt_.arena.New(Frame{frame->parent});
    frame->size = 0;
  }

 private:
  Interpreter* interpreter_;
  Frame* outer_;
};

void Interpreter::FailDepth() const {
  Fail(kTemplateLimit, "tags, expressions or macro calls are nested too deeply");
}

void Interpreter::Bind(std::string_view name, const Value& value) {
  if (root_.empty()) {
    root_ = rt_.arena.NewArray<Value>(program_.initial.size());
    std::copy(program_.initial.begin(), program_.initial.end(), root_.begin());
  }
  const auto it = std::find(program_.names.begin(), program_.names.end(), name);
  if (it != program_.names.end()) root_[static_cast<size_t>(it - program_.names.begin())] = value;
}

void Interpreter::Run() {
  Bind("", Value());
  // self.name() is the block again.
  NamespaceObject* self = rt_.arena.New(NamespaceObject{});
  for (const Statement* block : program_.blocks) {
    const MacroObject* macro = rt_.arena.New(MacroObject{block, nullptr});
    jinja::Assign(rt_.arena, *self, block->text, Value::Macro(macro));
  }
  Bind("self", Value::Namespace(self));
  ExecBody(program_.body);
}

Value Interpreter::Lookup(int32_t name) const {
  for (const Frame* frame = frame_; frame != nullptr; frame = frame->parent) {
    for (const Variable& variable : frame->variables.first(frame->size)) {
      if (variable.name == name) return variable.value;
    }
  }
  return root_[static_cast<size_t>(name)];
}

void Interpreter::Assign(int32_t name, const Value& value) {
  if (frame_ == nullptr) {
    root_[static_cast<size_t>(name)] = value;
    return;
  }
  for (Variable& variable : frame_->variables.first(frame_->size)) {
    if (variable.name == name) {
      variable.value = value;
      return;
    }
  }
  if (frame_->size == frame_->variables.size()) {
    const std::span<Variable> grown =
        rt_.arena.NewArray<Variable>(std::max<size_t>(4, 2 * frame_->size));
    std::copy(frame_->variables.begin(), frame_->variables.end(), grown.begin());
    frame_->variables = grown;
  }
  frame_->variables[frame_->size++] = {name, value};
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.items.empty()) {
    const std::span<const Value> items = Iterate(rt_, value);
    if (items.size() < target.items.size()) {
      FailType(fmt::format("not enough values to unpack (expected {}, got {})", target.items.size(),
                           items.size()));
    }
    if (items.size() > target.items.size()) {
      FailType(fmt::format("too many values to unpack (expected {})", target.items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(*target.items[i], items[i]);
  } else if (target.attribute.IsString()) {
    const Value ns = Lookup(target.name);
    if (!ns.Is(Kind::kNamespace)) FailType("cannot assign attribute on non-namespace object");
    rt_.Charge(1 + ns.ns().size / 8);
    jinja::Assign(rt_.arena, ns.ns(), target.attribute, value);
  } else {
    Assign(target.name, value);
  }
}

Interpreter::Flow Interpreter::ExecBody(Body body) {
  for (const Statement* statement : body) {
    const Flow flow = Exec(*statement);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::Exec(const Statement& s) {
  const Depth depth(this);
  line_ = s.line;
  switch (s.kind) {
    case StatementKind::kText: out_.Append(s.text.text()); break;
    case StatementKind::kOutput: ExecOutput(*s.expr); break;
    case StatementKind::kIf: return ExecIf(s);
    case StatementKind::kFor: ExecFor(s, Eval(*s.expr), 0); break;
    case StatementKind::kSet: Assign(*s.target, Eval(*s.expr)); break;
    case StatementKind::kSetBlock: {
      Value text = Capture(s.body);
      if (s.filter != nullptr) {
        captured_ = text;
        text = Eval(*s.filter);
      }
      Assign(*s.target, text);
      break;
    }
    case StatementKind::kMacro: Assign(s.name, Value::Macro(NewMacro(s))); break;
    case StatementKind::kCallBlock: ExecCallBlock(s); break;
    case StatementKind::kFilterBlock: {
      captured_ = Capture(s.body);
      Print(rt_, Eval(*s.filter), &out_);
      break;
    }
    case StatementKind::kWith: ExecWith(s); break;
    case StatementKind::kScope: {
      const Scope scope(this, frame_);
      return ExecBody(s.body);
    }
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Interpreter::ExecOutput(const Expr& expr) {
  const Value value = Eval(expr);
  if (value.IsUndefined() && value.missing() == Missing::kUnsafe) return;
  Print(rt_, value, &out_);
}

Interpreter::Flow Interpreter::ExecIf(const Statement& s) {
  return ExecBody(Truth(Eval(*s.expr)) ? s.body : s.otherwise);
}

// The items for which the loop's condition holds.
std::span<const Value> Interpreter::FilterItems(const Statement& s, std::span<const Value> items) {
  const std::span<Value> kept = rt_.arena.NewArray<Value>(items.size());
  size_t size = 0;
  Scope scope(this, frame_);
  for (const Value& item : items) {
    scope.Renew();
    Assign(*s.target, item);
    if (Truth(Eval(*s.filter))) kept[size++] = item;
  }
  return kept.first(size);
}

void Interpreter::ExecFor(const Statement& s, const Value& iterable, int loop_depth) {
  std::span<const Value> items = Iterate(rt_, iterable);
  if (s.filter != nullptr) items = FilterItems(s, items);
  if (items.empty()) {
    const Scope scope(this, frame_);
    // A break or continue in the else branch belongs to the loop around it, which Python forbids to
    // reach.
    ExecBody(s.otherwise);
    return;
  }
  LoopObject* loop = rt_.arena.New(LoopObject{items});
  loop->depth0 = loop_depth;
  loop->frame = frame_;
  if (s.recursive) loop->statement = &s;
  if (frame_ != nullptr && s.recursive) frame_->captured = true;
  Scope scope(this, frame_);
  for (; loop->index0 < items.size(); ++loop->index0) {
    scope.Renew();
    Assign(s.name, Value::Loop(loop));
    Assign(*s.target, items[loop->index0]);
    rt_.Charge(1);
    if (ExecBody(s.body) == Flow::kBreak) break;
  }
}

void Interpreter::ExecWith(const Statement& s) {
  // The values see the outer scope only.
  const std::span<Value> values = rt_.arena.NewArray<Value>(s.parameters.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = Eval(*s.parameters[i].fallback);
  const Scope scope(this, frame_);
  for (size_t i = 0; i < values.size(); ++i) Assign(s.parameters[i].name, values[i]);
  ExecBody(s.body);
}

const MacroObject* Interpreter::NewMacro(const Statement& s) {
  for (Frame* frame = frame_; frame != nullptr && !frame->captured; frame = frame->parent)
    frame->captured = true;
  return rt_.arena.New(MacroObject{&s, frame_});
}

void Interpreter::ExecCallBlock(const Statement& s) {
  Print(rt_, EvalCall(*s.expr, Value::Macro(NewMacro(s))), &out_);
}

Value Interpreter::Capture(Body body) {
  TextBuilder outer(rt_);
  std::swap(outer, out_);
  {
    const Scope scope(this, frame_);
    ExecBody(body);
  }
  const Value text = out_.Finish(rt_);
  std::swap(outer, out_);
  return text;
}

void Interpreter::BindMacro(const Statement& macro, const Arguments& args) {
  const std::span<const Parameter> parameters = macro.parameters;
  const std::string_view name = macro.text.text();
  std::vector<bool> used(args.named.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string_view parameter = program_.names[static_cast<size_t>(parameters[i].name)];
    const auto named = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const DictEntry& e) { return e.key.text() == parameter; });
    Value value = Value::Undefined(Missing::kParameter, parameter);
    if (named != args.named.end()) {
      if (i < args.positional.size())
        FailType(fmt::format("macro '{}' got two values for the argument '{}'", name, parameter));
      used[static_cast<size_t>(named - args.named.begin())] = true;
      value = named->value;
    } else if (i < args.positional.size()) {
      value = args.positional[i];
    } else if (parameters[i].fallback != nullptr) {
      value = Eval(*parameters[i].fallback);
    }
    Assign(parameters[i].name, value);
  }
  const auto assign = [&](std::string_view special, const Value& value) {
    const auto it = std::find(program_.names.begin(), program_.names.end(), special);
    if (it != program_.names.end())
      Assign(static_cast<int32_t>(it - program_.names.begin()), value);
  };
  const std::span<const Value> extra =
      args.positional.subspan(std::min(parameters.size(), args.positional.size()));
  if (macro.uses_varargs)
    assign("varargs", rt_.NewArray(Kind::kTuple, extra));
  else if (!extra.empty())
    FailType(fmt::format("macro '{}' takes not more than {} argument(s)", name, parameters.size()));
  std::vector<DictEntry> rest;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) rest.push_back(args.named[i]);
  }
  if (macro.uses_kwargs) {
    const std::span<DictEntry> entries = rt_.arena.NewArray<DictEntry>(rest.size());
    std::copy(rest.begin(), rest.end(), entries.begin());
    assign("kwargs", MakeDict(rt_.arena, entries));
  } else if (!rest.empty()) {
    FailType(fmt::format("macro '{}' takes no keyword argument '{}'", name, rest[0].key.text()));
  }
  if (!macro.uses_caller) {
    if (args.caller.Is(Kind::kMacro))
      FailType(fmt::format("macro '{}' is called with a body but calls no caller()", name));
  } else {
    assign("caller", args.caller.Is(Kind::kMacro)
                         ? args.caller
                         : Value::Undefined(Missing::kOther, "No caller defined"));
  }
}

Value Interpreter::CallMacro(const MacroObject& macro, const Arguments& args) {
  const Depth depth(this);
  const uint32_t line = line_;
  TextBuilder outer(rt_);
  std::swap(outer, out_);
  {
    const Scope scope(this, macro.closure);
    BindMacro(*macro.definition, args);
    ExecBody(macro.definition->body);
  }
  const Value text = out_.Finish(rt_);
  std::swap(outer, out_);
  line_ = line;
  return text;
}

// loop(items) in a recursive loop: the loop again, over other items, as text.
Value Interpreter::CallLoop(const LoopObject& loop, const Arguments& args) {
  if (loop.statement == nullptr) FailType("the loop is not recursive: it cannot be called");
  if (args.positional.size() != 1 || !args.named.empty())
    FailType("a recursive loop takes one argument");
  const Depth depth(this);
  Frame* const inner = frame_;
  TextBuilder outer(rt_);
  std::swap(outer, out_);
  frame_ = loop.frame;
  ExecFor(*loop.statement, args.positional[0], loop.depth0 + 1);
  frame_ = inner;
  const Value text = out_.Finish(rt_);
  std::swap(outer, out_);
  return text;
}

}  // namespace forebay::text::jinja
