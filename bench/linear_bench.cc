// Rates of the linear kernels beside the limits of the machine, as a table in Markdown:
//   linear_bench [--isa NAME,..] [--rows N,..] [--shape KxN,..] [--leaves] [--f32] [--threads N]
// A sample is one of 5 measurements of 20 ms or more, bracketed by probes of the register peak of the set's instruction
// and of streaming reads. Its limit is max(flops / peak, weight bytes / stream). A sample whose brackets differ by more
// than 10 % is repeated (and counted).
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "kernels/linear_sets.h"
#include "tensor/bf16.h"

namespace forebay::bench {
namespace {

using kernels::LeafBorders;
using kernels::LinearArgs;

struct Set {
  const char* name;
  void (*linear)(const LinearArgs&, const device::WorkerContext&);
  PeakProbe bf16_probe, f32_probe;
  bool available;
};

std::vector<Set> Sets() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  return {
      {"avx512bf16", &kernels::avx512bf16::Linear, kDotProbe, kFma512Probe,
       avx512 && __builtin_cpu_supports("avx512bf16")},
      {"avx512f", &kernels::avx512f::Linear, kFma512Probe, kFma512Probe, avx512},
      {"avx2", &kernels::avx2::Linear, kFma256Probe, kFma256Probe,
       __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
  };
}

struct Shape {
  int k, n;
};

struct Options {
  std::vector<std::string> sets = {"avx512bf16", "avx512f", "avx2"};
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  std::vector<Shape> shapes = {{576, 1536},  {1536, 576},  {576, 49152},  {1024, 1024}, {1024, 3072},
                               {3072, 1024}, {2048, 2048}, {2048, 5632}, {4096, 14336}};
  bool leaves = false, f32 = false;
  int threads = 2;
};

struct Sample {
  double flops, stream, fraction, peak;  // flop/s, bytes/s of weights, of the limit, flop/s of the probe
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), team_(options.threads), memory_(HugeMemory(kMemoryBytes)), x_(HugeMemory(64 << 20)),
        y_(HugeMemory(256 << 20)), workspace_(HugeMemory(256 << 20)) {
    team_.Run([](const device::WorkerContext& context) { PinToCore(context.worker); });
    Fill(memory_, kMemoryBytes);
    Fill(x_, 64 << 20);
    std::memset(y_, 0, 256 << 20);
    std::memset(workspace_, 1, 256 << 20);
  }

  // The median of 5 by fraction of the limit.
  Sample Measure(const Set& set, Shape shape, int rows, int num_leaves) {
    const tensor::DType dtype = options_.f32 ? tensor::DType::kF32 : tensor::DType::kBF16;
    LinearArgs args;
    args.weight.dtype = dtype;
    args.weight.k = shape.k;
    args.weight.n = shape.n;
    args.weight.num_panels = (shape.n + kernels::kPanelColumns - 1) / kernels::kPanelColumns;
    args.weight.leaves = num_leaves > 1 ? LeafBorders::ForDown(shape.k) : LeafBorders::Single(shape.k);
    std::vector<kernels::PanelColumns> panels;
    for (int begin = 0; begin < shape.n; begin += kernels::kPanelColumns) {
      panels.push_back({begin, std::min(kernels::kPanelColumns, shape.n - begin)});
    }
    args.weight.panels = panels.data();
    args.x = x_;
    args.y = y_;
    args.x_stride = shape.k;
    args.y_stride = shape.n;
    args.rows = rows;
    args.leaf_end = args.weight.leaves.num_leaves;
    args.workspace = workspace_;

    // Below 256 rows the weights come from memory: copies of them are used in turn.
    const int64_t bytes = args.weight.bytes();
    const int64_t copies = std::max<int64_t>(1, (rows < 256 ? int64_t{512} << 20 : int64_t{64} << 20) / bytes);
    std::vector<std::vector<const std::byte*>> tiles(copies);
    for (int64_t copy = 0; copy < copies; ++copy) {
      const std::byte* tile = memory_ + copy * bytes;
      for (int leaf = 0; leaf < args.leaf_end; ++leaf) {
        for (int panel = 0; panel < args.weight.num_panels; ++panel, tile += args.weight.TileBytes(leaf)) {
          tiles[copy].push_back(tile);
        }
      }
    }
    const double flops = 2.0 * rows * shape.k * shape.n;
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
      const double peak_before = MeasurePeak(team_, options_.threads, probe), stream_before = Stream();
      const double seconds = run(calls) / static_cast<double>(calls);
      const double stream_after = Stream(), peak_after = MeasurePeak(team_, options_.threads, probe);
      const double peak = (peak_before + peak_after) / 2, stream = (stream_before + stream_after) / 2;
      const double limit = std::max(flops / peak, static_cast<double>(bytes) / stream);
      const bool by_peak = flops / peak > static_cast<double>(bytes) / stream;
      const double spread = by_peak ? std::abs(peak_before - peak_after) / peak : std::abs(stream_before - stream_after) / stream;
      if (spread > 0.1 && tries < 40) {
        ++repeated_;
        continue;
      }
      samples.push_back({flops / seconds, static_cast<double>(bytes) / seconds, limit / seconds, peak});
      peaks_.push_back(peak);
      streams_.push_back(stream);
    }
    std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.fraction < b.fraction; });
    return samples[2];
  }

  int repeated() const { return repeated_; }
  double Median(std::vector<double> values) const {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
  }
  double peak() const { return Median(peaks_); }
  double stream() const { return Median(streams_); }
  void Forget() { peaks_.clear(), streams_.clear(), repeated_ = 0; }

 private:
  static constexpr int64_t kMemoryBytes = int64_t{768} << 20;

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

void PrintTable(Bench& bench, const Options& options, const Set& set) {
  bench.Forget();
  fmt::print("\n## {}, {}\n\nGFLOP/s (share of the limit); below 256 rows the weights come from memory.\n\n| K x N |", set.name,
             options.f32 ? "fp32" : "bf16");
  for (const int rows : options.rows) fmt::print(" {} |", rows);
  fmt::print("\n|---|");
  for (size_t i = 0; i < options.rows.size(); ++i) fmt::print("---|");
  std::map<int, std::vector<double>> fractions;
  for (const Shape& shape : options.shapes) {
    fmt::print("\n| {} x {} |", shape.k, shape.n);
    for (const int rows : options.rows) {
      const Sample sample = bench.Measure(set, shape, rows, 1);
      fmt::print(" {:.0f} ({:.2f}){} |", sample.flops / 1e9, sample.fraction,
                 rows <= 4 ? fmt::format(" {:.0f} GB/s", sample.stream / 1e9) : "");
      std::fflush(stdout);
      if (shape.k >= 2048 && shape.n >= 2048) fractions[rows].push_back(sample.fraction);
    }
  }
  fmt::print("\n| geometric mean, K and N >= 2048 |");
  for (const int rows : options.rows) {
    double sum = 0;
    for (const double f : fractions[rows]) sum += std::log(f);
    fmt::print(" {:.3f} |", fractions[rows].empty() ? 0 : std::exp(sum / static_cast<double>(fractions[rows].size())));
  }
  fmt::print("\n\nRegister peak {:.0f} GFLOP/s, stream {:.1f} GB/s (medians); {} samples repeated.\n", bench.peak() / 1e9,
             bench.stream() / 1e9, bench.repeated());
}

// The price of the fixed tree: with leaves against one chain.
void PrintLeaves(Bench& bench, const Options& options, const Set& set) {
  const Shape shapes[] = {{1536, 576}, {3072, 1024}, {2048, 2048}, {5632, 2048}, {14336, 4096}};
  fmt::print("\n## {}: price of 8 leaves\n\nShare of the limit in one chain, with leaves, and the difference in time.\n\n| K x N |",
             set.name);
  for (const int rows : options.rows) fmt::print(" {} |", rows);
  fmt::print("\n|---|");
  for (size_t i = 0; i < options.rows.size(); ++i) fmt::print("---|");
  for (const Shape& shape : shapes) {
    fmt::print("\n| {} x {} |", shape.k, shape.n);
    for (const int rows : options.rows) {
      const double chain = bench.Measure(set, shape, rows, 1).fraction;
      const double leaves = bench.Measure(set, shape, rows, 8).fraction;
      fmt::print(" {:.2f} {:.2f} {:+.1f} % |", chain, leaves, 100 * (chain / leaves - 1));
      std::fflush(stdout);
    }
  }
  fmt::print("\n");
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
      options.shapes.clear();
      for (const std::string& part : Split(value)) {
        options.shapes.push_back({std::atoi(part.c_str()), std::atoi(part.c_str() + part.find('x') + 1)});
      }
    } else if (flag == "--threads") {
      options.threads = std::atoi(value.c_str());
    } else {
      fmt::print(stderr, "unknown flag {}\n", flag);
      return 2;
    }
    command += " " + value;
    ++i;
  }
  fmt::print("# Linear layers\n\n`{}` on {}, {} threads\n", command, CpuName(), options.threads);
  Bench bench(options);
  for (const Set& set : Sets()) {
    if (std::find(options.sets.begin(), options.sets.end(), set.name) == options.sets.end()) continue;
    if (!set.available) {
      fmt::print("\n{} is not for this machine.\n", set.name);
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
