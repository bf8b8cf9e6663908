#include "open/opened_model.h"

#include <fmt/ranges.h>

#include <ctime>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/hash.h"
#include "choose/create_engine.h"
#include "job/files/settings.h"
#include "job/job_clock.h"
#include "job/line_order.h"
#include "layout/plan_checks.h"
#include "open/answer_ends.h"
#include "open/model_files.h"
#include "profile/cpu_cache.h"
#include "settings/table.h"

namespace forebay::open {
namespace {

// Raised by every change that may change an answer of the same request: a job does not resume
// results of another revision.
constexpr int64_t kAnswerRevision = 3;

// A job whose template reads the clock goes on with the one it began with.
base::Status AdoptClock(const std::string& results_path, job::ModelText* text) {
  if (!text->uses_clock()) return base::Status::Ok();
  const std::optional<std::string> clock = job::FindJobClock(results_path);
  if (!clock) return base::Status::Ok();
  FB_ASSIGN_OR_RETURN(const std::tm now, text::ParseClock(*clock));
  text->set_now(now);
  return base::Status::Ok();
}

}  // namespace

base::Result<std::unique_ptr<OpenedModel>> OpenedModel::Open(runtime::Runtime& runtime,
                                                             const job::ModelOptions& options,
                                                             const Purpose& purpose) {
  std::unique_ptr<OpenedModel> opened(new OpenedModel(options));
  layout::EngineOptions& engine = opened->options_.engine;
  FB_ASSIGN_OR_RETURN(opened->files_, OpenModelFiles(options, false));
  const engine::ModelFiles& files = opened->files_;
  FB_ASSIGN_OR_RETURN(opened->text_, LoadText(options.text, files));
  job::ModelText* const text = opened->text_.get();
  AddTokenizerEnds(*text, &opened->files_);
  if (!purpose.results_path.empty() && !purpose.keep_clock)
    FB_RETURN_IF_ERROR(AdoptClock(purpose.results_path, text));
  FB_RETURN_IF_ERROR(DescribeJob(purpose.job, RulesOf(options, files, FactsOf(files)), text,
                                 files.config, &engine));
  // What is refused is not measured for: it takes 16 s.
  FB_RETURN_IF_ERROR(layout::CheckOptions(engine, files.config));
  profile::PriceCpu(runtime, &engine);
  FB_ASSIGN_OR_RETURN(
      opened->engine_,
      choose::CreateEngine(runtime, engine, files, text->tokenizer(), purpose.tell_search));
  opened->facts_ = opened->engine_->facts();
  return opened;
}

job::RequestRules OpenedModel::rules() const { return RulesOf(options_, files_, facts()); }

job::Fingerprints OpenedModel::fingerprints() const {
  using job::Setting;
  settings::RunOptions options;
  static_cast<job::ModelOptions&>(options) = options_;
  const SamplingParams defaults = SamplingDefaults(files_.generation);
  // What settings came to whose values the model's files complete.
  const std::map<Setting, std::string> found = {
      {Setting::kTemplate, fmt::format("{} {}", kAnswerRevision, text_->Fingerprint())},
      {Setting::kNow, text_->uses_clock() ? text_->clock() : ""},
      {Setting::kMaxModelLen, fmt::format("{}", facts().max_model_len)},
      {Setting::kSampling,
       fmt::format("{} {} {} {} {} {} {}", defaults.temperature, defaults.top_p, defaults.min_p,
                   defaults.top_k, defaults.repetition_penalty, defaults.default_max_tokens,
                   fmt::join(files_.generation.eos_token_ids, ",")) +
           options_.defaults.text()}};
  job::SettingsHash hash;
  for (size_t i = 0; i < job::kNumSettings; ++i) {
    const auto mark = static_cast<Setting>(i);
    const auto it = found.find(mark);
    hash.Add(mark, it != found.end() ? it->second : settings::PrintMark(mark, options));
  }
  return {.model = files_.fingerprint,
          .settings = hash.hash(),
          .numerics = base::HashBytes(facts().numerics_class),
          .marks = hash.marks()};
}

job::ResultStyle OpenedModel::style() const {
  std::string fingerprint = "fb-" + facts().numerics_class;
  if (facts().random_weights) fingerprint += "-random-weights";
  if (text_->uses_clock()) fingerprint += job::kClockMark + text_->clock();
  return {.model = facts().name,
          .system_fingerprint = std::move(fingerprint),
          .digests = options_.engine.digest};
}

job::AnswerLines::Parts OpenedModel::AnswerParts() {
  return {text(), fingerprints(), style(), [] { return static_cast<int64_t>(std::time(nullptr)); }};
}

void OpenedModel::FillJob(job::JobOptions* job) {
  job->rules = rules();
  job->fingerprints = fingerprints();
  job->style = style();
  job->isa = engine_->isa();
  if (job->arrivals.seconds.empty())
    job->order = job::OrderOf(options_.engine, *engine_, job->order.order);
  job->learn = [this](std::span<const schedule::EarlierAnswer> answers) {
    engine_->Learn(answers);
  };
}

}  // namespace forebay::open
