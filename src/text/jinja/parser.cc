#include "text/jinja/parser.h"

#include <fmt/core.h>

#include <utility>

#include "text/jinja/parser_impl.h"
#include "text/unicode/unicode.h"

namespace forebay::text::jinja {
namespace {

// One kind of line end, and none at the very end.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

base::Result<std::unique_ptr<const Program>> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return base::Status(kTemplateLimit,
                        fmt::format("the template has {} bytes; at most {} are taken",
                                    source.size(), kMaxTemplateBytes));
  }
  if (!IsValidUtf8(source)) return base::Status(kTemplateSyntax, "the template is not valid UTF-8");
  auto program = std::make_unique<Program>(16 * source.size() + (size_t{3} << 20));
  program->source = NormalizeLines(source);
  try {
    Parser(program.get()).Run();
  } catch (const Failure& failure) {
    return failure.status;
  }
  return std::unique_ptr<const Program>(std::move(program));
}

Parser::Parser(Program* program) : program_(program), lexer_(program->source, program->arena) {}

void Parser::Run() {
  Advance();
  program_->body = ParseBody({}, "");
}

void Parser::FailAt(const std::string& message) const {
  Fail(kTemplateSyntax, fmt::format("template line {}: {}", token_.line, message));
}

void Parser::FailUnexpected(std::string_view expected) const {
  switch (token_.kind) {
    case TokenKind::kEnd:
      FailAt(fmt::format("expected {}, found the end of the template", expected));
    case TokenKind::kBlockEnd: FailAt(fmt::format("expected {}, found %}}", expected));
    case TokenKind::kVariableEnd: FailAt(fmt::format("expected {}, found }}}}", expected));
    default: FailAt(fmt::format("expected {}, found '{}'", expected, token_.text));
  }
}

void Parser::Advance() {
  token_ = has_peeked_ ? peeked_ : lexer_.Next();
  has_peeked_ = false;
}

const Token& Parser::Peek() {
  if (!has_peeked_) peeked_ = lexer_.Next();
  has_peeked_ = true;
  return peeked_;
}

bool Parser::TakeOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Advance();
  return true;
}

bool Parser::TakeWord(std::string_view word) {
  if (!IsWord(word)) return false;
  Advance();
  return true;
}

void Parser::Expect(std::string_view op) {
  if (!TakeOperator(op)) FailUnexpected(fmt::format("'{}'", op));
}

std::string_view Parser::ExpectName() {
  if (token_.kind != TokenKind::kName) FailUnexpected("a name");
  const std::string_view name = token_.text;
  Advance();
  return name;
}

void Parser::ExpectBlockEnd() {
  if (token_.kind != TokenKind::kBlockEnd) FailUnexpected("%}");
  Advance();
}

int32_t Parser::NameIndex(std::string_view name) {
  const auto [it, is_new] =
      name_index_.try_emplace(name, static_cast<int32_t>(program_->names.size()));
  if (is_new) {
    program_->arena.Charge(128);  // its share of the tables
    program_->names.push_back(name);
    const Builtin* function = FindGlobal(name);
    program_->initial.push_back(function != nullptr ? Value::Function(function)
                                                    : Value::Undefined(Missing::kName, name));
  }
  return it->second;
}

Expr* Parser::NewExpr(ExprKind kind) {
  Expr* expr = program_->arena.New<Expr>();
  expr->kind = kind;
  expr->line = token_.line;
  return expr;
}

Statement* Parser::NewStatement(StatementKind kind) {
  Statement* statement = program_->arena.New<Statement>();
  statement->kind = kind;
  statement->line = token_.line;
  program_->statements.push_back(statement);
  return statement;
}

// Reads up to a tag named in `ends`, whose name is then the current token; or to the template's end
// if there are none.
Parser::Body Parser::ParseBody(std::initializer_list<std::string_view> ends,
                               std::string_view opener) {
  const Depth depth(this);
  const uint32_t line = token_.line;
  std::vector<const Statement*> body;
  while (token_.kind != TokenKind::kEnd) {
    if (token_.kind == TokenKind::kText) {
      if (!token_.text.empty()) {
        Statement* text = NewStatement(StatementKind::kText);
        text->text = Value::String(token_.text);
        body.push_back(text);
      }
      Advance();
    } else if (token_.kind == TokenKind::kVariableBegin) {
      Statement* output = NewStatement(StatementKind::kOutput);
      Advance();
      output->expr = ParseTuple();
      if (token_.kind != TokenKind::kVariableEnd) FailUnexpected("}}");
      Advance();
      body.push_back(output);
    } else {
      Advance();  // the block's begin
      if (token_.kind != TokenKind::kName) FailUnexpected("a tag's name");
      for (const std::string_view end : ends) {
        if (token_.text == end) return Keep(body);
      }
      body.push_back(ParseTag());
    }
  }
  if (ends.size() > 0) {
    Fail(kTemplateSyntax,
         fmt::format("template line {}: {} is not closed: the template ends without {}", line,
                     opener, *(ends.end() - 1)));
  }
  return Keep(body);
}

const Statement* Parser::ParseTag() {
  const std::string_view tag = token_.text;
  if (tag == "if") return ParseIf();
  if (tag == "for") return ParseFor();
  if (tag == "set") return ParseSet();
  if (tag == "macro") return ParseMacro();
  if (tag == "call") return ParseCallBlock();
  if (tag == "filter") return ParseFilterBlock();
  if (tag == "with") return ParseWith();
  if (tag == "break" || tag == "continue") {
    if (!in_loop_) FailAt(fmt::format("'{}' outside a loop", tag));
    Statement* statement =
        NewStatement(tag == "break" ? StatementKind::kBreak : StatementKind::kContinue);
    Advance();
    ExpectBlockEnd();
    return statement;
  }
  if (tag == "generation") {
    Advance();
    return ParseScope("endgeneration");
  }
  if (tag == "block") return ParseBlock();
  if (tag == "autoescape") return ParseAutoescape();
  if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
    FailAt(fmt::format("'{}' is not supported in chat templates", tag));
  }
  FailAt(fmt::format("unknown tag '{}'", tag));
}

// From the end of the opening tag to that of the tag `end`, which may repeat a block's name.
const Statement* Parser::ParseScope(std::string_view end) {
  Statement* scope = NewStatement(StatementKind::kScope);
  ExpectBlockEnd();
  scope->body = ParseBody({end}, end.substr(3));
  Advance();
  if (end == "endblock" && token_.kind == TokenKind::kName) Advance();
  ExpectBlockEnd();
  return scope;
}

// No template extends this one, so a block stands where it is.
const Statement* Parser::ParseBlock() {
  Advance();
  const std::string_view name = ExpectName();
  while (IsWord("scoped") || IsWord("required")) Advance();
  for (const Statement* block : program_->blocks) {
    if (block->text.text() == name) FailAt(fmt::format("block '{}' defined twice", name));
  }
  const bool in_loop = std::exchange(in_loop_, false);
  auto* block = const_cast<Statement*>(ParseScope("endblock"));
  in_loop_ = in_loop;
  block->text = Value::String(name);
  program_->blocks.push_back(block);
  return block;
}

// Nothing is escaped here, so the tag may say so.
const Statement* Parser::ParseAutoescape() {
  Advance();
  const Expr* on = ParseExpression();
  if (on->kind != ExprKind::kConst || !on->constant.Is(Kind::kBool) || on->constant.boolean())
    FailAt("autoescape is not supported; expected {% autoescape false %}");
  return ParseScope("endautoescape");
}

const Statement* Parser::ParseIf() {
  Statement* statement = NewStatement(StatementKind::kIf);
  const Depth depth(this);
  Advance();
  statement->expr = ParseTuple(false);
  ExpectBlockEnd();
  statement->body = ParseBody({"elif", "else", "endif"}, "if");
  if (IsWord("elif")) {
    // A chain of elifs is an if in the else branch; its endif is this one's.
    const std::vector<const Statement*> rest = {ParseIf()};
    statement->otherwise = Keep(rest);
    return statement;
  }
  if (TakeWord("else")) {
    ExpectBlockEnd();
    statement->otherwise = ParseBody({"endif"}, "if");
  }
  Advance();
  ExpectBlockEnd();
  return statement;
}

const Statement* Parser::ParseFor() {
  Statement* statement = NewStatement(StatementKind::kFor);
  Advance();
  statement->target = ParseTarget(false);
  if (!TakeWord("in")) FailUnexpected("'in'");
  statement->expr = ParseTuple(false);
  if (TakeWord("if")) statement->filter = ParseExpression();
  statement->recursive = TakeWord("recursive");
  ExpectBlockEnd();
  const bool in_loop = std::exchange(in_loop_, true);
  statement->body = ParseBody({"else", "endfor"}, "for");
  in_loop_ = in_loop;
  if (TakeWord("else")) {
    ExpectBlockEnd();
    statement->otherwise = ParseBody({"endfor"}, "for");
  }
  Advance();
  ExpectBlockEnd();
  statement->name = NameIndex("loop");
  return statement;
}

const Statement* Parser::ParseSet() {
  Statement* statement = NewStatement(StatementKind::kSet);
  Advance();
  statement->target = ParseTarget(true);
  if (TakeOperator("=")) {
    statement->expr = ParseTuple();
    ExpectBlockEnd();
    return statement;
  }
  statement->kind = StatementKind::kSetBlock;
  if (TakeOperator("|")) {
    const Expr* filter = ParseFilter(nullptr);
    while (TakeOperator("|")) filter = ParseFilter(filter);
    statement->filter = filter;
  }
  ExpectBlockEnd();
  statement->body = ParseBody({"endset"}, "set");
  Advance();
  ExpectBlockEnd();
  return statement;
}

std::span<const Parameter> Parser::ParseSignature() {
  std::vector<Parameter> parameters;
  Expect("(");
  while (!IsOperator(")")) {
    if (!parameters.empty()) Expect(",");
    Parameter parameter{NameIndex(ExpectName()), nullptr};
    if (TakeOperator("="))
      parameter.fallback = ParseExpression();
    else if (!parameters.empty() && parameters.back().fallback != nullptr) {
      FailAt("a parameter without a default follows one with a default");
    }
    parameters.push_back(parameter);
  }
  Expect(")");
  return Keep(parameters);
}

void Parser::ParseMacroBody(Statement* macro, std::string_view end) {
  ExpectBlockEnd();
  Statement* const outer = std::exchange(macro_, macro);
  const bool in_loop = std::exchange(in_loop_, false);
  macro->body = ParseBody({end}, end.substr(3));
  macro_ = outer;
  in_loop_ = in_loop;
  Advance();
  ExpectBlockEnd();
}

const Statement* Parser::ParseMacro() {
  Statement* macro = NewStatement(StatementKind::kMacro);
  Advance();
  const std::string_view name = ExpectName();
  macro->name = NameIndex(name);
  macro->text = Value::String(name);
  macro->parameters = ParseSignature();
  ParseMacroBody(macro, "endmacro");
  return macro;
}

const Statement* Parser::ParseCallBlock() {
  Statement* call = NewStatement(StatementKind::kCallBlock);
  Advance();
  if (IsOperator("(")) call->parameters = ParseSignature();
  call->expr = ParseExpression();
  if (call->expr->kind != ExprKind::kCall) FailAt("expected a call after 'call'");
  call->text = Value::String("caller");
  ParseMacroBody(call, "endcall");
  return call;
}

const Statement* Parser::ParseFilterBlock() {
  Statement* block = NewStatement(StatementKind::kFilterBlock);
  Advance();
  const Expr* filter = ParseFilter(nullptr);
  while (TakeOperator("|")) filter = ParseFilter(filter);
  block->filter = filter;
  ExpectBlockEnd();
  block->body = ParseBody({"endfilter"}, "filter");
  Advance();
  ExpectBlockEnd();
  return block;
}

const Statement* Parser::ParseWith() {
  Statement* with = NewStatement(StatementKind::kWith);
  Advance();
  std::vector<Parameter> assignments;
  while (token_.kind != TokenKind::kBlockEnd) {
    if (!assignments.empty()) Expect(",");
    const int32_t name = NameIndex(ExpectName());
    Expect("=");
    assignments.push_back({name, ParseExpression()});
  }
  with->parameters = Keep(assignments);
  ExpectBlockEnd();
  with->body = ParseBody({"endwith"}, "with");
  Advance();
  ExpectBlockEnd();
  return with;
}

const Target* Parser::ParseTarget(bool allow_attribute) {
  const Target* first = ParseOneTarget(allow_attribute);
  if (!IsOperator(",")) return first;
  std::vector<const Target*> items = {first};
  while (TakeOperator(",")) {
    if (token_.kind != TokenKind::kName && !IsOperator("(")) break;
    if (IsWord("in") && !allow_attribute) break;
    items.push_back(ParseOneTarget(allow_attribute));
  }
  Target* target = program_->arena.New<Target>();
  target->items = Keep(items);
  return target;
}

const Target* Parser::ParseOneTarget(bool allow_attribute) {
  const Depth depth(this);
  if (TakeOperator("(")) {
    const Target* inner = ParseTarget(allow_attribute);
    Expect(")");
    return inner;
  }
  Target* target = program_->arena.New<Target>();
  const std::string_view name = ExpectName();
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) FailAt(fmt::format("cannot assign to '{}'", name));
  }
  target->name = NameIndex(name);
  if (allow_attribute && TakeOperator(".")) target->attribute = Value::String(ExpectName());
  return target;
}

}  // namespace forebay::text::jinja
