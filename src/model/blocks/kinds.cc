#include "model/blocks/kinds.h"

#include <algorithm>

namespace forebay::model {

#define FOREBAY_ATTENTION_KINDS(X) X(kNoAttention) X(kStateLayer) X(kGqa) X(kLatentAttention)
#define FOREBAY_FFN_KINDS(X) X(kNoFfn) X(kDenseFfn) X(kPlainFfn) X(kExperts) X(kExpertsBesideDense)

#define FOREBAY_DECLARE_ATTENTION(kind) extern const AttentionKind kind;
#define FOREBAY_DECLARE_FFN(kind) extern const FfnKind kind;
FOREBAY_ATTENTION_KINDS(FOREBAY_DECLARE_ATTENTION)
FOREBAY_FFN_KINDS(FOREBAY_DECLARE_FFN)

namespace {

void PlanNothing(const LayerSite&, LayerPlan*) {}
BlockWorkspace NoAttentionWorkspace(const ModelConfig&, const Shard&, tensor::DType, int64_t,
                                    const StepCapacity&) {
  return {};
}
BlockWorkspace NoFfnWorkspace(const ModelConfig&, const Shard&, tensor::DType, int64_t) {
  return {};
}
void RunNoAttention(const BlockContext&, const kernels::StepBatch&, const kernels::ContextSums&,
                    int64_t) {}
void RunNoFfn(const BlockContext&, int64_t, int32_t) {}

}  // namespace

// Of layers that are one block.
const AttentionKind kNoAttention{
    "none", [](const ModelConfig& config, int64_t layer) { return !config.HasAttention(layer); },
    &PlanNothing, &NoAttentionWorkspace, &RunNoAttention};
const FfnKind kNoFfn{"none",
                     [](const ModelConfig& config, int64_t layer) { return !config.HasFfn(layer); },
                     &PlanNothing, &NoFfnWorkspace, &RunNoFfn};

namespace {

#define FOREBAY_ENTRY(kind) &kind,
const AttentionKind* const kAttentionKinds[] = {FOREBAY_ATTENTION_KINDS(FOREBAY_ENTRY)};
const FfnKind* const kFfnKinds[] = {FOREBAY_FFN_KINDS(FOREBAY_ENTRY)};

template <typename Kinds>
const auto& FirstThatHas(const Kinds& kinds, const ModelConfig& config, int64_t layer) {
  const auto kind =
      std::ranges::find_if(kinds, [&](const auto* each) { return each->has(config, layer); });
  FB_CHECK(kind != std::end(kinds), "layer {} of {} is of no kind that can run", layer,
           config.architecture);
  return **kind;
}

// The most that the blocks of any layer need.
template <typename KindOf, typename... Sizes>
BlockWorkspace MostOf(KindOf kind_of, const ModelConfig& config, const Shard& shard,
                      tensor::DType dtype, const Sizes&... sizes) {
  BlockWorkspace most;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const BlockWorkspace needs = kind_of(config, layer).workspace(config, shard, dtype, sizes...);
    most.bytes = std::max(most.bytes, needs.bytes);
    most.widest_input = std::max(most.widest_input, needs.widest_input);
    most.meeting_bytes = std::max(most.meeting_bytes, needs.meeting_bytes);
  }
  return most;
}

}  // namespace

const AttentionKind& AttentionOf(const ModelConfig& config, int64_t layer) {
  return FirstThatHas(kAttentionKinds, config, layer);
}

const FfnKind& FfnOf(const ModelConfig& config, int64_t layer) {
  return FirstThatHas(kFfnKinds, config, layer);
}

BlockWorkspace AttentionWorkspaceOf(const ModelConfig& config, const Shard& shard,
                                    tensor::DType dtype, int64_t rows,
                                    const StepCapacity& capacity) {
  return MostOf(&AttentionOf, config, shard, dtype, rows, capacity);
}

BlockWorkspace FfnWorkspaceOf(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                              int64_t rows) {
  return MostOf(&FfnOf, config, shard, dtype, rows);
}

}  // namespace forebay::model
