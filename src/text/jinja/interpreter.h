// Walks a Program. One Interpreter is one render.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/loop.h"

namespace forebay::text::jinja {

struct Variable {
  int32_t name;
  Value value;
};

// Names assigned in one scope. Scopes live until the render ends, so that macros may refer to
// theirs.
struct Frame {
  Frame* parent = nullptr;  // null for scopes right below the template's own
  std::span<Variable> variables;
  size_t size = 0;
  bool captured = false;  // a macro refers to it
};

struct MacroObject {
  const Statement* definition;
  Frame* closure;
};

class Interpreter {
 public:
  Interpreter(const Program& program, Runtime& rt) : program_(program), rt_(rt), out_(rt) {}

  // Before Run: gives a name of the template its value; names that it does not use are ignored.
  void Bind(std::string_view name, const Value& value);
  // May throw Failure.
  void Run();

  TextBuilder& output() { return out_; }
  uint32_t line() const { return line_; }  // the line of the tag that runs

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  using Body = std::span<const Statement* const>;

  class Depth {
   public:
    explicit Depth(Interpreter* interpreter) : interpreter_(interpreter) {
      if (++interpreter_->depth_ > interpreter_->rt_.limits.depth) interpreter_->FailDepth();
      interpreter_->rt_.Charge(1);
    }
    ~Depth() { --interpreter_->depth_; }

   private:
    Interpreter* interpreter_;
  };
  // A scope that ends with the C++ block.
  class Scope;

  [[noreturn]] void FailDepth() const;

  // interpreter.cc
  Flow ExecBody(Body body);
  Flow Exec(const Statement& s);
  void ExecOutput(const Expr& expr);
  Flow ExecIf(const Statement& s);
  void ExecFor(const Statement& s, const Value& iterable, int loop_depth);
  std::span<const Value> FilterItems(const Statement& s, std::span<const Value> items);
  void ExecWith(const Statement& s);
  void ExecCallBlock(const Statement& s);
  // Runs the body in a scope of its own and returns what it printed.
  Value Capture(Body body);
  Value CallMacro(const MacroObject& macro, const Arguments& args);
  void BindMacro(const Statement& macro, const Arguments& args);
  Value CallLoop(const LoopObject& loop, const Arguments& args);

  Value Lookup(int32_t name) const;
  void Assign(int32_t name, const Value& value);
  void Assign(const Target& target, const Value& value);
  const MacroObject* NewMacro(const Statement& s);

  // evaluate.cc
  Value Eval(const Expr& e);
  Value EvalSum(const Expr& e);
  Value EvalCompare(const Expr& e);
  Value EvalArray(const Expr& e, Kind kind);
  Value EvalDict(const Expr& e);
  Value EvalConcat(const Expr& e);
  Value EvalSlice(const Expr& e);
  Value EvalCall(const Expr& e, const Value& caller);
  Value EvalBuiltin(const Expr& e, std::string_view what);
  Value Call(const Value& callee, const Arguments& args);
  Arguments EvalArguments(const CallArguments& arguments);

  const Program& program_;
  Runtime& rt_;
  TextBuilder out_;
  std::span<Value> root_;   // the template's own scope, by name
  Frame* frame_ = nullptr;  // the innermost scope, null for the template's own
  Value captured_;          // the text that a filter block's filter applies to
  int depth_ = 0;
  uint32_t line_ = 0;
};

}  // namespace forebay::text::jinja
