// A choice on its way: the tokens it has, where its KV lies, and what has come of it so far. And
// the request that its choices make up together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/part.h"
#include "base/status.h"
#include "forebay/request.h"
#include "kv/book/block_book.h"
#include "kv/book/state_book.h"
#include "kv/book/tier_book.h"
#include "model/pooling/pooling.h"
#include "sample/sampler.h"
#include "sample/stop.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace forebay::engine {

struct RequestState;

// Where a choice stands.
enum class Phase : uint8_t { kWaiting, kRunning, kFinished };

// What a choice that waits has below the device: KV from `first_block` on, and its layers' states.
struct ParkedKv {
  bool prefix = false;  // found there: others have put it there
  kv::TierStay stay;
  int64_t kv_blocks = 0;            // of the stay; those behind them have the parts of the states
  int64_t computed = 0;             // positions
  int64_t first_block = 0;          // in its tables
  std::vector<int64_t> first_held;  // by KV group: positions before it are nowhere any more

  std::span<const kv::BlockId> states() const {
    return std::span(stay.blocks).subspan(static_cast<size_t>(kv_blocks));
  }
};

// A full block of a running choice that lies below.
struct StreamedKv {
  kv::BlockId below;
  uint64_t digest;  // its K's and V's
};

// What each step asks of a choice's request.
struct RequestFacts {
  int64_t job_order = 0;  // line, then choice
  double deadline = 0;
  int32_t ends_after = 0;
  Service service = Service::kBatch;
  bool stream = false;
  bool uses_counts = false;  // a penalty is on
};

struct alignas(64) Sequence {
  // First what each step reads or writes of each running choice, so that it lies side by side.
  RequestState* request = nullptr;
  std::vector<int32_t> tokens;  // prompt, then generated
  int64_t prompt_tokens = 0;
  int64_t computed = 0;  // positions in the KV cache
  // rows below were computed before (a preempted choice computes them again)
  int64_t computed_peak = 0;
  int64_t expected_tokens = 0;  // prompt and output, a guess where the output has no bound
  int64_t max_generated = 0;    // max_tokens, within the context
  RequestFacts facts;
  int64_t last_token_ns = -1;                      // when its last token was known; -1: it has none
  std::unique_ptr<text::Detokenizer> detokenizer;  // null without a tokenizer
  kv::SequenceId id = -1;                          // while running
  // Where layers keep states (engine/choices/state_places.h): the place of the one behind
  // `computed` positions, -1 where there are none.
  int32_t state_place = -1;
  Phase phase = Phase::kWaiting;
  bool in_flight = false;           // a step with rows of it was not committed yet
  bool bounded = false;             // the request bounds its output
  bool sampled_on_device = false;   // the last token was sampled into StepBatch::sampled[id]
  bool may_compute_prefix = false;  // SharedPrefix::computes may be this one
  // Its request is handed over once the steps in flight with rows of it have ended; no more begin.
  bool going_over = false;
  std::optional<sample::StopConditions> stop;

  int32_t prompt_index = 0;
  int32_t choice_index = 0;  // prompt_index * n + j
  int32_t prefix_index = 0;  // of RequestState::prefixes
  bool admitted_before = false;
  int64_t second_text = 0;    // where its prompt's second text begins; 0: it is no pair
  int64_t logprobs_from = 0;  // log probabilities of its prompt are wanted from here on; 0: none
  base::Part pooled_rows;     // the positions that its vector is made of; empty: it has no vector
  std::vector<double> pooled_sum;    // over the computed ones, in the order of positions
  std::vector<float> result_vector;  // where a rank has made it; else it is that of pooled_sum
  kv::KeySalt salt;                  // its blocks' keys have it
  // The keys of its first full blocks, as far as they were looked up.
  std::vector<kv::PrefixKey> prefix_keys;
  int64_t expected_rows = 0;  // while waiting: rows until its prompt is computed, a guess
  std::vector<kv::StatePart> state_parts;  // where the step in flight leaves its layers' states
  std::unique_ptr<ParkedKv> parked;        // while waiting; null: it has nothing below
  // While running: its first blocks that lie below and are read from there.
  std::vector<StreamedKv> streamed;
  int64_t sealed_blocks = 0;  // blocks of the prompt that went below for the next job
  int64_t park_id = 0;        // marks the keys below that are its own; 0: none yet
  // The digest of K and V in the blocks that were let go since it was admitted.
  uint64_t let_go_digest = 0;
  sample::TokenCounts counts;  // kept only where a penalty is on
  Choice result;
  // What the pieces of a request that streams have told.
  size_t told_text = 0, told_tokens = 0;

  int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  int64_t generated() const { return known() - prompt_tokens; }
  std::span<const int32_t> output() const {
    return std::span(tokens).subspan(static_cast<size_t>(prompt_tokens));
  }
  int64_t room() const { return max_generated - generated(); }
  // Tokens that are expected and not yet computed.
  int64_t tokens_left() const { return std::max<int64_t>(0, expected_tokens - computed_peak); }
  // Those among them that its next token needs.
  int64_t new_rows() const {
    return std::max<int64_t>(0, known() - std::max(computed, computed_peak));
  }
  int64_t output_left() const { return std::min(tokens_left(), expected_tokens - prompt_tokens); }

  // It ran, and waits or leaves.
  void LeaveBook() {
    id = -1;
    sampled_on_device = false;
    phase = Phase::kWaiting;
    computed = 0;
  }

  Service service() const { return facts.service; }
  // The other choices of a prompt share what this one computes.
  bool first_of_prompt() const;
  bool wants_prompt_logprobs() const { return logprobs_from > 0; }
  bool is_pooled() const { return pooled_rows.size() > 0; }
  // The prompt's rows that are used: for log probabilities, or for the vector.
  // Empty: none is.
  base::Part wanted_rows() const {
    return wants_prompt_logprobs()
               ? base::Part{logprobs_from - 1, std::max(logprobs_from, prompt_tokens) - 1}
               : pooled_rows;
  }
  // Positions that it may find computed; rows that are wanted must be computed.
  int64_t max_cached() const {
    return wants_prompt_logprobs() || is_pooled() ? wanted_rows().begin : known() - 1;
  }

  // The token was appended to `tokens`: its text, and whether it ends the choice (then `result` has
  // text and reason).
  bool AfterToken(int32_t token);
  // Adds `count` equal tokens. REQUIRES: none ends the choice, and their text is not wanted.
  void AddTokens(int64_t count, int32_t token) {
    tokens.insert(tokens.end(), static_cast<size_t>(count), token);
    stop->Skip(count);
  }
  // What has come since the last piece. REQUIRES: AfterToken was told of all tokens.
  ChoicePiece TakePiece();
  // The next of its pooled rows; an empty one is none.
  void AddPooled(std::span<const float> row);
  // Its vector, by the sum of all its pooled rows; empty on a device without data.
  std::vector<float> VectorOf(std::span<const double> sum) const;
};

// The begin of a prompt that several choices of a request share: one computes it, the others wait.
struct SharedPrefix {
  // As long as it has not come to its end; null: it was committed, and is there while the cache has
  // it.
  const Sequence* computes = nullptr;
  int64_t tokens = 0;  // whole blocks
  // The shared prefix is complete when `computes` has committed this many positions.
  int64_t committed_at = 0;
};

// One request in the engine. Owns its sequences; finished when all of them are.
struct alignas(64) RequestState {
  // First what each step asks for.
  bool failed = false;     // it has rows whose logits are NaN, and no answer
  bool cancelled = false;  // nor has one that was given up
  int32_t unfinished = 0;
  int64_t admitted_ns = -1, first_token_ns = -1;  // RequestResult's

  Request request;  // its prompts went to the sequences
  // Of a request that is pooled: what a pooled row goes through; null: nothing.
  std::shared_ptr<const model::DenseHead> head;
  std::vector<std::unique_ptr<Sequence>> sequences;
  // One a prompt; or one for all prompts that are scored, which begin alike.
  std::vector<SharedPrefix> prefixes;
  std::vector<std::vector<PositionLogprobs>> prompt_logprobs;
  int64_t prompt_tokens = 0;  // all prompts, each counted once
  int64_t cached_tokens = 0;

  void SetGoingOver(bool going_over) {
    for (const auto& sequence : sequences) sequence->going_over = going_over;
  }
};

// What sequences of all requests have in common.
struct SequenceContext {
  const text::Tokenizer* tokenizer = nullptr;  // null: token ids only
  std::vector<int32_t> eos_token_ids;
  int64_t max_model_len = 0;
  std::optional<model::Pooling> pooling;  // of requests that are pooled
  bool prompts_differ = false;  // rows of prompts, in bits, from generated ones: kv::KeySalt
};

// Host memory that log probabilities of this many positions take, each with `alternatives`;
// negative: none are asked for.
int64_t LogprobBytes(int64_t positions, int32_t alternatives);
// The memory that the request's are expected to take at its end.
int64_t LogprobBytes(const RequestState& state);

// Splits a request into its choices. `expected_output`: tokens of one, where the request does not
// bound it.
std::unique_ptr<RequestState> MakeRequestState(Request request, const SequenceContext& context,
                                               int64_t expected_output = 0);

// A copy of the request that another replica goes on with: what its choices have generated, and no
// KV cache. The original stays as it is, since a device that failed may still read it.
std::unique_ptr<RequestState> CopyForAnother(const RequestState& state,
                                             const SequenceContext& context);

inline constexpr base::ErrorCode kLogitsNan{"logits_nan"};
inline constexpr base::ErrorCode kVectorNotFinite{"vector_not_finite"};
// The finished request's result, or kRequestCancelled, kLogitsNan or kVectorNotFinite, which names
// the element. REQUIRES: unfinished == 0.
RequestResult TakeResult(RequestState* state);

}  // namespace forebay::engine
