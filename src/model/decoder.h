// The layer program of a decoder: the loop over its layers, whose kinds of blocks stand in blocks/.
// Everything is enqueued on the rank's compute stream; nothing here waits, allocates or looks at
// data. With tp or pp each rank of the replica runs it over its shard; together their bytes are
// those of one rank.
#pragma once

#include "model/blocks/block.h"
#include "model/remote_ffn.h"
#include "model/step_key.h"

namespace forebay::model {

struct Decoder : BlockContext {
  RemoteFfn* remote_ffn = nullptr;  // null: the rank computes all its layers itself

  // Embeds the rows and runs all layers; K and V of every row are in the cache afterwards.
  // `sums`: the contexts of these rows, for the price alone. In a mode that meets the ranks that
  // share the weights run the same step; one without rows calls Serve instead.
  void Forward(const kernels::StepBatch& whole, const kernels::ContextSums& sums,
               const StepMode& mode = {}) const;
  void Serve(const StepMode& mode) const;
  // The rows batch.logit_rows[first .. first + count) after the final norm into
  // activations.head_input; all ranks of the last stage call it, and have them all.
  // REQUIRES: count <= capacity.logit_rows.
  void WantedRows(const kernels::StepBatch& batch, int32_t first, int32_t count) const;
  // Logits of the rank's part (DrawnRows) of the `count` rows there into activations.logits.
  void Logits(int32_t count) const;

 private:
  // What a layer's meetings count.
  struct Meetings {
    uint64_t tensor = 0, sequence = 0;  // the exchanges'
    int64_t meetings = 0, bytes_all_to_all = 0, bytes_all_reduce = 0;
    RemoteFfn::Counts remote;
  };
  template <typename Body>
  void RunLayers(const StepKey& key, Body&& body) const;
  Meetings CountMeetings() const;
  // Counts what was counted since `before` another `times` times.
  void RepeatMeetings(const Meetings& before, int64_t times) const;
  // Equal for layers that differ only in their weights' values, that agree on which weights are
  // pooled, and in which ranks do the same together.
  int64_t KindOf(int64_t layer, const StepMode& mode) const;
  void FeedForward(int64_t layer, int32_t rows, const StepMode& mode) const;
  // The rows of the step that this rank has in its linear layers.
  Part OwnRows(const kernels::StepBatch& batch) const;
  // The norm of wanted rows, wherever they are, into activations.head_input.
  void GatherWanted(const kernels::StepBatch& batch, int32_t first, int32_t count) const;
};

}  // namespace forebay::model
