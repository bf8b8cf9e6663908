// Operations on rows: norms, gates, layers with state, embeddings, logits and draws.
#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/launch/set/functions.h"
#include "kernels/cuda/launch/set/params.h"

namespace forebay::kernels::cuda::set {
namespace {

static_assert(kMostKeyDim == kMaxStateKeyDim);
static_assert(static_cast<int>(StateGate::kBeforeNorm) == kGateBeforeNorm &&
              static_cast<int>(StateGate::kWithoutNorm) == kGateWithoutNorm);

// Rows of logits in chunks, and their peaks and sums in scratch: so many rows at once.
struct RowChunks {
  RowChunks(int32_t vocab, const device::WorkerContext& context)
      : count((vocab + kDrawChunk - 1) / kDrawChunk),
        sums(reinterpret_cast<double*>(context.scratch)) {
    const auto of_row = static_cast<uint64_t>(count) * (sizeof(double) + sizeof(DrawPeak));
    most_rows = static_cast<int32_t>(
        std::min<uint64_t>(context.scratch_bytes / of_row, device::kMostBlocksAlongYZ));
    FB_CHECK(most_rows > 0, "draws: {} bytes of scratch, a row takes {}", context.scratch_bytes,
             of_row);
  }
  DrawPeak* peaks(int32_t rows) const {
    return reinterpret_cast<DrawPeak*>(sums + int64_t{rows} * count);
  }
  LaunchShape Chunked(int32_t rows) const {
    constexpr int kOfBlock = 2 * kRowWarps;
    LaunchShape shape = BlockARow((count + kOfBlock - 1) / kOfBlock);
    shape.blocks[1] = rows;
    return shape;
  }
  LaunchShape Whole(int32_t rows) const {
    return {.blocks = {rows, 1, 1},
            .threads = kDrawThreads,
            .shared_bytes =
                static_cast<int>(sizeof(DrawShared)) + count * static_cast<int>(sizeof(double))};
  }

  int count;
  double* sums;
  int32_t most_rows;
};

StateParams StateOf(const StateLayer& layer) { return {layer.base, layer.stride}; }

}  // namespace

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
                             .first_row = args.first_row,
                             .columns = args.columns,
                             .eps = args.eps,
                             .out_form = args.out_form};
  const int shared_bytes = args.columns * static_cast<int>(sizeof(float));
  FB_LAUNCH("pair_rms_norm", Overlapping(context, BlockARow(args.num_rows, shared_bytes)), params);
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
  FB_LAUNCH("pair_add_normed", Overlapping(context, BlockARow(args.rows)), params);
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

void ShortConv(const ShortConvArgs& args, const device::WorkerContext& context) {
  const ShortConvParams params{.batch = OnDevice(context, args.batch),
                               .x = args.x,
                               .stride = args.stride,
                               .channels = args.channels,
                               .taps = args.taps,
                               .gates_at = args.gates_at,
                               .silu = args.silu,
                               .weight = args.weight,
                               .bias = args.bias,
                               .tails = StateOf(args.tails)};
  LaunchShape shape = BlockARow(args.batch.num_state_rows);
  shape.blocks[1] = (args.channels + kRowThreads - 1) / kRowThreads;
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
      BlockARow(args.batch.num_state_rows, 2 * kMostKeyDim * static_cast<int>(sizeof(float)));
  shape.threads = kStateThreads;
  shape.blocks[1] = args.value_heads;
  FB_LAUNCH("pair_delta_net", shape, params);
}

void Mamba2(const Mamba2Args& args, const device::WorkerContext& context) {
  const Mamba2Params params{.batch = OnDevice(context, args.batch),
                            .x = args.x,
                            .stride = args.stride,
                            .dt_at = args.dt_at,
                            .groups = args.groups,
                            .heads = args.heads,
                            .state_dim = args.state_dim,
                            .head_dim = args.head_dim,
                            .least_step = args.least_step,
                            .matrix_floats = StateMatrixFloats(args.state_dim, args.head_dim),
                            .a_log = args.a_log,
                            .dt_bias = args.dt_bias,
                            .d = args.d,
                            .matrices = StateOf(args.matrices)};
  LaunchShape shape = BlockARow(args.batch.num_state_rows);
  shape.threads = kStateThreads;
  shape.blocks[1] = args.heads;
  FB_LAUNCH("pair_mamba2", shape, params);
}

void GatedNorm(const GatedNormArgs& args, const device::WorkerContext& context) {
  const GatedNormParams params{.batch = OnDevice(context, args.batch),
                               .element = ElementOf(args.dtype),
                               .x = args.x,
                               .z = args.z,
                               .stride = args.stride,
                               .gate = static_cast<int32_t>(args.gate),
                               .heads = args.heads,
                               .dim = args.dim,
                               .normed_heads = args.normed_heads,
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
  const RowChunks chunks(args.vocab, context);
  for (int32_t first = 0; first < args.num_draws; first += chunks.most_rows) {
    const int32_t draws = std::min(chunks.most_rows, args.num_draws - first);
    const DrawParams params{.logits = args.logits,
                            .stride = args.stride,
                            .vocab = args.vocab,
                            .chunks = chunks.count,
                            .first_row = args.first_row,
                            .draws = OnDevice(context, args.draws + first),
                            .peaks = chunks.peaks(draws),
                            .sums = chunks.sums,
                            .drawn = OnDevice(context, args.drawn + first),
                            .sampled = OnDevice(context, args.sampled)};
    FB_LAUNCH("pair_draw_peaks", chunks.Chunked(draws), params);
    if (args.weighed_draws > 0) FB_LAUNCH("pair_draw_sums", chunks.Chunked(draws), params);
    FB_LAUNCH("pair_draw", chunks.Whole(draws), params);
  }
}

void LikelyRows(const LikelyRowsArgs& args, const device::WorkerContext& context) {
  static_assert(kMostLikely == kDrawPool);
  const RowChunks chunks(args.vocab, context);
  for (int32_t first = 0; first < args.num_rows; first += chunks.most_rows) {
    const int32_t rows = std::min(chunks.most_rows, args.num_rows - first);
    const LikelyParams params{.logits = args.logits,
                              .stride = args.stride,
                              .vocab = args.vocab,
                              .chunks = chunks.count,
                              .first_row = args.first_row,
                              .rows = OnDevice(context, args.rows + first),
                              .peaks = chunks.peaks(rows),
                              .sums = chunks.sums,
                              .drawn = OnDevice(context, args.drawn),
                              .heads = OnDevice(context, args.heads + first),
                              .tokens = OnDevice(context, args.tokens)};
    FB_LAUNCH("pair_likely_peaks", chunks.Chunked(rows), params);
    FB_LAUNCH("pair_likely_sums", chunks.Chunked(rows), params);
    FB_LAUNCH("pair_likely", chunks.Whole(rows), params);
  }
}

}  // namespace forebay::kernels::cuda::set
