#include "job/traffic/request_metrics.h"

#include <algorithm>
#include <span>

namespace forebay::job {
namespace {

constexpr double kFirstTokenSeconds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                         1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
constexpr double kRequestSeconds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                      30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
constexpr double kTokens[] = {1,   2,   5,   1e1, 2e1, 5e1, 1e2, 2e2, 5e2, 1e3, 2e3,
                              5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7};
constexpr double kChoices[] = {1, 2, 5, 10, 20};

std::span<const double> TokensUpTo(int64_t most) {
  const auto end = std::ranges::upper_bound(kTokens, static_cast<double>(most));
  return {std::begin(kTokens), end};
}

}  // namespace

RequestMetrics::RequestMetrics(int64_t max_model_len)
    : first_token_(kFirstTokenSeconds),
      end_(kRequestSeconds),
      token_(engine::kTokenSeconds),
      queue_(kRequestSeconds),
      inference_(kRequestSeconds),
      prefill_(kRequestSeconds),
      decode_(kRequestSeconds),
      prompt_tokens_(TokensUpTo(max_model_len)),
      tokens_(TokensUpTo(max_model_len)),
      most_tokens_(TokensUpTo(max_model_len)),
      max_tokens_(TokensUpTo(max_model_len)),
      n_(kChoices) {}

void RequestMetrics::Add(const RequestAsked& asked, const RequestResult& result,
                         runtime::TimeNs now) {
  if (!result.error_message.empty()) {
    (result.error_code == "request_cancelled" ? ends_.abort : ends_.error) += asked.n;
    return;
  }
  int64_t most = 0;
  for (const Choice& choice : result.choices) {
    ++(choice.finish_reason == FinishReason::kStop ? ends_.stop : ends_.length);
    const auto tokens = static_cast<int64_t>(choice.tokens.size());
    tokens_.Add(static_cast<double>(tokens));
    most = std::max(most, tokens);
  }
  prompt_tokens_.Add(static_cast<double>(result.prompt_tokens));
  most_tokens_.Add(static_cast<double>(most));
  n_.Add(asked.n);
  if (asked.max_tokens >= 0) max_tokens_.Add(asked.max_tokens);
  end_.Add(runtime::SecondsOf(now - asked.arrival));
  if (result.admitted_ns < 0) return;
  queue_.Add(runtime::SecondsOf(result.admitted_ns - asked.arrival));
  inference_.Add(runtime::SecondsOf(now - result.admitted_ns));
  if (result.first_token_ns < 0) return;
  prefill_.Add(runtime::SecondsOf(result.first_token_ns - result.admitted_ns));
  first_token_.Add(runtime::SecondsOf(result.first_token_ns - asked.arrival));
  decode_.Add(runtime::SecondsOf(now - result.first_token_ns));
  if (most > 1)
    token_.Add(runtime::SecondsOf(now - result.first_token_ns) / static_cast<double>(most - 1));
}

std::vector<RequestMetrics::Named> RequestMetrics::Histograms(const engine::Meters& meters) const {
  return {{"vllm:time_to_first_token_seconds", first_token_},
          {"vllm:inter_token_latency_seconds", meters.token_gap},
          {"vllm:request_time_per_output_token_seconds", token_},
          {"vllm:e2e_request_latency_seconds", end_},
          {"vllm:request_queue_time_seconds", queue_},
          {"vllm:request_inference_time_seconds", inference_},
          {"vllm:request_prefill_time_seconds", prefill_},
          {"vllm:request_decode_time_seconds", decode_},
          {"vllm:iteration_tokens_total", meters.step_rows},
          {"vllm:request_prompt_tokens", prompt_tokens_},
          {"vllm:request_generation_tokens", tokens_},
          {"vllm:request_max_num_generation_tokens", most_tokens_},
          {"vllm:request_params_max_tokens", max_tokens_},
          {"vllm:request_params_n", n_}};
}

}  // namespace forebay::job
