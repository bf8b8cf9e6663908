// Gated delta-net layers (arXiv 2412.06464): a convolution over q, k and v, the recurrence, and a
// norm of each head's output, which meets a gate behind it.
#include <algorithm>

#include "model/blocks/state_rules.h"

namespace forebay::model {
namespace {

std::vector<StateTensor> DeltaNetTensors(const StateConfig& net, const StateNames& names) {
  return {{names.qkv, net.channels()},
          {names.z, net.values()},
          {names.b, net.value_heads},
          {names.a, net.value_heads}};
}

// Heads of q, of k, of v, of z, then a value a value head of b and of a.
void AddDeltaNetRows(const StateConfig& net, const StateNames& names, const BlockHeads& block,
                     std::vector<weights::PlannedRows>* rows) {
  const int64_t k = net.key_dim, v = net.value_dim, each = net.value_heads / net.key_heads;
  const auto& [values, keys] = block;
  if (names.qkv != names.z) {
    AddHeadRows(0, 0, keys, k, rows);
    AddHeadRows(0, net.key_heads * k, keys, k, rows);
    AddHeadRows(0, 2 * net.key_heads * k, values, v, rows);
    AddHeadRows(1, 0, values, v, rows);
  } else {  // by key head: q, k, its value heads' v, their z
    const int64_t group = 2 * k + 2 * each * v;
    for (int64_t part = 0; part < 2; ++part) {
      for (int64_t head = keys.begin; head < keys.end; ++head)
        rows->push_back({0, head * group + part * k, k});
    }
    for (int64_t part = 0; part < 2; ++part) {
      for (int64_t head = values.begin; head < values.end; ++head)
        rows->push_back({0, head / each * group + 2 * k + (part * each + head % each) * v, v});
    }
  }
  const int32_t next_tensor = names.qkv != names.z ? 2 : 1;
  if (names.b != names.a) {
    rows->push_back({next_tensor, values.begin, values.size()});
    rows->push_back({next_tensor + 1, values.begin, values.size()});
    return;
  }
  // By key head: its value heads' b, their a.
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t head = values.begin, next = 0; head < values.end; head = next) {
      next = std::min(values.end, (head / each + 1) * each);
      rows->push_back({next_tensor, (2 * (head / each) + part) * each + head % each, next - head});
    }
  }
}

// Of q, k and v.
std::vector<Part> DeltaNetChannels(const StateConfig& net, const BlockHeads& block) {
  const int64_t keys = net.key_heads * net.key_dim;
  const Part q{block.kv_heads.begin * net.key_dim, block.kv_heads.end * net.key_dim};
  return {
      q,
      {keys + q.begin, keys + q.end},
      {2 * keys + block.heads.begin * net.value_dim, 2 * keys + block.heads.end * net.value_dim}};
}

void AddDeltaNetVectors(const LayerSite& site, LayerPlan* layer) {
  const StateNames& names = site.names.state;
  AddHeadNumbers(site, kALog, names.a_log, layer);
  AddHeadNumbers(site, kDtBias, names.dt_bias, layer);
  layer->vectors.push_back(
      {.role = kStateNorm, .tensor = names.norm, .size = site.config.states->value_dim});
}

void PassDeltaNet(const StatePass& pass) {
  const StateShape& net = pass.shape;
  const int64_t channels = net.channels(), numbers = channels + net.values();
  device::Stream& stream = *pass.context.stream;
  const kernels::KernelSet& kernels = *pass.context.kernels;
  kernels::ShortConv(stream, kernels, pass.Conv());
  kernels::DeltaNet(stream, kernels,
                    {.batch = pass.batch,
                     .x = pass.inputs,
                     .stride = net.inputs(),
                     .b_at = static_cast<int32_t>(numbers),
                     .a_at = static_cast<int32_t>(numbers + net.value_heads),
                     .key_heads = static_cast<int32_t>(net.key_heads),
                     .value_heads = static_cast<int32_t>(net.value_heads),
                     .key_dim = static_cast<int32_t>(net.key_dim),
                     .value_dim = static_cast<int32_t>(net.value_dim),
                     .a_log = pass.weights.vector(kALog) + pass.heads.heads.begin,
                     .dt_bias = pass.weights.vector(kDtBias) + pass.heads.heads.begin,
                     .matrices = pass.state.matrices});
  kernels::GatedNormArgs norm = pass.norm;
  norm.x = pass.inputs + channels - net.values();
  norm.z = pass.inputs + channels;
  norm.weight = pass.weights.vector(kStateNorm);
  kernels::GatedNorm(stream, kernels, norm);
}

}  // namespace

const StateRule kDeltaNetRule{&DeltaNetTensors, &AddDeltaNetRows, &DeltaNetChannels,
                              &AddDeltaNetVectors, &PassDeltaNet};

}  // namespace forebay::model
