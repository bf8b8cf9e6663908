// Operations on rows, of class `pair` and of every class, against ref/.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/testing/ref_bytes.h"
#include "kernels/delta_net.h"
#include "kernels/digest.h"
#include "kernels/kernel_set.h"
#include "kernels/norm.h"
#include "kernels/sets.h"

namespace forebay::kernels::cuda {
namespace {

using tensor::DType;
using testing::Bytes;
using testing::ExpectRefBytes;
using testing::ExpectSameBytes;
using testing::kTypes;
using testing::Of;
using testing::Poison;
using testing::Source;
using testing::Weight;

TEST(PairKernels, RmsNorm) {
  Source source(500);
  for (const DType dtype : kTypes) {
    for (const int columns : {7, 64, 100, 1000}) {
      const Bytes x = source.Elements(dtype, static_cast<size_t>(9 * columns), 3);
      const Bytes wide = source.Elements(DType::kF32, static_cast<size_t>(9 * columns), 3);
      const std::vector<float> weight = source.Floats(static_cast<size_t>(columns));
      const std::vector<int32_t> picked = {13, 5, 8, 8};
      for (const bool pick : {false, true}) {
        RmsNormArgs args{.dtype = dtype,
                         .x_f32 = pick,
                         .x = pick ? wide.data() : x.data(),
                         .weight = weight.data(),
                         .rows = pick ? picked.data() : nullptr,
                         .first_row = 5,
                         .num_rows = pick ? 4 : 9,
                         .columns = columns,
                         .eps = 1e-5f};
        Bytes out = Poison(static_cast<size_t>(args.num_rows * columns) * tensor::SizeOf(dtype));
        args.out = out.data();
        ExpectRefBytes(fmt::format("{} columns", columns), RefKernels().rms_norm,
                       PairKernels().rms_norm, args, {Of(out)});
        args.centered = true;
        args.bias = pick ? weight.data() : nullptr;
        ExpectRefBytes(fmt::format("{} columns, centered", columns), RefKernels().rms_norm,
                       PairKernels().rms_norm, args, {Of(out)});
      }
    }
  }
}

// Each reads what the kernel before it has written, and the emulation runs that one as late as an
// overlapping launch lets it.
TEST(PairKernels, NormsAwaitTheKernelBefore) {
  Source source(540);
  constexpr int kRows = 3, kColumns = 40;
  const Bytes x = source.Elements(DType::kBF16, kRows * kColumns, 3);
  const std::vector<float> weight = source.Floats(kColumns);
  std::vector<float> wide(kRows * kColumns);
  Bytes normed = Poison(x.size()), again = Poison(x.size()), out = Poison(x.size());
  const auto enqueue = [&](const KernelSet& set, const device::WorkerContext& context) {
    const RmsNormArgs norm{.dtype = DType::kBF16,
                           .x = x.data(),
                           .out = normed.data(),
                           .weight = weight.data(),
                           .num_rows = kRows,
                           .columns = kColumns,
                           .eps = 1e-5f};
    RmsNormArgs second = norm;
    second.x = normed.data();
    second.out = again.data();
    set.rms_norm(norm, context);
    set.rms_norm(second, context);
    set.add_normed({.dtype = DType::kBF16,
                    .x = wide.data(),
                    .residual = again.data(),
                    .out = out.data(),
                    .rows = kRows,
                    .columns = kColumns,
                    .eps = 1e-5f,
                    .factor = 0.7f},
                   context);
  };
  ExpectSameBytes(
      "norms", [&](const device::WorkerContext& context) { enqueue(RefKernels(), context); },
      [&](const device::LaunchContext& context) { enqueue(PairKernels(), context); },
      {Of(normed), Of(again), Of(out)});
}

TEST(PairKernels, RowsOfBlocks) {
  Source source(550);
  constexpr int kRows = 5, kColumns = 70, kVocab = 9;
  for (const DType dtype : kTypes) {
    const std::vector<float> x = source.Floats(kRows * kColumns, 3),
                             beside = source.Floats(kRows * kColumns, 3),
                             weight = source.Floats(kColumns), gates = source.Floats(x.size(), 4),
                             scale = {0.37f};
    Bytes out = source.Elements(dtype, kRows * kColumns);
    for (int variant = 0; variant < 8; ++variant) {
      const AddNormedArgs add{.dtype = dtype,
                              .x = x.data(),
                              .beside = variant % 2 == 0 ? nullptr : beside.data(),
                              .weight = variant / 2 % 2 == 0 ? nullptr : weight.data(),
                              .residual = out.data(),
                              .out = out.data(),
                              .rows = kRows,
                              .columns = kColumns,
                              .eps = 1e-5f,
                              .factor = 0.7f,
                              .scale = variant / 4 == 0 ? nullptr : scale.data()};
      ExpectRefBytes("add_normed", RefKernels().add_normed, PairKernels().add_normed, add,
                     {Of(out)});
    }
    for (const bool one_a_row : {false, true}) {
      const GateRowsArgs gate{.dtype = dtype,
                              .y = out.data(),
                              .gates = gates.data(),
                              .rows = kRows,
                              .columns = kColumns,
                              .one_a_row = one_a_row};
      ExpectRefBytes("gate_rows", RefKernels().gate_rows, PairKernels().gate_rows, gate, {Of(out)});
    }
    const std::vector<int32_t> tokens = {3, ~1, 8, 0, ~0}, sampled = {4, 7};
    const Bytes table = source.Elements(dtype, kVocab * 2 * kColumns);
    LayerInputsArgs inputs{.dtype = dtype,
                           .projected = x.data(),
                           .weight = weight.data(),
                           .gates = gates.data(),
                           .table = table.data(),
                           .table_stride = 2 * kColumns,
                           .out = out.data(),
                           .columns = kColumns,
                           .eps = 1e-5f,
                           .table_factor = 1.3f,
                           .factor = 0.7f};
    inputs.batch.num_rows = kRows;
    inputs.batch.tokens = const_cast<int32_t*>(tokens.data());
    inputs.batch.sampled = const_cast<int32_t*>(sampled.data());
    ExpectRefBytes("layer_inputs", RefKernels().layer_inputs, PairKernels().layer_inputs, inputs,
                   {Of(out)});
  }
  std::vector<float> logits = source.Floats(1000, 90);
  for (const float cap : {0.0f, 30.0f}) {
    ExpectRefBytes("finish_logits", RefKernels().finish_logits, PairKernels().finish_logits,
                   FinishLogitsArgs{logits.data(), 1000, 0.3f, cap}, {Of(logits)});
  }
}

// Two sequences: one goes on in its place, another's state is kept twice on the way.
TEST(PairKernels, LayersWithState) {
  Source source(560);
  struct Shape {
    int32_t key_heads, value_heads, key_dim, value_dim;
  };
  for (const Shape& shape :
       {Shape{1, 2, 16, 16}, Shape{2, 2, 24, 40}, Shape{1, 1, 8, 100}, Shape{1, 1, 128, 160}}) {
    const int32_t values = shape.value_heads * shape.value_dim,
                  channels = 2 * shape.key_heads * shape.key_dim + values;
    const int64_t stride = channels + values + 2 * shape.value_heads,
                  matrices = shape.value_heads * StateMatrixFloats(shape.key_dim, shape.value_dim),
                  tails = int64_t{kConvTaps - 1} * channels, place = tails + matrices;
    std::vector<StateRows> runs = {{0, 2, -1, 3}, {2, 3, 3, 1}, {5, 2, 1, 0}, {7, 1, 2, 2}};
    constexpr int32_t kRows = 8, kPlaces = 4;
    std::vector<SequenceRows> sequences = {{0, 7, 30, 1}, {7, 1, 64, 0}};
    std::vector<int32_t> positions = {30, 31, 32, 33, 34, 35, 36, 64},
                         row_sequence = {0, 0, 0, 0, 0, 0, 0, 1};
    std::vector<uint32_t> tables = {4, 5, 1, 3, 0, 2};
    StepBatch batch{.num_rows = kRows, .num_sequences = 2};
    batch.positions = positions.data();
    batch.row_sequence = row_sequence.data();
    batch.sequences = sequences.data();
    batch.num_state_rows = static_cast<int32_t>(runs.size());
    batch.state_rows = runs.data();
    batch.block_tables = tables.data();
    batch.table_stride = 3;
    const auto floats = [&](int64_t n, float scale) {
      return source.Floats(static_cast<size_t>(n), scale);
    };
    std::vector<float> x = floats(kRows * stride, 2), states = floats(kPlaces * place, 1);
    const std::vector<float> weight = floats(int64_t{kConvTaps} * channels, 1),
                             a_log = floats(shape.value_heads, 1),
                             dt_bias = floats(shape.value_heads, 3), norm = floats(values, 1);
    const auto part = [&](int64_t at) {
      return StateLayer{reinterpret_cast<std::byte*>(states.data() + at),
                        place * static_cast<int64_t>(sizeof(float))};
    };
    ExpectRefBytes("short_conv", RefKernels().short_conv, PairKernels().short_conv,
                   ShortConvArgs{.batch = batch,
                                 .x = x.data(),
                                 .stride = stride,
                                 .channels = channels,
                                 .weight = weight.data(),
                                 .tails = part(0)},
                   {Of(x), Of(states)});
    for (const int32_t taps : {2, 3, 4}) {
      const std::vector<float> bias = floats(channels, 1);
      ExpectRefBytes("short_conv", RefKernels().short_conv, PairKernels().short_conv,
                     ShortConvArgs{.batch = batch,
                                   .x = x.data(),
                                   .stride = stride,
                                   .channels = channels / 2,
                                   .taps = taps,
                                   .weight = weight.data(),
                                   .bias = taps == 2 ? nullptr : bias.data(),
                                   .gates_at = taps == 4 ? 0 : channels / 2,
                                   .silu = taps == 4,
                                   .tails = part(0)},
                     {Of(x), Of(states)});
    }
    const std::vector<float> d = floats(shape.value_heads, 1);
    ExpectRefBytes("mamba2", RefKernels().mamba2, PairKernels().mamba2,
                   Mamba2Args{.batch = batch,
                              .x = x.data(),
                              .stride = stride,
                              .dt_at = channels + values,
                              .groups = shape.key_heads,
                              .heads = shape.value_heads,
                              .state_dim = shape.key_dim,
                              .head_dim = shape.value_dim,
                              .least_step = .25f,
                              .a_log = a_log.data(),
                              .dt_bias = dt_bias.data(),
                              .d = d.data(),
                              .matrices = part(tails)},
                   {Of(x), Of(states)});
    ExpectRefBytes("delta_net", RefKernels().delta_net, PairKernels().delta_net,
                   DeltaNetArgs{.batch = batch,
                                .x = x.data(),
                                .stride = stride,
                                .b_at = channels + values,
                                .a_at = channels + values + shape.value_heads,
                                .key_heads = shape.key_heads,
                                .value_heads = shape.value_heads,
                                .key_dim = shape.key_dim,
                                .value_dim = shape.value_dim,
                                .a_log = a_log.data(),
                                .dt_bias = dt_bias.data(),
                                .matrices = part(tails)},
                   {Of(x), Of(states)});
    for (const DType dtype : kTypes) {
      Bytes out = Poison(static_cast<size_t>(kRows * values) * tensor::SizeOf(dtype));
      std::vector<uint64_t> digests(tables.size() * kBlockTokens, 77);
      ExpectRefBytes("gated_norm", RefKernels().gated_norm, PairKernels().gated_norm,
                     GatedNormArgs{.batch = batch,
                                   .dtype = dtype,
                                   .x = x.data() + channels - values,
                                   .z = x.data() + channels,
                                   .stride = stride,
                                   .heads = shape.value_heads,
                                   .dim = shape.value_dim,
                                   .first_head = 3,
                                   .weight = norm.data(),
                                   .eps = 1e-6f,
                                   .out = out.data(),
                                   .digests = digests.data(),
                                   .layer_index = 2,
                                   .first_layer = dtype == DType::kF32},
                     {Of(out), Of(digests)});
      for (const StateGate gate : {StateGate::kBeforeNorm, StateGate::kWithoutNorm}) {
        ExpectRefBytes("gated_norm", RefKernels().gated_norm, PairKernels().gated_norm,
                       GatedNormArgs{.batch = batch,
                                     .dtype = dtype,
                                     .x = x.data() + channels - values,
                                     .z = x.data() + channels,
                                     .stride = stride,
                                     .gate = gate,
                                     .heads = shape.value_heads,
                                     .dim = shape.value_dim,
                                     .normed_heads = shape.value_heads,
                                     .weight = norm.data(),
                                     .eps = 1e-6f,
                                     .out = out.data(),
                                     .digests = digests.data(),
                                     .layer_index = 2},
                       {Of(out), Of(digests)});
      }
    }
  }
}

TEST(PairKernels, Embed) {
  Source source(600);
  constexpr int kColumns = 37, kVocab = 90;
  for (const DType dtype : kTypes) {
    std::vector<int32_t> tokens = {3, 89, ~1, 0, 63, 64, ~0}, sampled = {70, 5};
    // A shard of the vocabulary that lacks the last tokens.
    const Weight packed(source, dtype, {0, kColumns}, {64, 20}, false, false);
    const Bytes table = source.Elements(dtype, kVocab * kColumns);
    EmbedArgs args{.dtype = dtype, .packed = packed.weight, .columns = kColumns};
    args.batch.num_rows = static_cast<int32_t>(tokens.size());
    args.batch.tokens = tokens.data();
    args.batch.sampled = sampled.data();
    Bytes out = Poison(tokens.size() * kColumns * tensor::SizeOf(dtype));
    args.out = out.data();
    for (const bool tied : {false, true}) {
      args.table = tied ? nullptr : table.data();
      ExpectRefBytes("embed", RefKernels().embed, PairKernels().embed, args, {Of(out)});
    }
    const Bytes learned = source.Elements(dtype, 12 * kColumns),
                types = source.Elements(dtype, 2 * kColumns);
    std::vector<int32_t> positions = {0, 1, 2, 3, 0, 9, 4}, row_types = {0, 1, 1, 0, 0, 1, 0};
    args.batch.positions = positions.data();
    args.positions = learned.data();
    args.position_offset = 2;
    for (const bool typed : {false, true}) {
      args.types = typed ? types.data() : nullptr;
      args.batch.types = typed ? row_types.data() : nullptr;
      args.factor = typed ? 1.0f : 3.5f;
      ExpectRefBytes("embed with positions", RefKernels().embed, PairKernels().embed, args,
                     {Of(out)});
    }
  }
}

TEST(PairKernels, LogitsDigest) {
  Source source(700);
  for (const int vocab : {5, 1024, 3001}) {
    const std::vector<float> logits = source.Floats(static_cast<size_t>(3 * (vocab + 2)));
    const std::vector<int32_t> positions = {9, 0, 70000};
    std::vector<uint64_t> digests(3, 1);
    const LogitsDigestArgs args{.logits = logits.data(),
                                .stride = vocab + 2,
                                .num_rows = 3,
                                .vocab = vocab,
                                .positions = positions.data(),
                                .digests = digests.data()};
    ExpectRefBytes("logits_digest", RefKernels().logits_digest, PairKernels().logits_digest, args,
                   {Of(digests)});
  }
}

}  // namespace
}  // namespace forebay::kernels::cuda
