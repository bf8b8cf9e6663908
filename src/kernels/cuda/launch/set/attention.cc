// Attention, and what goes into the KV cache.
#include "kernels/cuda/launch/latent.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/launch/set/functions.h"
#include "kernels/cuda/launch/set/params.h"

namespace forebay::kernels::cuda::set {
namespace {

static_assert(kMostReaders == kMaxReaders);
static_assert(static_cast<int>(KvCodes::kFP8) == 1 && static_cast<int>(KvCodes::kInt8) == 2);

// Args: those of RopeKv or RopeRows.
template <typename Args>
RopeParams RopeOf(const Args& args, int32_t kv_heads, int32_t head_dim) {
  return {.qkv = args.qkv,
          .heads = args.heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .q_norm = args.q_norm,
          .k_norm = args.k_norm,
          .norm_eps = args.norm_eps,
          .norm_after = args.norm_after,
          .v_norm = args.v_norm,
          .q_scale = args.q_scale,
          .rope_cos = args.rope_cos,
          .rope_sin = args.rope_sin};
}

// `args`: with the batch as kernels get it.
AttentionParams AttentionOf(const AttentionArgs& args) {
  return {.batch = args.batch,
          .kv = KvOf(args.layout, args.layer),
          .q = args.q,
          .out = args.out,
          .out_form = args.out_form,
          .heads = args.heads,
          .row_heads = static_cast<int32_t>(args.HeadsOfRow()),
          .scale = args.scale,
          .cap = args.score_cap,
          .sinks = args.sinks,
          .reach_window = args.reach.window,
          .reach_chunk = args.reach.chunk,
          .reach_ahead = args.reach.ahead};
}

AttentionArgs ArgsOnDevice(const device::WorkerContext& context, AttentionArgs args) {
  args.batch = OnDevice(context, args.batch);
  return args;
}

}  // namespace

void Attention(const AttentionArgs& given, const device::WorkerContext& context) {
  const AttentionArgs args = ArgsOnDevice(context, given);
  const LaunchShape shape{
      .blocks = {args.batch.num_rows, (args.heads + kWarpsOfAttention - 1) / kWarpsOfAttention, 1},
      .threads = kWarpsOfAttention * kWarpLanes};
  FB_LAUNCH("pair_attention", shape, AttentionOf(args));
}

void MmaAttention(const AttentionArgs& given, const device::WorkerContext& worker) {
  if (given.layout.dtype == tensor::DType::kF32) return Attention(given, worker);
  const device::LaunchContext& context = LaunchContextOf(worker);
  const AttentionArgs args = ArgsOnDevice(context, given);
  const AttentionParams plain = AttentionOf(args);
  if (!LaunchLatentAttention(args, plain, context) && !LaunchAttention(args, plain, context))
    LaunchPlainAttention(args, plain, context);
}

void RopeKv(const RopeKvArgs& args, const device::WorkerContext& context) {
  const RopeKvParams params{.batch = OnDevice(context, args.batch),
                            .kv = KvOf(args.layout, args.layer),
                            .rope = RopeOf(args, args.layout.kv_heads, args.layout.key_dim),
                            .digest = DigestOf(args),
                            .q = args.q};
  FB_LAUNCH("pair_rope_kv", Overlapping(context, BlockARow(args.batch.num_rows, kWordOfEachWarp)),
            params);
}

void RopeRows(const RopeRowsArgs& args, const device::WorkerContext& context) {
  RopeRowsParams params{.element = ElementOf(args.dtype),
                        .num_rows = args.num_rows,
                        .positions = OnDevice(context, args.positions),
                        .rope = RopeOf(args, args.kv_heads, args.head_dim),
                        .num_readers = args.num_readers,
                        .readers = {}};
  for (int i = 0; i < args.num_readers; ++i) {
    const RopeRowsArgs::Reader& reader = args.readers[i];
    params.readers[i] = {reader.out, reader.first_head, reader.heads, reader.first_kv_head,
                         reader.kv_heads};
  }
  LaunchShape shape = BlockARow(args.num_rows);
  shape.blocks[1] = args.num_readers;
  FB_LAUNCH("pair_rope_rows", shape, params);
}

void StoreKv(const StoreKvArgs& args, const device::WorkerContext& context) {
  const StoreKvParams params{.batch = OnDevice(context, args.batch),
                             .kv = KvOf(args.layout, args.layer),
                             .digest = DigestOf(args),
                             .rows = args.kv};
  FB_LAUNCH("pair_store_kv", BlockARow(args.batch.num_rows, kWordOfEachWarp), params);
}

void LatentKv(const LatentKvArgs& args, const device::WorkerContext& context) {
  const LatentKvParams params{.batch = OnDevice(context, args.batch),
                              .kv = KvOf(args.layout, args.layer),
                              .digest = DigestOf(args),
                              .projected = args.kv,
                              .kv_norm = args.kv_norm,
                              .norm_eps = args.norm_eps,
                              .queries = args.queries,
                              .q = args.q,
                              .absorbed = args.absorbed,
                              .heads = args.heads,
                              .plain = args.plain,
                              .rope_cos = args.rope_cos,
                              .rope_sin = args.rope_sin};
  FB_LAUNCH("pair_latent_kv", BlockARow(args.batch.num_rows), params);
}

void GatherLatents(const GatherLatentsArgs& args, const device::WorkerContext& context) {
  const GatherLatentsParams params{.kv = KvOf(args.layout, args.layer),
                                   .blocks = OnDevice(context, args.blocks),
                                   .out = args.out};
  FB_LAUNCH("pair_gather_latents", BlockARow(args.num_blocks), params);
}

void StoreExpanded(const StoreExpandedArgs& args, const device::WorkerContext& context) {
  const StoreExpandedParams params{.kv = KvOf(args.layout, {.resident = args.blocks}),
                                   .keys = args.keys,
                                   .latents = args.latents,
                                   .values = args.values,
                                   .latent_dim = args.latent_dim,
                                   .plain = args.plain};
  LaunchShape shape = BlockARow(args.num_blocks);
  shape.blocks[1] = args.layout.kv_heads;
  FB_LAUNCH("pair_store_expanded", shape, params);
}

}  // namespace forebay::kernels::cuda::set
