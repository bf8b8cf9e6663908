// Both forms of latent attention, as the layer program composes them of kernels, against the
// formula in double:
//   out[head] = sum over t of p[t] (W_v[head] latent[t]),
//   p = softmax(scale (plain . W_k[head] latent[t] + turned . turned_key[t])), t up to the row's
//   own
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "kernels/kernel_set.h"
#include "kernels/testing/distance.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using tensor::BF16;
using testing::Distance;
using testing::Team;

struct Shape {
  int32_t heads, plain, turned, latent, value;
  int32_t key_dim() const { return latent + turned; }
  int32_t query_dim() const { return plain + turned; }
};

constexpr float kScale = 0.3f;
constexpr int32_t kFirst = 37, kLength = 83;  // rows of positions [kFirst, kLength)
constexpr int32_t kRows = kLength - kFirst, kBlocks = (kLength + kBlockTokens - 1) / kBlockTokens;

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};

// A matrix a head, packed: column c of head h is row(h, c), of `k` elements.
template <typename T>
struct HeadMatrices {
  HeadMatrices(int32_t heads, int32_t width, int32_t k,
               const std::function<const T*(int32_t, int32_t)>& row) {
    weight.dtype = sizeof(T) == 4 ? tensor::DType::kF32 : tensor::DType::kBF16;
    weight.k = k;
    weight.leaves = LeafBorders::Single(k);
    const int32_t panels_each = (width + kPanelColumns - 1) / kPanelColumns;
    const int64_t tile = weight.TileBytes(0, 0);
    memory.reset(new (std::align_val_t{64})
                     std::byte[static_cast<size_t>(heads * panels_each * tile)]);
    for (int32_t h = 0; h < heads; ++h) {
      for (int32_t begin = 0; begin < width; begin += kPanelColumns) {
        const int32_t columns = std::min<int32_t>(kPanelColumns, width - begin);
        const T* rows[kPanelColumns] = {};
        for (int32_t c = 0; c < columns; ++c) rows[c] = row(h, begin + c);
        std::byte* const at = memory.get() + std::ssize(tiles) * tile;
        PackTile(k, rows, at);
        tiles.push_back(at);
        panels.push_back({h * width + begin, columns});
      }
    }
    weight.n = heads * width;
    weight.num_panels = static_cast<int32_t>(tiles.size());
    weight.tiles = tiles.data();
    weight.panels = panels.data();
  }

  std::unique_ptr<std::byte[], Free> memory;
  std::vector<const std::byte*> tiles;
  std::vector<PanelColumns> panels;
  PackedWeight weight;
};

// One sequence, the latents of which are cached in blocks of an order of their own; positions that
// are not there yet are NaN.
template <typename T>
class Problem {
 public:
  explicit Problem(const Shape& shape) : shape_(shape) {
    keys_ = Random(int64_t{shape.heads} * shape.plain * shape.latent, 1 / std::sqrt(shape.latent));
    values_ =
        Random(int64_t{shape.heads} * shape.value * shape.latent, 1 / std::sqrt(shape.latent));
    latents_ = Random(int64_t{kLength} * shape.key_dim(), 2);
    queries_ =
        Random(int64_t{kRows} * shape.heads * shape.query_dim(), 8 / std::sqrt(shape.query_dim()));
    layout_ = {.dtype = sizeof(T) == 4 ? tensor::DType::kF32 : tensor::DType::kBF16,
               .kv_heads = 1,
               .key_dim = shape.key_dim(),
               .value_dim = shape.latent,
               .values_in_keys = true};
    layout_.block_stride = layout_.LayerBytes();
    cache_.assign(static_cast<size_t>(kBlocks * layout_.HeadElements()),
                  tensor::RoundTo<T>(std::nanf("")));
    for (int32_t t = 0; t < kLength; ++t) {
      T* const block =
          &cache_[static_cast<size_t>(table_[t / kBlockTokens] * layout_.HeadElements())];
      for (int32_t j = 0; j < shape.key_dim(); ++j)
        block[(j / 2 * kBlockTokens + t % kBlockTokens) * 2 + j % 2] = Latent(t, j);
    }
    positions_.resize(kRows);
    std::iota(positions_.begin(), positions_.end(), kFirst);
    batch_ = {.num_rows = kRows, .num_sequences = 1};
    batch_.positions = positions_.data();
    batch_.row_sequence = row_sequence_.data();
    batch_.sequences = &sequence_;
    batch_.table_stride = kBlocks;
  }

  // K and V of all heads are made of the latents.
  std::vector<T> Expanded(const KernelSet& kernels, Team& team) {
    constexpr int32_t kSlots = kBlocks * kBlockTokens;
    std::vector<T> gathered(Size(kSlots, shape_.key_dim())),
        plain(Size(kSlots, shape_.heads * shape_.plain)),
        values(Size(kSlots, shape_.heads * shape_.value));
    KvLayout layout{.dtype = layout_.dtype,
                    .kv_heads = shape_.heads,
                    .key_dim = shape_.query_dim(),
                    .value_dim = shape_.value};
    layout.block_stride = layout.LayerBytes();
    std::vector<T> blocks(Size(kBlocks, layout.HeadElements() * shape_.heads));
    const GatherLatentsArgs gather{.layout = layout_,
                                   .layer = {.resident = Bytes(cache_)},
                                   .blocks = table_.data(),
                                   .num_blocks = kBlocks,
                                   .out = Bytes(gathered)};
    team.Run(
        [&](const device::WorkerContext& context) { kernels.gather_latents(gather, context); });
    const auto project = [&](const std::vector<T>& rows, int32_t width, std::vector<T>* out) {
      const HeadMatrices<T> matrices(
          shape_.heads, width, shape_.latent,
          [&](int32_t head, int32_t j) { return &rows[Size(head * width + j, shape_.latent)]; });
      const std::unique_ptr<std::byte[], Free> workspace(new (std::align_val_t{
          64}) std::byte[LinearWorkspaceBytes(layout_.dtype, kSlots, shape_.latent)]);
      const LinearArgs args{.weight = matrices.weight,
                            .x = Bytes(gathered),
                            .y = Bytes(*out),
                            .x_stride = shape_.key_dim(),
                            .y_stride = matrices.weight.n,
                            .rows = kSlots,
                            .leaf_end = 1,
                            .workspace = workspace.get()};
      team.Run([&](const device::WorkerContext& context) { kernels.linear(args, context); });
    };
    project(keys_, shape_.plain, &plain);
    project(values_, shape_.value, &values);
    const StoreExpandedArgs store{.layout = layout,
                                  .blocks = Bytes(blocks),
                                  .num_blocks = kBlocks,
                                  .keys = Bytes(plain),
                                  .latents = Bytes(gathered),
                                  .values = Bytes(values),
                                  .latent_dim = shape_.key_dim(),
                                  .plain = shape_.plain};
    team.Run([&](const device::WorkerContext& context) { kernels.store_expanded(store, context); });
    std::vector<uint32_t> places(kBlocks);
    std::iota(places.begin(), places.end(), 0u);
    return Attend(kernels, team, layout, Bytes(blocks), places, queries_);
  }

  // Queries and what heads take of the latents go through the projections.
  std::vector<T> Absorbed(const KernelSet& kernels, Team& team) {
    std::vector<T> queries(Size(kRows, shape_.heads * shape_.key_dim())),
        out(Size(kRows, shape_.heads * shape_.value));
    for (int64_t at = 0; at < int64_t{kRows} * shape_.heads; ++at) {
      std::copy_n(&queries_[Size(at, shape_.query_dim()) + shape_.plain], shape_.turned,
                  &queries[Size(at, shape_.key_dim()) + shape_.latent]);
    }
    std::vector<T> transposed(keys_.size());
    for (size_t i = 0; i < keys_.size(); ++i) {
      const size_t latent = i % shape_.latent, row = i / shape_.latent, head = row / shape_.plain;
      transposed[(head * shape_.latent + latent) * shape_.plain + row % shape_.plain] = keys_[i];
    }
    const auto project = [&](const std::vector<T>& rows, int32_t k, int32_t width,
                             const std::vector<T>& x, int32_t x_width, std::vector<T>* y,
                             int32_t y_width) {
      HeadMatrices<T> matrices(shape_.heads, width, k, [&](int32_t head, int32_t j) {
        return &rows[Size(head * width + j, k)];
      });
      matrices.weight.n /= shape_.heads;
      matrices.weight.num_panels /= shape_.heads;
      const ExpertsArgs args{.weight = matrices.weight,
                             .num_experts = shape_.heads,
                             .max_rows = kRows,
                             .x = reinterpret_cast<const std::byte*>(x.data()),
                             .y = Bytes(*y),
                             .x_stride = int64_t{shape_.heads} * x_width,
                             .y_stride = int64_t{shape_.heads} * y_width,
                             .x_step = x_width,
                             .y_step = y_width};
      team.Run([&](const device::WorkerContext& context) { kernels.experts(args, context); });
    };
    project(transposed, shape_.plain, shape_.latent, queries_, shape_.query_dim(), &queries,
            shape_.key_dim());
    const std::vector<T> taken = Attend(kernels, team, layout_, Bytes(cache_), table_, queries);
    project(values_, shape_.latent, shape_.value, taken, shape_.latent, &out, shape_.value);
    return out;
  }

  // [rows, heads, value]
  std::vector<double> Formula() const {
    const std::vector<double> keys = Project(keys_), values = Project(values_);
    std::vector<double> out;
    for (int32_t row = 0; row < kRows; ++row) {
      for (int32_t head = 0; head < shape_.heads; ++head) {
        const T* const query = &queries_[Size(row * shape_.heads + head, shape_.query_dim())];
        std::vector<double> scores, sums(shape_.value);
        for (int32_t t = 0; t <= kFirst + row; ++t) {
          double score = 0;
          for (int32_t j = 0; j < shape_.plain; ++j)
            score += tensor::ToFloat(query[j]) * keys[Size(head * shape_.plain + j, kLength) + t];
          for (int32_t j = 0; j < shape_.turned; ++j)
            score += double(tensor::ToFloat(query[shape_.plain + j])) *
                     tensor::ToFloat(Latent(t, shape_.latent + j));
          scores.push_back(kScale * score);
        }
        const double maximum = *std::ranges::max_element(scores);
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - maximum);
        for (int32_t t = 0; t <= kFirst + row; ++t) {
          for (int32_t j = 0; j < shape_.value; ++j)
            sums[j] += scores[t] / total * values[Size(head * shape_.value + j, kLength) + t];
        }
        out.insert(out.end(), sums.begin(), sums.end());
      }
    }
    return out;
  }

 private:
  static std::byte* Bytes(std::vector<T>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  }
  static size_t Size(int64_t rows, int64_t width) { return static_cast<size_t>(rows * width); }
  std::vector<T> Random(int64_t n, double scale) {
    std::vector<T> values(static_cast<size_t>(n));
    for (T& x : values)
      x = tensor::RoundTo<T>(static_cast<float>((rng_.Uniform() * 2 - 1) * scale));
    return values;
  }
  T Latent(int32_t t, int32_t j) const { return latents_[Size(t, shape_.key_dim()) + j]; }
  // [rows, kLength]: the latents through rows of a projection.
  std::vector<double> Project(const std::vector<T>& rows) const {
    std::vector<double> sums;
    for (auto row = rows.begin(); row != rows.end(); row += shape_.latent) {
      for (int32_t t = 0; t < kLength; ++t) {
        double sum = 0;
        for (int32_t j = 0; j < shape_.latent; ++j)
          sum += double(tensor::ToFloat(row[j])) * tensor::ToFloat(Latent(t, j));
        sums.push_back(sum);
      }
    }
    return sums;
  }

  std::vector<T> Attend(const KernelSet& kernels, Team& team, const KvLayout& layout,
                        std::byte* blocks, std::vector<uint32_t>& table,
                        const std::vector<T>& queries) {
    std::vector<T> out(Size(kRows, int64_t{shape_.heads} * layout.value_dim));
    AttentionArgs args{.batch = batch_,
                       .layout = layout,
                       .layer = {.resident = blocks},
                       .q = reinterpret_cast<const std::byte*>(queries.data()),
                       .out = Bytes(out),
                       .heads = shape_.heads,
                       .scale = kScale};
    args.batch.block_tables = table.data();
    args.context.Add(kFirst, kRows);
    team.Run([&](const device::WorkerContext& context) { kernels.attention(args, context); });
    return out;
  }

  const Shape shape_;
  base::Rng rng_{3};
  std::vector<T> keys_, values_;  // [heads, plain | value, latent]
  std::vector<T> latents_;        // [kLength, key_dim]
  std::vector<T> queries_;        // [kRows, heads, query_dim]
  KvLayout layout_;
  std::vector<T> cache_;
  std::vector<uint32_t> table_ = {2, 0, 1};
  std::vector<int32_t> positions_, row_sequence_ = std::vector<int32_t>(kRows);
  SequenceRows sequence_{0, kRows, kFirst, 0};
  StepBatch batch_;
};
static_assert(kBlocks == 3);

template <typename T>
class LatentFormsTest : public ::testing::Test {};
using Types = ::testing::Types<BF16, float>;
TYPED_TEST_SUITE(LatentFormsTest, Types);

// In bf16 either form rounds three times on the way to the output and once there, 2^-9 each at
// most, and keys or queries before the exponential.
TYPED_TEST(LatentFormsTest, BothAreTheFormula) {
  constexpr double kTolerance = sizeof(TypeParam) == 2 ? 0x1p-7 : 4e-6;
  Team team(2);
  for (const Shape& shape : {Shape{3, 10, 6, 24, 12}, {2, 128, 64, 512, 128}, {5, 64, 2, 50, 66}}) {
    Problem<TypeParam> problem(shape);
    const std::vector<double> formula = problem.Formula();
    for (const KernelSet* kernels : AvailableKernels()) {
      const std::vector<TypeParam> by_keys = problem.Expanded(*kernels, team),
                                   by_latents = problem.Absorbed(*kernels, team);
      EXPECT_LT(Distance(by_keys, formula), kTolerance) << kernels->name;
      EXPECT_LT(Distance(by_latents, formula), kTolerance) << kernels->name;
      // They round elsewhere, which a mistake that makes one of the other would hide.
      EXPECT_NE(std::memcmp(by_keys.data(), by_latents.data(), by_keys.size() * sizeof(TypeParam)),
                0);
    }
  }
}

}  // namespace
}  // namespace forebay::kernels
