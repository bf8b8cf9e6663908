#include "model/decoder.h"

#include <algorithm>

#include "model/blocks/kinds.h"
#include "model/blocks/layer_inputs.h"
#include "model/repeat_layers.h"

namespace forebay::model {

void Decoder::Forward(const kernels::StepBatch& whole, const kernels::ContextSums& sums,
                      const StepMode& mode) const {
  // Attention sees all rows of the step, for some heads; everything else computes the rank's own.
  const Part own = OwnRows(whole);
  const auto own_rows = static_cast<int32_t>(own.size());
  kernels::StepBatch batch = whole;
  batch.own_begin = static_cast<int32_t>(own.begin);
  batch.own_end = static_cast<int32_t>(own.end);
  kernels::StepBatch own_batch = batch;
  own_batch.num_rows = own_rows;
  own_batch.tokens += own.begin;
  own_batch.positions += own.begin;
  if (own_batch.types != nullptr) own_batch.types += own.begin;
  const uint64_t residual_bytes =
      tensor::BytesOf(dtype, static_cast<uint64_t>(own.size() * config->hidden_size));
  // The first stage begins with tokens, every other one with what the stage before it has made.
  if (links.last_stage != nullptr) {
    links.last_stage->Receive(*stream, activations.residual, residual_bytes);
  } else {
    kernels::EmbedArgs embed{.dtype = dtype,
                             .batch = own_batch,
                             .table = weights.embedding,
                             .packed = weights.head,
                             .out = activations.residual,
                             .columns = static_cast<int32_t>(config->hidden_size),
                             .factor = config->embedding_factor,
                             .positions = weights.positions,
                             .position_offset = static_cast<int32_t>(config->position_offset),
                             .types = weights.types};
    kernels::Embed(*stream, *kernels, embed);
    if (config->layer_input_size > 0) {
      embed.out = activations.embedded;
      kernels::Embed(*stream, *kernels, embed);
    }
    if (weights.embedding_norm != nullptr) {
      Norm(*this, "embedding_norm", activations.residual, weights.embedding_norm,
           {.count = own_rows}, activations.residual, weights.embedding_norm_bias);
    }
  }
  if (exchanged != nullptr) {
    const int sp = weights.shard.mode.sp;
    ++exchanged->steps;
    exchanged->pad_rows += MostOwnRows(batch.num_rows, weights.shard.mode) * sp - batch.num_rows;
  }
  const bool pulls = mode.pulls();
  if (pulls) shared->BeginStep(mode);
  const StepKey key{.mode = mode,
                    .row_bucket = batch.num_rows,
                    .expands = batch.forms != nullptr && batch.forms->num_prompts > 0};
  RunLayers(key, [&](int64_t layer) {
    weights.layers[layer].attention->run(*this, batch, sums, layer);
    FeedForward(layer, own_rows, mode);
    if (config->layer_input_size > 0) RunLayerInputs(*this, own_batch, layer);
  });
  if (pulls) shared->EndStep();
  if (links.next_stage != nullptr)
    links.next_stage->Send(*stream, activations.residual, residual_bytes);
}

template <typename Body>
void Decoder::RunLayers(const StepKey& key, Body&& body) const {
  RepeatKinds(
      *stream, key, {0, weights.shard.layers.size(), weights.shard.layers.begin},
      [&](int64_t layer) { return KindOf(layer, key.mode); }, body, [&] { return CountMeetings(); },
      [&](const Meetings& before, int64_t others) { RepeatMeetings(before, others); });
}

Decoder::Meetings Decoder::CountMeetings() const {
  Meetings count;
  if (remote_ffn != nullptr) count.remote = remote_ffn->counts();
  if (links.tensor != nullptr) count.tensor = links.tensor->meetings();
  if (links.sequence != nullptr) count.sequence = links.sequence->meetings();
  if (exchanged != nullptr) {
    count.meetings = exchanged->meetings;
    count.bytes_all_to_all = exchanged->bytes_all_to_all;
    count.bytes_all_reduce = exchanged->bytes_all_reduce;
  }
  return count;
}

void Decoder::RepeatMeetings(const Meetings& before, int64_t times) const {
  // One body stands for `times` others that were priced and not enqueued: counters that ranks
  // await, and those that users read, go on as if they had been.
  const Meetings now = CountMeetings();
  const auto more = static_cast<uint64_t>(times);
  if (remote_ffn != nullptr) remote_ffn->Repeat(before.remote, times);
  if (links.tensor != nullptr) links.tensor->Skip(more * (now.tensor - before.tensor));
  if (links.sequence != nullptr) links.sequence->Skip(more * (now.sequence - before.sequence));
  if (exchanged == nullptr) return;
  exchanged->meetings += times * (now.meetings - before.meetings);
  exchanged->bytes_all_to_all += times * (now.bytes_all_to_all - before.bytes_all_to_all);
  exchanged->bytes_all_reduce += times * (now.bytes_all_reduce - before.bytes_all_reduce);
}

void Decoder::Serve(const StepMode& mode) const {
  // Without rows of its own the rank takes part in those layers alone that others need it for.
  RunLayers({.mode = mode}, [&](int64_t layer) {
    if (!remote_ffn->Takes(layer)) return;
    mode.pulls() ? remote_ffn->Meet(*stream) : remote_ffn->Run(*this, layer, 0);
  });
}

int64_t Decoder::KindOf(int64_t layer, const StepMode& mode) const {
  // A kind is numbered by its first layer, and split by what sharing makes unlike: which layers
  // ranks meet in and how, or whether the rank lacks weights of the layer.
  const auto alike = [&](int64_t a, int64_t b) {
    const LayerWeights &x = weights.layers[a], &y = weights.layers[b];
    const int64_t i = weights.shard.layers.begin + a, j = weights.shard.layers.begin + b;
    return x.attention == y.attention && x.ffn == y.ffn &&
           config->ReachOf(i) == config->ReachOf(j) && config->HasRope(i) == config->HasRope(j) &&
           (config->KvLayerOf(i) == i) == (config->KvLayerOf(j) == j);
  };
  int64_t first = 0;
  while (!alike(first, layer)) ++first;
  if (mode.meets()) return first * (weights.shard.layers.size() + 1) + remote_ffn->KindOf(layer);
  return 2 * first + (shared != nullptr && shared->Lacks(layer) ? 1 : 0);
}

void Decoder::FeedForward(int64_t layer, int32_t rows, const StepMode& mode) const {
  if (mode.meets() && remote_ffn->Takes(layer)) {
    if (!mode.pulls()) return remote_ffn->Run(*this, layer, rows);
    // Replicas that gather begin the layer together, and then compute it as any other.
    remote_ffn->Meet(*stream);
  }
  weights.layers[layer].ffn->run(*this, layer, rows);
}

Part Decoder::OwnRows(const kernels::StepBatch& batch) const {
  return RowsOf(batch.num_rows, weights.shard.mode,
                links.sequence == nullptr ? 0 : links.sequence->my_index());
}

void Decoder::WantedRows(const kernels::StepBatch& batch, int32_t first, int32_t count) const {
  if (links.sequence != nullptr) {
    GatherWanted(batch, first, count);
  } else {
    Norm(*this, "final_norm", activations.residual, weights.final_norm,
         {batch.logit_rows + first, count}, activations.head_input, weights.final_norm_bias);
  }
}

void Decoder::GatherWanted(const kernels::StepBatch& batch, int32_t first, int32_t count) const {
  fabric::Exchange& exchange = *links.sequence;
  const uint64_t row_bytes = tensor::BytesOf(dtype, static_cast<uint64_t>(config->hidden_size));
  const int32_t* const wanted = batch.logit_rows + first;
  fabric::GatherBlock blocks[fabric::Exchange::kMaxRanks];
  for (int i = 0; i < exchange.num_ranks(); ++i) {
    const Part rows = RowsOf(batch.num_rows, weights.shard.mode, i);
    const auto begin = std::lower_bound(wanted, wanted + count, rows.begin) - wanted,
               end = std::lower_bound(wanted, wanted + count, rows.end) - wanted;
    blocks[i] = {.row = begin, .rows = end - begin, .bytes = row_bytes};
  }
  const fabric::GatherBlock& own = blocks[exchange.my_index()];
  // Wanted rows count through the whole step, the residual's through the rank's own.
  Norm(*this, "final_norm", activations.residual, weights.final_norm,
       {wanted + own.row, static_cast<int32_t>(own.rows),
        static_cast<int32_t>(OwnRows(batch).begin)},
       exchange.mine(), weights.final_norm_bias);
  const std::span all(blocks, static_cast<size_t>(exchange.num_ranks()));
  fabric::AllGather(*stream, exchange, "wanted_rows", all, activations.head_input, row_bytes);
  CountMeeting(*this, &ExchangeCounters::bytes_head, fabric::BytesFromOthers(exchange, all));
}

// Each rank has whole chunks of the vocabulary; who draws a row gets the others' logits of it.
void Decoder::Logits(int32_t count) const {
  fabric::Exchange* const exchange = links.stage != nullptr ? links.stage : links.tensor;
  auto* const all = reinterpret_cast<std::byte*>(activations.logits);
  std::byte* const own = exchange == nullptr ? all : exchange->mine();
  if (weights.head.n > 0) {
    Linear(*this, "head", weights.head, activations.head_input, own, count,
           kernels::LinearOutput::kF32);
    if (config->logits_factor != 1 || config->logits_cap != 0) {
      kernels::FinishLogits(*stream, *kernels,
                            {.values = reinterpret_cast<float*>(own),
                             .count = int64_t{count} * weights.head.n,
                             .factor = config->logits_factor,
                             .cap = config->logits_cap});
    }
  }
  if (exchange == nullptr) return;
  const Degrees layout = weights.shard.cut.degrees();
  const Part rows = DrawnRows(count, layout, exchange->my_index());
  fabric::GatherBlock blocks[fabric::Exchange::kMaxRanks];
  for (int rank = 0; rank < exchange->num_ranks(); ++rank) {
    const Part vocab = VocabOf(*config, layout, rank);
    const uint64_t bytes = vocab.size() * sizeof(float);
    blocks[rank] = {.rows = rows.size(),
                    .offset = vocab.begin * sizeof(float),
                    .bytes = bytes,
                    .from = rows.begin * bytes};
  }
  const std::span gathered(blocks, static_cast<size_t>(exchange->num_ranks()));
  const uint64_t row_bytes = static_cast<uint64_t>(config->vocab_size) * sizeof(float);
  fabric::AllToAll(*stream, *exchange, "logits_gather", gathered, all, row_bytes);
  CountMeeting(*this, &ExchangeCounters::bytes_head, fabric::BytesFromOthers(*exchange, gathered));
}

}  // namespace forebay::model
