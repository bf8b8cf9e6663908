// An engine for tests: answers are a function of the request alone, finished in a seeded order.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "forebay/engine.h"
#include "job/testing/fake_pipeline.h"

namespace forebay::job {

class FakeEngine : public Engine {
 public:
  static constexpr size_t kRunning = 7;

  explicit FakeEngine(uint64_t seed = 1) : rng_(seed) {
    facts_ = {.name = "tiny",
              .vocab_size = FakePipeline::kVocabulary,
              .max_model_len = 300,
              .numerics_class = "pair-fake"};
  }

  const ModelFacts& facts() const override { return facts_; }

  std::optional<RequestResult> Refusal(const Request& request) const override {
    for (const auto& prompt : request.prompts) {
      if (static_cast<int32_t>(prompt.size()) <= facts_.max_model_len) continue;
      return RequestResult{.id = request.id,
                           .http_status = 400,
                           .error_type = "invalid_request_error",
                           .error_message = "the prompt has too many tokens",
                           .error_param = "prompt",
                           .error_code = "context_length_exceeded"};
    }
    return std::nullopt;
  }

  RunEnd Run(RequestSource& source, ResultSink& sink, RunControl& control) override {
    std::vector<Request> running;
    for (bool ended = false;;) {
      if (before_step) before_step();
      if (control.abort) return RunEnd::kAborted;
      while (!ended && !control.drain && running.size() < kRunning) {
        std::optional<Request> request = source.Next(!stays_open || running.empty());
        ended = !request && (!stays_open || source.ended());
        if (request) running.push_back(std::move(*request));
        if (!request && !ended) break;
      }
      if (control.abort) return RunEnd::kAborted;
      if (running.empty() && !ended && !control.drain) continue;
      if (running.empty()) return control.drain ? RunEnd::kDrained : RunEnd::kComplete;
      if (end_instead && stats().requests_finished >= end_after) return *end_instead;
      if (hang_in_drain && control.drain) continue;
      std::swap(running[rng_.Below(running.size())], running.back());
      RequestResult result = Answer(running.back());
      running.pop_back();
      Count(result);
      if (!sink.Finish(std::move(result))) return RunEnd::kSinkFailed;
      if (after_result) after_result(stats().requests_finished);
    }
  }

  void SetStepObserver(StepObserver*) override {}
  void Cancel(int64_t) override {}
  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  std::function<void()> before_step;
  std::function<void(int64_t finished)> after_result;
  std::optional<RunEnd> end_instead;
  int64_t end_after = 0;
  bool hang_in_drain = false;
  bool stays_open = false;  // a source that has nothing has not ended

 private:
  static RequestResult Answer(const Request& request) {
    RequestResult result{.id = request.id};
    for (size_t i = 0; i < request.prompts.size() * static_cast<size_t>(request.n); ++i) {
      const auto& prompt = request.prompts[i / static_cast<size_t>(request.n)];
      Choice choice{.index = static_cast<int32_t>(i)};
      const size_t most = request.sampling.max_tokens < 0
                              ? prompt.size()
                              : static_cast<size_t>(request.sampling.max_tokens);
      for (size_t k = 0; k < std::min(most, prompt.size()); ++k)
        choice.tokens.push_back('a' + (prompt[k] + static_cast<int32_t>(k + i)) % 26);
      choice.text = FakePipeline().Decode(choice.tokens);
      result.completion_tokens += static_cast<int64_t>(choice.tokens.size());
      result.choices.push_back(std::move(choice));
    }
    // Out of order: sorting is the job's business.
    std::reverse(result.choices.begin(), result.choices.end());
    for (const auto& prompt : request.prompts)
      result.prompt_tokens += static_cast<int64_t>(prompt.size());
    return result;
  }

  void Count(const RequestResult& result) {
    const std::lock_guard lock(mutex_);
    ++stats_.requests_finished;
    stats_.prompt_tokens += result.prompt_tokens;
    stats_.output_tokens += result.completion_tokens;
    stats_.computed_tokens += result.prompt_tokens + result.completion_tokens;
    stats_.first_result_seconds = 0.5;
    stats_.mode_counters["rows_decode"] += result.completion_tokens;
  }

  ModelFacts facts_;
  base::Rng rng_;
  mutable std::mutex mutex_;
  EngineStats stats_;
};

}  // namespace forebay::job
