// A parsed template: plain structs in an arena, shared read-only by all renders.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/jinja/operators.h"

namespace forebay::text::jinja {

enum class ExprKind : uint8_t {
  kConst,      // constant
  kName,       // name
  kList,       // items
  kTuple,      // items
  kDict,       // items: key, value, key, value, ...
  kAttribute,  // a.constant
  kItem,       // a[b]
  kSlice,      // a[items[0]:items[1]:items[2]]; null where absent
  kCall,       // a(arguments)
  kFilter,     // a | constant(arguments); a null `a` is the text of the enclosing block
  kTest,       // a is constant(arguments)
  kNot,
  kNegate,
  kPositive,
  kAnd,
  kOr,
  kCondition,  // a if b else c; a null c is undefined
  kCompare,    // items[0] ops[0] items[1] ops[1] items[2] ...
  kBinary,     // a op b
  kConcat,     // items, joined as text
};

struct Expr;

struct NamedExpr {
  Value name;
  const Expr* value;
};

struct CallArguments {
  std::span<const Expr* const> positional;
  std::span<const NamedExpr> named;
  const Expr* star = nullptr;         // *star
  const Expr* double_star = nullptr;  // **double_star
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  BinaryOp op = BinaryOp::kAdd;
  uint32_t line = 0;
  int32_t name = -1;  // index into Program::names
  const Expr* a = nullptr;
  const Expr* b = nullptr;
  const Expr* c = nullptr;
  Value constant;
  std::span<const Expr* const> items;
  std::span<const CompareOp> ops;
  const Builtin* builtin = nullptr;  // for kFilter and kTest; null if no builtin has that name
  const CallArguments* arguments = nullptr;
};

// What a value is assigned to: a name, an attribute of a namespace, or several targets.
struct Target {
  int32_t name = -1;
  Value attribute;  // a string for `name.attribute`
  std::span<const Target* const> items;
};

enum class StatementKind : uint8_t {
  kText,         // text
  kOutput,       // {{ expr }}
  kIf,           // expr, body, otherwise
  kFor,          // target in expr [if filter], body, otherwise
  kSet,          // target = expr
  kSetBlock,     // target = body, through `filter` if there is one
  kMacro,        // name, parameters, body
  kCallBlock,    // expr (a kCall) with body as its caller, which takes parameters
  kFilterBlock,  // body through filter
  kWith,         // parameters are the assignments; body
  kScope,        // body in a scope of its own; of a block, `text` is its name
  kBreak,
  kContinue,
};

struct Parameter {
  int32_t name;
  const Expr* fallback;  // null where there is none
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  bool recursive = false;                                               // kFor
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;  // kMacro, kCallBlock
  uint32_t line = 0;
  int32_t name = -1;
  Value text;
  const Expr* expr = nullptr;
  const Expr* filter = nullptr;
  const Target* target = nullptr;
  std::span<const Parameter> parameters;
  std::span<const Statement*const> body, otherwise;
};

struct Program {
  explicit Program(size_t memory_limit) : arena(memory_limit) {}

  std::string source;  // line ends made \n, the last one dropped
  Arena arena;
  std::vector<std::string_view> names;
  // what each name is before anything is assigned: a built-in function, or undefined
  std::vector<Value> initial;
  std::span<const Statement* const> body;
  std::vector<const Statement*> statements;  // all of them
  std::vector<const Expr*> calls;            // all of them
  std::vector<const Statement*> blocks;      // all of them
  std::vector<std::string> missing;          // filters and tests that nobody knows: "filter 'x'"
};

}  // namespace forebay::text::jinja
