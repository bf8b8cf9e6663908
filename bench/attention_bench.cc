// Rates of the attention kernels beside the limits of the machine, as a table in Markdown:
//   attention_bench [--isa NAME,..] [--threads N] [--only TEXT of a row's name]
// The KV cache lies as in the engine: blocks at a stride of all layers, in permuted order; a sample
// is one pass over as many layers as make 256 MB of KV, so that no cache holds it. The limit of a
// sample is max(flops / peak, KV bytes / stream), with both probed just before and after it; the
// figure is the best of 5 samples by share of their own limit.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "bench/limits.h"
#include "kernels/kernel_set.h"
#include "kernels/norm.h"
#include "kernels/tile_attention.h"
#include "tensor/bf16.h"

namespace forebay::bench {
namespace {

using kernels::AttentionArgs;
using kernels::kBlockTokens;
using kernels::KernelSet;
using kernels::SequenceRows;
using tensor::BF16;

struct Case {
  const char* model;
  int32_t heads, kv_heads, head_dim;
  int32_t sequences, rows, context;  // the last `rows` of `context` positions of each sequence
  bool mixed = false;                // contexts from 31 less up to `context`, decoding
  int32_t prompts = 0;               // further sequences, of `prompt` rows each
  int32_t prompt = 0;
  // Latent attention: a value's width, stored where there is more than one KV head, else the first
  // elements of its key. 0: head_dim.
  int32_t value_width = 0;
  kernels::KvCodes codes = kernels::KvCodes::kNone;
  int32_t value_dim() const { return value_width > 0 ? value_width : head_dim; }
  bool latents() const { return value_width > 0 && kv_heads == 1; }
  kernels::KvLayout Layout() const {
    return {.dtype = tensor::DType::kBF16,
            .kv_heads = kv_heads,
            .key_dim = head_dim,
            .value_dim = value_dim(),
            .values_in_keys = latents(),
            .codes = codes};
  }
  int32_t Context(int32_t sequence) const {
    return mixed ? context - sequence * 19 % kBlockTokens : context;
  }
};
constexpr Case kCases[] = {
    {"Qwen3-0.6B", 16, 8, 128, 64, 1, 192},
    {"Qwen3-0.6B", 16, 8, 128, 128, 1, 192},
    {"Qwen3-0.6B", 16, 8, 128, 128, 1, 207},
    {"Qwen3-0.6B", 16, 8, 128, 128, 1, 207, true},
    {"Qwen3-0.6B", 16, 8, 128, 64, 1, 1024},
    {"Qwen3-0.6B", 16, 8, 128, 128, 1, 1024},
    {"Qwen3-0.6B", 16, 8, 128, 64, 1, 2048},
    {"Qwen3-0.6B, int8 KV", 16, 8, 128, 64, 1, 2048, false, 0, 0, 0, kernels::KvCodes::kInt8},
    {"Qwen3-0.6B, fp8 KV", 16, 8, 128, 64, 1, 2048, false, 0, 0, 0, kernels::KvCodes::kFP8},
    {"Qwen3-0.6B", 16, 8, 128, 1, 1, 8192},
    {"Qwen3-0.6B", 16, 8, 128, 4, 128, 128},
    {"Qwen3-0.6B", 16, 8, 128, 1, 512, 512},
    {"Qwen3-0.6B", 16, 8, 128, 1, 512, 4096},
    {"Qwen3-0.6B, int8 KV", 16, 8, 128, 1, 512, 4096, false, 0, 0, 0, kernels::KvCodes::kInt8},
    {"Qwen3-0.6B", 16, 8, 128, 1, 1, 32768},
    {"one KV head", 16, 1, 128, 1, 1, 32768},
    {"one KV head", 16, 1, 128, 1, 64, 32768},
    {"SmolLM2-135M", 9, 3, 64, 1, 1, 32768},
    {"SmolLM2-135M", 9, 3, 64, 1, 512, 32768},
    {"SmolLM2-135M", 9, 3, 64, 64, 1, 192},
    {"SmolLM2-135M", 9, 3, 64, 128, 1, 192},
    {"SmolLM2-135M", 9, 3, 64, 128, 1, 207},
    {"SmolLM2-135M", 9, 3, 64, 128, 1, 207, true},
    {"SmolLM2-135M", 9, 3, 64, 64, 1, 1024},
    {"SmolLM2-135M", 9, 3, 64, 128, 1, 1024},
    {"SmolLM2-135M", 9, 3, 64, 4, 128, 128},
    {"SmolLM2-135M", 9, 3, 64, 1, 512, 512},
    {"SmolLM2-135M", 9, 3, 64, 128, 1, 192, true, 2, 128},
    {"SmolLM2-135M", 9, 3, 64, 60, 1, 320, true, 1, 450},
    {"Qwen3-0.6B", 16, 8, 128, 128, 1, 192, true, 2, 128},
    {"DeepSeek-V2-Lite, expanded", 16, 16, 192, 1, 512, 512, false, 0, 0, 128},
    {"DeepSeek-V2-Lite, expanded", 16, 16, 192, 1, 512, 2048, false, 0, 0, 128},
    {"DeepSeek-R1, expanded", 128, 128, 192, 1, 512, 512, false, 0, 0, 128},
    {"DeepSeek-R1, expanded", 128, 128, 192, 1, 512, 1024, false, 0, 0, 128},
    {"DeepSeek-V2-Lite, absorbed", 16, 1, 576, 64, 1, 1024, false, 0, 0, 512},
    {"DeepSeek-R1, absorbed", 128, 1, 576, 64, 1, 1024, false, 0, 0, 512},
};
constexpr Case kRopeCases[] = {
    {"Qwen3-0.6B", 16, 8, 128, 64, 1, 192},  {"Qwen3-0.6B", 16, 8, 128, 128, 1, 192},
    {"Qwen3-0.6B", 16, 8, 128, 4, 128, 128}, {"Qwen3-0.6B", 16, 8, 128, 1, 512, 512},
    {"SmolLM2-135M", 9, 3, 64, 128, 1, 192}, {"SmolLM2-135M", 9, 3, 64, 1, 512, 512},
};

std::string NameOf(const Case& c) {
  return fmt::format(
      "{} {}/{}x{} | {} x {} at {}{}{}", c.model, c.heads, c.kv_heads, c.head_dim, c.sequences,
      c.rows, c.mixed ? fmt::format("{}..", c.Context(0) + 1 - kBlockTokens) : "", c.context,
      c.prompts > 0 ? fmt::format(" and {} x {} at {}", c.prompts, c.prompt, c.prompt) : "");
}

struct Limits {
  double peak, stream;
};

// The rows of a case, and its sequences' blocks in permuted order.
struct Step {
  explicit Step(const Case& c) {
    const int32_t most = std::max(c.context, c.prompt), num_sequences = c.sequences + c.prompts;
    const int32_t blocks_each = (most + kBlockTokens - 1) / kBlockTokens;
    tables.resize(static_cast<size_t>(blocks_each) * num_sequences);
    std::iota(tables.begin(), tables.end(), 0u);
    base::Rng rng(6);
    for (size_t i = tables.size(); i > 1; --i) std::swap(tables[i - 1], tables[rng.Below(i)]);
    for (int32_t s = 0; s < num_sequences; ++s) {
      const int32_t rows = s < c.sequences ? c.rows : c.prompt;
      const int32_t first = s < c.sequences ? c.Context(s) - rows : 0;
      sequences.push_back({static_cast<int32_t>(positions.size()), rows, first, s});
      context.Add(first, rows);
      seen += first + rows;
      for (int32_t i = 0; i < rows; ++i) {
        positions.push_back(first + i);
        row_sequence.push_back(s);
      }
    }
    batch = {.num_rows = static_cast<int32_t>(positions.size()), .num_sequences = num_sequences};
    batch.positions = positions.data();
    batch.row_sequence = row_sequence.data();
    batch.sequences = sequences.data();
    batch.block_tables = tables.data();
    batch.table_stride = blocks_each;
  }
  int64_t blocks() const { return static_cast<int64_t>(tables.size()); }

  std::vector<uint32_t> tables;
  std::vector<SequenceRows> sequences;
  std::vector<int32_t> positions, row_sequence;
  kernels::StepBatch batch;
  kernels::ContextSums context;
  int64_t seen = 0;  // positions with a K and a V that some row reads
};

class Bench {
 public:
  Bench(int threads) : threads_(threads), team_(threads) {
    base::Rng rng(5);
    for (size_t i = 0; i < kStreamBytes / sizeof(BF16); ++i) {
      memory_[i] = i < kPattern ? tensor::ToBF16(static_cast<float>(rng.Uniform() * 2 - 1))
                                : memory_[i - kPattern];
    }
  }

  void Run(const KernelSet& kernels, const Case& c) {
    const Step step(c);
    AttentionArgs args;
    args.layout = c.Layout();
    args.heads = c.heads;
    args.scale = 0.1f;
    const int64_t layers = SetStride(step, &args.layout);
    args.context = step.context;
    args.batch = step.batch;
    std::vector<BF16> q(step.positions.size() * c.heads * c.head_dim),
        out(step.positions.size() * c.heads * c.value_dim());
    base::Rng rng(7);
    for (BF16& x : q) x = tensor::ToBF16(static_cast<float>(rng.Uniform() * 2 - 1));
    args.q = reinterpret_cast<std::byte*>(q.data());
    args.out = reinterpret_cast<std::byte*>(out.data());

    const double flops =
        2.0 * static_cast<double>(args.context.context()) * c.heads * (c.head_dim + c.value_dim());
    const double bytes = static_cast<double>(step.seen * args.layout.LayerBytes() / kBlockTokens);
    double best_share = 0, best_time = 0;
    Limits best{};
    Limits before = Probe(kernels);
    for (int sample = 0; sample < 5; ++sample) {
      double start = Now();
      int64_t passes = 0;
      do {
        for (int64_t layer = 0; layer < layers; ++layer, ++passes) {
          args.layer.resident =
              reinterpret_cast<std::byte*>(memory_) + layer * args.layout.LayerBytes();
          team_.Run(
              [&](const device::WorkerContext& context) { kernels.attention(args, context); });
        }
      } while (Now() - start < 0.02);
      const double time = (Now() - start) / static_cast<double>(passes);
      const Limits after = Probe(kernels);
      const Limits limits{(before.peak + after.peak) / 2, (before.stream + after.stream) / 2};
      const double share = std::max(flops / limits.peak, bytes / limits.stream) / time;
      if (share > best_share) best_share = share, best_time = time, best = limits;
      before = after;
    }
    const bool memory_bound = bytes / best.stream > flops / best.peak;
    fmt::print("| {} | {:.1f} | {:.0f} of {:.0f} | {:.1f} of {:.1f} | {} | {:.2f} |\n", NameOf(c),
               best_time * 1e6, flops / best_time / 1e9, best.peak / 1e9, bytes / best_time / 1e9,
               best.stream / 1e9, memory_bound ? "memory" : "arithmetic", best_share);
    std::fflush(stdout);
  }

  // Bytes of its rows' fp32 projections and of the cache lines that the new K and V lie in, which a
  // write must first read.
  void RunRope(const KernelSet& kernels, const Case& c) {
    const Step step(c);
    kernels::RopeKvArgs args;
    args.layout = c.Layout();
    args.heads = c.heads;
    args.norm_eps = 1e-6f;
    args.batch = step.batch;
    const int64_t layers = SetStride(step, &args.layout);
    const int64_t rows = step.batch.num_rows,
                  width = int64_t{c.heads + 2 * c.kv_heads} * c.head_dim;
    std::vector<float> qkv(static_cast<size_t>(rows * width)),
        norm(static_cast<size_t>(c.head_dim), 1.0f);
    std::vector<float> angles(static_cast<size_t>(c.context) * c.head_dim / 2, 0.7f);
    std::vector<BF16> q(static_cast<size_t>(rows * c.heads * c.head_dim));
    base::Rng rng(8);
    for (float& x : qkv) x = static_cast<float>(rng.Uniform() * 2 - 1);
    args.qkv = qkv.data();
    args.q = reinterpret_cast<std::byte*>(q.data());
    args.q_norm = args.k_norm = norm.data();
    args.rope_cos = args.rope_sin = angles.data();
    const double lines = c.rows == 1 ? c.kv_heads * (c.head_dim / 2 * 64.0 + c.head_dim * 4.0)
                                     : c.kv_heads * c.head_dim * 4.0;
    const double bytes = static_cast<double>(rows) * (static_cast<double>(width) * 4 + 2 * lines);
    const double flops = 8.0 * static_cast<double>(rows * width);  // as the operation is described
    const Limits limits = Probe(kernels);
    double best = 1;
    for (int sample = 0; sample < 5; ++sample) {
      double time = 0;
      int64_t passes = 0;
      for (; passes < 3 || time < 0.01; ++passes) {
        args.layer.resident =
            reinterpret_cast<std::byte*>(memory_) + passes % layers * args.layout.LayerBytes();
        MeasureStream(team_, reinterpret_cast<std::byte*>(memory_) + kStreamBytes - kEvicted,
                      kEvicted);
        for (float& x : qkv) x = -x;  // the projection has just been written, KV is in no cache
        const double start = Now();
        team_.Run([&](const device::WorkerContext& context) { kernels.rope_kv(args, context); });
        time += Now() - start;
      }
      best = std::min(best, time / static_cast<double>(passes));
    }
    PrintRows(NameOf(c), rows, best, bytes, flops, limits);
    std::fflush(stdout);
  }

  // A norm of a prompt's rows, which lie in the caches as the layer before has left them.
  void RunNorm(const KernelSet& kernels, int32_t rows, int32_t columns) {
    const size_t elements = static_cast<size_t>(rows) * static_cast<size_t>(columns);
    std::vector<BF16> x(elements, tensor::ToBF16(0.5f)), out(elements);
    const std::vector<float> weight(static_cast<size_t>(columns), 1.0f);
    kernels::RmsNormArgs args;
    args.x = reinterpret_cast<const std::byte*>(x.data());
    args.out = reinterpret_cast<std::byte*>(out.data());
    args.weight = weight.data();
    args.num_rows = rows;
    args.columns = columns;
    args.eps = 1e-6f;
    const Limits limits = Probe(kernels);
    double best = 1;
    for (int sample = 0; sample < 9; ++sample) {
      constexpr int kPasses = 20;
      const double start = Now();
      for (int pass = 0; pass < kPasses; ++pass) {
        team_.Run([&](const device::WorkerContext& context) { kernels.rms_norm(args, context); });
      }
      best = std::min(best, (Now() - start) / kPasses);
    }
    // Read and written, a square added, twice multiplied.
    PrintRows(fmt::format("norm of {}", columns), rows, best, 4.0 * static_cast<double>(elements),
              4.0 * static_cast<double>(elements), limits);
  }

 private:
  static void PrintRows(const std::string& name, int64_t rows, double seconds, double bytes,
                        double flops, const Limits& limits) {
    const double share = std::max(flops / limits.peak, bytes / limits.stream) / seconds;
    fmt::print("| {} | {:.1f} | {:.2f} | {:.1f} of {:.1f} | {:.1f} of {:.1f} | {:.2f} |\n", name,
               seconds * 1e6, seconds * 1e6 / static_cast<double>(rows), bytes / seconds / 1e9,
               limits.stream / 1e9, flops / seconds / 1e9, limits.peak / 1e9, share);
    std::fflush(stdout);
  }

  // As many layers as make kKvBytes, but no more than there is memory for.
  int64_t SetStride(const Step& step, kernels::KvLayout* layout) const {
    const int64_t bytes = step.blocks() * layout->LayerBytes();
    FB_CHECK(bytes <= static_cast<int64_t>(kStreamBytes), "a case of {} bytes of KV", bytes);
    const int64_t layers = std::max<int64_t>(1, kKvBytes / bytes);
    layout->block_stride = layers * layout->LayerBytes();
    return layers;
  }

  static constexpr size_t kStreamBytes = size_t{768} << 20, kPattern = 1 << 20;
  static constexpr int64_t kKvBytes = 256 << 20, kEvicted = 64 << 20;

  Limits Probe(const KernelSet& kernels) {
    // set amx attends by fused multiply-adds, but for its class `amx_*_p1024`
    const bool dot = kernels.isa == kernels::Isa::kAvx512bf16,
               tiles = std::string_view(kernels.numerics_class).ends_with("_p1024");
    const PeakProbe& probe = tiles ? kTileFeedProbe
                             : dot ? kDotProbe
                                   : kernels::FmaProbeOf(kernels.isa);
    return {MeasurePeak(team_, threads_, probe),
            MeasureStream(team_, reinterpret_cast<std::byte*>(memory_), int64_t{256} << 20)};
  }

  const int threads_;
  kernels::testing::Team team_;
  BF16* memory_ = reinterpret_cast<BF16*>(HugeMemory(kStreamBytes));
};

int Main(int argc, char** argv) {
  std::string isa, only;
  int threads = 2;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--isa") == 0) isa = std::string(",") + argv[i + 1] + ",";
    if (std::strcmp(argv[i], "--threads") == 0) threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--only") == 0) only = argv[i + 1];
  }
  Bench bench(threads);
  fmt::print("{}, {} threads\n", CpuName(), threads);
  std::vector<const KernelSet*> sets = kernels::AvailableKernels();
  if (const kernels::TileOrder order = kernels::HardwareTileOrder();
      order != kernels::TileOrder::kUnknown) {
    sets.push_back(*kernels::ChooseKernels("amx", kernels::PartClassOf(order)));
  }
  for (const KernelSet* kernels : sets) {
    if (kernels->isa == kernels::Isa::kRef) continue;
    if (!isa.empty() && isa.find("," + std::string(kernels->name) + ",") == std::string::npos)
      continue;
    fmt::print(
        "\n{}, class {}\n\n| model | sequences x rows at context | us a layer | GFLOP/s | GB/s of "
        "KV | bound | share of limit |\n",
        kernels->name, kernels->numerics_class);
    fmt::print("|---|---|---|---|---|---|---|\n");
    for (const Case& c : kCases) {
      if (NameOf(c).find(only) != std::string::npos) bench.Run(*kernels, c);
    }
    fmt::print(
        "\n{}: norm, rope and the KV write\n\n| model | sequences x rows at context | us a layer | "
        "us a row | GB/s touched | GFLOP/s | share of limit |\n",
        kernels->name);
    fmt::print("|---|---|---|---|---|---|---|\n");
    for (const Case& c : kRopeCases) {
      if (NameOf(c).find(only) != std::string::npos) bench.RunRope(*kernels, c);
    }
    for (const int32_t columns : {576, 1024, 4096}) {
      if (only.empty()) bench.RunNorm(*kernels, 512, columns);
    }
  }
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Main(argc, argv); }
