#include "engine/choices/sequence.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/choices/cancellations.h"

namespace forebay::engine {
namespace {

base::Part PooledRows(const model::Pooling& pooling, int64_t tokens) {
  switch (pooling.rows) {
    case model::Pooling::Rows::kLast: return {tokens - 1, tokens};
    case model::Pooling::Rows::kFirst: return {0, 1};
    case model::Pooling::Rows::kMean: break;
  }
  return {0, tokens};
}

RequestFacts FactsOf(const Request& request, int32_t choice) {
  const SamplingParams& params = request.sampling;
  return {.job_order = (request.id << 16) + std::min(choice, 0xFFFF),
          .deadline = request.deadline_seconds,
          .ends_after = request.ends_after,
          .service = request.service,
          .stream = request.stream,
          .uses_counts = params.presence_penalty != 0 || params.frequency_penalty != 0 ||
                         params.repetition_penalty != 1};
}

std::unique_ptr<Sequence> MakeSequence(RequestState* state, int32_t index,
                                       const SequenceContext& context, int64_t expected_output) {
  const SamplingParams& params = state->request.sampling;
  auto sequence = std::make_unique<Sequence>();
  sequence->request = state;
  sequence->facts = FactsOf(state->request, index);
  sequence->choice_index = index;
  sequence->prompt_index = index / state->request.n;
  std::vector<int32_t>& prompt = state->request.prompts[sequence->prompt_index];
  const bool last_to_need_it = (index + 1) % state->request.n == 0;
  sequence->tokens = last_to_need_it ? std::move(prompt) : prompt;
  sequence->prompt_tokens = sequence->known();
  if (params.prompt_logprobs >= 0 && sequence->first_of_prompt()) {
    const std::vector<int32_t>& from = state->request.prompt_logprobs_from;
    sequence->logprobs_from = std::max(1, from.empty() ? 1 : from[sequence->prompt_index]);
  }
  if (state->request.pooled && context.pooling)
    sequence->pooled_rows = PooledRows(*context.pooling, sequence->prompt_tokens);
  if (const std::vector<int32_t>& second = state->request.second_texts; !second.empty())
    sequence->second_text = second[sequence->prompt_index];
  if (context.prompts_differ) sequence->salt.prompt_tokens = sequence->prompt_tokens;
  const int64_t room = context.max_model_len - sequence->prompt_tokens;
  const int64_t wanted = params.most_tokens();
  sequence->max_generated = wanted < 0 ? room : std::min(room, wanted);
  sequence->bounded = wanted >= 0;
  // How long an answer without a bound will be is guessed. The guess orders requests, and ends
  // none.
  sequence->expected_tokens =
      sequence->prompt_tokens +
      (wanted < 0 ? std::min(room, expected_output) : sequence->max_generated);
  sequence->stop.emplace(params, context.eos_token_ids, sequence->max_generated);
  if (context.tokenizer) {
    sequence->detokenizer =
        std::make_unique<text::Detokenizer>(*context.tokenizer, params.skip_special_tokens);
    // A leading space of the answer's first word is its own.
    sequence->detokenizer->Follow(sequence->tokens);
  }
  sequence->result.index = index;
  return sequence;
}

int64_t WholeBlocks(int64_t tokens) { return tokens / kv::kBlockTokens * kv::kBlockTokens; }

// Choices of one prompt share its full blocks, but for its last token, which is always computed.
// Prompts of which each is scored from some position on share what they have in common before that.
void SharePrefixes(RequestState* state) {
  const auto& sequences = state->sequences;
  const auto n = static_cast<size_t>(state->request.n);
  Sequence& first = *sequences.front();
  if (n == 1 && sequences.size() > 1 && !state->request.prompt_logprobs_from.empty()) {
    int64_t common = first.max_cached();
    for (const auto& each : sequences) {
      const auto [end, other] = std::ranges::mismatch(first.tokens, each->tokens);
      common = std::min({common, each->max_cached(), end - first.tokens.begin()});
    }
    common = WholeBlocks(common);
    first.may_compute_prefix = true;
    state->prefixes.push_back({.computes = &first, .tokens = common, .committed_at = common});
    return;
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    sequence.prefix_index = sequence.prompt_index;
    if (i % n != 0) continue;
    sequence.may_compute_prefix = true;
    state->prefixes.push_back({.computes = &sequence,
                               .tokens = WholeBlocks(sequence.prompt_tokens - 1),
                               .committed_at = sequence.prompt_tokens});
  }
}

RequestResult ServerError(int64_t id, base::ErrorCode code, std::string message) {
  return {.id = id,
          .http_status = 500,
          .error_type = "server_error",
          .error_message = std::move(message),
          .error_code = code.name};
}

}  // namespace

bool Sequence::first_of_prompt() const { return choice_index % request->request.n == 0; }

bool Sequence::AfterToken(int32_t token) {
  const bool ends = stop->AddToken(token), forced = generated() == facts.ends_after;
  if (!ends && !forced && !detokenizer) return false;
  if (detokenizer && stop->wants_text()) {
    const std::string piece = detokenizer->Append(token);
    stop->AddText(piece, detokenizer->Held());
  }
  const std::optional<sample::Finish>& finish = stop->finish();
  if (!finish && !forced) return false;
  if (finish) {
    result.finish_reason = finish->reason;
    result.stop_token = finish->stop_token;
    result.stop_string = finish->stop_string;
  } else {
    result.finish_reason = FinishReason::kStop;
  }
  result.text = stop->TakeText();
  if (detokenizer && !result.stop_string) result.text += detokenizer->Flush();
  return true;
}

ChoicePiece Sequence::TakePiece() {
  ChoicePiece piece{.id = request->request.id, .choice = choice_index};
  // Characters that may still become part of a stop string are not told before that is settled.
  const bool ended = stop->finish() || generated() == facts.ends_after;
  const std::string& text = ended ? result.text : stop->text();
  const size_t settled = ended ? text.size() : stop->settled_text();
  if (settled > told_text) piece.text = text.substr(told_text, settled - told_text);
  told_text = std::max(told_text, settled);
  const auto first = static_cast<std::ptrdiff_t>(std::exchange(told_tokens, generated()));
  piece.tokens.assign(tokens.begin() + prompt_tokens + first, tokens.end());
  if (!result.logprobs.empty())
    piece.logprobs.assign(result.logprobs.begin() + first, result.logprobs.end());
  return piece;
}

int64_t LogprobBytes(int64_t positions, int32_t alternatives) {
  constexpr int64_t kHeapBlock = 16;  // the allocator's own
  if (alternatives < 0) return 0;
  // The position's own token is not always among the alternatives.
  return positions * (static_cast<int64_t>(sizeof(PositionLogprobs)) + kHeapBlock +
                      (int64_t{alternatives} + 1) * static_cast<int64_t>(sizeof(TokenLogprob)));
}

int64_t LogprobBytes(const RequestState& state) {
  const SamplingParams& params = state.request.sampling;
  int64_t bytes = LogprobBytes(state.prompt_tokens, params.prompt_logprobs);
  if (params.logprobs < 0) return bytes;
  for (const auto& sequence : state.sequences) {
    const int64_t tokens = sequence->phase == Phase::kFinished
                               ? sequence->known()
                               : std::max(sequence->known(), sequence->expected_tokens);
    bytes += LogprobBytes(tokens - sequence->prompt_tokens, params.logprobs);
  }
  return bytes;
}

void Sequence::AddPooled(std::span<const float> row) {
  for (size_t i = 0; i < row.size(); ++i) pooled_sum[i] += row[i];
}

std::vector<float> Sequence::VectorOf(std::span<const double> sum) const {
  if (sum.empty()) return {};
  return model::VectorOf(sum, pooled_rows.size(), request->head.get());
}

std::unique_ptr<RequestState> MakeRequestState(Request request, const SequenceContext& context,
                                               int64_t expected_output) {
  auto state = std::make_unique<RequestState>();
  state->request = std::move(request);
  if (state->request.pooled && context.pooling) state->head = context.pooling->head;
  const auto prompts = static_cast<int32_t>(state->request.prompts.size());
  for (const auto& prompt : state->request.prompts) {
    state->prompt_tokens += static_cast<int64_t>(prompt.size());
    if (state->request.sampling.prompt_logprobs >= 0)
      state->prompt_logprobs.emplace_back(prompt.size());
  }
  for (int32_t index = 0; index < prompts * state->request.n; ++index) {
    state->sequences.push_back(MakeSequence(state.get(), index, context, expected_output));
  }
  SharePrefixes(state.get());
  state->unfinished = static_cast<int32_t>(state->sequences.size());
  return state;
}

std::unique_ptr<RequestState> CopyForAnother(const RequestState& state,
                                             const SequenceContext& context) {
  Request request = state.request;
  for (size_t prompt = 0; prompt < request.prompts.size(); ++prompt) {
    const Sequence& first = *state.sequences[prompt * static_cast<size_t>(request.n)];
    request.prompts[prompt].assign(first.tokens.begin(),
                                   first.tokens.begin() + first.prompt_tokens);
  }
  auto copy = MakeRequestState(std::move(request), context);
  for (size_t i = 0; i < copy->sequences.size(); ++i) {
    Sequence& sequence = *copy->sequences[i];
    const Sequence& original = *state.sequences[i];
    sequence.phase = original.phase == Phase::kFinished ? Phase::kFinished : Phase::kWaiting;
    sequence.salt = original.salt;
    sequence.expected_tokens = original.expected_tokens;
    sequence.computed_peak = original.computed_peak;
    sequence.admitted_before = original.admitted_before;
    sequence.counts = original.counts;
    // Text and stop conditions depend on the tokens alone.
    for (int64_t at = original.prompt_tokens; at < original.known(); ++at) {
      sequence.tokens.push_back(original.tokens[static_cast<size_t>(at)]);
      sequence.AfterToken(sequence.tokens.back());
    }
    sequence.result = original.result;
    sequence.pooled_sum = original.pooled_sum;
    sequence.result_vector = original.result_vector;
    sequence.last_token_ns = original.last_token_ns;
    sequence.told_text = original.told_text;
    sequence.told_tokens = original.told_tokens;
  }
  for (size_t prefix = 0; prefix < copy->prefixes.size(); ++prefix) {
    const Sequence* const computes = state.prefixes[prefix].computes;
    Sequence* const same =
        computes ? copy->sequences[static_cast<size_t>(computes->choice_index)].get() : nullptr;
    copy->prefixes[prefix].computes = same;
    if (same) same->may_compute_prefix = true;
  }
  copy->prompt_logprobs = state.prompt_logprobs;
  copy->cached_tokens = state.cached_tokens;
  copy->admitted_ns = state.admitted_ns;
  copy->first_token_ns = state.first_token_ns;
  copy->unfinished = state.unfinished;
  return copy;
}

RequestResult TakeResult(RequestState* state) {
  FB_CHECK(state->unfinished == 0, "request {} has {} unfinished choices", state->request.id,
           state->unfinished);
  if (state->cancelled) return CancelledResult(state->request.id);
  if (state->failed) {
    return ServerError(state->request.id, kLogitsNan,
                       "the model's logits are NaN after this request's tokens; expected numbers");
  }
  RequestResult result;
  result.id = state->request.id;
  result.prompt_tokens = state->prompt_tokens;
  for (const auto& sequence : state->sequences) {
    Choice& choice = sequence->result;
    choice.tokens.assign(sequence->tokens.begin() + sequence->prompt_tokens,
                         sequence->tokens.end());
    result.completion_tokens += static_cast<int64_t>(choice.tokens.size());
    result.choices.push_back(std::move(choice));
    if (!sequence->is_pooled()) continue;
    const std::vector<float>& vector = result.vectors.emplace_back(
        sequence->result_vector.empty() ? sequence->VectorOf(sequence->pooled_sum)
                                        : std::move(sequence->result_vector));
    const auto bad = std::ranges::find_if_not(vector, [](float x) { return std::isfinite(x); });
    if (bad == vector.end()) continue;
    return ServerError(
        state->request.id, kVectorNotFinite,
        fmt::format("element {} of the vector of text {} is {}; expected a finite number (both "
                    "count from 0; another --dtype may help)",
                    bad - vector.begin(), sequence->prompt_index, *bad));
  }
  result.prompt_logprobs = std::move(state->prompt_logprobs);
  result.cached_tokens = state->cached_tokens;
  result.admitted_ns = state->admitted_ns;
  result.first_token_ns = state->first_token_ns;
  return result;
}

}  // namespace forebay::engine
