// Row-wise kernels: norm, rope and the KV write, embedding, digests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/rng.h"
#include "kernels/cpu/probes.h"
#include "kernels/digest.h"
#include "kernels/kernel_set.h"
#include "kernels/kv_codes.h"
#include "kernels/testing/pack_rounded.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using tensor::BF16;
using testing::Team;

template <typename T>
constexpr tensor::DType kTypeOf = sizeof(T) == 4 ? tensor::DType::kF32 : tensor::DType::kBF16;

template <typename T>
std::vector<T> Random(base::Rng& rng, size_t n, float scale = 1) {
  std::vector<T> values(n);
  for (T& value : values)
    value = tensor::RoundTo<T>(scale * static_cast<float>(rng.Uniform() * 2 - 1));
  return values;
}

template <typename T>
std::byte* Bytes(std::vector<T>& v) {
  return reinterpret_cast<std::byte*>(v.data());
}

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename T>
class RowsTest : public ::testing::Test {
 protected:
  Team teams_[3] = {Team(1), Team(2), Team(3)};
};
using Types = ::testing::Types<BF16, float>;
TYPED_TEST_SUITE(RowsTest, Types);

TYPED_TEST(RowsTest, RmsNorm) {
  using T = TypeParam;
  base::Rng rng(1);
  for (const int32_t columns : {8, 16, 24, 100, 576, 1024}) {
    std::vector<T> x = Random<T>(rng, 9 * columns, 3);
    const std::vector<float> weight = Random<float>(rng, columns);
    constexpr int32_t kFirst = 5;
    const std::vector<int32_t> picked = {kFirst + 8, kFirst, kFirst + 3, kFirst + 3};
    for (const bool pick : {false, true}) {
      RmsNormArgs args{.dtype = kTypeOf<T>,
                       .x = Bytes(x),
                       .weight = weight.data(),
                       .columns = columns,
                       .eps = 1e-5f};
      args.rows = pick ? picked.data() : nullptr;
      args.first_row = kFirst;
      args.num_rows = pick ? 4 : 9;
      std::vector<T> expected;
      for (const KernelSet* kernels : AvailableKernels()) {
        for (Team& team : this->teams_) {
          std::vector<T> out(args.num_rows * columns);
          args.out = Bytes(out);
          team.Run([&](const device::WorkerContext& context) { kernels->rms_norm(args, context); });
          if (expected.empty()) expected = out;
          EXPECT_TRUE(SameBytes(out, expected)) << kernels->name << ", " << columns << " columns";
        }
      }
      for (int32_t i = 0; i < args.num_rows; ++i) {
        const T* row = x.data() + (pick ? picked[i] - kFirst : i) * columns;
        double squares = 0;
        for (int32_t j = 0; j < columns; ++j)
          squares += std::pow(double(tensor::ToFloat(row[j])), 2);
        for (int32_t j = 0; j < columns; ++j) {
          const double y =
              tensor::ToFloat(row[j]) / std::sqrt(squares / columns + 1e-5) * weight[j];
          EXPECT_NEAR(tensor::ToFloat(expected[i * columns + j]), y,
                      std::abs(y) * (sizeof(T) == 2 ? 0x1p-8 : 1e-6));
        }
      }
    }
  }
}

TYPED_TEST(RowsTest, CenteredNorm) {
  using T = TypeParam;
  base::Rng rng(7);
  for (const int32_t columns : {8, 16, 24, 100, 384, 1024}) {
    std::vector<T> x = Random<T>(rng, 9 * columns, 3);
    for (T& value : x) value = tensor::RoundTo<T>(tensor::ToFloat(value) + 2);
    const std::vector<float> weight = Random<float>(rng, columns),
                             bias = Random<float>(rng, columns);
    const std::vector<int32_t> picked = {8, 0, 3, 3};
    for (const bool biased : {false, true}) {
      RmsNormArgs args{.dtype = kTypeOf<T>,
                       .x = Bytes(x),
                       .weight = weight.data(),
                       .bias = biased ? bias.data() : nullptr,
                       .centered = true,
                       .rows = biased ? picked.data() : nullptr,
                       .num_rows = biased ? 4 : 9,
                       .columns = columns,
                       .eps = 1e-5f};
      std::vector<T> expected;
      for (const KernelSet* kernels : AvailableKernels()) {
        for (Team& team : this->teams_) {
          std::vector<T> out(args.num_rows * columns);
          args.out = Bytes(out);
          team.Run([&](const device::WorkerContext& context) { kernels->rms_norm(args, context); });
          if (expected.empty()) expected = out;
          EXPECT_TRUE(SameBytes(out, expected)) << kernels->name << ", " << columns << " columns";
        }
      }
      for (int32_t i = 0; i < args.num_rows; ++i) {
        const T* row = x.data() + (biased ? picked[i] : i) * columns;
        double mean = 0, squares = 0;
        for (int32_t j = 0; j < columns; ++j) mean += double(tensor::ToFloat(row[j])) / columns;
        for (int32_t j = 0; j < columns; ++j)
          squares += std::pow(double(tensor::ToFloat(row[j])) - mean, 2);
        for (int32_t j = 0; j < columns; ++j) {
          const double normed =
              (tensor::ToFloat(row[j]) - mean) / std::sqrt(squares / columns + 1e-5) * weight[j];
          const double y = normed + (biased ? bias[j] : 0);
          EXPECT_NEAR(tensor::ToFloat(expected[i * columns + j]), y,
                      (std::abs(y) + std::abs(normed) + 1) * (sizeof(T) == 2 ? 0x1p-8 : 1e-6));
        }
      }
    }
  }
}

// In place, on a part of longer rows.
TYPED_TEST(RowsTest, RmsNormOfPartsOfRows) {
  using T = TypeParam;
  base::Rng rng(11);
  constexpr int32_t kRows = 5, kColumns = 40, kStride = 100;
  const std::vector<T> x = Random<T>(rng, kRows * kStride, 3);
  const std::vector<float> weight = Random<float>(rng, kColumns);
  std::vector<T> expected;
  for (const KernelSet* kernels : AvailableKernels()) {
    std::vector<T> out = x;
    const RmsNormArgs args{.dtype = kTypeOf<T>,
                           .x = Bytes(out),
                           .out = Bytes(out),
                           .weight = weight.data(),
                           .num_rows = kRows,
                           .columns = kColumns,
                           .stride = kStride,
                           .eps = 1e-5f};
    this->teams_[1].Run(
        [&](const device::WorkerContext& context) { kernels->rms_norm(args, context); });
    if (expected.empty()) expected = out;
    EXPECT_TRUE(SameBytes(out, expected)) << kernels->name;
    EXPECT_TRUE(std::equal(out.begin() + kColumns, out.begin() + kStride, x.begin() + kColumns));
    EXPECT_FALSE(std::equal(out.begin(), out.begin() + kColumns, x.begin()));
  }
}

TYPED_TEST(RowsTest, AddNormed) {
  using T = TypeParam;
  base::Rng rng(12);
  constexpr int32_t kRows = 7;
  constexpr float kScale = 1.375f;
  for (const int32_t columns : {8, 37, 576}) {
    const std::vector<float> x = Random<float>(rng, kRows * columns, 3);
    const std::vector<float> beside = Random<float>(rng, kRows * columns, 2);
    const std::vector<T> residual = Random<T>(rng, kRows * columns, 3);
    const std::vector<float> weight = Random<float>(rng, columns);
    for (const bool normed : {false, true}) {
      for (const bool further : {false, true}) {  // something beside x, and a scale of the sum
        std::vector<T> expected;
        for (const KernelSet* kernels : AvailableKernels()) {
          for (Team& team : this->teams_) {
            std::vector<T> out = residual;
            const AddNormedArgs args{.dtype = kTypeOf<T>,
                                     .x = x.data(),
                                     .beside = further ? beside.data() : nullptr,
                                     .weight = normed ? weight.data() : nullptr,
                                     .residual = Bytes(out),
                                     .out = Bytes(out),
                                     .rows = kRows,
                                     .columns = columns,
                                     .eps = 1e-5f,
                                     .factor = 0.6f,
                                     .scale = further ? &kScale : nullptr};
            team.Run(
                [&](const device::WorkerContext& context) { kernels->add_normed(args, context); });
            if (expected.empty()) expected = out;
            EXPECT_TRUE(SameBytes(out, expected)) << kernels->name << ", " << columns << " columns";
          }
        }
        const auto y_of = [&](int32_t at) {
          return double(x[at]) + (further ? double(beside[at]) : 0);
        };
        for (int32_t i = 0; i < kRows; ++i) {
          double squares = 0;
          for (int32_t j = 0; j < columns; ++j) squares += std::pow(y_of(i * columns + j), 2);
          for (int32_t j = 0; j < columns; ++j) {
            const double s = y_of(i * columns + j) *
                             (normed ? weight[j] / std::sqrt(squares / columns + 1e-5) : 1);
            const double scale = further ? kScale : 1;
            const double out = (s * 0.6 + tensor::ToFloat(residual[i * columns + j])) * scale;
            EXPECT_NEAR(tensor::ToFloat(expected[i * columns + j]), out,
                        (std::abs(s * scale) + std::abs(out)) * (sizeof(T) == 2 ? 0x1p-8 : 2e-6));
          }
        }
      }
    }
  }
}

TYPED_TEST(RowsTest, LayerInputs) {
  using T = TypeParam;
  base::Rng rng(15);
  constexpr int32_t kRows = 5, kStride = 96;
  int32_t tokens[kRows] = {3, 0, ~1, 6, ~0}, sampled[2] = {5, 2};
  const int32_t meant[kRows] = {3, 0, 2, 6, 5};
  std::vector<T> table = Random<T>(rng, 7 * kStride, 2);
  for (const int32_t columns : {1, 16, 37, 64}) {
    const std::vector<float> projected = Random<float>(rng, kRows * columns, 3),
                             gates = Random<float>(rng, kRows * columns, 3),
                             weight = Random<float>(rng, columns);
    std::vector<T> expected;
    for (const KernelSet* kernels : AvailableKernels()) {
      for (Team& team : this->teams_) {
        std::vector<T> out(kRows * columns);
        LayerInputsArgs args{.dtype = kTypeOf<T>,
                             .projected = projected.data(),
                             .weight = weight.data(),
                             .gates = gates.data(),
                             .table = Bytes(table),
                             .table_stride = kStride,
                             .out = Bytes(out),
                             .columns = columns,
                             .eps = 1e-5f,
                             .table_factor = 4,
                             .factor = 0.75f};
        args.batch.num_rows = kRows;
        args.batch.tokens = tokens;
        args.batch.sampled = sampled;
        team.Run(
            [&](const device::WorkerContext& context) { kernels->layer_inputs(args, context); });
        if (expected.empty()) expected = out;
        EXPECT_TRUE(SameBytes(out, expected)) << kernels->name << ", " << columns << " columns";
      }
    }
    for (int32_t i = 0; i < kRows; ++i) {
      double squares = 0;
      for (int32_t j = 0; j < columns; ++j)
        squares += std::pow(double(projected[i * columns + j]), 2);
      for (int32_t j = 0; j < columns; ++j) {
        const double own =
            projected[i * columns + j] * weight[j] / std::sqrt(squares / columns + 1e-5);
        const double gate = gates[i * columns + j];
        const double gelu =
            0.5 * gate *
            (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
        const double of_token = tensor::ToFloat(table[meant[i] * kStride + j]) * 4.0;
        EXPECT_NEAR(tensor::ToFloat(expected[i * columns + j]), gelu * (own + of_token) * 0.75,
                    std::abs(gelu) * (std::abs(own) + std::abs(of_token) + 1) *
                            (sizeof(T) == 2 ? 0x1p-8 : 1e-5) +
                        1e-6);
      }
    }
  }
}

TEST(FinishLogitsTest, IsTheSameInAllSets) {
  base::Rng rng(13);
  const std::vector<float> logits = Random<float>(rng, 1003, 9);
  for (const float cap : {0.0f, 3.0f}) {
    std::vector<float> expected;
    for (const KernelSet* kernels : AvailableKernels()) {
      std::vector<float> values = logits;
      const FinishLogitsArgs args{
          .values = values.data(), .count = std::ssize(values), .factor = 0.625f, .cap = cap};
      Team team(3);
      team.Run(
          [&](const device::WorkerContext& context) { kernels->finish_logits(args, context); });
      if (expected.empty()) expected = values;
      EXPECT_TRUE(SameBytes(values, expected)) << kernels->name;
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      const double value = logits[i] * 0.625;
      EXPECT_NEAR(expected[i], cap > 0 ? cap * std::tanh(value / cap) : value, 2e-6);
    }
  }
}

// A step of three sequences over 3 blocks each, and what RopeKv makes of it.
template <typename T>
struct RopeProblem {
  static constexpr int32_t kTableStride = 3, kPositions = 96;

  RopeProblem(int32_t heads, int32_t kv_heads, int32_t head_dim, bool norm, bool rope,
              KvCodes codes = KvCodes::kNone) {
    base::Rng rng(7);
    for (const SequenceRows rows : {SequenceRows{0, 40, 0, 2}, {40, 1, 64, 0}, {41, 8, 27, 1}}) {
      for (int32_t i = 0; i < rows.num_rows; ++i) {
        positions.push_back(rows.first_position + i);
        row_sequence.push_back(static_cast<int32_t>(sequences.size()));
      }
      sequences.push_back(rows);
    }
    const size_t rows = positions.size();
    qkv = Random<float>(rng, rows * (heads + 2 * kv_heads) * head_dim, 2);
    q_norm = Random<float>(rng, head_dim);
    k_norm = Random<float>(rng, head_dim);
    cosines = Random<float>(rng, kPositions * head_dim / 2);
    sines = Random<float>(rng, kPositions * head_dim / 2);
    args.layout = {.dtype = kTypeOf<T>,
                   .kv_heads = kv_heads,
                   .key_dim = head_dim,
                   .value_dim = head_dim,
                   .codes = codes};
    args.layout.block_stride = args.layout.LayerBytes() + 64;
    blocks.resize(tables.size() * args.layout.block_stride / sizeof(T));
    q.resize(rows * heads * head_dim);
    digests.resize(tables.size() * kBlockTokens);
    args.batch = {.num_rows = static_cast<int32_t>(rows), .num_sequences = 3};
    args.batch.positions = positions.data();
    args.batch.row_sequence = row_sequence.data();
    args.batch.sequences = sequences.data();
    args.batch.block_tables = tables.data();
    args.batch.table_stride = kTableStride;
    args.layer.resident = Bytes(blocks);
    args.qkv = qkv.data();
    args.q = Bytes(q);
    args.q_norm = norm ? q_norm.data() : nullptr;
    args.k_norm = norm ? k_norm.data() : nullptr;
    args.norm_eps = 1e-6f;
    args.rope_cos = rope ? cosines.data() : nullptr;
    args.rope_sin = rope ? sines.data() : nullptr;
    args.heads = heads;
    args.digests = digests.data();
    args.layer_index = 5;
    args.first_layer = true;
  }

  void Run(const KernelSet& kernels, Team& team) {
    std::fill(blocks.begin(), blocks.end(), tensor::RoundTo<T>(7.0f));  // what other slots keep
    team.Run([&](const device::WorkerContext& context) { kernels.rope_kv(args, context); });
  }

  // Element j of K or V of a position as the layout of kv_layout.h has it.
  T At(int32_t sequence, int32_t position, int32_t head, bool value, int32_t j) const {
    const uint32_t entry =
        tables[sequences[sequence].table_row * kTableStride + position / kBlockTokens];
    const int32_t slot = position % kBlockTokens, dim = args.layout.key_dim;
    const T* keys = blocks.data() +
                    (entry * args.layout.block_stride + head * args.layout.HeadBytes()) / sizeof(T);
    return value ? keys[dim * kBlockTokens + (slot / 2 * dim + j) * 2 + slot % 2]
                 : keys[(j / 2 * kBlockTokens + slot) * 2 + j % 2];
  }

  RopeKvArgs args;
  std::vector<int32_t> positions, row_sequence;
  std::vector<SequenceRows> sequences;
  std::vector<uint32_t> tables = {4, 7, 0, 8, 2, 6, 3, 1, 5};
  std::vector<float> qkv, q_norm, k_norm, cosines, sines;
  std::vector<T> q, blocks;
  std::vector<uint64_t> digests;
};

TYPED_TEST(RowsTest, RopeKvIsTheSameInAllSets) {
  using T = TypeParam;
  for (const int32_t head_dim : {2, 16, 24, 48, 64, 80, 128}) {
    for (const bool norm : {false, true}) {
      for (const bool rope : {false, true}) {
        RopeProblem<T> expected(6, 2, head_dim, norm, rope);
        expected.Run(RefKernels(), this->teams_[0]);
        for (const KernelSet* kernels : AvailableKernels()) {
          for (Team& team : this->teams_) {
            RopeProblem<T> problem(6, 2, head_dim, norm, rope);
            problem.Run(*kernels, team);
            EXPECT_TRUE(SameBytes(problem.q, expected.q))
                << kernels->name << ", head_dim " << head_dim;
            EXPECT_TRUE(SameBytes(problem.blocks, expected.blocks))
                << kernels->name << ", head_dim " << head_dim;
            EXPECT_TRUE(SameBytes(problem.digests, expected.digests))
                << kernels->name << ", head_dim " << head_dim;
          }
        }
      }
    }
  }
}

// Codes and scales are those of the reference, and stand for what a cache of values has.
TYPED_TEST(RowsTest, RopeKvKeepsCodes) {
  using T = TypeParam;
  for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kFP8}) {
    for (const int32_t head_dim : {2, 24, 64, 128}) {
      const RopeProblem<T> plain = [&] {
        RopeProblem<T> problem(6, 2, head_dim, true, true);
        problem.Run(RefKernels(), this->teams_[0]);
        return problem;
      }();
      RopeProblem<T> expected(6, 2, head_dim, true, true, codes);
      // A head of zeros, one with NaN, one beyond E4M3, one that is denormal as fp8.
      const auto value = [&](RopeProblem<T>& problem, int row) -> float& {
        return problem.qkv[static_cast<size_t>((row * 10 + 8) * head_dim)];
      };
      const auto spoil = [&](RopeProblem<T>& problem) {
        std::fill_n(&value(problem, 0), head_dim, 0.0f);
        value(problem, 1) = std::numeric_limits<float>::quiet_NaN();
        value(problem, 2) = -1e6f;
        std::fill_n(&value(problem, 3), head_dim, 0.01f);
        value(problem, 4) = std::numeric_limits<float>::infinity();
      };
      spoil(expected);
      expected.Run(RefKernels(), this->teams_[0]);
      for (const KernelSet* kernels : AvailableKernels()) {
        for (Team& team : this->teams_) {
          RopeProblem<T> problem(6, 2, head_dim, true, true, codes);
          spoil(problem);
          problem.Run(*kernels, team);
          EXPECT_TRUE(SameBytes(problem.q, plain.q)) << kernels->name;
          EXPECT_TRUE(SameBytes(problem.blocks, expected.blocks))
              << kernels->name << ", head_dim " << head_dim;
          EXPECT_TRUE(SameBytes(problem.digests, expected.digests))
              << kernels->name << ", head_dim " << head_dim;
        }
      }
      const KvLayout& layout = expected.args.layout;
      for (const bool is_value : {false, true}) {
        const int32_t row = 20, head = 1;
        std::vector<float> x;
        for (int32_t j = 0; j < head_dim; ++j)
          x.push_back(tensor::ToFloat(plain.At(0, row, head, is_value, j)));
        const KvRow kept = KvRowOf(codes, x.data(), head_dim);
        const auto* const part =
            reinterpret_cast<const std::byte*>(expected.blocks.data()) +
            expected.tables[2 * RopeProblem<T>::kTableStride] * layout.block_stride +
            head * layout.HeadBytes();
        for (int32_t j = 0; j < head_dim; ++j) {
          const int32_t at = is_value
                                 ? head_dim * kBlockTokens + (row / 2 * head_dim + j) * 2 + row % 2
                                 : (j / 2 * kBlockTokens + row) * 2 + j % 2;
          EXPECT_EQ(static_cast<uint8_t>(part[at]), kept.codes[j]);
        }
        if (codes != KvCodes::kInt8) continue;
        float scale;
        std::memcpy(&scale, part + layout.HeadElements() + (is_value * kBlockTokens + row) * 4, 4);
        EXPECT_EQ(scale, kept.scale);
      }
    }
  }
}

// A step's rows in three parts, each rounded for two readers of some heads each, of which the
// second one stores the keys and values: the bytes of RopeKv.
TYPED_TEST(RowsTest, RopeRowsAndStoreKvAreRopeKv) {
  using T = TypeParam;
  constexpr int32_t kHeads = 6, kKvHeads = 3;
  for (const int32_t head_dim : {2, 24, 64, 80, 128}) {
    for (const KvCodes codes : {KvCodes::kNone, KvCodes::kInt8, KvCodes::kFP8}) {
      const bool norm = codes != KvCodes::kNone || head_dim % 3 == 0;
      RopeProblem<T> whole(kHeads, kKvHeads, head_dim, norm, true);
      whole.Run(RefKernels(), this->teams_[0]);
      // q heads 2 to 5 and KV heads 1 and 2 of the same rows are what the second reader has.
      RopeProblem<T> expected(4, 2, head_dim, norm, true, codes);
      const size_t rows = whole.positions.size();
      for (size_t row = 0; row < rows; ++row) {
        const float* from = whole.qkv.data() + row * (kHeads + 2 * kKvHeads) * head_dim;
        float* to = expected.qkv.data() + row * 8 * head_dim;
        std::copy_n(from + 2 * head_dim, 4 * head_dim, to);
        std::copy_n(from + (kHeads + 1) * head_dim, 2 * head_dim, to + 4 * head_dim);
        std::copy_n(from + (kHeads + kKvHeads + 1) * head_dim, 2 * head_dim, to + 6 * head_dim);
      }
      expected.q_norm = whole.q_norm, expected.k_norm = whole.k_norm;
      expected.cosines = whole.cosines, expected.sines = whole.sines;
      expected.args.q_norm = norm ? expected.q_norm.data() : nullptr;
      expected.args.k_norm = norm ? expected.k_norm.data() : nullptr;
      expected.args.rope_cos = expected.cosines.data();
      expected.args.rope_sin = expected.sines.data();
      expected.args.qkv = expected.qkv.data();
      expected.args.first_kv_head = 1;
      expected.args.digested_elsewhere = 1;
      expected.Run(RefKernels(), this->teams_[0]);
      for (const KernelSet* kernels : AvailableKernels()) {
        for (Team& team : this->teams_) {
          const size_t q_row = 4 * static_cast<size_t>(head_dim), kv_row = q_row;
          std::vector<T> q, kv, unread(rows * 4 * static_cast<size_t>(head_dim));
          for (const auto& [begin, end] :
               {std::pair{size_t{0}, size_t{17}}, {17, 17}, {17, rows}}) {
            std::vector<T> staged((end - begin) * (q_row + kv_row) + 1);
            RopeRowsArgs args{.dtype = kTypeOf<T>,
                              .num_rows = static_cast<int32_t>(end - begin),
                              .positions = whole.positions.data() + begin,
                              .qkv = whole.qkv.data() + begin * 12 * head_dim,
                              .heads = kHeads,
                              .kv_heads = kKvHeads,
                              .head_dim = head_dim,
                              .q_norm = whole.args.q_norm,
                              .k_norm = whole.args.k_norm,
                              .norm_eps = whole.args.norm_eps,
                              .rope_cos = whole.args.rope_cos,
                              .rope_sin = whole.args.rope_sin,
                              .num_readers = 2};
            args.readers[0] = {Bytes(unread), 0, 2, 0, 1};
            args.readers[1] = {Bytes(staged), 2, 4, 1, 2};
            team.Run(
                [&](const device::WorkerContext& context) { kernels->rope_rows(args, context); });
            const auto behind = staged.begin() + static_cast<int64_t>((end - begin) * q_row);
            q.insert(q.end(), staged.begin(), behind);
            kv.insert(kv.end(), behind, staged.end() - 1);
          }
          RopeProblem<T> stored(4, 2, head_dim, norm, true, codes);
          std::fill(stored.blocks.begin(), stored.blocks.end(), tensor::RoundTo<T>(7.0f));
          const StoreKvArgs store{.batch = stored.args.batch,
                                  .layout = stored.args.layout,
                                  .layer = stored.args.layer,
                                  .kv = Bytes(kv),
                                  .digests = stored.digests.data(),
                                  .layer_index = stored.args.layer_index,
                                  .first_kv_head = 1,
                                  .digested_elsewhere = 1,
                                  .first_layer = true};
          team.Run(
              [&](const device::WorkerContext& context) { kernels->store_kv(store, context); });
          EXPECT_TRUE(SameBytes(q, expected.q)) << kernels->name << ", head_dim " << head_dim;
          EXPECT_TRUE(SameBytes(stored.blocks, expected.blocks))
              << kernels->name << ", head_dim " << head_dim;
          EXPECT_TRUE(SameBytes(stored.digests, expected.digests))
              << kernels->name << ", head_dim " << head_dim;
        }
      }
    }
  }
}

// As in a model that norms q and k after rope, and scales q where it has no rope.
TYPED_TEST(RowsTest, NormAfterRopeAndScaledQueries) {
  using T = TypeParam;
  std::vector<float> scales(RopeProblem<T>::kPositions);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 1 + 0.03f * static_cast<float>(i);
  for (const int32_t head_dim : {2, 24, 64, 80}) {
    for (const bool rope : {false, true}) {
      const auto run = [&](const KernelSet& kernels, Team& team) {
        RopeProblem<T> problem(4, 2, head_dim, false, rope);
        problem.args.norm_after = rope;
        problem.args.q_scale = rope ? nullptr : scales.data();
        problem.Run(kernels, team);
        return problem;
      };
      const RopeProblem<T> expected = run(RefKernels(), this->teams_[0]);
      for (const KernelSet* kernels : AvailableKernels()) {
        for (Team& team : this->teams_) {
          const RopeProblem<T> problem = run(*kernels, team);
          EXPECT_TRUE(SameBytes(problem.q, expected.q)) << kernels->name << " " << head_dim;
          EXPECT_TRUE(SameBytes(problem.blocks, expected.blocks)) << kernels->name;
        }
      }
      RopeProblem<T> plain(4, 2, head_dim, false, rope);
      plain.Run(RefKernels(), this->teams_[0]);
      const double tolerance = sizeof(T) == 2 ? 0x1p-6 : 1e-5;
      for (size_t head = 0; head < expected.q.size() / head_dim; ++head) {
        double squares = 0;
        for (int32_t j = 0; j < head_dim; ++j)
          squares += std::pow(double(tensor::ToFloat(plain.q[head * head_dim + j])), 2);
        const double factor = rope ? 1 / std::sqrt(squares / head_dim + 1e-6)
                                   : double(scales[expected.positions[head / 4]]);
        for (size_t j = head * head_dim; j < (head + 1) * head_dim; ++j) {
          const double wanted = tensor::ToFloat(plain.q[j]) * factor;
          ASSERT_NEAR(tensor::ToFloat(expected.q[j]), wanted,
                      tolerance * (std::abs(wanted) + 0.02));
        }
      }
      // Values, and keys without rope, stay as they are.
      EXPECT_EQ(tensor::ToFloat(expected.At(0, 4, 1, true, 1)),
                tensor::ToFloat(plain.At(0, 4, 1, true, 1)));
      if (!rope) {
        EXPECT_TRUE(SameBytes(expected.blocks, plain.blocks));
      }
    }
  }
}

// Norms with weights behind rope, not before it.
// RopeKv and, of one reader who takes all heads, RopeRows; against the norm in double.
TYPED_TEST(RowsTest, NormOfValues) {
  using T = TypeParam;
  constexpr int32_t kHeads = 4, kKvHeads = 2;
  for (const int32_t head_dim : {2, 24, 80}) {
    RopeProblem<T> expected(kHeads, kKvHeads, head_dim, true, true);
    expected.args.v_norm = true;
    expected.Run(RefKernels(), this->teams_[0]);
    const size_t rows = expected.positions.size(), width = (kHeads + 2 * kKvHeads) * head_dim;
    for (const KernelSet* kernels : AvailableKernels()) {
      for (Team& team : this->teams_) {
        RopeProblem<T> problem(kHeads, kKvHeads, head_dim, true, true);
        problem.args.v_norm = true;
        problem.Run(*kernels, team);
        EXPECT_TRUE(SameBytes(problem.blocks, expected.blocks)) << kernels->name;
        std::vector<T> out(rows * width);
        RopeRowsArgs args{.dtype = kTypeOf<T>,
                          .num_rows = static_cast<int32_t>(rows),
                          .positions = problem.positions.data(),
                          .qkv = problem.args.qkv,
                          .heads = kHeads,
                          .kv_heads = kKvHeads,
                          .head_dim = head_dim,
                          .q_norm = problem.args.q_norm,
                          .k_norm = problem.args.k_norm,
                          .norm_eps = problem.args.norm_eps,
                          .v_norm = true,
                          .rope_cos = problem.args.rope_cos,
                          .rope_sin = problem.args.rope_sin,
                          .num_readers = 1};
        args.readers[0] = {Bytes(out), 0, kHeads, 0, kKvHeads};
        team.Run([&](const device::WorkerContext& context) { kernels->rope_rows(args, context); });
        const T* const kv = out.data() + rows * kHeads * head_dim;
        const int32_t first = problem.sequences[0].first_position;
        for (int32_t head = 0; head < kKvHeads; ++head) {
          for (int32_t j = 0; j < head_dim; ++j)
            EXPECT_EQ(tensor::ToFloat(kv[(kKvHeads + head) * head_dim + j]),
                      tensor::ToFloat(expected.At(0, first, head, true, j)));
        }
      }
    }
    const float* const v = expected.args.qkv + (kHeads + kKvHeads) * head_dim;
    double squares = 0;
    for (int32_t j = 0; j < head_dim; ++j) squares += double(v[j]) * v[j];
    for (int32_t j = 0; j < head_dim; ++j) {
      const double normed = v[j] / std::sqrt(squares / head_dim + 1e-6);
      EXPECT_NEAR(tensor::ToFloat(expected.At(0, expected.sequences[0].first_position, 0, true, j)),
                  normed, std::abs(normed) * (sizeof(T) == 2 ? 0x1p-8 : 1e-6));
    }
  }
}

TYPED_TEST(RowsTest, WeightedNormAfterRope) {
  using T = TypeParam;
  constexpr int32_t kHeads = 4, kHeadDim = 24;
  const auto run = [&](const KernelSet& kernels, Team& team, bool weighted) {
    RopeProblem<T> problem(kHeads, 2, kHeadDim, weighted, true);
    problem.args.norm_after = true;
    problem.Run(kernels, team);
    return problem;
  };
  const RopeProblem<T> expected = run(RefKernels(), this->teams_[0], true),
                       bare = run(RefKernels(), this->teams_[0], false);
  for (const KernelSet* kernels : AvailableKernels()) {
    const RopeProblem<T> problem = run(*kernels, this->teams_[1], true);
    EXPECT_TRUE(SameBytes(problem.q, expected.q)) << kernels->name;
    EXPECT_TRUE(SameBytes(problem.blocks, expected.blocks)) << kernels->name;
  }
  for (size_t j = 0; j < bare.q.size(); ++j) {
    const double wanted = double(tensor::ToFloat(bare.q[j])) * expected.q_norm[j % kHeadDim];
    ASSERT_NEAR(tensor::ToFloat(expected.q[j]), wanted,
                (sizeof(T) == 2 ? 0x1p-7 : 1e-6) * std::abs(wanted) + 1e-30);
  }
}

TYPED_TEST(RowsTest, RopeKvAgainstDouble) {
  using T = TypeParam;
  const int32_t heads = 4, kv_heads = 2, dim = 32, half = 16;
  RopeProblem<T> problem(heads, kv_heads, dim, true, true);
  problem.Run(RefKernels(), this->teams_[1]);
  const double tolerance = sizeof(T) == 2 ? 0x1p-8 : 5e-6;
  for (size_t row = 0; row < problem.positions.size(); ++row) {
    const int32_t position = problem.positions[row];
    for (int32_t head = 0; head < heads + 2 * kv_heads; ++head) {
      const float* x = problem.qkv.data() + (row * (heads + 2 * kv_heads) + head) * dim;
      const bool is_q = head < heads, is_v = head >= heads + kv_heads;
      double y[dim], squares = 0;
      for (int32_t j = 0; j < dim; ++j) squares += double(x[j]) * x[j];
      const std::vector<float>& weight = is_q ? problem.q_norm : problem.k_norm;
      for (int32_t j = 0; j < dim; ++j)
        y[j] = is_v ? x[j] : x[j] / std::sqrt(squares / dim + 1e-6) * weight[j];
      for (int32_t j = 0; j < dim; ++j) {
        double expected = y[j];
        if (!is_v) {
          const double cosine = problem.cosines[position * half + j % half];
          const double sine = problem.sines[position * half + j % half];
          expected = y[j] * cosine + (j < half ? -y[j + half] : y[j - half]) * sine;
        }
        const T found = is_q ? problem.q[(row * heads + head) * dim + j]
                             : problem.At(problem.row_sequence[row], position,
                                          (head - heads) % kv_heads, is_v, j);
        ASSERT_NEAR(tensor::ToFloat(found), expected, tolerance * (std::abs(expected) + 0.02))
            << row << " " << head << " " << j;
      }
    }
  }
}

TYPED_TEST(RowsTest, KvDigestsAreKeyedAndSetOncePerStep) {
  using T = TypeParam;
  RopeProblem<T> problem(2, 2, 16, false, true);
  problem.Run(RefKernels(), this->teams_[0]);
  const std::vector<uint64_t> once = problem.digests;
  problem.Run(RefKernels(), this->teams_[0]);
  EXPECT_EQ(problem.digests, once);  // the first layer sets
  problem.args.first_layer = false;
  problem.args.layer_index = 6;
  problem.Run(RefKernels(), this->teams_[0]);
  const uint32_t slot = problem.tables[2 * 3] * kBlockTokens + 4;  // sequence 0, position 4
  EXPECT_NE(problem.digests[slot], once[slot]);
  EXPECT_NE(problem.digests[slot], 2 * once[slot]);  // the layer is part of the key
  // The two heads of a position are hashed under their logical numbers: computed apart, the sums
  // add up.
  RopeProblem<T> halves[2] = {{1, 1, 16, false, true}, {1, 1, 16, false, true}};
  RopeProblem<T> whole(2, 2, 16, false, true);
  for (int head = 0; head < 2; ++head) {
    for (size_t row = 0; row < whole.positions.size(); ++row) {
      for (int part = 0; part < 3; ++part) {
        std::copy_n(whole.qkv.data() + (row * 6 + part * 2 + head) * 16, 16,
                    halves[head].qkv.data() + (row * 3 + part) * 16);
      }
    }
    halves[head].cosines = whole.cosines;
    halves[head].sines = whole.sines;
    halves[head].args.rope_cos = whole.args.rope_cos;
    halves[head].args.rope_sin = whole.args.rope_sin;
    halves[head].args.first_kv_head = head;
    halves[head].Run(RefKernels(), this->teams_[0]);
  }
  whole.Run(RefKernels(), this->teams_[0]);
  for (size_t i = 0; i < whole.digests.size(); ++i) {
    ASSERT_EQ(whole.digests[i], halves[0].digests[i] + halves[1].digests[i]);
  }
}

TYPED_TEST(RowsTest, Embed) {
  using T = TypeParam;
  base::Rng rng(3);
  const int32_t vocab = 150, columns = 37;
  std::vector<T> table = Random<T>(rng, vocab * columns);
  std::vector<int32_t> tokens = {0, 63, 64, 149, ~1, 7}, sampled = {5, 128};
  const int32_t expected_tokens[] = {0, 63, 64, 149, 128, 7};
  // Three panels of at most 64 rows.
  std::vector<std::vector<T>> tiles;
  std::vector<const std::byte*> tile_pointers;
  std::vector<PanelColumns> panels;
  for (int32_t column = 0; column < vocab; column += kPanelColumns) {
    const int32_t width = std::min(kPanelColumns, vocab - column);
    std::vector<std::vector<float>> rows(width);
    const float* pointers[kPanelColumns] = {};
    for (int32_t i = 0; i < width; ++i) {
      for (int32_t j = 0; j < columns; ++j)
        rows[i].push_back(tensor::ToFloat(table[(column + i) * columns + j]));
      pointers[i] = rows[i].data();
    }
    tiles.emplace_back((columns + 1) / 2 * kPanelColumns * 2);
    testing::PackRounded(kTypeOf<T>, columns, pointers, Bytes(tiles.back()));
    panels.push_back({column, width});
  }
  for (std::vector<T>& tile : tiles) tile_pointers.push_back(Bytes(tile));
  EmbedArgs args;
  args.dtype = kTypeOf<T>;
  args.batch.num_rows = static_cast<int32_t>(tokens.size());
  args.batch.tokens = tokens.data();
  args.batch.sampled = sampled.data();
  args.columns = columns;
  args.packed = {.dtype = kTypeOf<T>,
                 .k = columns,
                 .n = vocab,
                 .num_panels = 3,
                 .leaves = LeafBorders::Single(columns),
                 .tiles = tile_pointers.data(),
                 .panels = panels.data()};
  for (const bool packed : {false, true}) {
    args.table = packed ? nullptr : Bytes(table);
    for (const KernelSet* kernels : AvailableKernels()) {
      std::vector<T> out(tokens.size() * columns);
      args.out = Bytes(out);
      this->teams_[1].Run(
          [&](const device::WorkerContext& context) { kernels->embed(args, context); });
      for (size_t row = 0; row < tokens.size(); ++row) {
        EXPECT_EQ(std::memcmp(&out[row * columns], &table[expected_tokens[row] * columns],
                              columns * sizeof(T)),
                  0)
            << kernels->name << " row " << row << (packed ? " packed" : " table");
      }
    }
  }
}

TEST(LogitsDigestTest, IsASumOverChunksAndSeesEveryBit) {
  base::Rng rng(4);
  const int32_t vocab = 2500, stride = 2560;
  std::vector<float> logits = Random<float>(rng, 2 * stride);
  const int32_t positions[] = {11, 12};
  uint64_t digests[2];
  LogitsDigestArgs args{logits.data(), stride, 2, vocab, positions, digests};
  Team team(2);
  const auto run = [&] {
    team.Run(
        [&](const device::WorkerContext& context) { RefKernels().logits_digest(args, context); });
    return digests[1];
  };
  uint64_t expected = 0;
  for (int32_t c = 0; c < 3; ++c) {
    expected += DigestHash(&logits[stride + c * 1024], std::min(1024, vocab - c * 1024) * 4,
                           LogitsDigestKey(12, c));
  }
  EXPECT_EQ(run(), expected);
  logits[2 * stride - 1] += 1;  // beyond the vocabulary
  EXPECT_EQ(run(), expected);
  for (const int32_t i : {0, 1, 1023, 1024, 2499}) {
    float& logit = logits[stride + i];
    logit = std::nextafter(logit, 2.0f);
    EXPECT_NE(run(), expected) << i;
    logit = std::nextafter(logit, -2.0f);
  }
}

TEST(DigestHashTest, DependsOnKeyLengthAndPlace) {
  std::set<uint64_t> seen;
  for (int length = 0; length <= 64; ++length) {
    std::vector<uint8_t> data(64, 0xA5);
    EXPECT_TRUE(seen.insert(DigestHash(data.data(), length, 1)).second) << length;
    EXPECT_TRUE(seen.insert(DigestHash(data.data(), length, 2)).second) << length;
  }
  std::vector<uint32_t> words(64, 7);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = 8;
    EXPECT_TRUE(seen.insert(DigestHash(words.data(), 256, 1)).second) << i;
    words[i] = 7;
  }
  for (int kind = 0; kind < 3; ++kind) {
    for (int a = 0; a < 8; ++a) {
      for (int b = 0; b < 8; ++b) {
        const uint64_t key = kind == 0   ? KeyDigestKey(a, b, 3)
                             : kind == 1 ? ValueDigestKey(a, b, 3)
                                         : LogitsDigestKey(a, b);
        EXPECT_TRUE(seen.insert(key).second);
      }
    }
  }
}

TEST(KernelSetTest, ChoosesByName) {
  EXPECT_EQ(AvailableKernels().back(), &RefKernels());
  EXPECT_EQ(*ChooseKernels("auto"), AvailableKernels().front());
  for (const KernelSet* kernels : AvailableKernels())
    EXPECT_EQ(*ChooseKernels(kernels->name), kernels);
  const auto missing = ChooseKernels("neon");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), kIsaUnavailable);
  EXPECT_NE(missing.status().message().find("ref"), std::string::npos);
}

// vdpbf16ps has twice the rate of fused multiply-adds on one CPU, half of it on another.
TEST(KernelSetTest, TheFasterProductComesFirst) {
  std::vector<double> best;  // ticks an operation, of the 512-bit sets of class `pair`
  for (const KernelSet* set : AvailableKernels()) {
    if (set->isa != Isa::kAvx512bf16 && set->isa != Isa::kAvx512f) continue;
    best.push_back(1e9);
    for (int burst = 0; burst < 500; ++burst)
      best.back() = std::min(best.back(), TicksPerFlop(ProbeOf(set->isa)));
  }
  if (best.size() < 2) GTEST_SKIP() << "this machine has one of the sets at most";
  EXPECT_LT(best[0], best[1]);
}

}  // namespace
}  // namespace forebay::kernels
