#include "kernels/cuda/launch/kernel_sets.h"

#include <algorithm>

#include "base/check.h"
#include "device/cuda/launch_context.h"
#include "kernels/cuda/launch/experts.h"
#include "kernels/cuda/launch/latent.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/pair/params.h"
#include "kernels/cuda/registry.h"
#include "kernels/sets.h"

namespace forebay::kernels::cuda {
namespace {

using device::LaunchShape;

constexpr int kWarpLanes = 32;

static_assert(sizeof(PanelColumns) == 2 * sizeof(int32_t));
static_assert(kMostLeaves == kMaxLeaves && kMostReaders == kMaxReaders);
static_assert(static_cast<int>(LinearOutput::kF32) == 0 &&
              static_cast<int>(LinearOutput::kPartial) == 4 &&
              static_cast<int>(LinearOutput::kErfGeluMul) == 8);
static_assert(kMostKeyDim == kMaxStateKeyDim);
static_assert(static_cast<int>(KvCodes::kFP8) == 1 && static_cast<int>(KvCodes::kInt8) == 2);
static_assert(static_cast<int>(RouterScores::kSigmoidOfChosen) == 2 &&
              static_cast<int>(RouterScores::kSoftmaxOfChosen) == 3 &&
              static_cast<int>(GroupScore::kTwoGreatest) == 1);

Element ElementOf(tensor::DType dtype) {
  return dtype == tensor::DType::kF32 ? Element::kF32 : Element::kBF16;
}

const device::LaunchContext& LaunchContextOf(const device::WorkerContext& context) {
  return static_cast<const device::LaunchContext&>(context);
}

// As kernels get an address of control memory.
template <typename T>
T* OnDevice(const device::WorkerContext& context, T* address) {
  return LaunchContextOf(context).OnDevice(address);
}

StepBatch OnDevice(const device::WorkerContext& context, StepBatch batch) {
  const auto translate = [&](auto** array) { *array = OnDevice(context, *array); };
  translate(&batch.tokens);
  translate(&batch.positions);
  translate(&batch.types);
  translate(&batch.row_sequence);
  translate(&batch.sequences);
  translate(&batch.state_rows);
  translate(&batch.block_tables);
  translate(&batch.logit_rows);
  translate(&batch.sampled);
  // Kernels have one group's tables, and rows of one form.
  std::ranges::fill(batch.group_tables, nullptr);
  batch.forms = nullptr;
  return batch;
}

// Looks the kernel up once a call site: `name` is a literal of it.
#define FB_LAUNCH(name, shape, params)                           \
  do {                                                           \
    static const device::CudaKernel& kernel = KernelNamed(name); \
    LaunchContextOf(context).Launch(kernel, shape, params);      \
  } while (false)

LaunchShape BlockARow(int64_t rows, int shared_bytes = 0) {
  return {.blocks = {static_cast<int>(rows), 1, 1},
          .threads = kRowThreads,
          .shared_bytes = shared_bytes};
}

KvParams KvOf(const KvLayout& layout, const KvLayer& layer) {
  return {.element = ElementOf(layout.dtype),
          .kv_heads = layout.kv_heads,
          .key_dim = layout.key_dim,
          .value_dim = layout.value_dim,
          .values_in_keys = layout.values_in_keys,
          .form = layout.form,
          .codes = static_cast<int32_t>(layout.codes),
          .block_stride = layout.block_stride,
          .layer_bytes = layout.LayerBytes(),
          .head_bytes = layout.HeadBytes(),
          .resident = layer.resident,
          .window = layer.window};
}

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
template <typename Args>
DigestParams DigestOf(const Args& args) {
  DigestParams digest{
      .digests = args.digests, .layer_index = args.layer_index, .first_layer = args.first_layer};
  if constexpr (requires { args.first_kv_head; }) digest.first_kv_head = args.first_kv_head;
  if constexpr (requires { args.digested_elsewhere; })
    digest.digested_elsewhere = args.digested_elsewhere;
  return digest;
}

void FillWeight(const PackedWeight& weight, const device::WorkerContext& context,
                LinearParams* params) {
  params->element = ElementOf(weight.dtype);
  params->tiles = OnDevice(context, weight.tiles);
  params->tile_bytes = weight.TileBytes(0, 0);
  params->panels = reinterpret_cast<const int32_t*>(OnDevice(context, weight.panels));
  params->bias = OnDevice(context, weight.bias);
  params->num_panels = weight.num_panels;
  params->num_leaves = weight.leaves.num_leaves;
  std::copy_n(weight.leaves.begin, weight.leaves.num_leaves + 1, params->leaf_begin);
}

// The nodes whose sums are the outputs: the whole tree, or the planes of the leaves that count.
void FillNodes(const LinearArgs& args, LinearParams* params) {
  const LeafBorders& leaves = args.weight.leaves;
  if (args.output != LinearOutput::kPartial) {
    params->num_nodes = 1;
    params->nodes[0] = {0, leaves.num_leaves};
    return;
  }
  int first[kMaxLeaves], level[kMaxLeaves];
  params->num_nodes = PartialPlanes(leaves, args.leaf_begin, args.leaf_end, first, level);
  for (int node = 0; node < params->num_nodes; ++node) {
    const int end = std::min(first[node] + (1 << level[node]), leaves.tree_leaves());
    params->nodes[node] = {first[node] - leaves.leaves_before, end - first[node]};
  }
}

// Launches the plain kernel of the weight's form. Rows of `runs` experts are grouped, so that each
// may have a last tile that is short.
void LaunchPlain(const PackedWeight& weight, int64_t rows, int heads, int runs,
                 const LinearParams& params, const device::WorkerContext& context) {
  const bool plain = weight.packed == PackedForm::kCuda;
  const int tile = plain ? kPlainRows : kTileRows;
  const int tiles = static_cast<int>((rows + tile - 1) / tile) * heads + runs;
  LaunchShape shape{.blocks = {weight.num_panels, tiles, 1}, .threads = kPlainThreads};
  if (plain) {
    FB_LAUNCH("mma_linear_plain", shape, params);
    return;
  }
  shape.threads = kLinearThreads;
  shape.shared_bytes = kTileRows * kPanelColumns * static_cast<int>(sizeof(float));
  FB_LAUNCH("pair_linear", shape, params);
}

void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  if (args.weight.packed == PackedForm::kCuda &&
      LaunchLinear(args, static_cast<const device::LaunchContext&>(context)))
    return;
  LinearParams params{};
  FillWeight(args.weight, context, &params);
  FillNodes(args, &params);
  params.output = static_cast<int32_t>(args.output);
  params.x = args.x;
  params.x_rows = args.x_rows;
  params.y = args.y;
  params.x_stride = args.x_stride;
  params.y_stride = args.y_stride;
  params.x_form = args.x_form;
  params.y_form = args.y_form;
  params.rows = args.rows;
  params.plane_stride = args.rows * args.y_stride;
  params.num_experts = 1;
  LaunchPlain(args.weight, args.rows, 1, 0, params, context);
}

void Experts(const ExpertsArgs& args, const device::WorkerContext& context) {
  if (args.weight.packed == PackedForm::kCuda &&
      LaunchExperts(args, static_cast<const device::LaunchContext&>(context)))
    return;
  LinearParams params{};
  FillWeight(args.weight, context, &params);
  params.num_nodes = 1;
  params.nodes[0] = {0, 1};
  params.output = static_cast<int32_t>(args.output);
  params.runs = args.heads() ? nullptr : OnDevice(context, args.runs);
  params.x = args.x;
  params.x_rows = args.x_rows;
  params.y = args.y;
  params.x_stride = args.x_stride;
  params.y_stride = args.y_stride;
  params.rows = args.max_rows;
  params.num_experts = args.num_experts;
  params.offsets = OnDevice(context, args.offsets);
  params.x_step = args.x_step;
  params.y_step = args.y_step;
  LaunchPlain(args.weight, args.max_rows, args.heads() ? args.num_experts : 1,
              args.heads() ? 0 : args.num_experts, params, context);
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

AttentionArgs OnDevice(const device::WorkerContext& context, AttentionArgs args) {
  args.batch = OnDevice(context, args.batch);
  return args;
}

void Attention(const AttentionArgs& given, const device::WorkerContext& context) {
  const AttentionArgs args = OnDevice(context, given);
  const LaunchShape shape{
      .blocks = {(args.heads + kWarpsOfAttention - 1) / kWarpsOfAttention, args.batch.num_rows, 1},
      .threads = kWarpsOfAttention * kWarpLanes};
  FB_LAUNCH("pair_attention", shape, AttentionOf(args));
}

void MmaAttention(const AttentionArgs& given, const device::WorkerContext& worker) {
  if (given.layout.dtype == tensor::DType::kF32) return Attention(given, worker);
  const device::LaunchContext& context = LaunchContextOf(worker);
  const AttentionArgs args = OnDevice(context, given);
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
  FB_LAUNCH("pair_rope_kv", BlockARow(args.batch.num_rows, kWordOfEachWarp), params);
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

void RmsNorm(const RmsNormArgs& args, const device::WorkerContext& context) {
  const RmsNormParams params{.element = ElementOf(args.dtype),
                             .x_f32 = args.x_f32,
                             .centered = args.centered,
                             .x = args.x,
                             .out = args.out,
                             .weight = args.weight,
                             .bias = args.bias,
                             .rows = OnDevice(context, args.rows),
                             .stride = args.Stride(),
                             .columns = args.columns,
                             .eps = args.eps,
                             .out_form = args.out_form};
  FB_LAUNCH("pair_rms_norm",
            BlockARow(args.num_rows, args.columns * static_cast<int>(sizeof(float))), params);
}

void AddNormed(const AddNormedArgs& args, const device::WorkerContext& context) {
  const AddNormedParams params{.element = ElementOf(args.dtype),
                               .x = args.x,
                               .beside = args.beside,
                               .weight = args.weight,
                               .residual = args.residual,
                               .out = args.out,
                               .columns = args.columns,
                               .eps = args.eps,
                               .factor = args.factor,
                               .scale = args.scale};
  FB_LAUNCH("pair_add_normed", BlockARow(args.rows), params);
}

void GateRows(const GateRowsArgs& args, const device::WorkerContext& context) {
  const GateRowsParams params{.element = ElementOf(args.dtype),
                              .y = args.y,
                              .gates = args.gates,
                              .columns = args.columns,
                              .one_a_row = args.one_a_row};
  FB_LAUNCH("pair_gate_rows", BlockARow(args.rows), params);
}

void LayerInputs(const LayerInputsArgs& args, const device::WorkerContext& context) {
  const LayerInputsParams params{.element = ElementOf(args.dtype),
                                 .tokens = OnDevice(context, args.batch.tokens),
                                 .sampled = OnDevice(context, args.batch.sampled),
                                 .projected = args.projected,
                                 .weight = args.weight,
                                 .gates = args.gates,
                                 .table = args.table,
                                 .table_stride = args.table_stride,
                                 .out = args.out,
                                 .columns = args.columns,
                                 .eps = args.eps,
                                 .table_factor = args.table_factor,
                                 .factor = args.factor};
  FB_LAUNCH("pair_layer_inputs", BlockARow(args.batch.num_rows), params);
}

StateParams StateOf(const StateLayer& layer) { return {layer.base, layer.stride}; }

void ShortConv(const ShortConvArgs& args, const device::WorkerContext& context) {
  const ShortConvParams params{.batch = OnDevice(context, args.batch),
                               .x = args.x,
                               .stride = args.stride,
                               .channels = args.channels,
                               .weight = args.weight,
                               .tails = StateOf(args.tails)};
  LaunchShape shape = BlockARow((args.channels + kRowThreads - 1) / kRowThreads);
  shape.blocks[1] = args.batch.num_state_rows;
  FB_LAUNCH("pair_short_conv", shape, params);
}

void DeltaNet(const DeltaNetArgs& args, const device::WorkerContext& context) {
  const DeltaNetParams params{.batch = OnDevice(context, args.batch),
                              .x = args.x,
                              .stride = args.stride,
                              .b_at = args.b_at,
                              .a_at = args.a_at,
                              .key_heads = args.key_heads,
                              .value_heads = args.value_heads,
                              .key_dim = args.key_dim,
                              .value_dim = args.value_dim,
                              .matrix_floats = StateMatrixFloats(args.key_dim, args.value_dim),
                              .a_log = args.a_log,
                              .dt_bias = args.dt_bias,
                              .matrices = StateOf(args.matrices)};
  LaunchShape shape =
      BlockARow(args.value_heads, 2 * kMostKeyDim * static_cast<int>(sizeof(float)));
  shape.threads = kStateThreads;
  shape.blocks[1] = args.batch.num_state_rows;
  FB_LAUNCH("pair_delta_net", shape, params);
}

void GatedNorm(const GatedNormArgs& args, const device::WorkerContext& context) {
  const GatedNormParams params{.batch = OnDevice(context, args.batch),
                               .element = ElementOf(args.dtype),
                               .x = args.x,
                               .z = args.z,
                               .stride = args.stride,
                               .heads = args.heads,
                               .dim = args.dim,
                               .first_head = args.first_head,
                               .weight = args.weight,
                               .eps = args.eps,
                               .out = args.out,
                               .digest = DigestOf(args)};
  FB_LAUNCH("pair_gated_norm", BlockARow(args.batch.num_rows, kWordOfEachWarp), params);
}

void FinishLogits(const FinishLogitsArgs& args, const device::WorkerContext& context) {
  const FinishLogitsParams params{
      .values = args.values, .count = args.count, .factor = args.factor, .cap = args.cap};
  FB_LAUNCH("pair_finish_logits", BlockARow((args.count + kRowThreads - 1) / kRowThreads), params);
}

void Embed(const EmbedArgs& args, const device::WorkerContext& context) {
  const EmbedParams params{
      .element = ElementOf(args.dtype),
      .tokens = OnDevice(context, args.batch.tokens),
      .sampled = OnDevice(context, args.batch.sampled),
      .table = args.table,
      .tiles = OnDevice(context, args.packed.tiles),
      .packed = args.packed.packed,
      .panels = reinterpret_cast<const int32_t*>(OnDevice(context, args.packed.panels)),
      .num_panels = args.packed.num_panels,
      .out = args.out,
      .columns = args.columns,
      .factor = args.factor,
      .positions = args.positions,
      .row_positions = OnDevice(context, args.batch.positions),
      .position_offset = args.position_offset,
      .types = args.types,
      .row_types = OnDevice(context, args.batch.types)};
  FB_LAUNCH("pair_embed", BlockARow(args.batch.num_rows), params);
}

void LogitsDigest(const LogitsDigestArgs& args, const device::WorkerContext& context) {
  const LogitsDigestParams params{.logits = args.logits,
                                  .stride = args.stride,
                                  .vocab = args.vocab,
                                  .positions = OnDevice(context, args.positions),
                                  .digests = OnDevice(context, args.digests)};
  FB_LAUNCH("pair_logits_digest", BlockARow(args.num_rows, kWordOfEachWarp), params);
}

void DrawRows(const DrawRowsArgs& args, const device::WorkerContext& context) {
  constexpr int kMostDraws = 65535, kChunksOfBlock = 2 * kRowWarps;
  const int chunks = (args.vocab + kDrawChunk - 1) / kDrawChunk;
  const auto chunks_bytes = static_cast<uint64_t>(chunks) * (sizeof(double) + sizeof(DrawPeak));
  const auto most =
      static_cast<int32_t>(std::min<uint64_t>(context.scratch_bytes / chunks_bytes, kMostDraws));
  FB_CHECK(most > 0, "draws: {} bytes of scratch, a row takes {}", context.scratch_bytes,
           chunks_bytes);
  for (int32_t first = 0; first < args.num_draws; first += most) {
    const int32_t draws = std::min(most, args.num_draws - first);
    auto* const sums = reinterpret_cast<double*>(context.scratch);
    const DrawParams params{.logits = args.logits,
                            .stride = args.stride,
                            .vocab = args.vocab,
                            .chunks = chunks,
                            .first_row = args.first_row,
                            .draws = OnDevice(context, args.draws + first),
                            .peaks = reinterpret_cast<DrawPeak*>(sums + int64_t{draws} * chunks),
                            .sums = sums,
                            .drawn = OnDevice(context, args.drawn + first),
                            .sampled = OnDevice(context, args.sampled)};
    LaunchShape chunked = BlockARow((chunks + kChunksOfBlock - 1) / kChunksOfBlock);
    chunked.blocks[1] = draws;
    FB_LAUNCH("pair_draw_peaks", chunked, params);
    if (args.weighed_draws > 0) FB_LAUNCH("pair_draw_sums", chunked, params);
    const LaunchShape whole{.blocks = {draws, 1, 1},
                            .threads = kDrawThreads,
                            .shared_bytes = static_cast<int>(sizeof(DrawShared)) +
                                            chunks * static_cast<int>(sizeof(double))};
    FB_LAUNCH("pair_draw", whole, params);
  }
}

void Route(const RouteArgs& args, const device::WorkerContext& context) {
  const Router& router = args.router;
  const RouteParams params{.num_experts = router.num_experts,
                           .experts_per_token = router.experts_per_token,
                           .num_groups = router.num_groups,
                           .chosen_groups = router.chosen_groups,
                           .scores = static_cast<int32_t>(router.scores),
                           .group_score = static_cast<int32_t>(router.group_score),
                           .renormalize = router.renormalizes(),
                           .epsilon = router.epsilon,
                           .scale = router.scale,
                           .expert_scales = router.expert_scales,
                           .bias = router.bias,
                           .logits = args.logits,
                           .stride = args.stride,
                           .experts = args.experts,
                           .weights = args.weights};
  const int floats = 2 * router.num_experts + router.num_groups;
  const LaunchShape shape{.blocks = {args.rows, 1, 1},
                          .threads = kWarpLanes,
                          .shared_bytes = floats * static_cast<int>(sizeof(float)) +
                                          router.num_experts + router.num_groups};
  FB_LAUNCH("pair_route", shape, params);
}

void CountGrouped(const GroupRowsArgs& args, const device::WorkerContext&) {
  if (args.counters != nullptr) args.counters->Count(args.offsets, args.num_experts);
  args.lacked.Count(args.offsets);
}

void GroupRows(const GroupRowsArgs& args, const device::WorkerContext& context) {
  FB_CHECK(args.routing == nullptr, "a law draws routes on devices of shapes alone");
  const GroupRowsParams params{.experts = args.experts,
                               .slots = args.rows * args.experts_per_token,
                               .experts_per_token = args.experts_per_token,
                               .num_experts = args.num_experts,
                               .offsets = OnDevice(context, args.offsets),
                               .source = args.source,
                               .positions = args.positions};
  FB_LAUNCH("pair_group_rows", BlockARow(args.num_experts + 1, kRowWarps * 4), params);
  // Counters are the host's own.
  if (args.counters == nullptr && args.lacked.unused == nullptr) return;
  const device::LaunchContext& launcher = LaunchContextOf(context);
  launcher.FetchControl(args.offsets,
                        static_cast<uint64_t>(args.num_experts + 1) * sizeof(*args.offsets));
  launcher.OnHost<&CountGrouped>(args);
}

void WeighRows(const WeighRowsArgs& args, const device::WorkerContext& context) {
  const WeighRowsParams params{.element = ElementOf(args.dtype),
                               .x = args.x,
                               .weights = args.weights,
                               .out = args.out,
                               .columns = args.columns};
  FB_LAUNCH("pair_weigh_rows", BlockARow(args.rows), params);
}

void CombineRows(const CombineRowsArgs& args, const device::WorkerContext& context) {
  const CombineRowsParams params{.element = ElementOf(args.dtype),
                                 .expert_rows = args.expert_rows,
                                 .positions = args.positions,
                                 .weights = args.weights,
                                 .shared = args.shared,
                                 .y = args.y,
                                 .sums = args.sums,
                                 .experts_per_token = args.experts_per_token,
                                 .columns = args.columns};
  FB_LAUNCH("pair_combine_rows", BlockARow(args.rows), params);
}

void Reduce(const ReduceArgs& args, const device::WorkerContext& context) {
  ReduceParams params{.element = ElementOf(args.dtype),
                      .output = static_cast<int32_t>(args.output),
                      .planes = {},
                      .merges = {},
                      .num_planes = args.num_planes,
                      .bias = OnDevice(context, args.bias),
                      .y = args.y,
                      .residual = args.residual,
                      .stride = args.stride,
                      .y_stride = args.y_stride,
                      .n = args.n};
  for (int plane = 0; plane < args.num_planes; ++plane) {
    params.planes[plane] = args.planes[plane].sums;
    params.merges[plane] = args.merges[plane];
  }
  LaunchShape shape = BlockARow(args.rows);
  shape.blocks[1] = (args.n + kRowThreads - 1) / kRowThreads;
  FB_LAUNCH("pair_reduce", shape, params);
}

constexpr KernelSet kPairSet{.isa = Isa::kCuda,
                             .name = "pair",
                             .numerics_class = "pair",
                             .linear = Linear,
                             .experts = Experts,
                             .attention = Attention,
                             .rope_kv = RopeKv,
                             .rope_rows = RopeRows,
                             .store_kv = StoreKv,
                             .latent_kv = LatentKv,
                             .gather_latents = GatherLatents,
                             .store_expanded = StoreExpanded,
                             .rms_norm = RmsNorm,
                             .add_normed = AddNormed,
                             .finish_logits = FinishLogits,
                             .gate_rows = GateRows,
                             .layer_inputs = LayerInputs,
                             .short_conv = ShortConv,
                             .delta_net = DeltaNet,
                             .gated_norm = GatedNorm,
                             .embed = Embed,
                             .logits_digest = LogitsDigest,
                             .draw_rows = DrawRows,
                             .route = Route,
                             .group_rows = GroupRows,
                             .weigh_rows = WeighRows,
                             .combine_rows = CombineRows,
                             .reduce = Reduce,
                             .attention_scratch = AttentionScratch};

KernelSet MmaSet() {
  KernelSet set = kPairSet;
  set.name = "mma";
  set.numerics_class = NumericsClassOf(MmaOrder::kK16F25);
  set.packed = PackedForm::kCuda;
  set.attention = MmaAttention;
  return set;
}

}  // namespace

const KernelSet& PairKernels() { return kPairSet; }

const KernelSet& MmaKernels() {
  static const KernelSet kSet = MmaSet();
  return kSet;
}

}  // namespace forebay::kernels::cuda
