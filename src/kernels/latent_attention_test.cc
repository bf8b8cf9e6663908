// Rows of latent attention: every set against ref/ by memcmp, and ref/ against the formula in
// double.
#include "kernels/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "kernels/digest.h"
#include "kernels/kernel_set.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using tensor::BF16;
using testing::Team;

struct Shape {
  int32_t heads, plain, turned, latent;
};

// Owns what LatentKvArgs point to: three sequences, one of which begins amid a block.
template <typename T>
struct Problem {
  explicit Problem(const Shape& shape) : shape(shape) {
    for (const SequenceRows& rows : {SequenceRows{0, 40, 3, 2}, {40, 1, 37, 0}, {41, 5, 64, 1}}) {
      for (int32_t i = 0; i < rows.num_rows; ++i) {
        positions.push_back(rows.first_position + i);
        row_sequence.push_back(static_cast<int32_t>(sequences.size()));
      }
      sequences.push_back(rows);
    }
    const size_t rows = positions.size(), key = size_t(shape.latent) + shape.turned;
    const size_t query = size_t(shape.heads) * (shape.plain + shape.turned);
    kv = Random(rows * key);
    kv_norm = Random(shape.latent);
    queries = Random(rows * query);
    cosines = Random(100 * shape.turned / 2);
    sines = Random(100 * shape.turned / 2);
    args.layout = {.dtype = sizeof(T) == 4 ? tensor::DType::kF32 : tensor::DType::kBF16,
                   .kv_heads = 1,
                   .key_dim = static_cast<int32_t>(key),
                   .value_dim = shape.latent,
                   .values_in_keys = true};
    args.layout.block_stride = args.layout.LayerBytes() + 64;
    // What nothing writes keeps its value.
    blocks.assign(tables.size() * args.layout.block_stride / sizeof(T), tensor::RoundTo<T>(7.0f));
    q.assign(rows * query, tensor::RoundTo<T>(7.0f));
    absorbed.assign(rows * shape.heads * key, tensor::RoundTo<T>(7.0f));
    digests.assign(tables.size() * kBlockTokens, 7);
    args.batch = {.num_rows = static_cast<int32_t>(rows), .num_sequences = 3};
    args.batch.positions = positions.data();
    args.batch.row_sequence = row_sequence.data();
    args.batch.sequences = sequences.data();
    args.batch.block_tables = tables.data();
    args.batch.table_stride = 3;
    args.layer.resident = reinterpret_cast<std::byte*>(blocks.data());
    args.kv = kv.data();
    args.kv_norm = kv_norm.data();
    args.norm_eps = 1e-6f;
    args.queries = queries.data();
    args.q = reinterpret_cast<std::byte*>(q.data());
    args.absorbed = reinterpret_cast<std::byte*>(absorbed.data());
    args.heads = shape.heads;
    args.plain = shape.plain;
    args.rope_cos = cosines.data();
    args.rope_sin = sines.data();
    args.digests = digests.data();
    args.layer_index = 5;
    args.first_layer = true;
  }

  void Run(const KernelSet& kernels, Team& team) {
    team.Run([&](const device::WorkerContext& context) { kernels.latent_kv(args, context); });
  }
  std::vector<float> Random(size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = static_cast<float>(rng.Uniform() * 4 - 2);
    return values;
  }
  uint32_t Entry(size_t row) const {
    return tables[sequences[row_sequence[row]].table_row * 3 + positions[row] / kBlockTokens];
  }
  // Element j of the key that is cached for a row's position.
  T Cached(size_t row, int32_t j) const {
    const int32_t slot = positions[row] % kBlockTokens;
    return blocks[Entry(row) * args.layout.block_stride / sizeof(T) +
                  (j / 2 * kBlockTokens + slot) * 2 + j % 2];
  }
  // Element j of x after rope.
  double Turned(const float* x, size_t row, int32_t j) const {
    const int32_t half = shape.turned / 2, at = positions[row] * half + j % half;
    return x[j] * double(cosines[at]) + (j < half ? -x[j + half] : x[j - half]) * double(sines[at]);
  }

  const Shape shape;
  base::Rng rng{1};
  LatentKvArgs args;
  std::vector<int32_t> positions, row_sequence;
  std::vector<SequenceRows> sequences;
  std::vector<uint32_t> tables = {4, 7, 0, 8, 2, 6, 3, 1, 5};
  std::vector<float> kv, kv_norm, queries, cosines, sines;
  std::vector<T> q, absorbed, blocks;
  std::vector<uint64_t> digests;
};

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename T>
class LatentKvTest : public ::testing::Test {};
using Types = ::testing::Types<BF16, float>;
TYPED_TEST_SUITE(LatentKvTest, Types);

TYPED_TEST(LatentKvTest, IsTheSameInAllSets) {
  for (const Shape& shape :
       {Shape{3, 10, 6, 24}, {4, 16, 8, 24}, {1, 2, 2, 2}, {5, 128, 64, 512}, {2, 33, 34, 50}}) {
    Problem<TypeParam> expected(shape);
    Team one(1);
    expected.Run(RefKernels(), one);
    for (const KernelSet* kernels : AvailableKernels()) {
      for (const int workers : {1, 2, 3}) {
        Team team(workers);
        Problem<TypeParam> problem(shape);
        problem.Run(*kernels, team);
        EXPECT_TRUE(SameBytes(problem.q, expected.q)) << kernels->name;
        EXPECT_TRUE(SameBytes(problem.absorbed, expected.absorbed)) << kernels->name;
        EXPECT_TRUE(SameBytes(problem.blocks, expected.blocks)) << kernels->name;
        EXPECT_EQ(problem.digests, expected.digests) << kernels->name;
      }
    }
  }
}

TYPED_TEST(LatentKvTest, AgainstDouble) {
  using T = TypeParam;
  const Shape shape{3, 10, 6, 24};
  Problem<T> problem(shape);
  Team team(2);
  problem.Run(RefKernels(), team);
  const double tolerance = sizeof(T) == 2 ? 0x1p-8 : 5e-6;
  const auto expect_near = [&](T found, double expected) {
    ASSERT_NEAR(tensor::ToFloat(found), expected, tolerance * (std::abs(expected) + 0.02));
  };
  const int32_t key = shape.latent + shape.turned, query = shape.plain + shape.turned;
  for (size_t row = 0; row < problem.positions.size(); ++row) {
    const float* const x = &problem.kv[row * key];
    double squares = 0;
    for (int32_t j = 0; j < shape.latent; ++j) squares += double(x[j]) * x[j];
    std::vector<T> cached;
    for (int32_t j = 0; j < key; ++j) {
      cached.push_back(problem.Cached(row, j));
      expect_near(cached[j],
                  j < shape.latent
                      ? x[j] / std::sqrt(squares / shape.latent + 1e-6) * problem.kv_norm[j]
                      : problem.Turned(x + shape.latent, row, j - shape.latent));
    }
    // One hash of latent and turned key: the position counts once.
    EXPECT_EQ(
        problem.digests[problem.Entry(row) * kBlockTokens + problem.positions[row] % kBlockTokens],
        DigestHash(cached.data(), key * static_cast<int64_t>(sizeof(T)),
                   KeyDigestKey(5, 0, problem.positions[row])));
    for (int32_t head = 0; head < shape.heads; ++head) {
      const size_t at = row * shape.heads + head;
      const float* const asked = &problem.queries[at * query];
      for (int32_t j = 0; j < query; ++j) {
        const T found = problem.q[at * query + j];
        expect_near(found, j < shape.plain
                               ? asked[j]
                               : problem.Turned(asked + shape.plain, row, j - shape.plain));
        if (j < shape.plain) continue;
        const T again = problem.absorbed[at * key + shape.latent + j - shape.plain];
        EXPECT_EQ(tensor::ToFloat(again), tensor::ToFloat(found));
      }
      // The projection's part is not touched.
      EXPECT_EQ(tensor::ToFloat(problem.absorbed[at * key]), 7.0f);
    }
  }
}

TYPED_TEST(LatentKvTest, LaterLayersAddToTheDigest) {
  Problem<TypeParam> problem({2, 4, 4, 8});
  Team team(1);
  problem.Run(RefKernels(), team);
  const std::vector<uint64_t> once = problem.digests;
  problem.args.first_layer = false;
  for (const KernelSet* kernels : AvailableKernels()) {
    problem.digests = once;
    problem.Run(*kernels, team);
    const size_t at = problem.Entry(0) * kBlockTokens + 3;
    EXPECT_EQ(problem.digests[at], 2 * once[at]) << kernels->name;
  }
}

// Owns what the arguments of both operations point to: five blocks, gathered in an order of their
// own, one of them twice.
template <typename T>
struct ExpandedProblem {
  explicit ExpandedProblem(const Shape& shape, int32_t value) {
    const auto random = [&](int64_t n) {
      std::vector<T> values(static_cast<size_t>(n));
      for (T& x : values) x = tensor::RoundTo<T>(static_cast<float>(rng.Uniform() * 4 - 2));
      return values;
    };
    const auto dtype = sizeof(T) == 4 ? tensor::DType::kF32 : tensor::DType::kBF16;
    gather.layout = {.dtype = dtype,
                     .kv_heads = 1,
                     .key_dim = shape.latent + shape.turned,
                     .value_dim = shape.latent,
                     .values_in_keys = true};
    gather.layout.block_stride = gather.layout.LayerBytes() + 64;
    cache = random(5 * gather.layout.block_stride / static_cast<int64_t>(sizeof(T)));
    window = random(2 * gather.layout.LayerBytes() / static_cast<int64_t>(sizeof(T)));
    gather.layer = {.resident = Bytes(cache), .window = Bytes(window)};
    gather.blocks = blocks.data();
    gather.num_blocks = static_cast<int32_t>(blocks.size());
    const int64_t rows = std::ssize(blocks) * kBlockTokens;
    gathered.assign(static_cast<size_t>(rows * gather.layout.key_dim), tensor::RoundTo<T>(7.0f));
    gather.out = Bytes(gathered);
    store.layout = {.dtype = dtype,
                    .kv_heads = shape.heads,
                    .key_dim = shape.plain + shape.turned,
                    .value_dim = value};
    store.layout.block_stride = store.layout.LayerBytes();
    keys = random(rows * shape.heads * shape.plain);
    values = random(rows * shape.heads * value);
    stored.assign(static_cast<size_t>(std::ssize(blocks) * store.layout.LayerBytes()) / sizeof(T),
                  tensor::RoundTo<T>(7.0f));
    store.blocks = Bytes(stored);
    store.num_blocks = gather.num_blocks;
    store.keys = Bytes(keys);
    store.latents = Bytes(gathered);
    store.values = Bytes(values);
    store.latent_dim = gather.layout.key_dim;
    store.plain = shape.plain;
  }
  static std::byte* Bytes(std::vector<T>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  }
  void Run(const KernelSet& kernels, Team& team) {
    team.Run(
        [&](const device::WorkerContext& context) { kernels.gather_latents(gather, context); });
    team.Run([&](const device::WorkerContext& context) { kernels.store_expanded(store, context); });
  }

  base::Rng rng{2};
  GatherLatentsArgs gather;
  StoreExpandedArgs store;
  std::vector<uint32_t> blocks = {4, 0, kWindowBit | 1, 3, 0, 2};
  std::vector<T> cache, window, gathered, keys, values, stored;
};

TYPED_TEST(LatentKvTest, ExpandedBlocksAreTheSameInAllSets) {
  for (const auto& [shape, value] : {std::pair{Shape{3, 10, 6, 24}, 12},
                                     {Shape{1, 2, 2, 2}, 2},
                                     {Shape{5, 128, 64, 512}, 128},
                                     {Shape{2, 32, 34, 50}, 66}}) {
    ExpandedProblem<TypeParam> expected(shape, value);
    Team one(1);
    expected.Run(RefKernels(), one);
    for (const KernelSet* kernels : AvailableKernels()) {
      for (const int workers : {1, 2, 3}) {
        Team team(workers);
        ExpandedProblem<TypeParam> problem(shape, value);
        problem.Run(*kernels, team);
        EXPECT_TRUE(SameBytes(problem.gathered, expected.gathered)) << kernels->name;
        EXPECT_TRUE(SameBytes(problem.stored, expected.stored)) << kernels->name;
      }
    }
  }
}

// Where the layouts say that they lie (kernels/kv_layout.h).
TYPED_TEST(LatentKvTest, ExpandedBlocksHoldWhatWasCached) {
  const Shape shape{3, 10, 6, 24};
  const int32_t value = 12, latent_dim = shape.latent + shape.turned;
  ExpandedProblem<TypeParam> problem(shape, value);
  Team team(2);
  problem.Run(RefKernels(), team);
  const auto same = [](TypeParam a, TypeParam b) {
    return tensor::ToFloat(a) == tensor::ToFloat(b);
  };
  const int64_t stride = problem.gather.layout.block_stride / int64_t{sizeof(TypeParam)};
  for (int64_t block = 0; block < std::ssize(problem.blocks); ++block) {
    const uint32_t entry = problem.blocks[block];
    const TypeParam* const cached =
        entry & kWindowBit ? &problem.window[(entry & ~kWindowBit) * latent_dim * kBlockTokens]
                           : &problem.cache[entry * stride];
    for (int64_t slot = 0; slot < kBlockTokens; ++slot) {
      const auto element = [&](const TypeParam* at, int64_t j) {
        return at[(j / 2 * kBlockTokens + slot) * 2 + j % 2];
      };
      const int64_t row = block * kBlockTokens + slot;
      for (int64_t j = 0; j < latent_dim; ++j)
        ASSERT_TRUE(same(problem.gathered[row * latent_dim + j], element(cached, j)));
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t at = row * shape.heads + head;
        const TypeParam* const k =
            &problem.stored[(block * shape.heads + head) * problem.store.layout.HeadElements()];
        const TypeParam* const v = k + kBlockTokens * problem.store.layout.key_dim;
        for (int64_t j = 0; j < shape.plain; ++j)
          ASSERT_TRUE(same(element(k, j), problem.keys[at * shape.plain + j]));
        for (int64_t j = 0; j < shape.turned; ++j)
          ASSERT_TRUE(same(element(k, shape.plain + j), element(cached, shape.latent + j)));
        for (int64_t j = 0; j < value; ++j) {
          ASSERT_TRUE(
              same(v[(slot / 2 * value + j) * 2 + slot % 2], problem.values[at * value + j]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace forebay::kernels
