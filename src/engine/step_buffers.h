// The device arrays of StepBatch for one step of a replica, and the host's hand in them between
// steps.
#pragma once

#include <span>

#include "base/check.h"
#include "base/part.h"
#include "base/units.h"
#include "device/device.h"
#include "kernels/step_batch.h"
#include "kv/book/state_book.h"
#include "layout/step_arrays.h"

namespace forebay::engine {

// Rows of one sequence in the step being built.
struct PlannedRows {
  std::span<const int32_t> tokens;  // tokens of these rows
  int64_t first_position;
  int32_t sequence;
  base::Part logits;  // positions whose logits are wanted, for the prompt's log probabilities
  bool last_logits;   // and those of the last row, to draw from
  int64_t prompt_tokens = 0;  // the sequence's: rows at positions before it are its prompt's
  int64_t second_text = 0;    // rows from this position on have token type 1; 0: none has
  // Sequence::state_place and state_parts; no parts: layers keep no states.
  int32_t state_place = -1;
  std::span<const kv::StatePart> state_parts = {};
};

// Not thread-safe. Arrays are rewritten by Begin; REQUIRES: their step is not running then.
class StepBuffers {
 public:
  // The block tables and the sampled tokens are those of the rank's `shared` buffers (null: it has
  // none yet), since they belong to sequences and not to a step.
  StepBuffers(const layout::StepShape& shape, device::RegionCutter* cutter,
              const StepBuffers* shared = nullptr);

  // Table of a sequence: whole when a sequence is admitted, its new tail when it grows.
  void SetTable(int group, int32_t sequence, size_t from, std::span<const int32_t> blocks);

  // The step of another rank of the replica, rows and all; tables are set on each.
  void CopyStep(const StepBuffers& other);
  void Begin();
  void Add(const PlannedRows& rows);
  // Positions in blocks that another sequence holds too, but for one each: for the price alone.
  void SetRepeated(int64_t positions) { context_.repeated = positions; }
  // Own range = all rows.
  const kernels::StepBatch& Finish();
  // The step as it stands, and the tables as far as they have changed since the last call, which
  // is the same for all steps of the rank. REQUIRES: these are the buffers that tables are set in.
  void SendTables(device::Stream& stream);
  void SendStep(device::Stream& stream) const;
  // What the host has sampled: a later step may refer to it.
  void SendSampled(device::Stream& stream) const;
  // What kernels have drawn: SendSampled sends it again.
  void FetchSampled(device::Stream& stream) const;
  // What kernels have written for the host, in one copy.
  void FetchResults(device::Stream& stream) const;

  const kernels::StepBatch& batch() const { return arrays_.batch; }
  const kernels::ContextSums& context() const { return context_; }
  // Sum over rows of the positions they see.
  int64_t context_tokens() const { return context_.context(); }
  // The position of logit row i, and the digest that the device writes for it.
  int32_t* logit_positions() const { return arrays_.logit_positions; }
  void TakeDigests() { TakeResults(arrays_.batch.num_logit_rows, &digests_); }
  uint64_t* logit_digests() const { return digests_; }
  // Whether kernels draw tokens.
  bool draws() const { return arrays_.draws != nullptr; }
  // What they draw in the step, and the rows whose log probabilities they look at, by rising row.
  // REQUIRES: draws(); at most a draw a sequence, and as many rows.
  void AddDraw(const kernels::DrawRow& draw) { arrays_.draws[num_draws_++] = draw; }
  std::span<const kernels::DrawRow> planned_draws() const {
    return {arrays_.draws, static_cast<size_t>(num_draws_)};
  }
  // Whether there is for lists of so many tokens; less than 0: no list.
  bool HasRoomForLikely(int32_t tokens, int32_t further) const;
  void AddLikely(kernels::LikelyRow row);
  std::span<const kernels::LikelyRow> planned_likely() const {
    return {arrays_.likely, static_cast<size_t>(num_likely_)};
  }
  // Where they put what they find, once all is planned: in the same order, and tokens of all rows.
  void TakeDrawn();
  int32_t* drawn() const { return drawn_; }
  kernels::LikelyHead* likely_heads() const { return likely_heads_; }
  kernels::LikelyToken* likely_tokens() const { return likely_tokens_; }

 private:
  // Of what kernels write for this step.
  template <typename T>
  void TakeResults(int64_t count, T** results) {
    const uint64_t at = base::RoundUp(results_bytes_, alignof(T));
    results_bytes_ = at + static_cast<uint64_t>(count) * sizeof(T);
    FB_CHECK(results_bytes_ <= arrays_.results.size(), "results of {} bytes, room for {}",
             results_bytes_, arrays_.results.size());
    *results = reinterpret_cast<T*>(arrays_.results.data() + at);
  }

  layout::StepArrays arrays_;
  kernels::ContextSums context_;
  int32_t max_rows_ = 0, max_sequences_ = 0, num_draws_ = 0, num_likely_ = 0;
  uint64_t results_bytes_ = 0;
  uint64_t* digests_ = nullptr;
  int32_t* drawn_ = nullptr;
  kernels::LikelyHead* likely_heads_ = nullptr;
  kernels::LikelyToken* likely_tokens_ = nullptr;
  int32_t num_likely_tokens_ = 0;
  // Of the tables, the part that kernels do not know yet.
  const std::byte *changed_begin_ = nullptr, *changed_end_ = nullptr;
  int64_t expanded_blocks_ = 0;
};

}  // namespace forebay::engine
