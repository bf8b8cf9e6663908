// Attention of class `pair`, and what goes into the KV cache, against ref/.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/testing/ref_bytes.h"
#include "kernels/latent_attention.h"
#include "kernels/sets.h"
#include "kernels/testing/attention_problem.h"

namespace forebay::kernels::cuda {
namespace {

using kernels::testing::AttentionProblem;
using kernels::testing::AttentionShape;
using tensor::DType;
using testing::Bytes;
using testing::ExpectRefBytes;
using testing::kTypes;
using testing::Of;
using testing::Poison;
using testing::Source;
using testing::TheLauncher;

template <typename T>
void TryAttention(const AttentionShape& shape,
                  const std::vector<kernels::testing::SequenceSpec>& specs,
                  base::Reach reach = {}) {
  AttentionProblem<T> problem(shape, specs);
  problem.Permute(3);  // some blocks in the window
  std::vector<int32_t> done;
  for (const auto& spec : specs) done.push_back(spec.first);
  problem.Prepare(std::vector<int32_t>(specs.size()), 1 << 20);  // all of K and V
  problem.Prepare(done, 1 << 20);
  AttentionArgs args = problem.args();
  args.reach = reach;
  const size_t bytes = static_cast<size_t>(args.batch.num_rows) *
                       static_cast<size_t>(args.heads * args.layout.value_dim) * sizeof(T);
  ExpectRefBytes(fmt::format("{} heads of {}", shape.heads, shape.head_dim), RefKernels().attention,
                 PairKernels().attention, args, {{args.out, bytes}});
}

TEST(PairKernels, Attention) {
  using tensor::BF16;
  TryAttention<BF16>({.heads = 5, .kv_heads = 1, .head_dim = 64}, {{0, 5}, {31, 34}, {63, 64}});
  TryAttention<float>({.heads = 4, .kv_heads = 2, .head_dim = 16}, {{0, 3}, {70, 72}});
  TryAttention<BF16>({.heads = 2, .kv_heads = 2, .head_dim = 128}, {{40, 41}, {95, 97}});
  TryAttention<BF16>({.heads = 2, .kv_heads = 1, .head_dim = 32}, {{98, 101}}, {40, 0});
  TryAttention<BF16>({.heads = 2, .kv_heads = 1, .head_dim = 32}, {{98, 101}}, {0, 48});
  TryAttention<BF16>(
      {.heads = 3, .kv_heads = 1, .head_dim = 48, .value_dim = 40, .values_in_keys = true},
      {{33, 36}});
  for (const int32_t ahead : {3, base::Reach::kAllAhead})
    TryAttention<BF16>({.heads = 2, .kv_heads = 1, .head_dim = 32}, {{0, 40}}, {6, 0, ahead});
  for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kFP8}) {
    TryAttention<BF16>({.heads = 2, .kv_heads = 1, .head_dim = 48, .codes = codes},
                       {{0, 3}, {64, 67}});
    TryAttention<float>({.heads = 2, .kv_heads = 2, .head_dim = 16, .codes = codes}, {{30, 34}});
  }
  // Parts of 1,024 positions.
  TryAttention<BF16>({.heads = 1, .kv_heads = 1, .head_dim = 16}, {{1023, 1025}, {2100, 2101}});
  if (!TheLauncher().fast()) return;
  TryAttention<BF16>({.heads = 32, .kv_heads = 8, .head_dim = 128}, {{0, 200}, {5000, 5002}});
  TryAttention<BF16>(
      {.heads = 16, .kv_heads = 1, .head_dim = 576, .value_dim = 512, .values_in_keys = true},
      {{1500, 1502}, {0, 40}});
}

// Three sequences over a permuted cache: rows, positions, tables.
struct Step {
  Step(DType dtype, int32_t kv_heads, int32_t key_dim, int32_t value_dim, bool values_in_keys,
       KvCodes codes = KvCodes::kNone) {
    constexpr int32_t kTableStride = 3;
    for (const SequenceRows rows : {SequenceRows{0, 9, 0, 2}, {9, 1, 64, 0}, {10, 8, 27, 1}}) {
      for (int32_t i = 0; i < rows.num_rows; ++i) {
        positions.push_back(rows.first_position + i);
        row_sequence.push_back(static_cast<int32_t>(sequences.size()));
      }
      sequences.push_back(rows);
    }
    layout = {.dtype = dtype,
              .kv_heads = kv_heads,
              .key_dim = key_dim,
              .value_dim = value_dim,
              .values_in_keys = values_in_keys,
              .codes = codes};
    layout.block_stride = layout.LayerBytes() + 64;
    blocks = Poison(tables.size() * static_cast<size_t>(layout.block_stride));
    digests.assign(tables.size() * kBlockTokens, 77);
    batch = {.num_rows = static_cast<int32_t>(positions.size()), .num_sequences = 3};
    batch.positions = positions.data();
    batch.row_sequence = row_sequence.data();
    batch.sequences = sequences.data();
    batch.block_tables = tables.data();
    batch.table_stride = kTableStride;
  }
  static constexpr size_t kPositions = 96;
  std::vector<int32_t> positions, row_sequence;
  std::vector<SequenceRows> sequences;
  std::vector<uint32_t> tables = {4, 7, 0, 8, 2, 6, 3, 1, 5};
  Bytes blocks;
  std::vector<uint64_t> digests;
  StepBatch batch;
  KvLayout layout;
};

TEST(PairKernels, RopeAndStore) {
  Source source(300);
  int variant = 0;
  for (const DType dtype : kTypes) {
    for (const auto& [head_dim, codes] : {std::pair(16, KvCodes::kNone),
                                          {64, KvCodes::kInt8},
                                          {128, KvCodes::kNone},
                                          {20, KvCodes::kFP8}}) {
      constexpr int kHeads = 3, kKvHeads = 2;
      Step step(dtype, kKvHeads, head_dim, head_dim, false, codes);
      const auto rows = static_cast<size_t>(step.batch.num_rows),
                 dim = static_cast<size_t>(head_dim);
      std::vector<float> qkv = source.Floats(rows * (kHeads + 2 * kKvHeads) * dim, 2);
      // What a scale cannot be made of, where there are scales, and what lies beyond fp8.
      const size_t k = kHeads * dim;
      if (codes != KvCodes::kNone) qkv[k] = std::numeric_limits<float>::infinity();
      qkv[k + 1] = 1e6f, qkv[k + 2] = 1e-4f;
      std::fill_n(qkv.end() - head_dim, head_dim, 0.0f);
      const std::vector<float> q_norm = source.Floats(dim), k_norm = source.Floats(dim),
                               scales = source.Floats(Step::kPositions),
                               cosines = source.Floats(Step::kPositions * dim / 2),
                               sines = source.Floats(Step::kPositions * dim / 2);
      Bytes q = Poison(rows * kHeads * dim * tensor::SizeOf(dtype));
      RopeKvArgs args{.batch = step.batch,
                      .layout = step.layout,
                      .layer = {.resident = step.blocks.data()},
                      .qkv = qkv.data(),
                      .q = q.data(),
                      .norm_eps = 1e-6f,
                      .heads = kHeads,
                      .digests = step.digests.data(),
                      .layer_index = 5,
                      .first_kv_head = 3};
      ++variant;
      if (variant % 2 == 0) args.q_norm = q_norm.data(), args.k_norm = k_norm.data();
      if (variant % 3 != 0) args.rope_cos = cosines.data(), args.rope_sin = sines.data();
      if (variant % 3 == 1) args.q_scale = scales.data(), args.norm_after = true;
      args.v_norm = variant % 4 == 3;
      args.first_layer = variant % 2 == 0;
      args.digested_elsewhere = variant % 2;
      const std::string what = fmt::format("variant {}", variant);
      ExpectRefBytes(what, RefKernels().rope_kv, PairKernels().rope_kv, args,
                     {Of(q), Of(step.blocks), Of(step.digests)});
      qkv[k] = 1;  // The bits of a NaN are a GPU's own.

      Bytes first = Poison(rows * (1 + 2) * dim * tensor::SizeOf(dtype)),
            second = Poison(rows * (2 + 2) * dim * tensor::SizeOf(dtype));
      RopeRowsArgs cut{.dtype = dtype,
                       .num_rows = step.batch.num_rows,
                       .positions = step.positions.data(),
                       .qkv = qkv.data(),
                       .heads = kHeads,
                       .kv_heads = kKvHeads,
                       .head_dim = head_dim,
                       .q_norm = args.q_norm,
                       .k_norm = args.k_norm,
                       .norm_eps = args.norm_eps,
                       .norm_after = args.norm_after,
                       .v_norm = args.v_norm,
                       .q_scale = args.q_scale,
                       .rope_cos = args.rope_cos,
                       .rope_sin = args.rope_sin,
                       .num_readers = 2};
      cut.readers[0] = {first.data(), 0, 1, 0, 1};
      cut.readers[1] = {second.data(), 1, 2, 1, 1};
      ExpectRefBytes(what, RefKernels().rope_rows, PairKernels().rope_rows, cut,
                     {Of(first), Of(second)});

      const Bytes kv = source.Elements(dtype, rows * 2 * kKvHeads * dim);
      const StoreKvArgs store{.batch = step.batch,
                              .layout = step.layout,
                              .layer = {.resident = step.blocks.data()},
                              .kv = kv.data(),
                              .digests = variant % 3 == 0 ? nullptr : step.digests.data(),
                              .layer_index = 2,
                              .first_kv_head = 1,
                              .digested_elsewhere = 1,
                              .first_layer = args.first_layer};
      ExpectRefBytes(what, RefKernels().store_kv, PairKernels().store_kv, store,
                     {Of(step.blocks), Of(step.digests)});
    }
  }
}

TEST(PairKernels, Latents) {
  Source source(400);
  for (const DType dtype : kTypes) {
    constexpr int kHeads = 3, kPlain = 10, kTurned = 8, kLatent = 22, kKey = kLatent + kTurned;
    Step step(dtype, 1, kKey, kLatent, true);
    const auto rows = static_cast<size_t>(step.batch.num_rows);
    const size_t element = tensor::SizeOf(dtype);
    const std::vector<float> kv = source.Floats(rows * kKey), norm = source.Floats(kLatent),
                             queries = source.Floats(rows * kHeads * (kPlain + kTurned)),
                             cosines = source.Floats(Step::kPositions * kTurned / 2),
                             sines = source.Floats(Step::kPositions * kTurned / 2);
    Bytes q = Poison(queries.size() * element), absorbed = Poison(rows * kHeads * kKey * element);
    const LatentKvArgs args{.batch = step.batch,
                            .layout = step.layout,
                            .layer = {.resident = step.blocks.data()},
                            .kv = kv.data(),
                            .kv_norm = norm.data(),
                            .norm_eps = 1e-6f,
                            .queries = queries.data(),
                            .q = q.data(),
                            .absorbed = absorbed.data(),
                            .heads = kHeads,
                            .plain = kPlain,
                            .rope_cos = cosines.data(),
                            .rope_sin = sines.data(),
                            .digests = step.digests.data(),
                            .layer_index = 4,
                            .first_layer = dtype == DType::kF32};
    ExpectRefBytes("latent_kv", RefKernels().latent_kv, PairKernels().latent_kv, args,
                   {Of(q), Of(absorbed), Of(step.blocks), Of(step.digests)});

    step.blocks = source.Elements(dtype, step.blocks.size() / element);
    const std::vector<uint32_t> entries = {3, 0, 8};
    Bytes latents = Poison(entries.size() * kBlockTokens * kKey * element);
    const GatherLatentsArgs gather{.layout = step.layout,
                                   .layer = {.resident = step.blocks.data()},
                                   .blocks = entries.data(),
                                   .num_blocks = 3,
                                   .out = latents.data()};
    ExpectRefBytes("gather_latents", RefKernels().gather_latents, PairKernels().gather_latents,
                   gather, {Of(latents)});

    StoreExpandedArgs store{.num_blocks = 3, .latent_dim = kKey, .plain = kPlain};
    store.layout = {
        .dtype = dtype, .kv_heads = kHeads, .key_dim = kPlain + kTurned, .value_dim = 12};
    const size_t positions = entries.size() * kBlockTokens * kHeads;
    const Bytes keys = source.Elements(dtype, positions * kPlain),
                values = source.Elements(dtype, positions * 12),
                tail = source.Elements(dtype, entries.size() * kBlockTokens * kKey);
    Bytes blocks = Poison(entries.size() * static_cast<size_t>(store.layout.LayerBytes()));
    store.blocks = blocks.data();
    store.keys = keys.data();
    store.latents = tail.data();
    store.values = values.data();
    ExpectRefBytes("store_expanded", RefKernels().store_expanded, PairKernels().store_expanded,
                   store, {Of(blocks)});
  }
}

}  // namespace
}  // namespace forebay::kernels::cuda
