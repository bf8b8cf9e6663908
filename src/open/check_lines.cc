#include "open/check_lines.h"

#include <fmt/core.h>

#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/refusal.h"
#include "job/check_lines.h"
#include "open/model_files.h"

namespace forebay::open {
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

base::Status CheckLines(const job::JobFile& input, const job::ModelOptions& options,
                        int64_t max_model_len) {
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, OpenModelFiles(options, false));
  FB_ASSIGN_OR_RETURN(const std::unique_ptr<job::ModelText> text, LoadText(options.text, files));
  ModelFacts facts = FactsOf(files);
  facts.max_model_len = max_model_len;
  const job::RequestRules rules = RulesOf(options, files, facts);
  return job::CheckAllLines(input, rules, *text, Refuser(std::move(facts)), [] { return false; });
}

}  // namespace forebay::open
