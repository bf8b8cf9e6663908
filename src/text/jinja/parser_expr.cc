// Expressions, with Jinja's precedence: if, or, and, not, comparisons, + -, ~, * / // %, **, unary,
// filters.
#include <charconv>
#include <limits>

#include "text/jinja/parser_impl.h"

namespace forebay::text::jinja {

bool Parser::IsTupleEnd() const {
  return token_.kind == TokenKind::kVariableEnd || token_.kind == TokenKind::kBlockEnd ||
         IsOperator(")");
}

const Expr* Parser::ParseTuple(bool with_condition, bool explicit_parentheses) {
  const uint32_t line = token_.line;
  std::vector<const Expr*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) Expect(",");
    if (IsTupleEnd()) break;
    items.push_back(with_condition ? ParseExpression() : ParseOr());
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!explicit_parentheses) FailUnexpected("an expression");
  }
  Expr* tuple = NewExpr(ExprKind::kTuple);
  tuple->line = line;
  tuple->items = Keep(items);
  return tuple;
}

const Expr* Parser::ParseExpression() {
  const Depth depth(this);
  const Expr* value = ParseOr();
  while (IsWord("if")) {
    Expr* condition = NewExpr(ExprKind::kCondition);
    Advance();
    condition->a = value;
    condition->b = ParseOr();
    // Without it the value is undefined where the condition does not hold.
    if (TakeWord("else")) condition->c = ParseExpression();
    value = condition;
  }
  return value;
}

const Expr* Parser::ParseOr() {
  const Expr* left = ParseAnd();
  while (IsWord("or")) {
    Expr* expr = NewExpr(ExprKind::kOr);
    Advance();
    expr->a = left;
    expr->b = ParseAnd();
    left = expr;
  }
  return left;
}

const Expr* Parser::ParseAnd() {
  const Expr* left = ParseNot();
  while (IsWord("and")) {
    Expr* expr = NewExpr(ExprKind::kAnd);
    Advance();
    expr->a = left;
    expr->b = ParseNot();
    left = expr;
  }
  return left;
}

const Expr* Parser::ParseNot() {
  if (!IsWord("not")) return ParseCompare();
  const Depth depth(this);
  Expr* expr = NewExpr(ExprKind::kNot);
  Advance();
  expr->a = ParseNot();
  return expr;
}

const Expr* Parser::ParseCompare() {
  static constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">="};
  const Expr* first = ParseSum();
  std::vector<const Expr*> items;
  std::vector<CompareOp> ops;
  while (true) {
    CompareOp op = CompareOp::kIn;
    if (token_.kind == TokenKind::kOperator) {
      size_t i = 0;
      while (i < std::size(kNames) && token_.text != kNames[i]) ++i;
      if (i == std::size(kNames)) break;
      op = static_cast<CompareOp>(i);  // kNames has its order
    } else if (IsWord("not") && Peek().kind == TokenKind::kName && Peek().text == "in") {
      Advance();
      op = CompareOp::kNotIn;
    } else if (!IsWord("in")) {
      break;
    }
    Advance();
    if (items.empty()) items.push_back(first);
    ops.push_back(op);
    items.push_back(ParseSum());
  }
  if (ops.empty()) return first;
  Expr* expr = NewExpr(ExprKind::kCompare);
  expr->items = Keep(items);
  expr->ops = Keep(ops);
  return expr;
}

const Expr* Parser::ParseSum() {
  const Expr* left = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    Expr* expr = NewExpr(ExprKind::kBinary);
    expr->op = IsOperator("+") ? BinaryOp::kAdd : BinaryOp::kSub;
    Advance();
    expr->a = left;
    expr->b = ParseConcat();
    left = expr;
  }
  return left;
}

const Expr* Parser::ParseConcat() {
  const Expr* first = ParseProduct();
  if (!IsOperator("~")) return first;
  std::vector<const Expr*> items = {first};
  while (TakeOperator("~")) items.push_back(ParseProduct());
  Expr* expr = NewExpr(ExprKind::kConcat);
  expr->items = Keep(items);
  return expr;
}

const Expr* Parser::ParseProduct() {
  const Expr* left = ParsePower();
  while (true) {
    BinaryOp op;
    if (IsOperator("*"))
      op = BinaryOp::kMul;
    else if (IsOperator("/"))
      op = BinaryOp::kDiv;
    else if (IsOperator("//"))
      op = BinaryOp::kFloorDiv;
    else if (IsOperator("%"))
      op = BinaryOp::kMod;
    else
      return left;
    Expr* expr = NewExpr(ExprKind::kBinary);
    Advance();
    expr->op = op;
    expr->a = left;
    expr->b = ParsePower();
    left = expr;
  }
}

const Expr* Parser::ParsePower() {
  const Expr* left = ParseUnary();
  // From the left, as Jinja has it and Python has not: 2 ** 3 ** 2 is 64.
  while (IsOperator("**")) {
    Expr* expr = NewExpr(ExprKind::kBinary);
    Advance();
    expr->op = BinaryOp::kPow;
    expr->a = left;
    expr->b = ParseUnary();
    left = expr;
  }
  return left;
}

const Expr* Parser::ParseUnary(bool with_filter) {
  const Expr* expr;
  if (IsOperator("-") || IsOperator("+")) {
    const Depth depth(this);
    Expr* sign = NewExpr(IsOperator("-") ? ExprKind::kNegate : ExprKind::kPositive);
    Advance();
    // Filters take the value with its sign: -1|abs is 1.
    sign->a = ParseUnary(false);
    expr = sign;
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(expr);
  return with_filter ? ParseFilters(expr) : expr;
}

const Expr* Parser::ParsePrimary() {
  const Depth depth(this);
  Expr* expr = nullptr;
  switch (token_.kind) {
    case TokenKind::kName: {
      const std::string_view name = token_.text;
      expr = NewExpr(ExprKind::kConst);
      Advance();
      if (name == "true" || name == "True")
        expr->constant = Value::Bool(true);
      else if (name == "false" || name == "False")
        expr->constant = Value::Bool(false);
      else if (name == "none" || name == "None")
        expr->constant = Value::None();
      else {
        expr->kind = ExprKind::kName;
        expr->name = NameIndex(name);
        // A macro takes what it has no parameters for only if its body names these.
        if (macro_ != nullptr) {
          macro_->uses_varargs |= name == "varargs";
          macro_->uses_kwargs |= name == "kwargs";
          macro_->uses_caller |= name == "caller";
        }
      }
      return expr;
    }
    case TokenKind::kString: {
      expr = NewExpr(ExprKind::kConst);
      const std::string_view first = token_.text;
      Advance();
      if (token_.kind != TokenKind::kString) {
        expr->constant = Value::String(first);
        return expr;
      }
      // Strings that stand side by side are one, as in Python.
      std::string joined(first);
      for (; token_.kind == TokenKind::kString; Advance()) joined += token_.text;
      expr->constant = Value::String(program_->arena.Copy(joined));
      return expr;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: return ParseNumber();
    default: break;
  }
  if (TakeOperator("(")) {
    const Expr* tuple = ParseTuple(true, true);
    Expect(")");
    return tuple;
  }
  if (IsOperator("[")) return ParseDisplay(ExprKind::kList);
  if (IsOperator("{")) return ParseDisplay(ExprKind::kDict);
  FailUnexpected("an expression");
}

const Expr* Parser::ParseNumber() {
  Expr* expr = NewExpr(ExprKind::kConst);
  std::string_view text = token_.text;
  if (token_.kind == TokenKind::kFloat) {
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) {
      // Out of range: infinity or zero, as Python reads it.
      value = std::strtod(std::string(text).c_str(), nullptr);
    }
    expr->constant = Value::Float(value);
  } else {
    int radix = 10;
    if (text.size() > 2 && text[0] == '0' && text[1] > '9') {
      const char c = static_cast<char>(text[1] | 0x20);
      radix = c == 'x' ? 16 : c == 'o' ? 8 : 2;
      text.remove_prefix(2);
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, radix);
    if (error == std::errc::result_out_of_range && radix != 10)
      FailAt("an integer has more than 64 bits");
    if (error == std::errc::invalid_argument) FailAt("an integer has no digits");
    expr->constant = error == std::errc() ? Value::Int(value) : Value::BigInt(text);
  }
  Advance();
  return expr;
}

// [a, b] or {a: b, c: d}.
const Expr* Parser::ParseDisplay(ExprKind kind) {
  Expr* expr = NewExpr(kind);
  const std::string_view close = kind == ExprKind::kList ? "]" : "}";
  Advance();
  std::vector<const Expr*> items;
  while (!IsOperator(close)) {
    if (!items.empty()) {
      Expect(",");
      if (IsOperator(close)) break;
    }
    items.push_back(ParseExpression());
    if (kind == ExprKind::kDict) {
      Expect(":");
      items.push_back(ParseExpression());
    }
  }
  Expect(close);
  expr->items = Keep(items);
  return expr;
}

const Expr* Parser::ParsePostfix(const Expr* expr) {
  while (true) {
    if (IsOperator(".") || IsOperator("["))
      expr = ParseSubscript(expr);
    else if (IsOperator("("))
      expr = ParseCall(expr);
    else
      return expr;
  }
}

const Expr* Parser::ParseSubscript(const Expr* object) {
  Expr* expr = NewExpr(ExprKind::kAttribute);
  expr->a = object;
  if (TakeOperator(".")) {
    if (token_.kind == TokenKind::kInteger) {
      expr->kind = ExprKind::kItem;
      expr->b = ParseNumber();
    } else {
      expr->constant = Value::String(ExpectName());
    }
    return expr;
  }
  Advance();
  expr->kind = ExprKind::kItem;
  std::vector<const Expr*> keys;
  std::vector<const Expr*> bounds(3, nullptr);
  bool is_slice = false;
  while (!IsOperator("]")) {
    if (!keys.empty() || is_slice) {
      if (is_slice) FailAt("a slice cannot be part of a tuple");
      Expect(",");
    }
    const Expr* first = IsOperator(":") ? nullptr : ParseExpression();
    if (!TakeOperator(":")) {
      keys.push_back(first);
      continue;
    }
    if (!keys.empty()) FailAt("a slice cannot be part of a tuple");
    is_slice = true;
    bounds[0] = first;
    if (!IsOperator(":") && !IsOperator("]")) bounds[1] = ParseExpression();
    if (TakeOperator(":") && !IsOperator("]")) bounds[2] = ParseExpression();
  }
  Expect("]");
  if (is_slice) {
    expr->kind = ExprKind::kSlice;
    expr->items = Keep(bounds);
  } else if (keys.size() == 1) {
    expr->b = keys[0];
  } else {
    Expr* tuple = NewExpr(ExprKind::kTuple);
    tuple->items = Keep(keys);
    expr->b = tuple;
  }
  return expr;
}

const Expr* Parser::ParseCall(const Expr* callee) {
  Expr* expr = NewExpr(ExprKind::kCall);
  expr->a = callee;
  expr->arguments = ParseArguments();
  program_->calls.push_back(expr);
  return expr;
}

const CallArguments* Parser::ParseArguments() {
  CallArguments arguments;
  std::vector<const Expr*> positional;
  std::vector<NamedExpr> named;
  Expect("(");
  for (bool first = true; !IsOperator(")"); first = false) {
    if (!first) {
      Expect(",");
      if (IsOperator(")")) break;
    }
    if (TakeOperator("*")) {
      if (arguments.star != nullptr || arguments.double_star != nullptr)
        FailAt("a call has * twice or after **");
      arguments.star = ParseExpression();
    } else if (TakeOperator("**")) {
      if (arguments.double_star != nullptr) FailAt("a call has ** twice");
      arguments.double_star = ParseExpression();
    } else if (token_.kind == TokenKind::kName && Peek().kind == TokenKind::kOperator &&
               Peek().text == "=") {
      if (arguments.double_star != nullptr) FailAt("a named argument follows **");
      const Value name = Value::String(token_.text);
      Advance();
      Advance();
      named.push_back({name, ParseExpression()});
    } else {
      if (!named.empty() || arguments.star != nullptr || arguments.double_star != nullptr) {
        FailAt("a positional argument follows a named one");
      }
      positional.push_back(ParseExpression());
    }
  }
  Expect(")");
  arguments.positional = Keep(positional);
  arguments.named = Keep(named);
  return program_->arena.New(arguments);
}

const Expr* Parser::ParseFilters(const Expr* expr) {
  while (true) {
    if (TakeOperator("|"))
      expr = ParseFilter(expr);
    else if (IsWord("is"))
      expr = ParseTest(expr);
    else if (IsOperator("("))
      expr = ParseCall(expr);
    else
      return expr;
  }
}

std::string_view Parser::ParseDottedName() {
  std::string_view name = ExpectName();
  if (!IsOperator(".")) return name;
  std::string dotted(name);
  while (TakeOperator(".")) dotted.append(".").append(ExpectName());
  return program_->arena.Copy(dotted);
}

const Expr* Parser::ParseFilter(const Expr* subject) {
  Expr* expr = NewExpr(ExprKind::kFilter);
  const std::string_view name = ParseDottedName();
  expr->a = subject;
  expr->constant = Value::String(name);
  expr->builtin = FindFilter(name);
  if (expr->builtin == nullptr) program_->missing.push_back(fmt::format("filter '{}'", name));
  if (IsOperator("(")) expr->arguments = ParseArguments();
  return expr;
}

const Expr* Parser::ParseTest(const Expr* subject) {
  Expr* expr = NewExpr(ExprKind::kTest);
  Advance();
  const bool negated = TakeWord("not");
  const std::string_view name = ParseDottedName();
  expr->a = subject;
  expr->constant = Value::String(name);
  expr->builtin = FindTest(name);
  if (expr->builtin == nullptr) program_->missing.push_back(fmt::format("test '{}'", name));
  const bool starts_operand =
      token_.kind == TokenKind::kName || token_.kind == TokenKind::kString ||
      token_.kind == TokenKind::kInteger || token_.kind == TokenKind::kFloat || IsOperator("[") ||
      IsOperator("{");
  if (IsOperator("(")) {
    expr->arguments = ParseArguments();
  } else if (starts_operand && !IsWord("else") && !IsWord("or") && !IsWord("and")) {
    // One operand needs no parentheses (`is divisibleby 3`); the words above go on with the
    // expression that the test stands in.
    if (IsWord("is")) FailAt("tests with `is` cannot be chained");
    CallArguments arguments;
    const std::vector<const Expr*> operand = {ParsePostfix(ParsePrimary())};
    arguments.positional = Keep(operand);
    expr->arguments = program_->arena.New(arguments);
  }
  if (!negated) return expr;
  Expr* inverse = NewExpr(ExprKind::kNot);
  inverse->a = expr;
  return inverse;
}

}  // namespace forebay::text::jinja
