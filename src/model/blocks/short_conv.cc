// Layers that are a short convolution alone (LFM2): of x times a gate before it, and times another
// gate behind it. Stored are rows of the first gate, the second one and x.
#include "model/blocks/state_rules.h"

namespace forebay::model {
namespace {

std::vector<StateTensor> ConvTensors(const StateConfig& net, const StateNames& names) {
  return {{names.qkv, net.inputs()}};
}

// x, the gate before the convolution, the one behind it.
void AddConvRows(const StateConfig& net, const StateNames&, const BlockHeads& block,
                 std::vector<weights::PlannedRows>* rows) {
  for (const int64_t part : {2, 0, 1})
    AddHeadRows(0, part * net.values(), block.heads, net.value_dim, rows);
}

std::vector<Part> ConvChannels(const StateConfig& net, const BlockHeads& block) {
  return {{block.heads.begin * net.value_dim, block.heads.end * net.value_dim}};
}

void AddConvVectors(const LayerSite&, LayerPlan*) {}

void PassConv(const StatePass& pass) {
  const StateShape& net = pass.shape;
  kernels::ShortConvArgs conv = pass.Conv();
  conv.gates_at = static_cast<int32_t>(net.values());
  conv.silu = false;
  kernels::ShortConv(*pass.context.stream, *pass.context.kernels, conv);
  kernels::GatedNormArgs norm = pass.norm;
  norm.x = pass.inputs;
  norm.z = pass.inputs + 2 * net.values();
  norm.gate = kernels::StateGate::kWithoutNorm;
  kernels::GatedNorm(*pass.context.stream, *pass.context.kernels, norm);
}

}  // namespace

const StateRule kShortConvRule{&ConvTensors, &AddConvRows, &ConvChannels, &AddConvVectors,
                               &PassConv};

}  // namespace forebay::model
