// What the blocks of a layer run over, and the steps that they share. A block enqueues operations
// on the context's stream; it waits for nothing, allocates nothing and looks at no data.
#pragma once

#include "kernels/kernel_set.h"
#include "kernels/linear.h"
#include "kernels/route.h"
#include "kv/cache.h"
#include "kv/state/layer_states.h"
#include "kv/tier/window.h"
#include "model/activations.h"
#include "model/decoder_weights.h"
#include "model/shared_weights.h"

namespace forebay::model {

// Layers count within the rank's stage. T is the compute type.
struct BlockContext {
  const ModelConfig* config = nullptr;
  tensor::DType dtype = tensor::DType::kBF16;
  const kernels::KernelSet* kernels = nullptr;
  device::Stream* stream = nullptr;
  DecoderWeights weights;
  SharedWeights* shared = nullptr;  // null: all weights are the rank's own
  StepCapacity capacity;
  Activations activations;
  kv::CacheView kv;
  kv::StateView states;  // of layers that keep one
  // The stage's first layer with attention or a state, which writes its digests where others add to
  // theirs.
  int64_t first_attention = 0;
  kv::Window* window = nullptr;  // null: all blocks are resident
  ReplicaLinks links;
  // Where there is no data, what says which experts rows go to.
  const kernels::RoutingSource* routing = nullptr;
  uint64_t replica = 0, step = 0;  // for `routing`: the replica's number among the job's
  kernels::RoutingCounters* routed = nullptr;  // null: the model has no experts
  // Where the step's choices of experts are kept, [the stage's layers, chosen_rows, experts of a
  // token]; null: nowhere.
  uint16_t* chosen = nullptr;
  int64_t chosen_rows = 0;
  ExchangeCounters* exchanged = nullptr;  // null: not counted
};

// The place of a layer's matrix, the rank's own or an acquired one, for operations enqueued while
// this lives.
class LayerWeight {
 public:
  LayerWeight(const BlockContext& context, int64_t layer, const Role& role);
  ~LayerWeight() {
    if (shared_ != nullptr) shared_->Release(layer_, role_);
  }
  LayerWeight(const LayerWeight&) = delete;
  LayerWeight& operator=(const LayerWeight&) = delete;

  const weights::PlacedWeight& placed() const { return *placed_; }

 private:
  SharedWeights* const shared_;  // null: it is the rank's own
  const int64_t layer_;
  const Role& role_;
  const weights::PlacedWeight* const placed_;
};

// The place of a layer's KV blocks, for operations enqueued while this lives.
class LayerKv {
 public:
  LayerKv(const BlockContext& context, int64_t layer)
      : window_(context.window),
        layer_(layer),
        bases_(window_ ? window_->Acquire(layer)
                       : context.kv.layers[static_cast<size_t>(layer)].bases) {}
  ~LayerKv() {
    if (window_ != nullptr) window_->Release(layer_);
  }
  LayerKv(const LayerKv&) = delete;
  LayerKv& operator=(const LayerKv&) = delete;

  const kernels::KvLayer& bases() const { return bases_; }

 private:
  kv::Window* const window_;
  const int64_t layer_;
  const kernels::KvLayer bases_;
};

// The norms before a layer's blocks, and the projection of what attention gives, of every kind.
inline constexpr Role kAttentionNorm{"attention_norm"}, kOutput{"output"}, kFfnNorm{"ffn_norm"};
// Norms of what a block gives, where the model has them.
inline constexpr Role kAttentionPostNorm{"attention_post_norm"}, kFfnPostNorm{"ffn_post_norm"};
inline constexpr Role kAttentionPostNormBias{"attention_post_norm_bias"},
    kFfnPostNormBias{"ffn_post_norm_bias"};
// ModelConfig::layer_scales: one element.
inline constexpr Role kLayerScale{"layer_scale"};
// The bias of one of these norms; null: it has none.
const Role* BiasOfNorm(const Role& norm);

// Rows of activations, and how they lie.
template <typename Byte>
struct FormedRows {
  Byte* at;
  kernels::RowForm form;

  // Most lie one after the other.
  FormedRows(Byte* rows, kernels::RowForm row_form = kernels::RowForm::kRows)
      : at(rows), form(row_form) {}
};
using RowsIn = FormedRows<const std::byte>;
using RowsOut = FormedRows<std::byte>;

// Rows that a norm takes: of x, whose first row has the number `first_row`, those in `rows`, or all
// in order where that is null.
struct NormedRows {
  const int32_t* rows = nullptr;  // [count]
  int32_t count = 0;
  int32_t first_row = 0;
};
// out [rows.count, hidden] T.
void Norm(const BlockContext& context, const char* label, const std::byte* x, const float* weight,
          const NormedRows& rows, RowsOut out, const float* bias = nullptr);
// The same with one of a layer's norms, of all rows of the residual.
void LayerNorm(const BlockContext& context, int64_t layer, const Role& role, int32_t rows,
               RowsOut out);
// A block's input: that norm in Activations::normed, in that form; or the residual where the layer
// has none.
RowsIn BlockInput(const BlockContext& context, int64_t layer, const Role& role, int32_t rows,
                  kernels::RowForm form = kernels::RowForm::kRows);
// As a matrix of the layer reads x.
kernels::RowForm RowFormOf(const BlockContext& context, int64_t layer, const Role& role);
void Linear(const BlockContext& context, const char* label, const kernels::PackedWeight& weight,
            RowsIn x, RowsOut y, int32_t rows, kernels::LinearOutput output);
// Linear with a matrix of the layer, wherever it comes from.
void LayerLinear(const BlockContext& context, int64_t layer, const Role& role, RowsIn x, RowsOut y,
                 int32_t rows, kernels::LinearOutput output);
// The counters of a meeting that brought bytes of the kind.
void CountMeeting(const BlockContext& context, std::atomic<int64_t> ExchangeCounters::*kind,
                  uint64_t bytes);
// What is added to a block's output before its norm: x W^T through a norm of its own, and `sums`.
struct BesideBlock {
  const Role* norm = nullptr;
  const float* sums = nullptr;  // [rows, hidden]; null: nothing, and no own norm
};
// residual += norm(x W^T) * ModelConfig::residual_factor, or norm(residual + x W^T) where the model
// norms sums, summed over the leaves of all ranks that have these rows; without the norm where the
// layer has none of that role. A layer's feed-forward block, where nothing is behind it, multiplies
// the sum by the layer's scale. Either the ranks meet once and each adds all rows, or each adds its
// part and they meet again to copy the others' parts. The bytes are the same.
void AddLinear(const BlockContext& context, int64_t layer, const Role& role, const Role& norm,
               RowsIn x, int32_t rows, const BesideBlock& beside = {});
// fp32 rows [rows, hidden] through one of a layer's norms, in place and unrounded.
void NormSums(const BlockContext& context, int64_t layer, const Role& role, float* sums,
              int32_t rows);
// What a feed-forward block makes of its gate and up, or of its up alone.
kernels::LinearOutput FfnOutput(const ModelConfig& config);

// The batch with the block tables of a KV group.
kernels::StepBatch InGroup(const kernels::StepBatch& batch, int32_t group);

// Cuts a block's buffers one after another from `at` on, each at a multiple of 64 bytes; null: only
// counts.
class BufferCutter {
 public:
  explicit BufferCutter(std::byte* at) : at_(at) {}
  template <typename T>
  void Cut(T** buffer, uint64_t bytes) {
    *buffer = reinterpret_cast<T*>(at_ == nullptr ? nullptr : at_ + used_);
    used_ += base::RoundUp(bytes, 64);
  }
  uint64_t bytes() const { return used_; }

 private:
  std::byte* const at_;
  uint64_t used_ = 0;
};

}  // namespace forebay::model
