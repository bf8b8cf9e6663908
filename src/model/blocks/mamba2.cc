// Mamba-2 layers (arXiv 2405.21060): a convolution over x, B and C, the recurrence, and a norm of
// what a gate leaves of its output, of all heads of a group or of all of a row. Stored are rows of
// z, x, B, C and dt, one behind the other, and channels of x, B and C.
#include "model/blocks/state_rules.h"

namespace forebay::model {
namespace {

std::vector<StateTensor> Mamba2Tensors(const StateConfig& net, const StateNames& names) {
  return {{names.qkv, net.inputs()}};
}

// Groups of C, of B, heads of x, of z, then dt.
void AddMamba2Rows(const StateConfig& net, const StateNames&, const BlockHeads& block,
                   std::vector<weights::PlannedRows>* rows) {
  const int64_t n = net.key_dim, x = net.values(), b = 2 * x, c = b + net.key_heads * n;
  const auto& [heads, groups] = block;
  AddHeadRows(0, c, groups, n, rows);
  AddHeadRows(0, b, groups, n, rows);
  AddHeadRows(0, x, heads, net.value_dim, rows);
  AddHeadRows(0, 0, heads, net.value_dim, rows);
  rows->push_back({0, c + net.key_heads * n + heads.begin, heads.size()});
}

std::vector<Part> Mamba2Channels(const StateConfig& net, const BlockHeads& block) {
  const auto part = [](int64_t first, const Part& heads, int64_t dim) {
    return Part{first + heads.begin * dim, first + heads.end * dim};
  };
  const int64_t n = net.key_dim, b = net.values(), c = b + net.key_heads * n;
  return {part(c, block.kv_heads, n), part(b, block.kv_heads, n),
          part(0, block.heads, net.value_dim)};
}

void AddMamba2Vectors(const LayerSite& site, LayerPlan* layer) {
  const StateNames& names = site.names.state;
  AddHeadNumbers(site, kALog, names.a_log, layer);
  AddHeadNumbers(site, kDtBias, names.dt_bias, layer);
  AddHeadNumbers(site, kStateThrough, names.d, layer);
  layer->vectors.push_back(
      {.role = kStateNorm, .tensor = names.norm, .size = site.config.states->values()});
}

void PassMamba2(const StatePass& pass) {
  const StateShape& net = pass.shape;
  const int64_t channels = net.channels(), first = pass.heads.heads.begin;
  device::Stream& stream = *pass.context.stream;
  const kernels::KernelSet& kernels = *pass.context.kernels;
  kernels::ShortConv(stream, kernels, pass.Conv());
  kernels::Mamba2(stream, kernels,
                  {.batch = pass.batch,
                   .x = pass.inputs,
                   .stride = net.inputs(),
                   .dt_at = static_cast<int32_t>(channels + net.values()),
                   .groups = static_cast<int32_t>(net.key_heads),
                   .heads = static_cast<int32_t>(net.value_heads),
                   .state_dim = static_cast<int32_t>(net.key_dim),
                   .head_dim = static_cast<int32_t>(net.value_dim),
                   .least_step = pass.config.least_step,
                   .a_log = pass.weights.vector(kALog) + first,
                   .dt_bias = pass.weights.vector(kDtBias) + first,
                   .d = pass.weights.vector(kStateThrough) + first,
                   .matrices = pass.state.matrices});
  kernels::GatedNormArgs norm = pass.norm;
  norm.x = pass.inputs + channels - net.values();
  norm.z = pass.inputs + channels;
  norm.gate = kernels::StateGate::kBeforeNorm;
  norm.normed_heads = static_cast<int32_t>(pass.config.normed_heads);
  norm.weight = pass.weights.vector(kStateNorm) + first * net.value_dim;
  kernels::GatedNorm(stream, kernels, norm);
}

}  // namespace

const StateRule kMamba2Rule{&Mamba2Tensors, &AddMamba2Rows, &Mamba2Channels, &AddMamba2Vectors,
                            &PassMamba2};

}  // namespace forebay::model
