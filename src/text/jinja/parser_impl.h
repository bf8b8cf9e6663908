// The parser's parts, shared by parser.cc (statements) and parser_expr.cc (expressions).
#pragma once

#include <initializer_list>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace forebay::text::jinja {

class Parser {
 public:
  explicit Parser(Program* program);

  void Run();

 private:
  // Nested tags and expressions; each level of an expression takes up to 1.5 KB of stack.
  static constexpr int kMaxDepth = 100;
  class Depth {
   public:
    explicit Depth(Parser* parser) : parser_(parser) {
      if (++parser_->depth_ > kMaxDepth)
        parser_->FailAt("tags or expressions are nested too deeply");
    }
    ~Depth() { --parser_->depth_; }

   private:
    Parser* parser_;
  };

  [[noreturn]] void FailAt(const std::string& message) const;
  [[noreturn]] void FailUnexpected(std::string_view expected) const;

  void Advance();
  const Token& Peek();  // the token after token_
  bool IsOperator(std::string_view op) const {
    return token_.kind == TokenKind::kOperator && token_.text == op;
  }
  bool IsWord(std::string_view word) const {
    return token_.kind == TokenKind::kName && token_.text == word;
  }
  bool TakeOperator(std::string_view op);
  bool TakeWord(std::string_view word);
  void Expect(std::string_view op);
  std::string_view ExpectName();
  void ExpectBlockEnd();

  int32_t NameIndex(std::string_view name);
  Expr* NewExpr(ExprKind kind);
  Statement* NewStatement(StatementKind kind);
  template <typename T>
  std::span<const T> Keep(const std::vector<T>& items) {
    return program_->arena.CopyArray(std::span<const T>(items));
  }

  // parser.cc
  using Body = std::span<const Statement* const>;
  Body ParseBody(std::initializer_list<std::string_view> ends, std::string_view opener);
  const Statement* ParseTag();
  const Statement* ParseIf();
  const Statement* ParseFor();
  const Statement* ParseSet();
  const Statement* ParseMacro();
  const Statement* ParseCallBlock();
  const Statement* ParseFilterBlock();
  const Statement* ParseWith();
  const Statement* ParseScope(std::string_view end);
  const Statement* ParseBlock();
  const Statement* ParseAutoescape();
  std::span<const Parameter> ParseSignature();
  void ParseMacroBody(Statement* macro, std::string_view end);
  const Target* ParseTarget(bool allow_attribute);
  const Target* ParseOneTarget(bool allow_attribute);

  // parser_expr.cc
  const Expr* ParseTuple(bool with_condition = true, bool explicit_parentheses = false);
  bool IsTupleEnd() const;
  const Expr* ParseExpression();
  const Expr* ParseOr();
  const Expr* ParseAnd();
  const Expr* ParseNot();
  const Expr* ParseCompare();
  const Expr* ParseSum();
  const Expr* ParseConcat();
  const Expr* ParseProduct();
  const Expr* ParsePower();
  const Expr* ParseUnary(bool with_filter = true);
  const Expr* ParsePrimary();
  const Expr* ParseNumber();
  const Expr* ParseDisplay(ExprKind kind);
  const Expr* ParsePostfix(const Expr* expr);
  const Expr* ParseSubscript(const Expr* expr);
  const Expr* ParseCall(const Expr* callee);
  const CallArguments* ParseArguments();
  const Expr* ParseFilters(const Expr* expr);
  const Expr* ParseFilter(const Expr* subject);
  const Expr* ParseTest(const Expr* subject);
  std::string_view ParseDottedName();

  Program* program_;
  Lexer lexer_;
  Token token_, peeked_;
  bool has_peeked_ = false;
  int depth_ = 0;
  Statement* macro_ = nullptr;  // the innermost one being parsed
  bool in_loop_ = false;
  std::unordered_map<std::string_view, int32_t> name_index_;
};

}  // namespace forebay::text::jinja
