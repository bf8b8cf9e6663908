#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "bench/gpu/figures.h"
#include "kernels/cuda/launch/experts.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/linear.h"

namespace forebay::bench {
namespace {

// Rates of the kernels of class mma_k16f25 on random values, launched one after the other without a
// graph: below some 5 us a kernel is bound by its launch.
class Rates {
 public:
  explicit Rates(Gpu& gpu)
      : gpu_(gpu), multiprocessors_(gpu.Attribute(cu::Attribute::kMultiprocessors)) {
    for (cu::DevicePtr* region : {&pool_, &in_, &out_}) {
      const size_t bytes = region == &pool_ ? kPoolBytes : kRowBytes;
      gpu.Do(gpu.driver().MemAlloc(region, bytes), "cuMemAlloc");
      Fill(*region, bytes);
    }
    gpu.Do(gpu.driver().MemAlloc(&lists_, kListBytes), "cuMemAlloc");
    void* host = nullptr;
    gpu.Do(gpu.driver().MemHostAlloc(&host, kListBytes, cu::kHostPortable), "cuMemHostAlloc");
    host_lists_ = static_cast<std::byte*>(host);
  }

  // `columns`: of the weight. A gate writes half of them, in chunks.
  void Linear(std::string_view name, int rows, int columns, int k, int leaves,
              kernels::LinearOutput output = kernels::LinearOutput::kRounded) {
    const double seconds = LinearSeconds(rows, columns, k, leaves, output);
    const std::string what = fmt::format("linear {}, {} rows", name, rows);
    PrintFigure(what, seconds * 1e6, "us");
    if (rows <= 64) {
      PrintFigure(what, 2.0 * columns * k / seconds * 1e-9, "GB/s");
    } else {
      PrintFigure(what, 2.0 * rows * columns * k / seconds * 1e-12, "TFLOP/s");
    }
  }

  // A layer's 128 experts, matrices of [columns, k], for `tokens` rows that choose 8 of them: all
  // experts alike, and as they are drawn. Beside a dense layer with as many rows as an expert has
  // and the columns of all. REQUIRES: a row for each expert.
  void Experts(std::string_view name, int tokens, int columns, int k,
               kernels::LinearOutput output) {
    const double dense =
        LinearSeconds(tokens * kChosen / kExperts, columns * kExperts, k, 1, output);
    for (const bool drawn : {false, true}) {
      const double seconds = ExpertsSeconds(tokens, columns, k, output, drawn);
      const std::string what =
          fmt::format("experts {}, {} rows of 8{}", name, tokens, drawn ? ", drawn" : "");
      PrintFigure(what, seconds * 1e6, "us");
      PrintFigure(what, 2.0 * tokens * kChosen * columns * k / seconds * 1e-12, "TFLOP/s");
      PrintFigure(what + ", of a dense layer", dense / seconds, "ratio");
    }
  }

  // What layers do whose x does not lie in chunks.
  void Pack(int rows, int k) {
    const kernels::cuda::PackRowsParams params{.x = At(in_),
                                               .chunks = At(out_),
                                               .x_stride = k,
                                               .rows = rows,
                                               .num_leaves = 1,
                                               .leaf_begin = {0, k},
                                               .chunk_begin = {0, k / 64}};
    const LaunchShape shape{.blocks = {k / 64, (rows + 63) / 64, 1},
                            .threads = kernels::cuda::kPackThreads};
    PrintFigure(fmt::format("rows to chunks, {} x {}", rows, k),
                Seconds([&](int) { gpu_.Launch("mma_pack_rows", shape, params); }) * 1e6, "us");
  }

  // 32 query heads, 8 of KV, head_dim 128.
  void Decode(int sequences, int context) {
    used_ = 0;
    std::vector<kernels::cuda::DecodeRow> rows;
    for (int i = 0; i < sequences; ++i)
      rows.push_back({.row = i, .table_row = i, .first = 0, .last = context - 1});
    const auto units = kernels::cuda::ListDecodeUnits(rows, kKvHeads);
    kernels::cuda::DecodeParams params{
        .kv = Kv(sequences, context),
        .units = List(units),
        .num_units = List(std::vector<int32_t>{static_cast<int32_t>(units.size())}),
        .group = kHeads / kKvHeads,
        .row_heads = kHeads,
        .scale = 0.088f,
        .q = At(in_),
        .out = At(out_),
        .partials = reinterpret_cast<float*>(At(out_) + kRowBytes / 2),
        .counts = List(std::vector<int32_t>(units.size()))};
    const auto plan = kernels::cuda::PlanDecode(multiprocessors_, kHeadDim, kHeads / kKvHeads,
                                                static_cast<int>(units.size()));
    const double seconds = Seconds([&](int) { gpu_.Launch(plan.kernel, plan.shape, params); });
    const std::string what = fmt::format("decode attention, {} x {}", sequences, context);
    PrintFigure(what, seconds * 1e6, "us");
    PrintFigure(what, 4.0 * sequences * context * kKvHeads * kHeadDim / seconds * 1e-9, "GB/s");
  }

  // Absorbed latent attention of 128 heads.
  void Latents(int sequences, int context) {
    namespace cuda = kernels::cuda;
    used_ = 0;
    constexpr int kHeadsOfRow = 128, kGroups = kHeadsOfRow / cuda::kLatentHeads;
    std::vector<kernels::SequenceRows> rows;
    for (int i = 0; i < sequences; ++i) rows.push_back({i, 1, context - 1, i});
    const int64_t stride = int64_t{32} * cuda::kLatentKeys * 2;
    const cuda::MmaKvParams kv = Kv(sequences, context, stride);
    cuda::LatentParams params{.of = {.q = At(in_),
                                     .out = At(out_),
                                     .heads = kHeadsOfRow,
                                     .row_heads = kHeadsOfRow,
                                     .scale = 0.072f},
                              .units = sequences * kGroups,
                              .parts = At(out_) + kRowBytes / 2};
    params.of.batch.num_rows = params.of.batch.num_sequences = sequences;
    params.of.batch.sequences = List(rows);
    params.of.batch.block_tables = const_cast<uint32_t*>(kv.block_tables);
    params.of.batch.table_stride = kv.table_stride;
    params.of.kv.resident = At(pool_);
    params.of.kv.block_stride = params.of.kv.layer_bytes = stride;
    const LaunchShape shape{.blocks = {std::min(multiprocessors_, params.units), 1, 1},
                            .threads = cuda::kLatentThreads,
                            .shared_bytes = cuda::kLatentSharedBytes};
    const double seconds = Seconds([&](int) { gpu_.Launch("mma_latent_512", shape, params); });
    const std::string what = fmt::format("latent attention, {} x {}", sequences, context);
    PrintFigure(what, seconds * 1e6, "us");
    PrintFigure(what,
                2.0 * sequences * context * kHeadsOfRow *
                    (cuda::kLatentKeys + cuda::kLatentValues) / seconds * 1e-12,
                "TFLOP/s");
  }

  void Prefill(int prompts, int rows) {
    used_ = 0;
    std::vector<kernels::SequenceRows> sequences;
    for (int i = 0; i < prompts; ++i) sequences.push_back({i * rows, rows, 0, i});
    const auto tiles = kernels::cuda::ListPrefillTiles(sequences);
    const kernels::cuda::PrefillParams params{
        .kv = Kv(prompts, rows),
        .tiles = List(tiles),
        .num_tiles = List(std::vector<int32_t>{static_cast<int32_t>(tiles.size())}),
        .heads = kHeads,
        .row_heads = kHeads,
        .scale = 0.088f,
        .q = At(in_),
        .out = At(out_)};
    const auto plan =
        kernels::cuda::PlanPrefill(multiprocessors_, static_cast<int>(tiles.size()), kHeads);
    const double seconds = Seconds([&](int) { gpu_.Launch(plan.kernel, plan.shape, params); });
    const double seen = 0.5 * rows * (rows + 1.0);
    PrintFigure(fmt::format("prefill attention, {} x {}", prompts, rows),
                4.0 * prompts * kHeads * kHeadDim * seen / seconds * 1e-12, "TFLOP/s");
  }

 private:
  static constexpr size_t kPoolBytes = size_t{2} << 30, kRowBytes = size_t{512} << 20,
                          kListBytes = size_t{8} << 20;
  static constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128;
  static constexpr int kExperts = 128, kChosen = 8;

  static std::byte* At(cu::DevicePtr memory) { return reinterpret_cast<std::byte*>(memory); }

  // A launch of a linear layer, of several whose weights take turns.
  double LinearSeconds(int rows, int columns, int k, int leaves, kernels::LinearOutput output) {
    const int64_t panels = columns / 64, of_leaf = k / 64 / leaves;
    const size_t bytes = static_cast<size_t>(columns) * static_cast<size_t>(k) * 2;
    const size_t weights = std::clamp<size_t>(kPoolBytes / bytes, 1, 16);
    used_ = 0;
    std::vector<const std::byte* const*> tiles;
    for (size_t i = 0; i < weights; ++i) {
      std::vector<const std::byte*> pointers;
      for (int64_t tile = 0; tile < leaves * panels; ++tile)
        pointers.push_back(At(pool_) + i * bytes + tile * of_leaf * kernels::kChunkBytes);
      tiles.push_back(List(pointers));
    }
    std::vector<kernels::PanelColumns> places;
    const bool gated = kernels::IsGated(output);
    const int width = gated ? 32 : 64;
    for (int32_t panel = 0; panel < panels; ++panel) places.push_back({panel * width, width});
    const kernels::cuda::LinearOutputs to{
        .y = At(out_),
        .y_stride = gated ? columns / 2 : columns,
        .form = gated ? kernels::RowForm::kChunks : kernels::RowForm::kRows,
        .panels = reinterpret_cast<const int32_t*>(List(places)),
        .output = static_cast<int32_t>(output),
        .rows = rows};
    const auto run = [&](auto params, auto plan_of) {
      params.x = At(in_);
      params.to = to;
      params.num_panels = static_cast<int32_t>(panels);
      params.num_leaves = leaves;
      for (int leaf = 0; leaf <= leaves; ++leaf)
        params.leaf_begin[leaf] = static_cast<int32_t>(leaf * of_leaf);
      const kernels::cuda::KernelPlan plan = plan_of(multiprocessors_, &params);
      return Seconds([&](int i) {
        params.tiles = tiles[static_cast<size_t>(i) % weights];
        gpu_.Launch(plan.kernel, plan.shape, params);
      });
    };
    return rows <= 64 ? run(kernels::cuda::SmallLinearParams{}, kernels::cuda::PlanSmallLinear)
                      : run(kernels::cuda::ManyLinearParams{.x_chunks = k / 64,
                                                            .row_blocks = (rows + 63) / 64},
                            kernels::cuda::PlanManyLinear);
  }

  double ExpertsSeconds(int tokens, int columns, int k, kernels::LinearOutput output, bool drawn) {
    used_ = 0;
    const int slots = tokens * kChosen, panels = columns / 64;
    std::vector<std::vector<int32_t>> rows_of(kExperts);
    base::Rng rng(5);
    for (int token = 0; token < tokens; ++token) {
      std::vector<int> experts(kExperts);
      std::iota(experts.begin(), experts.end(), drawn ? 0 : token * kChosen);
      for (int i = 0; i < kChosen; ++i) {
        if (drawn)
          std::swap(experts[i], experts[i + rng.Below(static_cast<uint64_t>(kExperts - i))]);
        rows_of[static_cast<size_t>(experts[i] % kExperts)].push_back(token);
      }
    }
    std::vector<int32_t> offsets = {0}, x_rows;
    std::vector<const std::byte*> runs;
    const int64_t tile_bytes = int64_t{k} / 64 * kernels::kChunkBytes;
    for (int expert = 0; expert < kExperts; ++expert) {
      const std::vector<int32_t>& rows = rows_of[static_cast<size_t>(expert)];
      x_rows.insert(x_rows.end(), rows.begin(), rows.end());
      offsets.push_back(static_cast<int32_t>(x_rows.size()));
      runs.push_back(At(pool_) + expert * panels * tile_bytes);
    }
    const bool gated = kernels::IsGated(output);
    std::vector<kernels::PanelColumns> places;
    for (int panel = 0; panel < panels; ++panel)
      places.push_back({panel * (gated ? 32 : 64), gated ? 32 : 64});
    const kernels::cuda::ExpertsParams params{
        .runs = List(runs),
        .tile_bytes = tile_bytes,
        .offsets = List(offsets),
        .x = At(in_),
        .x_rows = gated ? List(x_rows) : nullptr,
        .x_granules = k / 8,
        .to = {.y = At(out_),
               .y_stride = gated ? columns / 2 : columns,
               .panels = reinterpret_cast<const int32_t*>(List(places)),
               .output = static_cast<int32_t>(output)},
        .num_experts = kExperts,
        .num_panels = panels,
        .k = k};
    const auto run = [&](const kernels::cuda::KernelPlan& plan, const auto& of_kernel) {
      return Seconds([&](int) { gpu_.Launch(plan.kernel, plan.shape, of_kernel); });
    };
    if (slots > kernels::cuda::kFewExpertRows * kExperts)
      return run(kernels::cuda::PlanManyExperts(multiprocessors_, slots, params), params);
    kernels::cuda::SmallExpertsParams small{.of = params};
    return run(kernels::cuda::PlanSmallExperts(multiprocessors_, slots, &small), small);
  }

  // bf16 of both signs, in [2^-5, 2^-4).
  void Fill(cu::DevicePtr memory, size_t bytes) {
    constexpr size_t kPiece = size_t{4} << 20;
    void* host = nullptr;
    gpu_.Do(gpu_.driver().MemHostAlloc(&host, kPiece, cu::kHostPortable), "cuMemHostAlloc");
    base::Rng rng(7);
    for (size_t i = 0; i < kPiece / 2; ++i)
      static_cast<uint16_t*>(host)[i] = static_cast<uint16_t>((rng.Next() & 0x807Fu) | 0x3D00u);
    for (size_t at = 0; at < bytes; at += kPiece) {
      gpu_.Do(gpu_.driver().MemcpyAsync(memory + at, reinterpret_cast<cu::DevicePtr>(host), kPiece,
                                        gpu_.stream),
              "cuMemcpyAsync");
    }
    (void)gpu_.Wait();
  }

  // A list's copy in the GPU's memory.
  template <typename T>
  T* List(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T), at = used_;
    used_ += (bytes + 255) / 256 * 256;
    FB_CHECK(used_ <= kListBytes, "lists of {} bytes", used_);
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), bytes, host_lists_ + at);
    gpu_.Do(gpu_.driver().MemcpyAsync(
                lists_ + at, reinterpret_cast<cu::DevicePtr>(host_lists_ + at), bytes, gpu_.stream),
            "cuMemcpyAsync");
    return reinterpret_cast<T*>(At(lists_ + at));
  }

  // Sequences of blocks that are far apart in the pool.
  kernels::cuda::MmaKvParams Kv(int sequences, int context,
                                int64_t stride = int64_t{kKvHeads} * 2 *
                                                 kernels::HeadHalfBytes(kHeadDim)) {
    const int of_sequence = (context + 31) / 32;
    const auto blocks = static_cast<uint32_t>(static_cast<int64_t>(kPoolBytes) / stride);
    std::vector<uint32_t> table(static_cast<size_t>(sequences) * static_cast<size_t>(of_sequence));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint32_t>(i * 7919 % blocks);
    return {.block_tables = List(table),
            .table_stride = of_sequence,
            .resident = At(pool_),
            .window = nullptr,
            .block_stride = stride,
            .layer_bytes = stride,
            .kv_heads = kKvHeads};
  }

  // A launch of many.
  double Seconds(const std::function<void(int)>& launch) {
    const double once = OnStream(
        gpu_, [&] { launch(0); }, 1);
    const int launches = static_cast<int>(std::clamp(4e-3 / once, 1.0, 200.0));
    return OnStream(
               gpu_,
               [&] {
                 for (int i = 0; i < launches; ++i) launch(i);
               },
               3) /
           launches;
  }

  Gpu& gpu_;
  const int multiprocessors_;
  cu::DevicePtr pool_ = 0, in_ = 0, out_ = 0, lists_ = 0;
  std::byte* host_lists_ = nullptr;
  size_t used_ = 0;
};

}  // namespace

void PrintKernelRates(Gpu& gpu) {
  Rates rates(gpu);
  for (const int rows : {1, 16, 64, 256, 1024, 4096}) {
    const int leaves = 8;
    rates.Linear("8B qkv (6144 x 4096)", rows, 6144, 4096, 1);
    rates.Linear("8B o (4096 x 4096, 8 leaves)", rows, 4096, 4096, leaves);
    rates.Linear("8B gate and up (28672 x 4096)", rows, 28672, 4096, 1);
    rates.Linear("8B down (4096 x 14336, 8 leaves)", rows, 4096, 14336, leaves);
  }
  for (const int rows : {64, 1024, 4096}) {
    using kernels::LinearOutput;
    rates.Linear("8B qkv, fp32", rows, 6144, 4096, 1, LinearOutput::kF32);
    rates.Linear("8B o, 8 leaves, added", rows, 4096, 4096, 8, LinearOutput::kResidual);
    rates.Linear("8B gate and up, silu", rows, 28672, 4096, 1, LinearOutput::kSiluMul);
    rates.Linear("8B down, 8 leaves, added", rows, 4096, 14336, 8, LinearOutput::kResidual);
    rates.Pack(rows, 4096);
    rates.Pack(rows, 14336);
  }
  rates.Linear("0.6B o (1024 x 2048, 8 leaves)", 1, 1024, 2048, 8);
  rates.Linear("8192 x 8192", 8192, 8192, 8192, 1);
  for (const int tokens : {16, 64, 512, 4096}) {
    rates.Experts("30B-A3B gate and up (1536 x 2048)", tokens, 1536, 2048,
                  kernels::LinearOutput::kSiluMul);
    rates.Experts("30B-A3B down (2048 x 768)", tokens, 2048, 768, kernels::LinearOutput::kRounded);
  }
  for (const int sequences : {1, 16, 64, 256}) rates.Decode(sequences, 1024);
  rates.Decode(32, 8192);
  for (const auto& [sequences, context] :
       {std::pair(16, 4096), std::pair(64, 1024), std::pair(66, 4096)})
    rates.Latents(sequences, context);
  for (const auto& [prompts, rows] :
       {std::pair(16, 256), std::pair(8, 512), std::pair(4, 1024), std::pair(4, 2048),
        std::pair(1, 4096), std::pair(2, 8192), std::pair(1, 32768)}) {
    rates.Prefill(prompts, rows);
  }
}

}  // namespace forebay::bench
