#include "model/activations.h"

#include <algorithm>

#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/reduce.h"
#include "model/blocks/kinds.h"
#include "model/blocks/layer_inputs.h"

namespace forebay::model {
namespace {

std::vector<ModeRows> ModesOf(const StepCapacity& capacity, const ReplicaCut& cut) {
  if (capacity.modes.empty()) return {{cut.degrees(), capacity.rows}};
  return capacity.modes;
}

// The most rows that a rank has in its linear layers.
int64_t OwnRows(const StepCapacity& capacity, const ReplicaCut& cut) {
  int64_t most = 0;
  for (const auto& [mode, rows] : ModesOf(capacity, cut))
    most = std::max(most, MostOwnRows(rows, mode));
  return most;
}

BlockWorkspace Most(const BlockWorkspace& a, const BlockWorkspace& b) {
  return {std::max(a.bytes, b.bytes), std::max(a.widest_input, b.widest_input)};
}

// The buffers in order: pairs of (member, bytes), so that the plan and the cut cannot disagree.
template <typename Visit>
void ForEachBuffer(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity,
                   const ReplicaCut& cut, Activations* a, Visit visit) {
  const uint64_t t = tensor::SizeOf(dtype);
  const int64_t own_rows = OwnRows(capacity, cut);
  const auto rows = static_cast<uint64_t>(own_rows);
  const auto logit_rows = static_cast<uint64_t>(cut.last_stage() ? capacity.logit_rows : 0);
  // The most of any rank.
  const auto drawn_rows =
      static_cast<uint64_t>(DrawnRows(static_cast<int64_t>(logit_rows), cut.degrees(), 0).size());
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  BlockWorkspace attention, ffn;
  for (const auto& [mode, mode_rows] : ModesOf(capacity, cut)) {
    const Shard shard = ShardOf(config, cut, mode);
    attention = Most(attention, AttentionWorkspaceOf(config, shard, dtype, mode_rows, capacity));
    const int64_t ffn_rows = std::max(MostOwnRows(mode_rows, mode), capacity.gathered_rows);
    ffn = Most(ffn, FfnWorkspaceOf(config, shard, dtype, ffn_rows));
    ffn = Most(ffn, LayerInputsWorkspace(config, dtype, ffn_rows));
  }
  visit(&a->residual, rows * hidden * t);
  visit(&a->normed,
        static_cast<uint64_t>(kernels::RoomForRows(config.packed, own_rows)) * hidden * t);
  visit(&a->sums, config.AddsPlainly() ? 0 : rows * hidden * sizeof(float));
  visit(&a->embedded, config.layer_input_size > 0 ? rows * hidden * t : 0);
  visit(&a->attention, attention.bytes);
  visit(&a->ffn, ffn.bytes);
  const int64_t widest = std::max({config.hidden_size, ffn.widest_input, attention.widest_input});
  const int64_t most_rows =
      std::max({own_rows, capacity.gathered_rows, static_cast<int64_t>(logit_rows)});
  visit(&a->linear, kernels::LinearWorkspaceBytes(dtype, most_rows, widest, config.packed));
  visit(&a->head_input, logit_rows * hidden * t);
  visit(&a->logits, drawn_rows * static_cast<uint64_t>(config.vocab_size) * sizeof(float));
  visit(&a->gathered, static_cast<uint64_t>(capacity.gathered_rows) * hidden * t);
  visit(&a->returned, static_cast<uint64_t>(capacity.returned_rows) * hidden * sizeof(float));
}

}  // namespace

uint64_t ActivationBytes(const ModelConfig& config, tensor::DType dtype,
                         const StepCapacity& capacity, const ReplicaCut& cut) {
  Activations none;
  uint64_t sum = 0;
  ForEachBuffer(config, dtype, capacity, cut, &none,
                [&](auto*, uint64_t bytes) { sum += base::RoundUp(bytes, 64); });
  return sum;
}

Activations CutActivations(const ModelConfig& config, tensor::DType dtype,
                           const StepCapacity& capacity, device::RegionCutter* cutter,
                           const ReplicaCut& cut) {
  Activations activations;
  ForEachBuffer(config, dtype, capacity, cut, &activations, [&](auto* member, uint64_t bytes) {
    *member = reinterpret_cast<std::remove_reference_t<decltype(*member)>>(
        cutter->Cut(base::RoundUp(bytes, 64)));
  });
  return activations;
}

uint64_t GroupedScratch(const ModelConfig& config, tensor::DType dtype) {
  int64_t depth = 0, panels = 0;  // the most of any matrix
  const auto add = [&](int64_t k, int64_t matrix_panels) {
    depth = std::max(depth, k);
    panels = std::max(panels, matrix_panels);
  };
  const auto plain = [](int64_t columns) { return base::CeilDiv(columns, kernels::kPanelColumns); };
  if (config.moe) {
    const int64_t width = config.moe->intermediate_size;
    add(config.hidden_size, plain(2 * width) + 1);
    add(width, plain(config.hidden_size));
  }
  if (config.mla) {
    const MlaConfig& mla = *config.mla;
    add(mla.qk_nope_head_dim, plain(mla.kv_lora_rank));
    add(mla.kv_lora_rank, plain(std::max(mla.qk_nope_head_dim, mla.v_head_dim)));
  }
  constexpr int64_t kAnyRows = 1 << 20;
  return depth == 0
             ? 0
             : kernels::ExpertsScratch(dtype, kAnyRows, depth, panels, config.forms != nullptr);
}

uint64_t TensorStagingBytes(const ModelConfig& config, tensor::DType dtype,
                            const StepCapacity& capacity, const ReplicaCut& cut) {
  int64_t elements = 0;
  uint64_t expert_rows = 0;  // bytes
  for (const auto& [mode, rows] : ModesOf(capacity, cut)) {
    if (mode.tp == 1) continue;
    const Shard shard = ShardOf(config, cut, mode);
    const auto planes = [&](const kernels::LeafBorders& borders, const Part& leaves) {
      return kernels::NumPlanes(borders.num_leaves, static_cast<int>(leaves.begin),
                                static_cast<int>(leaves.end));
    };
    int64_t most =
        planes(kernels::LeafBorders::ForOutput(config.num_heads, 1), shard.output_leaves);
    for (const int64_t width : {config.intermediate_size, config.MostFfnWidth()}) {
      most = std::max<int64_t>(
          most, planes(kernels::LeafBorders::ForDown(width), FfnCutOf(shard, width).leaves));
    }
    if (config.states) {
      const int64_t heads = config.states->value_heads;
      most = std::max<int64_t>(
          most, planes(kernels::LeafBorders::ForOutput(heads, 1), shard.state_leaves));
    }
    // Where rows may be cut, logits go their own way.
    const int64_t logits =
        cut.last_stage() && cut.sp == 1 ? capacity.logit_rows * shard.vocab.size() : 0;
    elements = std::max({elements, most * MostOwnRows(rows, mode) * config.hidden_size, logits});
    // All rows may go to experts of one rank.
    const int64_t chosen = config.moe ? config.moe->experts_per_token : 0;
    expert_rows = std::max(
        expert_rows, tensor::BytesOf(dtype, static_cast<uint64_t>(MostOwnRows(rows, mode) * chosen *
                                                                  config.hidden_size)));
  }
  if (elements == 0) return 0;
  return fabric::Exchange::StagingBytes(
      std::max(static_cast<uint64_t>(elements) * sizeof(float), expert_rows));
}

uint64_t SequenceStagingBytes(const ModelConfig& config, tensor::DType dtype,
                              const StepCapacity& capacity, const ReplicaCut& cut) {
  uint64_t most = 0;
  for (const auto& [mode, rows] : ModesOf(capacity, cut)) {
    if (mode.sp == 1) continue;
    const uint64_t wanted =
        tensor::BytesOf(dtype, static_cast<uint64_t>(capacity.logit_rows * config.hidden_size));
    const BlockWorkspace attention =
        AttentionWorkspaceOf(config, ShardOf(config, cut, mode), dtype, rows, capacity);
    most = std::max({most, wanted, attention.meeting_bytes});
  }
  return most == 0 ? 0 : fabric::Exchange::StagingBytes(most);
}

uint64_t HeadStagingBytes(const ModelConfig& config, const StepCapacity& capacity,
                          const ReplicaCut& cut) {
  if (cut.sp == 1) return 0;
  // A rank without vocabulary, or before the last stage, meets the others with nothing.
  const int64_t logit_rows = cut.last_stage() ? capacity.logit_rows : 0;
  const int64_t elements = std::max<int64_t>(1, logit_rows * ShardOf(config, cut).vocab.size());
  return fabric::Exchange::StagingBytes(static_cast<uint64_t>(elements) * sizeof(float));
}

uint64_t StageStagingBytes(const ModelConfig& config, tensor::DType dtype,
                           const StepCapacity& capacity, const ReplicaCut& cut) {
  if (cut.last_stage()) return 0;
  return fabric::Handover::StagingBytes(
      tensor::BytesOf(dtype, static_cast<uint64_t>(OwnRows(capacity, cut) * config.hidden_size)));
}

}  // namespace forebay::model
