// An engine for each of several jobs: what they ask goes to one engine through a session, which
// other callers may use too. So a job (job.h) is the same whether it has an engine alone or not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "forebay/engine.h"
#include "job/session.h"
#include "runtime/runtime.h"

namespace forebay::job {

// Run is called by one job at a time. Requests compete with those of others in the order in which
// they come; `most_under_way` of the job's are in the session's hands at most, so that none waits
// for a whole job. A drain finishes these.
class SessionEngine final : public Engine {
 public:
  // `engine` is the one behind `session`: facts and counters are its own, over all callers. All
  // outlive this.
  SessionEngine(runtime::Runtime& runtime, Session& session, Engine& engine, size_t most_under_way);

  const ModelFacts& facts() const override { return engine_.facts(); }
  std::optional<RequestResult> Refusal(const Request& request) const override {
    return engine_.Refusal(request);
  }
  RunEnd Run(RequestSource& source, ResultSink& sink, RunControl& control) override;
  void Cancel(int64_t id) override;
  EngineStats stats() const override { return engine_.stats(); }
  // Steps are not one job's: nobody is told.
  void SetStepObserver(StepObserver*) override {}

 private:
  size_t num_under_way() const;
  void Submit(Request request, const std::shared_ptr<Inbox>& inbox);
  void CancelAll();

  runtime::Runtime& runtime_;
  Session& session_;
  Engine& engine_;
  const size_t most_under_way_;
  mutable std::mutex mutex_;              // guards what follows
  std::map<int64_t, int64_t> under_way_;  // the job's ids -> the session's
};

}  // namespace forebay::job
