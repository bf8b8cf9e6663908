// Every kernel of class `pair` against ref/ by memcmp: all bytes of its outputs, gaps too, whatever
// lay there before, in each of the launcher's schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/copy.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/serve.h"
#include "kernels/testing/attention_problem.h"
#include "kernels/testing/pack_rounded.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda {
namespace {

using kernels::testing::AttentionProblem;
using kernels::testing::AttentionShape;
using kernels::testing::PackRounded;
using kernels::testing::Team;
using tensor::DType;
using testing::TheLauncher;

constexpr DType kTypes[] = {DType::kBF16, DType::kF32};

// Memory of a kernel on the heap, of the exact size.
using Bytes = std::vector<std::byte>;

struct Output {
  std::byte* data;
  size_t bytes;
};
Output Of(Bytes& bytes) { return {bytes.data(), bytes.size()}; }
template <typename T>
Output Of(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

// Runs both from what the outputs hold now; they hold it again behind.
void ExpectSameBytes(const std::string& what,
                     const std::function<void(const device::WorkerContext&)>& ref,
                     const std::function<void(const device::LaunchContext&)>& cuda,
                     const std::vector<Output>& outputs) {
  static Team team(1);
  std::vector<Bytes> before, expected;
  for (const Output& output : outputs) before.emplace_back(output.data, output.data + output.bytes);
  const auto restore = [&] {
    for (size_t i = 0; i < outputs.size(); ++i)
      std::copy(before[i].begin(), before[i].end(), outputs[i].data);
  };
  team.Run(ref);
  for (const Output& output : outputs)
    expected.emplace_back(output.data, output.data + output.bytes);
  for (int launch = 0; launch < TheLauncher().launches(); ++launch) {
    restore();
    const base::Status status = TheLauncher().Run(launch, cuda);
    ASSERT_TRUE(status.ok()) << what << ", launch " << launch << ": " << status.ToString();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto [ours, theirs] =
          std::mismatch(expected[i].begin(), expected[i].end(), outputs[i].data);
      ASSERT_EQ(ours - expected[i].begin(), std::ssize(expected[i]))
          << what << ", launch " << launch << ", output " << i << ": the first byte that differs";
    }
  }
  restore();
}

template <typename Args>
void ExpectRefBytes(const std::string& what, void (*ref)(const Args&, const device::WorkerContext&),
                    void (*cuda)(const Args&, const device::WorkerContext&), const Args& args,
                    const std::vector<Output>& outputs) {
  ExpectSameBytes(
      what, [&](const device::WorkerContext& context) { ref(args, context); },
      [&](const device::LaunchContext& context) { cuda(args, context); }, outputs);
}

// Keeps what is enqueued.
class KeepingStream final : public device::Stream {
 public:
  void Enqueue(const device::Operation& operation) override { kept = operation; }
  void Record(device::DeviceEvent&) override {}
  void Wait(const device::DeviceEvent&) override {}
  void Post(device::Counter&, uint64_t) override {}
  void Await(device::Counter&, uint64_t) override {}

  device::Operation kept;
};

// The code of a plain operation against what it launches.
void ExpectCodesBytes(const device::Operation& operation, const std::vector<Output>& outputs) {
  ASSERT_NE(operation.launch, nullptr);
  ExpectSameBytes(
      operation.desc.label,
      [&](const device::WorkerContext& context) { operation.run(operation.args.data(), context); },
      [&](const device::LaunchContext& context) {
        operation.launch(operation.args.data(), context);
      },
      outputs);
}

class Source {
 public:
  explicit Source(uint64_t seed) : rng_(seed) {}
  int Below(int n) { return static_cast<int>(rng_.Below(static_cast<uint64_t>(n))); }
  float Value(float scale = 1) { return scale * static_cast<float>(rng_.Uniform() * 2 - 1); }
  std::vector<float> Floats(size_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = Value(scale);
    return values;
  }
  // Values of `dtype`.
  Bytes Elements(DType dtype, size_t n, float scale = 1) {
    Bytes bytes(n * tensor::SizeOf(dtype));
    for (size_t i = 0; i < n; ++i) {
      const float value = Value(scale);
      const tensor::BF16 rounded = tensor::ToBF16(value);
      if (dtype == DType::kF32) {
        std::memcpy(&bytes[i * 4], &value, 4);
      } else {
        std::memcpy(&bytes[i * 2], &rounded, 2);
      }
    }
    return bytes;
  }
  // A tile of `width` columns that are used.
  Bytes Tile(DType dtype, int k, int width, bool gated, float scale) {
    std::vector<std::vector<float>> columns(kPanelColumns);
    const float* rows[kPanelColumns] = {};
    for (int c = 0; c < kPanelColumns; ++c) {
      if ((gated ? c % (kPanelColumns / 2) : c) >= width) continue;
      columns[static_cast<size_t>(c)] = Floats(static_cast<size_t>(k), scale);
      rows[c] = columns[static_cast<size_t>(c)].data();
    }
    Bytes tile(static_cast<size_t>((k + 1) / 2 * kPanelColumns * 2) * tensor::SizeOf(dtype));
    PackRounded(dtype, k, rows, tile.data());
    return tile;
  }

 private:
  base::Rng rng_;
};

Bytes Poison(size_t bytes) { return Bytes(bytes, std::byte{0xFF}); }

// A weight of random tiles.
struct Weight {
  Weight(Source& source, DType dtype, const std::vector<int>& borders,
         const std::vector<int>& widths, bool gated, bool bias, float scale = 1) {
    weight.dtype = dtype;
    weight.k = borders.back();
    weight.leaves.num_leaves = static_cast<int>(borders.size()) - 1;
    std::ranges::copy(borders, weight.leaves.begin);
    weight.num_panels = static_cast<int>(widths.size());
    for (int leaf = 0; leaf < weight.leaves.num_leaves; ++leaf) {
      for (const int width : widths) {
        tiles.push_back(source.Tile(
            dtype, borders[static_cast<size_t>(leaf) + 1] - borders[static_cast<size_t>(leaf)],
            width, gated, scale));
      }
    }
    for (const Bytes& tile : tiles) pointers.push_back(tile.data());
    for (const int width : widths) {
      panels.push_back({weight.n, width});
      weight.n += width;
    }
    if (bias) biases = source.Floats(widths.size() * kPanelColumns);
    weight.tiles = pointers.data();
    weight.panels = panels.data();
    weight.bias = bias ? biases.data() : nullptr;
  }
  PackedWeight weight;
  std::vector<Bytes> tiles;
  std::vector<const std::byte*> pointers;
  std::vector<PanelColumns> panels;
  std::vector<float> biases;
};

void TryLinear(DType dtype, LinearOutput output, int rows, int k, int leaves, float scale,
               uint64_t seed) {
  Source source(seed);
  const bool gated = IsGated(output), partial = output == LinearOutput::kPartial;
  std::vector<int> borders, widths;
  for (int i = 0; i <= leaves; ++i) borders.push_back(i * k / leaves);
  for (int i = 0; i < 1 + source.Below(3); ++i)
    widths.push_back(1 + source.Below(gated ? kPanelColumns / 2 : kPanelColumns));
  const Weight weight(source, dtype, borders, widths, gated, !gated && source.Below(2) == 0, scale);
  LinearArgs args;
  args.weight = weight.weight;
  args.output = output;
  args.rows = rows;
  args.leaf_end = leaves;
  if (partial) {
    args.leaf_begin = source.Below(leaves);
    args.leaf_end = args.leaf_begin + 1 + source.Below(leaves - args.leaf_begin);
    args.weight.bias = nullptr;
  }
  args.x_stride = k + source.Below(5);
  args.y_stride = args.weight.n + source.Below(5);
  const Bytes x = source.Elements(dtype, static_cast<size_t>((rows + 2) * args.x_stride), scale);
  args.x = x.data();
  std::vector<int32_t> x_rows;
  for (int i = 0; i < rows; ++i) x_rows.push_back(source.Below(rows + 2));
  if (source.Below(2) == 0) args.x_rows = x_rows.data();
  const bool fp32 = partial || output == LinearOutput::kF32;
  Bytes y = source.Elements(fp32 ? DType::kF32 : dtype,
                            static_cast<size_t>((partial ? kMaxLeaves : 1) * rows * args.y_stride));
  args.y = y.data();
  ExpectRefBytes(fmt::format("{} output {} rows {} K {} leaves {}", tensor::Name(dtype),
                             static_cast<int>(output), rows, k, leaves),
                 RefKernels().linear, PairKernels().linear, args, {Of(y)});
}

// A set of functions and a table of kernels that know each other.
TEST(PairKernels, AreDeclaredForEveryGpuThatIsServed) {
  const auto kernels = Kernels();
  ASSERT_FALSE(kernels.empty());
  for (const device::CudaKernel& kernel : kernels) {
    EXPECT_GE(kernel.least_architecture, 80) << kernel.name;
    EXPECT_EQ(kernel.image.empty(), !HasImages()) << kernel.name;
    EXPECT_EQ(&KernelNamed(kernel.name), &kernel);
  }
}

TEST(PairKernels, Linear) {
  uint64_t seed = 0;
  for (const DType dtype : kTypes) {
    for (const LinearOutput output :
         {LinearOutput::kF32, LinearOutput::kRounded, LinearOutput::kResidual,
          LinearOutput::kSiluMul, LinearOutput::kErfGelu, LinearOutput::kErfGeluMul,
          LinearOutput::kPartial}) {
      for (const int rows : {1, 3, 8, 13}) {
        const int k = rows == 3 ? 37 : rows == 13 ? 200 : 64;
        TryLinear(dtype, output, rows, k, 1 + static_cast<int>(seed % 8), 1, seed);
        ++seed;
      }
      // Products and sums that are denormal.
      TryLinear(dtype, output, 2, 96, 3, 1e-19f, seed++);
    }
  }
  for (int rows = 1; TheLauncher().fast() && rows <= 40; ++rows)
    TryLinear(DType::kBF16, LinearOutput::kResidual, rows, 1000 + rows, 8, 1, seed++);
}

void TryExperts(DType dtype, const std::vector<int>& counts, LinearOutput output, bool gathered,
                uint64_t seed) {
  Source source(seed);
  const int k = 48 + source.Below(3);
  const bool gated = output == LinearOutput::kSiluMul;
  const std::vector<int> widths = {gated ? 32 : 64, 20};
  std::vector<Bytes> runs;
  std::vector<const std::byte*> pointers;
  const Weight weight(source, dtype, {0, k}, widths, gated, false);
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    Bytes& run = runs.emplace_back();
    for (const int width : widths) {
      const Bytes tile = source.Tile(dtype, k, width, gated, 1);
      run.insert(run.end(), tile.begin(), tile.end());
    }
  }
  for (const Bytes& run : runs) pointers.push_back(run.data());
  std::vector<int32_t> offsets = {2};  // the first rows are others'
  for (const int count : counts) offsets.push_back(offsets.back() + count);
  ExpertsArgs args;
  args.weight = weight.weight;
  args.weight.tiles = nullptr;
  args.runs = pointers.data();
  args.offsets = offsets.data();
  args.num_experts = static_cast<int32_t>(counts.size());
  args.max_rows = offsets.back() + 3;
  args.x_count = args.max_rows;
  args.x_stride = k + 1;
  args.y_stride = args.weight.n + 2;
  args.output = output;
  const Bytes x = source.Elements(dtype, static_cast<size_t>(args.max_rows * args.x_stride));
  std::vector<int32_t> x_rows;
  for (int i = 0; i < args.max_rows; ++i) x_rows.push_back(source.Below(args.max_rows));
  args.x = x.data();
  args.x_rows = gathered ? x_rows.data() : nullptr;
  Bytes y = Poison(static_cast<size_t>(args.max_rows * args.y_stride) * tensor::SizeOf(dtype));
  args.y = y.data();
  ExpectRefBytes(fmt::format("{} experts", counts.size()), RefKernels().experts,
                 PairKernels().experts, args, {Of(y)});
}

TEST(PairKernels, Experts) {
  uint64_t seed = 100;
  for (const DType dtype : kTypes) {
    for (const bool gathered : {false, true}) {
      TryExperts(dtype, {3, 0, 9, 1, 0}, LinearOutput::kRounded, gathered, seed++);
      TryExperts(dtype, {0, 17}, LinearOutput::kSiluMul, gathered, seed++);
      TryExperts(dtype, {0, 0, 0}, LinearOutput::kRounded, gathered, seed++);
    }
  }
}

TEST(PairKernels, Heads) {
  Source source(200);
  for (const DType dtype : kTypes) {
    constexpr int kHeads = 3, kRows = 9, kK = 24;
    std::vector<Weight> weights;
    weights.reserve(kHeads);
    std::vector<const std::byte*> tiles;
    for (int head = 0; head < kHeads; ++head) {
      weights.emplace_back(source, dtype, std::vector{0, kK}, std::vector{64, 16}, false, false);
      for (const std::byte* tile : weights.back().pointers) tiles.push_back(tile);
    }
    ExpertsArgs args;
    args.weight = weights[0].weight;
    args.weight.tiles = tiles.data();
    args.num_experts = kHeads;
    args.max_rows = kRows;
    args.x_stride = kHeads * kK;
    args.x_step = kK;
    args.y_stride = kHeads * args.weight.n;
    args.y_step = args.weight.n;
    const Bytes x = source.Elements(dtype, kRows * kHeads * kK);
    args.x = x.data();
    Bytes y = Poison(static_cast<size_t>(kRows * args.y_stride) * tensor::SizeOf(dtype));
    args.y = y.data();
    ExpectRefBytes("heads", RefKernels().experts, PairKernels().experts, args, {Of(y)});
  }
}

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

TEST(PairKernels, RmsNorm) {
  Source source(500);
  for (const DType dtype : kTypes) {
    for (const int columns : {7, 64, 100, 1000}) {
      const Bytes x = source.Elements(dtype, static_cast<size_t>(9 * columns), 3);
      const Bytes wide = source.Elements(DType::kF32, static_cast<size_t>(9 * columns), 3);
      const std::vector<float> weight = source.Floats(static_cast<size_t>(columns));
      const std::vector<int32_t> picked = {8, 0, 3, 3};
      for (const bool pick : {false, true}) {
        RmsNormArgs args{.dtype = dtype,
                         .x_f32 = pick,
                         .x = pick ? wide.data() : x.data(),
                         .weight = weight.data(),
                         .rows = pick ? picked.data() : nullptr,
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
                             dt_bias = floats(shape.value_heads, 3),
                             norm = floats(shape.value_dim, 1);
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

TEST(PairKernels, RouteAndGroup) {
  Source source(800);
  for (int variant = 0; variant < 6; ++variant) {
    Router router{.num_experts = variant % 2 == 0 ? 64 : 40, .experts_per_token = 6};
    if (variant >= 3) router.num_groups = 4, router.chosen_groups = 2;
    router.scores = static_cast<RouterScores>(variant % 3);
    router.group_score = static_cast<GroupScore>(variant % 2);
    router.renormalize = variant % 2 == 0;
    router.epsilon = 1e-20f;
    router.scale = 2.5f;
    constexpr int kRows = 17;
    std::vector<float> bias = source.Floats(static_cast<size_t>(router.num_experts), 0.1f);
    if (variant % 3 == 1) router.bias = bias.data();
    const std::vector<float> scales = source.Floats(static_cast<size_t>(router.num_experts));
    if (variant % 3 == 2) router.expert_scales = scales.data();
    std::vector<float> logits = source.Floats(static_cast<size_t>(kRows * router.num_experts), 3);
    for (size_t i = 0; i < logits.size(); i += 5) logits[i] = 0.5f;  // equal ones
    const size_t slots = static_cast<size_t>(kRows * router.experts_per_token);
    std::vector<int32_t> experts(slots, -1);
    std::vector<float> weights(slots, -1);
    RouteArgs args{.router = router,
                   .logits = logits.data(),
                   .stride = router.num_experts,
                   .rows = kRows,
                   .experts = experts.data(),
                   .weights = weights.data()};
    ExpectRefBytes("route", RefKernels().route, PairKernels().route, args,
                   {Of(experts), Of(weights)});
    logits[3] = std::numeric_limits<float>::quiet_NaN();
    ExpectRefBytes("route with NaN", RefKernels().route, PairKernels().route, args,
                   {Of(experts), Of(weights)});

    for (int32_t& expert : experts) expert = source.Below(router.num_experts);
    std::vector<int32_t> offsets(static_cast<size_t>(router.num_experts) + 1, -1),
        sources(slots, -1), positions(slots, -1);
    const GroupRowsArgs group{.experts = experts.data(),
                              .rows = kRows,
                              .experts_per_token = router.experts_per_token,
                              .num_experts = router.num_experts,
                              .offsets = offsets.data(),
                              .source = sources.data(),
                              .positions = positions.data()};
    ExpectRefBytes("group_rows", RefKernels().group_rows, PairKernels().group_rows, group,
                   {Of(offsets), Of(sources), Of(positions)});
  }
}

// Four ranks in one part, or two in two; experts of one holder, or of two.
TEST(PairKernels, ServedRows) {
  Source source(850);
  constexpr int kExperts = 10, kChosen = 3, kRowBytes = 36;
  for (int variant = 0; variant < 6; ++variant) {
    const int parts = variant % 2 + 1, num_ranks = 4 / parts;
    const int member = source.Below(parts) * num_ranks + variant % num_ranks;
    std::vector<HolderMask> holders(kExperts);
    for (int expert = 0; expert < kExperts; ++expert) {
      const int first = expert * parts / kExperts * num_ranks;
      for (int copies = variant < 2 ? 1 : 2; copies > 0; --copies)
        holders[static_cast<size_t>(expert)] |= HolderMask{1} << (first + source.Below(num_ranks));
    }
    std::vector<int32_t> first_row(static_cast<size_t>(num_ranks) + 1, 0);
    for (int rank = 0; rank < num_ranks; ++rank)
      first_row[static_cast<size_t>(rank) + 1] =
          first_row[static_cast<size_t>(rank)] + (rank == 1 ? 0 : 1 + source.Below(40));
    const size_t slots = static_cast<size_t>(first_row.back()) * kChosen,
                 pairs = static_cast<size_t>(num_ranks) * kExperts;
    std::vector<int32_t> experts(slots), counts(pairs, -1), offsets(kExperts + 1, -1),
        sources(slots, -1), positions(slots, -1);
    for (int32_t& expert : experts) expert = source.Below(kExperts);
    std::vector<uint8_t> owners(pairs);
    ChooseOwners(holders, num_ranks, nullptr, owners.data());
    ServedRanks ranks{.num_ranks = num_ranks,
                      .me = member % num_ranks,
                      .member = member,
                      .num_experts = kExperts,
                      .experts_per_token = kChosen,
                      .first_row = first_row.data(),
                      .owners = owners.data()};
    KeepingStream stream;
    std::vector<int32_t> marked = experts;
    const bool chooses = variant >= 2;
    GroupServed(stream, {.ranks = ranks,
                         .holders = chooses ? holders.data() : nullptr,
                         .owners = owners.data(),
                         .counts = counts.data(),
                         .experts = marked.data(),
                         .offsets = offsets.data(),
                         .source = sources.data(),
                         .positions = positions.data()});
    const device::Operation group = stream.kept;
    // How many rows are served, so that what lies behind them in `source` is compared too.
    ExpectSameBytes(
        "group",
        [&](const device::WorkerContext& context) { group.run(group.args.data(), context); },
        [&](const device::LaunchContext& context) {
          marked = experts;
          group.launch(group.args.data(), context);
        },
        {Of(owners), Of(counts), Of(offsets), Of(sources), Of(positions)});

    Bytes rows(static_cast<size_t>(first_row.back()) * kRowBytes), taken(rows.size()),
        made(slots * kRowBytes), home(slots * kRowBytes);
    for (std::byte& byte : rows) byte = static_cast<std::byte>(source.Below(256));
    for (std::byte& byte : made) byte = static_cast<std::byte>(source.Below(256));
    for (int32_t& position : positions) position = source.Below(static_cast<int>(slots));
    std::vector<ServedCounters> counters(1);
    const Output counted{reinterpret_cast<std::byte*>(counters.data()), sizeof(ServedCounters)};
    for (int rank = 0; rank < num_ranks; ++rank) {
      const auto first = static_cast<size_t>(first_row[static_cast<size_t>(rank)]);
      if (ranks.rows(rank) == 0) continue;
      GatherServed(stream, {.ranks = ranks,
                            .rank = rank,
                            .experts = experts.data() + first * kChosen,
                            .from = rows.data() + first * kRowBytes,
                            .to = taken.data() + first * kRowBytes,
                            .row_bytes = kRowBytes,
                            .counters = counters.data()});
      ExpectCodesBytes(stream.kept, {Of(taken), counted});
    }
    for (int owner = 0; owner < 4; ++owner) {
      if (ranks.rows(ranks.me) == 0) continue;
      ReturnServed(stream, {.ranks = ranks,
                            .owner = owner,
                            .experts = experts.data(),
                            .positions = positions.data(),
                            .from = made.data(),
                            .to = home.data(),
                            .row_bytes = kRowBytes,
                            .counters = counters.data()});
      ExpectCodesBytes(stream.kept, {Of(home), counted});
    }
  }
}

TEST(PairKernels, CopiesOfWhatHasRows) {
  Source source(870);
  constexpr int kItems = 9;
  for (const size_t item : {7u, 32u, 70'000u}) {
    Bytes from(kItems * item), to(kItems * item);
    for (std::byte& byte : from) byte = static_cast<std::byte>(source.Below(256));
    std::vector<int32_t> offsets(kItems + 1, 3);
    for (size_t i = 1; i <= kItems; ++i) offsets[i] = offsets[i - 1] + source.Below(2);
    ExpectCodesBytes(device::MakeItemCopy("copy_items", {.destination = to.data(),
                                                         .source = from.data(),
                                                         .item_bytes = item,
                                                         .num_items = kItems,
                                                         .offsets = offsets.data()}),
                     {Of(to)});
  }
}

TEST(PairKernels, WeighAndCombine) {
  Source source(900);
  constexpr int kRows = 5, kColumns = 70, kSlots = 3;
  for (const DType dtype : kTypes) {
    const Bytes x = source.Elements(dtype, kRows * kColumns),
                expert_rows = source.Elements(dtype, kRows * kSlots * kColumns);
    const std::vector<float> weights = source.Floats(kRows * kSlots),
                             shared = source.Floats(kRows * kColumns);
    Bytes y = source.Elements(dtype, kRows * kColumns);
    const WeighRowsArgs weigh{.dtype = dtype,
                              .x = x.data(),
                              .weights = weights.data(),
                              .out = y.data(),
                              .rows = kRows,
                              .columns = kColumns};
    ExpectRefBytes("weigh_rows", RefKernels().weigh_rows, PairKernels().weigh_rows, weigh, {Of(y)});
    std::vector<int32_t> positions(kRows * kSlots);
    std::iota(positions.rbegin(), positions.rend(), 0);
    for (const bool plain : {false, true}) {
      const CombineRowsArgs combine{.dtype = dtype,
                                    .expert_rows = expert_rows.data(),
                                    .positions = plain ? nullptr : positions.data(),
                                    .weights = plain ? nullptr : weights.data(),
                                    .shared = plain ? nullptr : shared.data(),
                                    .y = y.data(),
                                    .rows = kRows,
                                    .experts_per_token = kSlots,
                                    .columns = kColumns};
      ExpectRefBytes("combine_rows", RefKernels().combine_rows, PairKernels().combine_rows, combine,
                     {Of(y)});
      std::vector<float> sums(kRows * kColumns, -1);
      CombineRowsArgs alone = combine;
      alone.sums = sums.data();
      ExpectRefBytes("combine_rows, sums", RefKernels().combine_rows, PairKernels().combine_rows,
                     alone, {Of(y), Of(sums)});
    }
  }
}

TEST(PairKernels, Reduce) {
  Source source(1000);
  constexpr int kRows = 3, kN = 300;
  for (const DType dtype : kTypes) {
    for (const int num_leaves : {1, 3, 5, 8}) {
      for (const LinearOutput output :
           {LinearOutput::kF32, LinearOutput::kRounded, LinearOutput::kResidual}) {
        const std::vector<float> planes = source.Floats(8 * kRows * kN), bias = source.Floats(kN);
        ReduceArgs args{.dtype = dtype, .output = output, .num_leaves = num_leaves};
        args.rows = kRows;
        args.n = kN;
        args.stride = kN;
        args.y_stride = kN + 1;
        // Ranks that own a leaf, then two, then the rest.
        const float* sums = planes.data();
        for (int begin = 0, owned = 1; begin < num_leaves; begin += owned, ++owned) {
          const int end = std::min(num_leaves, begin + owned);
          AddPlanes(begin, end, sums, &args);
          sums += NumPlanes(num_leaves, begin, end) * kRows * kN;
        }
        if (num_leaves == 5) args.bias = bias.data();
        Bytes y =
            source.Elements(output == LinearOutput::kF32 ? DType::kF32 : dtype, kRows * (kN + 1));
        const Bytes residual = source.Elements(dtype, kRows * (kN + 1));
        if (num_leaves == 3) args.residual = residual.data();
        args.y = y.data();
        KeepingStream stream;
        ReducePlanes(stream, RefKernels(), "reduce", args);
        ReduceArgs whole;
        std::memcpy(&whole, stream.kept.args.data(), sizeof whole);
        ExpectRefBytes<ReduceArgs>(fmt::format("{} leaves", num_leaves), RefKernels().reduce,
                                   PairKernels().reduce, whole, {Of(y)});
      }
    }
  }
}

}  // namespace
}  // namespace forebay::kernels::cuda
