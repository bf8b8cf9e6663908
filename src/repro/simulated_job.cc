#include "repro/simulated_job.h"

#include <algorithm>

#include "engine/compose.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::repro {
namespace {

class LengthSource : public RequestSource {
 public:
  explicit LengthSource(const std::vector<RequestLength>& lengths) : lengths_(lengths) {}
  std::optional<Request> Next(bool wait) override {
    if (ended()) return std::nullopt;
    const RequestLength& length = lengths_[next_];
    Request request;
    request.line = static_cast<int64_t>(next_++);
    request.prompts = {std::vector<int32_t>(static_cast<size_t>(length.prompt_tokens), 0)};
    request.sampling.ignore_eos = true;
    request.ends_after = length.output_tokens;
    return request;
  }
  bool ended() const override { return next_ == lengths_.size(); }

 private:
  const std::vector<RequestLength>& lengths_;
  size_t next_ = 0;
};

class ForgetfulSink : public ResultSink {
 public:
  bool Finish(RequestResult result) override { return true; }
};

class Steps : public StepObserver {
 public:
  explicit Steps(SimulatedRun* run) : run_(run) {}
  void OnStep(const StepRecord& record) override {
    run_->steps.push_back(record);
    run_->seconds = std::max(run_->seconds, record.end_seconds);
  }

 private:
  SimulatedRun* run_;
};

base::Status RunJob(runtime::Runtime& runtime, const engine::EngineOptions& options, const engine::ModelFiles& files,
                    const std::vector<RequestLength>& lengths, SimulatedRun* run) {
  FB_ASSIGN_OR_RETURN(auto engine, engine::CreateEngine(runtime, options, files, nullptr));
  LengthSource source(lengths);
  ForgetfulSink sink;
  Steps steps(run);
  RunControl control;
  engine->SetStepObserver(&steps);
  engine->Run(source, sink, control);
  run->facts = engine->facts();
  run->stats = engine->stats();
  run->profile = engine->Profile();
  return base::Status::Ok();
}

}  // namespace

double SimulatedRun::SecondsIn(cost::OpKind kind) const {
  double seconds = 0;
  for (const device::OpProfile& op : profile) seconds += op.kind == kind ? op.seconds : 0;
  return seconds;
}

base::Result<SimulatedRun> Simulate(const engine::EngineOptions& options, const std::vector<RequestLength>& lengths) {
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, options.seed));
  runtime::VirtualRuntime runtime(options.seed);
  SimulatedRun run;
  base::Status status;
  FB_RETURN_IF_ERROR(runtime.Run([&] { status = RunJob(runtime, options, files, lengths, &run); }));
  FB_RETURN_IF_ERROR(status);
  return run;
}

}  // namespace forebay::repro
