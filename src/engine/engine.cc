#include "engine/engine.h"

#include "base/log.h"

namespace forebay::engine {
namespace {

RequestResult BadRequest(const Request& request, std::string code, std::string param, std::string message) {
  RequestResult result;
  result.line = request.line;
  result.http_status = 400;
  result.error_type = "invalid_request_error";
  result.error_code = std::move(code);
  result.error_param = std::move(param);
  result.error_message = std::move(message);
  return result;
}

bool Deliver(std::vector<RequestResult>* finished, ResultSink& sink) {
  for (RequestResult& result : *finished) {
    if (!sink.Finish(std::move(result))) return false;
  }
  finished->clear();
  return true;
}

}  // namespace

LocalEngine::LocalEngine(std::unique_ptr<runtime::Runtime> runtime, std::unique_ptr<Replica> replica, ModelFacts facts,
                         SequenceContext context, const kernels::KernelSet& kernels)
    : runtime_(std::move(runtime)),
      replica_(std::move(replica)),
      facts_(std::move(facts)),
      context_(std::move(context)),
      kernels_(kernels) {}

std::optional<RequestResult> LocalEngine::Refusal(const Request& request) const {
  for (const std::vector<int32_t>& prompt : request.prompts) {
    if (prompt.empty()) return BadRequest(request, "prompt_empty", "prompt", "the prompt has no tokens; expected at least one");
    for (const int32_t token : prompt) {
      if (token >= 0 && token < facts_.vocab_size) continue;
      return BadRequest(request, "token_out_of_vocabulary", "prompt",
                        fmt::format("token id {} is outside the vocabulary of {}", token, facts_.vocab_size));
    }
    const auto length = static_cast<int64_t>(prompt.size());
    const int64_t asked = request.sampling.max_tokens;
    const int64_t least = asked == 0 ? 0 : 1;
    if (length + std::max(asked, least) <= facts_.max_model_len) continue;
    const std::string wanted = asked > 0 ? fmt::format(" and {} tokens of output", asked) : "";
    return BadRequest(request, "context_length_exceeded", asked > 0 ? "max_tokens" : "prompt",
                      fmt::format("This model's maximum context length is {} tokens. However, the prompt has {} tokens{}. "
                                  "Shorten the prompt or lower max_tokens.",
                                  facts_.max_model_len, length, wanted));
  }
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    if (token >= 0 && token < facts_.vocab_size) continue;
    return BadRequest(request, "token_out_of_vocabulary", "logit_bias",
                      fmt::format("logit_bias names token id {}, outside the vocabulary of {}", token, facts_.vocab_size));
  }
  return std::nullopt;
}

bool LocalEngine::TakeRequests(RequestSource& source, ResultSink& sink) {
  while (replica_->WantsRequests()) {
    // While choices run the device must not wait for a slow line.
    std::optional<Request> request = source.Next(replica_->idle());
    if (!request) return true;
    if (std::optional<RequestResult> refusal = Refusal(*request)) {
      if (!sink.Finish(std::move(*refusal))) return false;
      continue;
    }
    replica_->Take(MakeRequestState(std::move(*request), context_));
  }
  return true;
}

RunEnd LocalEngine::Run(RequestSource& source, ResultSink& sink, RunControl& control) {
  run_start_ = runtime_->Now();
  first_result_seconds_ = -1;
  std::vector<RequestResult> finished;
  while (true) {
    if (control.abort) return RunEnd::kAborted;
    const bool draining = control.drain;
    if (draining) {
      replica_->DropUnstarted();
    } else if (!TakeRequests(source, sink)) {
      return RunEnd::kSinkFailed;
    }
    const StepEnd end = replica_->Step(&finished);
    if (!finished.empty() && first_result_seconds_ < 0) {
      first_result_seconds_ = static_cast<double>(runtime_->Now() - run_start_) * 1e-9;
    }
    if (!Deliver(&finished, sink)) return RunEnd::kSinkFailed;
    if (end == StepEnd::kStalled) {
      base::Log(base::LogLevel::kError, "stalled: " + replica_->what_stalled());
      return RunEnd::kStalled;
    }
    if (end == StepEnd::kIdle && draining) return RunEnd::kDrained;
    if (end == StepEnd::kIdle && source.ended()) return control.drain ? RunEnd::kDrained : RunEnd::kComplete;
  }
}

EngineStats LocalEngine::stats() const {
  EngineStats stats = replica_->stats();
  stats.first_result_seconds = first_result_seconds_;
  stats.mode_counters["steps." + std::string(kernels_.name)] = stats.steps;
  return stats;
}

}  // namespace forebay::engine
