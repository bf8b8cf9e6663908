// Rates of the linear kernels beside the limits of the machine, as tables in Markdown:
//   linear_bench [--isa NAME,..] [--rows N,..] [--model NAME,..] [--shape KxN,..] [--leaves]
//   [--f32] [--threads N] [--form NAME]
// Layers of the models, with the outputs and leaves that a layer program has; --shape: one chain,
// rounded outputs. A sample is one of 5 measurements of 20 ms or more, bracketed by probes of the
// register peak of the set's instruction and of streaming reads. Its limit is max(flops / peak,
// weight bytes / stream). A sample whose brackets differ by more than 10 % is repeated (and
// counted). --leaves: the price of the fixed tree over a model's layers. --form: tiles are stored
// in that form (kernels/tile_form.h), of random codes; a cell also has the time of expanded tiles
// by that of stored ones, measured in turn.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "kernels/linear_sets.h"
#include "tensor/bf16.h"

namespace forebay::bench {
namespace {

using kernels::LeafBorders;
using kernels::LinearArgs;
using kernels::LinearOutput;

struct Set {
  const char* name;
  void (*linear)(const LinearArgs&, const device::WorkerContext&);
  PeakProbe bf16_probe, f32_probe;
  bool available;
};

std::vector<Set> Sets() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return {
      {"amx", &kernels::amx::Linear, kTileFeedProbe, kFma512Probe,
       kernels::HardwareTileOrder() != kernels::TileOrder::kUnknown},
      {"avx512bf16", &kernels::avx512bf16::Linear, kDotProbe, kFma512Probe,
       avx512 && __builtin_cpu_supports("avx512bf16")},
      {"avx512f",
       kernels::HasAvx512Vnni() ? &kernels::avx512f::LinearWithVnni : &kernels::avx512f::Linear,
       kFma512Probe, kFma512Probe, avx512},
      {"avx2", kernels::HasAvxVnni() ? &kernels::avx2::LinearWithVnni : &kernels::avx2::Linear,
       kFma256Probe, kFma256Probe, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
  };
}

// y = x W^T of a model.
struct Layer {
  std::string model, name;
  int k, n;
  LeafBorders leaves;
  LinearOutput output;

  bool has_leaves() const { return leaves.num_leaves > 1; }
  int smaller() const { return std::min(k, n); }
  Layer OneChain() const { return {model, name, k, n, LeafBorders::Single(k), output}; }
};

struct Model {
  const char* name;
  int hidden, heads, kv_heads, head_dim, ffn;
};
constexpr Model kModels[] = {{"SmolLM2-135M", 576, 9, 3, 64, 1536},
                             {"Qwen3-0.6B", 1024, 16, 8, 128, 3072},
                             {"TinyLlama-1.1B", 2048, 32, 4, 64, 5632},
                             {"Llama-3-8B", 4096, 32, 8, 128, 14336}};

std::vector<Layer> LayersOf(const Model& m) {
  const int heads = m.heads * m.head_dim, qkv = (m.heads + 2 * m.kv_heads) * m.head_dim;
  return {{m.name, "qkv", m.hidden, qkv, LeafBorders::Single(m.hidden), LinearOutput::kF32},
          {m.name, "output", heads, m.hidden, LeafBorders::ForOutput(m.heads, m.head_dim),
           LinearOutput::kResidual},
          {m.name, "gate_up", m.hidden, 2 * m.ffn, LeafBorders::Single(m.hidden),
           LinearOutput::kSiluMul},
          {m.name, "down", m.ffn, m.hidden, LeafBorders::ForDown(m.ffn), LinearOutput::kResidual}};
}

struct Options {
  std::vector<std::string> sets = {"amx", "avx512bf16", "avx512f", "avx2"};
  std::vector<int> rows = {1, 2, 4, 8, 16, 64, 256, 512, 1024};
  std::vector<std::string> models;  // empty: all
  std::vector<Layer> layers;        // layers of these models, or as --shape says
  bool leaves = false, f32 = false;
  int threads = 2;
  kernels::TileForm form = kernels::TileForm::kExpanded;
};

struct Sample {
  double seconds, flops, stream,
      fraction;  // a call's; flop/s; bytes/s of weights; share of the limit
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        team_(options.threads),
        memory_(HugeMemory(kMemoryBytes)),
        x_(HugeMemory(64 << 20)),
        y_(HugeMemory(kOutputBytes)),
        workspace_(HugeMemory(kOutputBytes)) {
    team_.Run([](const device::WorkerContext& context) { PinToCore(context.worker); });
    Fill(memory_, kMemoryBytes);
    Fill(x_, 64 << 20);
    std::memset(y_, 0, kOutputBytes);
    std::memset(workspace_, 1, kOutputBytes);
  }

  // The median of 5 by fraction of the limit.
  Sample Measure(const Set& set, const Layer& layer, int rows) {
    return Measure(set, layer, rows, options_.form);
  }
  Sample Measure(const Set& set, const Layer& layer, int rows, kernels::TileForm form) {
    const tensor::DType dtype = options_.f32 ? tensor::DType::kF32 : tensor::DType::kBF16;
    LinearArgs args;
    args.weight.dtype = dtype;
    args.weight.form = form;
    const bool gated = layer.output == LinearOutput::kSiluMul;
    const int width = gated ? kernels::kPanelColumns / 2 : kernels::kPanelColumns;
    args.weight.k = layer.k;
    args.weight.n = gated ? layer.n / 2 : layer.n;
    args.weight.num_panels = (layer.n + kernels::kPanelColumns - 1) / kernels::kPanelColumns;
    args.weight.leaves = layer.leaves;
    args.output = layer.output;
    std::vector<kernels::PanelColumns> panels;
    for (int begin = 0; begin < args.weight.n; begin += width) {
      panels.push_back({begin, std::min(width, args.weight.n - begin)});
    }
    args.weight.panels = panels.data();
    args.x = x_;
    args.y = y_;
    args.x_stride = layer.k;
    args.y_stride = args.weight.n;
    args.rows = rows;
    args.leaf_end = args.weight.leaves.num_leaves;
    args.workspace = workspace_;

    // Below 256 rows the weights come from memory: copies of them are used in turn.
    const int64_t bytes = args.weight.bytes();
    const int64_t copies =
        std::max<int64_t>(1, (rows < 256 ? int64_t{512} << 20 : int64_t{64} << 20) / bytes);
    std::vector<std::vector<const std::byte*>> tiles(copies);
    for (int64_t copy = 0; copy < copies; ++copy) {
      const std::byte* tile = memory_ + copy * bytes;
      for (int leaf = 0; leaf < args.leaf_end; ++leaf) {
        for (int panel = 0; panel < args.weight.num_panels;
             ++panel, tile += args.weight.TileBytes(leaf, panel)) {
          tiles[copy].push_back(tile);
        }
      }
    }
    const double flops = 2.0 * rows * layer.k * layer.n;
    const PeakProbe& probe = options_.f32 ? set.f32_probe : set.bf16_probe;
    int64_t next = 0, calls = 1;
    const auto run = [&](int64_t count) {
      const double start = Now();
      for (int64_t i = 0; i < count; ++i) {
        args.weight.tiles = tiles[next++ % copies].data();
        team_.Run([&](const device::WorkerContext& context) { set.linear(args, context); });
      }
      return Now() - start;
    };
    calls = std::max<int64_t>(1, std::ceil(0.02 / run(1)));
    calls = std::max<int64_t>(1, std::ceil(calls * 0.02 / run(calls)));

    std::vector<Sample> samples;
    for (int tries = 0; samples.size() < 5; ++tries) {
      const double peak_before = MeasurePeak(team_, options_.threads, probe),
                   stream_before = Stream();
      const double seconds = run(calls) / static_cast<double>(calls);
      const double stream_after = Stream(),
                   peak_after = MeasurePeak(team_, options_.threads, probe);
      const double peak = (peak_before + peak_after) / 2,
                   stream = (stream_before + stream_after) / 2;
      const double limit = std::max(flops / peak, static_cast<double>(bytes) / stream);
      const bool by_peak = flops / peak > static_cast<double>(bytes) / stream;
      const double spread = by_peak ? std::abs(peak_before - peak_after) / peak
                                    : std::abs(stream_before - stream_after) / stream;
      if (spread > 0.1 && tries < 40) {
        ++repeated_;
        continue;
      }
      samples.push_back(
          {seconds, flops / seconds, static_cast<double>(bytes) / seconds, limit / seconds});
      peaks_.push_back(peak);
      streams_.push_back(stream);
    }
    std::sort(samples.begin(), samples.end(),
              [](const Sample& a, const Sample& b) { return a.fraction < b.fraction; });
    return samples[2];
  }

  void PrintLimits() const {
    fmt::print(
        "\nRegister peak {:.0f} GFLOP/s, stream {:.1f} GB/s (medians); {} samples repeated.\n",
        Median(peaks_) / 1e9, Median(streams_) / 1e9, repeated_);
  }
  double Median(std::vector<double> values) const {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
  }
  void Forget() { peaks_.clear(), streams_.clear(), repeated_ = 0; }

 private:
  static constexpr int64_t kMemoryBytes = int64_t{768} << 20, kOutputBytes = 256 << 20;

  // Random signs and magnitudes near 0.01, as bf16 and as fp32 values.
  static void Fill(std::byte* data, int64_t bytes) {
    auto* words = reinterpret_cast<uint32_t*>(data);
    uint64_t state = 1;
    for (int64_t i = 0; i < bytes / 4; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      words[i] = (static_cast<uint32_t>(state >> 32) & 0x80FF80FFu) | 0x3C003C00u;
    }
  }
  // A part of the weights' memory that was not read just before.
  double Stream() {
    constexpr int64_t kPart = 96 << 20;
    stream_at_ = (stream_at_ + kPart) % (kMemoryBytes - kPart);
    return MeasureStream(team_, memory_ + stream_at_, kPart);
  }

  const Options& options_;
  kernels::testing::Team team_;
  std::byte *memory_, *x_, *y_, *workspace_;
  int64_t stream_at_ = 0;
  int repeated_ = 0;
  std::vector<double> peaks_, streams_;
};

double GeometricMean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

// What the kernels should reach: a mean over the layers and the rows of a class.
struct Target {
  const char* rows;
  int first_row, last_row;
  struct Wanted {
    double large, at_1024;    // K, N >= 2048; K or N of 1024
  } amx, avx512bf16, forced;  // forced: avx512f and avx2
  const Wanted& Of(const std::string& set) const {
    return set == "amx" ? amx : set == "avx512bf16" ? avx512bf16 : forced;
  }
};
constexpr Target kTargets[] = {{"256-1024", 256, 1024, {0.48, 0.38}, {0.94, 0.93}, {0.78, 0.78}},
                               {"64", 64, 64, {0.25, 0.25}, {0.91, 0.91}, {0.75, 0.75}},
                               {"5-16", 5, 16, {0.92, 0.92}, {0.80, 0.80}, {0.65, 0.65}},
                               {"1-4", 1, 4, {0.92, 0.92}, {0.90, 0.90}, {0.78, 0.78}}};
constexpr double kLeavesTarget = 0.95;

struct Cell {
  const Layer* layer;
  int rows;
  double fraction;
};

void PrintMeans(const std::vector<Cell>& cells, const std::string& set) {
  fmt::print(
      "\n| rows, geometric mean | target | K, N >= 2048 | with leaves | target at 1024 | at 1024 | "
      "with leaves |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const Target& target : kTargets) {
    const auto mean = [&](bool large, bool leaves) {
      std::vector<double> values;
      for (const Cell& cell : cells) {
        const bool in_size = large ? cell.layer->smaller() >= 2048 : cell.layer->smaller() == 1024;
        const bool in_rows = target.first_row <= cell.rows && cell.rows <= target.last_row;
        if (in_size && in_rows && cell.layer->has_leaves() == leaves)
          values.push_back(cell.fraction);
      }
      return values.empty() ? std::nan("") : GeometricMean(values);
    };
    fmt::print("| {} rows |", target.rows);
    for (const bool large : {true, false}) {
      const double plain = mean(large, false), leaves = mean(large, true);
      const double wanted = large ? target.Of(set).large : target.Of(set).at_1024;
      fmt::print(" {:.2f} | {:.3f} | {:.3f}, {:.3f} of it |", wanted, plain, leaves,
                 leaves / plain);
    }
    fmt::print("\n");
  }
  fmt::print("\nLayers with leaves should reach {:.2f} of those without.\n", kLeavesTarget);
}

void PrintTable(Bench& bench, const Options& options, const Set& set) {
  bench.Forget();
  fmt::print(
      "\n## {}, {}\n\nGFLOP/s (share of the limit); below 256 rows the weights come from "
      "memory.\n\n| layer | K x N |",
      set.name,
      options.form != kernels::TileForm::kExpanded ? kernels::TraitsOf(options.form).name
      : options.f32                                ? "fp32"
                                                   : "bf16");
  for (const int rows : options.rows) fmt::print(" {} |", rows);
  fmt::print("\n|---|---|");
  for (size_t i = 0; i < options.rows.size(); ++i) fmt::print("---|");
  std::vector<Cell> cells;
  for (const Layer& layer : options.layers) {
    fmt::print("\n| {} {} | {} x {} |", layer.model, layer.name, layer.k, layer.n);
    for (const int rows : options.rows) {
      const Sample sample = bench.Measure(set, layer, rows);
      fmt::print(" {:.0f} ({:.2f}){}{}", sample.flops / 1e9, sample.fraction,
                 rows <= 4 ? fmt::format(" {:.0f} GB/s", sample.stream / 1e9) : "",
                 options.form == kernels::TileForm::kExpanded ? " |" : "");
      if (options.form != kernels::TileForm::kExpanded) {
        const Sample expanded = bench.Measure(set, layer, rows, kernels::TileForm::kExpanded);
        fmt::print(" {:.2f} x expanded |", expanded.seconds / sample.seconds);
      }
      std::fflush(stdout);
      cells.push_back({&layer, rows, sample.fraction});
    }
  }
  fmt::print("\n");
  PrintMeans(cells, set.name);
  bench.PrintLimits();
}

// The price of the fixed tree: a model's layers with leaves against each in one chain.
void PrintLeaves(Bench& bench, const Options& options, const Set& set) {
  bench.Forget();
  fmt::print(
      "\n## {}: price of leaves\n\nMore time than in one chain: output, down; all four layers "
      "(wanted of prefill: at most 5 %)."
      "\n\n| model |",
      set.name);
  for (const int rows : options.rows) fmt::print(" {} |", rows);
  fmt::print("\n|---|");
  for (size_t i = 0; i < options.rows.size(); ++i) fmt::print("---|");
  for (size_t first = 0; first < options.layers.size(); first += 4) {
    fmt::print("\n| {} |", options.layers[first].model);
    for (const int rows : options.rows) {
      double with_leaves = 0, one_chain = 0;  // in limits' time: the machine's pace drops out
      for (size_t i = first; i < first + 4; ++i) {
        const Layer& layer = options.layers[i];
        const double work = static_cast<double>(layer.k) * layer.n;
        const double chain = work / bench.Measure(set, layer.OneChain(), rows).fraction;
        const double leaves =
            layer.has_leaves() ? work / bench.Measure(set, layer, rows).fraction : chain;
        one_chain += chain;
        with_leaves += leaves;
        if (layer.has_leaves())
          fmt::print(" {:+.1f} %{}", 100 * (leaves / chain - 1), i == first + 1 ? "," : ";");
      }
      fmt::print(" {:+.1f} % |", 100 * (with_leaves / one_chain - 1));
      std::fflush(stdout);
    }
  }
  fmt::print("\n");
  bench.PrintLimits();
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int Main(int argc, char** argv) {
  Options options;
  std::string command = "linear_bench";
  for (int i = 1; i < argc; ++i) {
    command += std::string(" ") + argv[i];
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--leaves" || flag == "--f32") {
      (flag == "--leaves" ? options.leaves : options.f32) = true;
      continue;
    }
    if (value.empty()) {
      fmt::print(stderr, "{} needs a value\n", flag);
      return 2;
    }
    if (flag == "--isa") {
      options.sets = Split(value);
    } else if (flag == "--rows") {
      options.rows.clear();
      for (const std::string& part : Split(value)) options.rows.push_back(std::atoi(part.c_str()));
    } else if (flag == "--shape") {
      for (const std::string& part : Split(value)) {
        const int k = std::atoi(part.c_str()), n = std::atoi(part.c_str() + part.find('x') + 1);
        options.layers.push_back({"", "", k, n, LeafBorders::Single(k), LinearOutput::kRounded});
      }
    } else if (flag == "--model") {
      options.models = Split(value);
    } else if (flag == "--form") {
      const auto* const form =
          std::ranges::find(kernels::kTileForms, value, &kernels::FormTraits::name);
      if (form == std::end(kernels::kTileForms)) {
        fmt::print(stderr, "unknown form {}; kernels/tile_form.h has their names\n", value);
        return 2;
      }
      options.form = static_cast<kernels::TileForm>(form - kernels::kTileForms);
    } else if (flag == "--threads") {
      options.threads = std::atoi(value.c_str());
    } else {
      fmt::print(stderr, "unknown flag {}\n", flag);
      return 2;
    }
    command += " " + value;
    ++i;
  }
  if (options.layers.empty()) {
    const auto& names = options.models;
    for (const Model& model : kModels) {
      if (!names.empty() && std::find(names.begin(), names.end(), model.name) == names.end())
        continue;
      for (Layer& layer : LayersOf(model)) options.layers.push_back(std::move(layer));
    }
  }
  fmt::print("# Linear layers\n\n`{}` on {}, {} threads\n", command, CpuName(), options.threads);
  Bench bench(options);
  for (const Set& set : Sets()) {
    if (std::find(options.sets.begin(), options.sets.end(), set.name) == options.sets.end())
      continue;
    if (!set.available) {
      fmt::print("\nskipped: {} is not for this machine.\n", set.name);
    } else if (options.leaves) {
      PrintLeaves(bench, options, set);
    } else {
      PrintTable(bench, options, set);
    }
  }
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Main(argc, argv); }
