// The engine: one queue of requests, replicas that pull from it, results in completion order.
#pragma once

#include <memory>
#include <vector>

#include "engine/options.h"
#include "engine/replica.h"
#include "forebay/engine.h"
#include "runtime/runtime.h"

namespace forebay::engine {

class LocalEngine : public Engine {
 public:
  LocalEngine(std::unique_ptr<runtime::Runtime> runtime, std::unique_ptr<Replica> replica, ModelFacts facts,
              SequenceContext context, const kernels::KernelSet& kernels);

  const ModelFacts& facts() const override { return facts_; }
  std::optional<RequestResult> Refusal(const Request& request) const override;
  RunEnd Run(RequestSource& source, ResultSink& sink, RunControl& control) override;
  EngineStats stats() const override;
  std::string isa() const { return kernels_.name; }
  // Time by operation, where profiling is on.
  std::vector<device::OpProfile> Profile() const { return replica_->rank().device().Profile(); }

 private:
  // Takes requests until the replica has enough for the next steps, or none is ready; false: the sink failed.
  bool TakeRequests(RequestSource& source, ResultSink& sink);

  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<Replica> replica_;
  ModelFacts facts_;
  SequenceContext context_;
  const kernels::KernelSet& kernels_;
  std::atomic<double> first_result_seconds_{-1};
  runtime::TimeNs run_start_ = 0;
};

}  // namespace forebay::engine
