#include "job/check_lines.h"

#include <fmt/core.h>

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/refusal.h"
#include "job/request_builder.h"

namespace forebay::job {
namespace {

// Knows what an engine of this model would refuse, and runs nothing.
class Refuser final : public Engine {
 public:
  explicit Refuser(ModelFacts facts) : facts_(std::move(facts)) {}
  const ModelFacts& facts() const override { return facts_; }
  std::optional<RequestResult> Refusal(const Request& request) const override {
    return engine::RefusalOf(request, facts_);
  }
  RunEnd Run(RequestSource&, ResultSink&, RunControl&) override {
    FB_CHECK(false, "{} is not loaded", facts_.name);
  }
  void Cancel(int64_t) override {}
  EngineStats stats() const override { return {}; }
  void SetStepObserver(StepObserver*) override {}

 private:
  const ModelFacts facts_;
};

}  // namespace

base::Status CheckAllLines(const JobFile& input, const RequestRules& rules, TextPipeline& text,
                           const Engine& engine, const std::function<bool()>& ending) {
  RequestBuilder builder(input, rules, text, &engine);
  int64_t num_bad = 0;
  for (size_t ordinal = 0; ordinal < input.size() && !ending(); ++ordinal) {
    FB_ASSIGN_OR_RETURN(const BuiltLine built, builder.Build(ordinal));
    if (!built.error) continue;
    ++num_bad;
    base::Log(base::LogLevel::kError,
              fmt::format("{}: line {}: {} [{}]", input.path(), input[ordinal].line + 1,
                          built.error->message, built.error->code));
  }
  if (num_bad == 0) return {};
  return base::Status(
      kBadLines, fmt::format("{}: {} of {} lines are bad; --strict runs nothing then", input.path(),
                             num_bad, input.size()));
}

base::Status CheckAllLines(const JobFile& input, ModelOptions options, int64_t max_model_len) {
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, OpenModelFiles(options, false));
  options.text.path = options.engine.model;
  options.text.gguf = files.gguf;
  FB_ASSIGN_OR_RETURN(const std::unique_ptr<ModelText> text, ModelText::Load(options.text));
  ModelFacts facts = FactsOf(files);
  facts.max_model_len = max_model_len;
  const RequestRules rules = RulesOf(options, files, facts);
  return CheckAllLines(input, rules, *text, Refuser(std::move(facts)), [] { return false; });
}

}  // namespace forebay::job
