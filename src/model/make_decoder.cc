#include "model/make_decoder.h"

namespace forebay::model {

base::Result<Decoder> MakeDecoder(const DecoderPlan& plan, const DecoderMemory& memory,
                                  const DecoderLinks& links, const weights::TensorReader* reader,
                                  int load_threads) {
  Decoder decoder;
  decoder.config = &plan.config;
  decoder.dtype = plan.dtype;
  decoder.kernels = &links.kernels;
  decoder.stream = &links.stream;
  FB_ASSIGN_OR_RETURN(decoder.weights,
                      LoadDecoder(plan, memory.max_positions, reader, memory.weights, memory.tables,
                                  memory.pooled_at, load_threads, links.device));
  decoder.capacity = memory.capacity;
  device::RegionCutter cutter(memory.workspace);
  decoder.activations =
      CutActivations(plan.config, plan.dtype, memory.capacity, &cutter, plan.shard.cut);
  decoder.kv = links.kv;
  decoder.states = links.states;
  // The first one writes its digests beside the first group's blocks; others add to them.
  const Part& layers = plan.shard.layers;
  while (decoder.first_attention + 1 < layers.size() &&
         !plan.config.HasAttention(layers.begin + decoder.first_attention))
    ++decoder.first_attention;
  if (plan.config.HasState(layers.begin + decoder.first_attention)) {
    for (kv::CacheView::Layer& layer : decoder.kv.layers) layer.first &= layer.group != 0;
  }
  decoder.routing = links.routing;
  decoder.routed = links.routed;
  decoder.replica = links.replica;
  return decoder;
}

}  // namespace forebay::model
