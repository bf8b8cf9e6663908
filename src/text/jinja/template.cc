#include "text/jinja/template.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace forebay::text::jinja {
namespace {

// Finds the names that may hold a message's content: assigned from it, or parameters of macros
// called with it.
class ContentNames {
 public:
  explicit ContentNames(const Program& program)
      : program_(program), holds_(program.names.size()), macros_(program.names.size()) {
    for (const Statement* s : program.statements) {
      if (s->kind == StatementKind::kMacro) macros_[static_cast<size_t>(s->name)] = s;
    }
    // A name found may lead to another; templates hand content through a few names at most.
    for (int round = 0; round < 4; ++round) Collect();
  }

  bool IsContent(const Expr* e) const {
    for (int depth = 0; e != nullptr && depth < 8; ++depth) {
      switch (e->kind) {
        case ExprKind::kName: return holds_[static_cast<size_t>(e->name)];
        case ExprKind::kAttribute: return e->constant.text() == "content";
        case ExprKind::kItem:
          return e->b->constant.IsString() && e->b->constant.text() == "content";
        case ExprKind::kFilter:
        case ExprKind::kSlice:
        case ExprKind::kCondition: e = e->a; break;
        default: return false;
      }
    }
    return false;
  }

 private:
  void Collect() {
    for (const Statement* s : program_.statements) {
      if (s->kind == StatementKind::kSet && s->target->name >= 0 &&
          !s->target->attribute.IsString() && IsContent(s->expr)) {
        holds_[static_cast<size_t>(s->target->name)] = true;
      }
    }
    for (const Expr* call : program_.calls) {
      if (call->a->kind != ExprKind::kName) continue;
      const Statement* macro = macros_[static_cast<size_t>(call->a->name)];
      if (macro == nullptr) continue;
      const auto& positional = call->arguments->positional;
      for (size_t i = 0; i < std::min(positional.size(), macro->parameters.size()); ++i) {
        if (IsContent(positional[i])) holds_[static_cast<size_t>(macro->parameters[i].name)] = true;
      }
    }
  }

  const Program& program_;
  std::vector<bool> holds_;
  std::vector<const Statement*> macros_;  // by name
};

}  // namespace

Template::Template(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
Template::Template(Template&&) = default;
Template& Template::operator=(Template&&) = default;
Template::~Template() = default;

base::Result<Template> Template::Parse(std::string_view source) {
  FB_ASSIGN_OR_RETURN(std::unique_ptr<const Program> program, ParseTemplate(source));
  return Template(std::move(program));
}

base::Result<Rendered> Template::Render(Arena& arena, std::span<const Binding> bindings,
                                        const std::tm& now, const Limits& limits) const {
  Runtime runtime(arena, limits, now);
  Interpreter interpreter(*program_, runtime);
  try {
    for (const Binding& binding : bindings) interpreter.Bind(binding.name, binding.value);
    interpreter.Run();
  } catch (const Failure& failure) {
    if (failure.status.code() == kTemplateRaised) return failure.status;
    return failure.status.WithContext(fmt::format("template line {}", interpreter.line()));
  }
  TextBuilder& out = interpreter.output();
  Rendered rendered;
  rendered.flips = out.flips();
  rendered.text = out.TakeText();
  return rendered;
}

const std::vector<std::string>& Template::missing() const { return program_->missing; }

bool Template::Uses(std::string_view name) const {
  return std::find(program_->names.begin(), program_->names.end(), name) != program_->names.end();
}

bool Template::IteratesContent() const {
  const ContentNames names(*program_);
  return std::any_of(program_->statements.begin(), program_->statements.end(),
                     [&](const Statement* s) {
                       return s->kind == StatementKind::kFor && names.IsContent(s->expr);
                     });
}

}  // namespace forebay::text::jinja
