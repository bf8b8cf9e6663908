// Absorbed latent attention in class mma_k16f25, through the set, against ref/ by memcmp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/testing/watched_context.h"
#include "kernels/kernel_set.h"
#include "kernels/testing/attention_problem.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda {
namespace {

using kernels::testing::AttentionProblem;
using kernels::testing::AttentionShape;
using kernels::testing::SequenceSpec;
using kernels::testing::Team;
using tensor::BF16;
using testing::TheLauncher;
using testing::WatchedContext;

constexpr int kBytesApart = 64;  // between blocks of the layer

// The latents of a step's sequences in chunks. Positions that nobody wrote are NaN.
std::vector<std::byte> InChunks(const AttentionArgs& args, int64_t block_stride, bool in_window) {
  std::vector<std::byte> memory;
  for (int32_t s = 0; s < args.batch.num_sequences; ++s) {
    const SequenceRows& rows = args.batch.sequences[s];
    const int last = rows.first_position + rows.num_rows - 1;
    for (int block = 0; block <= last / kBlockTokens; ++block) {
      const uint32_t entry =
          args.batch.block_tables[rows.table_row * args.batch.table_stride + block];
      if (((entry & kWindowBit) != 0) != in_window) continue;
      const auto at = static_cast<size_t>((entry & ~kWindowBit) * block_stride);
      const auto bytes = static_cast<size_t>(args.layout.LayerBytes());
      memory.resize(std::max(memory.size(), at + bytes), std::byte{0xFF});
      const auto* const from = reinterpret_cast<const BF16*>(args.layer.Block(entry, args.layout));
      for (int t = 0; t < kBlockTokens; ++t) {
        for (int j = 0; j < args.layout.key_dim; ++j) {
          std::memcpy(&memory[at + static_cast<size_t>(InHeadHalf(t, j))],
                      from + (j / 2 * kBlockTokens + t) * 2 + j % 2, sizeof(BF16));
        }
      }
    }
  }
  return memory;
}

void TryLatents(int heads, int head_dim, int value_dim, const std::vector<SequenceSpec>& specs,
                const char* kernel) {
  static Team oracle(TheLauncher().fast() ? 16 : 1);
  AttentionProblem<BF16> problem({.heads = heads,
                                  .kv_heads = 1,
                                  .head_dim = head_dim,
                                  .value_dim = value_dim,
                                  .values_in_keys = true},
                                 specs);
  problem.Permute(3);  // some blocks in the window
  std::vector<int32_t> done;
  for (const SequenceSpec& spec : specs) done.push_back(spec.first);
  problem.Prepare(std::vector<int32_t>(specs.size()), 1 << 20);  // all of K
  problem.Prepare(done, 1 << 20);
  AttentionArgs args = problem.args();
  std::vector<std::byte> expected(static_cast<size_t>(args.batch.num_rows) *
                                  static_cast<size_t>(heads * value_dim) * sizeof(BF16)),
      out(expected.size());
  args.out = expected.data();
  oracle.Run([&](const device::WorkerContext& context) {
    RefKernels(MmaOrder::kK16F25).attention(args, context);
  });
  const int64_t stride = args.layout.LayerBytes() + kBytesApart;
  std::vector<std::byte> resident = InChunks(args, stride, false),
                         window = InChunks(args, args.layout.LayerBytes(), true);
  args.layout.block_stride = stride;
  args.layout.form = PackedForm::kCuda;
  args.layer = {resident.data(), window.data()};
  args.out = out.data();
  for (int launch = 0; launch < TheLauncher().launches(); ++launch) {
    std::ranges::fill(out, std::byte{0xFF});
    std::string_view name;
    const base::Status status =
        TheLauncher().Run(launch, [&](const device::LaunchContext& context) {
          MmaKernels().attention(args, WatchedContext(context, &name));
        });
    ASSERT_TRUE(status.ok()) << "launch " << launch << ": " << status.ToString();
    ASSERT_EQ(name, kernel);
    const auto [ours, theirs] = std::ranges::mismatch(expected, out);
    ASSERT_EQ(ours - expected.begin(), std::ssize(expected))
        << heads << " heads, launch " << launch << ": the first byte that differs";
  }
}

// Contexts within a block, a step, and beyond a part; rows of prompts; heads of two groups.
TEST(MmaLatents, Absorbed) {
  TryLatents(3, 576, 512, {{0, 3}, {40, 41}}, "mma_latent_512");
  TryLatents(70, 576, 512, {{100, 101}}, "mma_latent_512");
  TryLatents(2, 576, 512, {{127, 129}, {255, 256}, {1090, 1091}}, "mma_latent_512");
  if (!TheLauncher().fast()) return;
  // The problem has queries of all positions: more of them do not fit a GPU's pinned heap.
  TryLatents(70, 576, 512, {{2500, 2501}, {300, 301}}, "mma_latent_512");
}

TEST(MmaLatents, OfOtherSizes) {
  TryLatents(3, 192, 128, {{0, 2}, {40, 41}}, "mma_attention_plain");
}

// What latent_kv writes and gather_latents reads is the same in both forms.
TEST(MmaLatents, InTheCache) {
  constexpr int kRows = 5, kFirst = 30, kKey = 192, kLatent = 128, kTurned = 64, kPlain = 6;
  base::Rng rng(9);
  const auto floats = [&](int count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(rng.Uniform() * 2 - 1);
    return values;
  };
  const std::vector<float> kv = floats(kRows * kKey), norm = floats(kLatent),
                           queries = floats(kRows * (kPlain + kTurned)), cosines = floats(64 * 32),
                           sines = floats(64 * 32);
  std::vector<int32_t> positions, row_sequence(kRows);
  for (int i = 0; i < kRows; ++i) positions.push_back(kFirst + i);
  std::vector<SequenceRows> sequences = {{0, kRows, kFirst, 0}};
  std::vector<uint32_t> table = {2, 0};
  StepBatch batch{.num_rows = kRows, .num_sequences = 1};
  batch.positions = positions.data();
  batch.row_sequence = row_sequence.data();
  batch.sequences = sequences.data();
  batch.block_tables = table.data();
  batch.table_stride = 2;
  std::vector<BF16> gathered[2];
  for (const PackedForm form : {PackedForm::kPairs, PackedForm::kCuda}) {
    KvLayout layout{
        .kv_heads = 1, .key_dim = kKey, .value_dim = kLatent, .values_in_keys = true, .form = form};
    layout.block_stride = layout.LayerBytes();
    std::vector<std::byte> blocks(static_cast<size_t>(3 * layout.block_stride));
    std::vector<BF16> q(queries.size()), absorbed(kRows * kKey);
    const KvLayer layer{.resident = blocks.data()};
    std::vector<BF16>& out = gathered[form == PackedForm::kCuda ? 1 : 0];
    out.resize(static_cast<size_t>(2 * kBlockTokens * kKey));
    const base::Status status = TheLauncher().Run(0, [&](const device::LaunchContext& context) {
      MmaKernels().latent_kv({.batch = batch,
                              .layout = layout,
                              .layer = layer,
                              .kv = kv.data(),
                              .kv_norm = norm.data(),
                              .norm_eps = 1e-6f,
                              .queries = queries.data(),
                              .q = reinterpret_cast<std::byte*>(q.data()),
                              .absorbed = reinterpret_cast<std::byte*>(absorbed.data()),
                              .heads = 1,
                              .plain = kPlain,
                              .rope_cos = cosines.data(),
                              .rope_sin = sines.data()},
                             context);
      MmaKernels().gather_latents({.layout = layout,
                                   .layer = layer,
                                   .blocks = table.data(),
                                   .num_blocks = 2,
                                   .out = reinterpret_cast<std::byte*>(out.data())},
                                  context);
    });
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_EQ(std::memcmp(gathered[0].data(), gathered[1].data(), gathered[0].size() * sizeof(BF16)),
            0);
  EXPECT_NE(gathered[1][kFirst * kKey].bits, 0);
}

}  // namespace
}  // namespace forebay::kernels::cuda
