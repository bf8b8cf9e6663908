// Grouped experts beside the dense layer with the same rows, N and K, as tables in Markdown:
//   experts_bench [--isa NAME] [--rows N,..] [--model NAME] [--threads N] [--form NAME]
// A cell is the time of dense layers, called for one expert after another, by that of one grouped
// call over the same matrices: the median of 5 pairs, taken in turns (of one thread its processor
// time). The models' experts are as many as fit in 768 MiB. Below each table: one row on each
// expert, all rows on one, and runs that are scattered against runs in the order of the experts.
// --form: tiles are stored in that form (kernels/tile_form.h), of random codes.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "kernels/kernel_set.h"

namespace forebay::bench {
namespace {

using kernels::ExpertsArgs;
using kernels::LinearArgs;
using kernels::LinearOutput;

struct Model {
  const char* name;
  int hidden, width, experts;
};
constexpr Model kModels[] = {{"Qwen3-30B-A3B", 2048, 768, 128},
                             {"Mixtral-8x7B", 4096, 14336, 8},
                             {"DeepSeek-R1", 7168, 2048, 256}};
constexpr int64_t kWeightBytes = int64_t{768} << 20;
constexpr int kManyRows = 2048;

struct Options {
  std::string isa = "auto", model;
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  int threads = 2;
  kernels::TileForm form = kernels::TileForm::kExpanded;
};

// Experts' matrices of one shape.
class Layer {
 public:
  Layer(const kernels::KernelSet& set, const Options& options, int k, int n, bool gated,
        int experts)
      : set_(set), team_(options.threads, 32 << 20), clock_(ClockOf(options.threads)) {
    weight_.form = options.form;
    const int width = gated ? kernels::kPanelColumns / 2 : kernels::kPanelColumns;
    weight_.k = k;
    weight_.n = n;
    weight_.leaves = kernels::LeafBorders::Single(k);
    for (int column = 0; column < n; column += width)
      panels_.push_back({column, std::min(width, n - column)});
    weight_.num_panels = static_cast<int32_t>(panels_.size());
    weight_.panels = panels_.data();
    output_ = gated ? LinearOutput::kSiluMul : LinearOutput::kRounded;
    experts_ = std::min<int>(experts, static_cast<int>(kWeightBytes / weight_.bytes()));
    for (int expert = 0; expert < experts_; ++expert)
      runs_.push_back(memory() + expert * weight_.bytes());
  }

  int experts() const { return experts_; }
  int64_t weight_bytes() const { return weight_.bytes(); }
  double flops(int64_t rows) const {
    return 2.0 * static_cast<double>(rows) * weight_.k * weight_.num_panels *
           kernels::kPanelColumns;
  }
  void Scatter() { std::ranges::shuffle(runs_, std::mt19937_64(1)); }

  double Grouped(const std::vector<int>& counts) {
    std::vector<int32_t> offsets = {0};
    for (const int count : counts) offsets.push_back(offsets.back() + count);
    ExpertsArgs args;
    args.weight = weight_;
    args.runs = runs_.data();
    args.offsets = offsets.data();
    args.num_experts = static_cast<int32_t>(counts.size());
    args.max_rows = offsets.back();
    args.x = x();
    args.y = y();
    args.x_stride = weight_.k;
    args.y_stride = weight_.n;
    args.output = output_;
    const double start = clock_();
    team_.Run([&](const device::WorkerContext& context) { set_.experts(args, context); });
    return clock_() - start;
  }

  double Dense(const std::vector<int>& counts) {
    const double start = clock_();
    for (size_t expert = 0; expert < counts.size(); ++expert) {
      if (counts[expert] == 0) continue;
      std::vector<const std::byte*> tiles;
      for (int panel = 0; panel < weight_.num_panels; ++panel)
        tiles.push_back(runs_[expert] + panel * weight_.TileBytes(0, 0));
      LinearArgs args;
      args.weight = weight_;
      args.weight.tiles = tiles.data();
      args.x = x();
      args.y = y();
      args.x_stride = weight_.k;
      args.y_stride = weight_.n;
      args.rows = counts[expert];
      args.output = output_;
      args.leaf_end = 1;
      args.workspace = workspace();
      team_.Run([&](const device::WorkerContext& context) { set_.linear(args, context); });
    }
    return clock_() - start;
  }

  double Stream() { return MeasureStream(team_, memory(), kWeightBytes / 4, clock_); }
  double Peak(int threads) {
    const bool wide = set_.isa != kernels::Isa::kAvx2;
    return MeasurePeak(team_, threads,
                       set_.isa == kernels::Isa::kAmx          ? kTileFeedProbe
                       : set_.isa == kernels::Isa::kAvx512bf16 ? kDotProbe
                       : wide                                  ? kFma512Probe
                                                               : kFma256Probe,
                       clock_);
  }

 private:
  // Small values of either sign, in memory that all layers share.
  static std::byte* Filled(int64_t bytes) {
    std::byte* const data = HugeMemory(static_cast<size_t>(bytes));
    auto* words = reinterpret_cast<uint32_t*>(data);
    uint64_t state = 1;
    for (int64_t i = 0; i < bytes / 4; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      words[i] = (static_cast<uint32_t>(state >> 32) & 0x80FF80FFu) | 0x3C003C00u;
    }
    return data;
  }
  static std::byte* memory() {
    static std::byte* const data = Filled(kWeightBytes);
    return data;
  }
  static std::byte* x() {
    static std::byte* const data = Filled(int64_t{192} << 20);
    return data;
  }
  static std::byte* y() {
    static std::byte* const data = Filled(int64_t{192} << 20);
    return data;
  }
  static std::byte* workspace() {
    static std::byte* const data = Filled(int64_t{128} << 20);
    return data;
  }

  const kernels::KernelSet& set_;
  kernels::testing::Team team_;
  const Clock clock_;
  kernels::PackedWeight weight_;
  std::vector<kernels::PanelColumns> panels_;
  LinearOutput output_ = LinearOutput::kRounded;
  int experts_ = 0;
  std::vector<const std::byte*> runs_;
};

// The median of 5 of a / b, in turns.
template <typename A, typename B>
double MedianRatio(const A& a, const B& b) {
  (void)a(), (void)b();
  std::vector<double> ratios;
  for (int i = 0; i < 5; ++i) ratios.push_back(a() / b());
  std::ranges::sort(ratios);
  return ratios[2];
}

void PrintModel(const Model& model, const kernels::KernelSet& set, const Options& options) {
  fmt::print("\n## {}, {}, {}\n\n| matrix | experts |", model.name, set.name,
             kernels::TraitsOf(options.form).name);
  for (const int rows : options.rows) fmt::print(" {} |", rows);
  fmt::print(" mean | least |\n|---|---|---|---|");
  for (size_t i = 0; i < options.rows.size(); ++i) fmt::print("---|");
  fmt::print("\n");
  for (const bool gated : {true, false}) {
    Layer layer(set, options, gated ? model.hidden : model.width,
                gated ? model.width : model.hidden, gated, model.experts);
    fmt::print("| {} | {} |", gated ? "gate_up" : "down", layer.experts());
    double log_sum = 0, least = 1e9;
    for (const int rows : options.rows) {
      const std::vector<int> counts(static_cast<size_t>(layer.experts()), rows);
      const double ratio =
          MedianRatio([&] { return layer.Dense(counts); }, [&] { return layer.Grouped(counts); });
      fmt::print(" {:.3f} |", ratio);
      std::fflush(stdout);
      log_sum += std::log(ratio);
      least = std::min(least, ratio);
    }
    fmt::print(" {:.3f} | {:.3f} |\n", std::exp(log_sum / static_cast<double>(options.rows.size())),
               least);
    const std::vector<int> ones(static_cast<size_t>(layer.experts()), 1);
    const double of_stream = MedianRatio(
        [&] {
          return static_cast<double>(layer.weight_bytes() * layer.experts()) / layer.Stream();
        },
        [&] { return layer.Grouped(ones); });
    std::vector<int> all(static_cast<size_t>(layer.experts()));
    all[all.size() / 2] = kManyRows;
    const double of_peak =
        MedianRatio([&] { return layer.flops(kManyRows) / layer.Peak(options.threads); },
                    [&] { return layer.Grouped(all); });
    Layer scattered(set, options, gated ? model.hidden : model.width,
                    gated ? model.width : model.hidden, gated, model.experts);
    scattered.Scatter();
    const double order =
        MedianRatio([&] { return scattered.Grouped(ones); }, [&] { return layer.Grouped(ones); });
    fmt::print(
        "| | | a row each: {:.3f} of the stream; {} rows on one: {:.3f} of the peak; "
        "scattered runs take {:.3f} |\n",
        of_stream, kManyRows, of_peak, order);
  }
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--isa") options.isa = value;
    if (flag == "--model") options.model = value;
    if (flag == "--threads") options.threads = std::atoi(value.c_str());
    for (int form = 0; flag == "--form" && form < kernels::kNumTileForms; ++form) {
      if (kernels::kTileForms[form].name == value)
        options.form = static_cast<kernels::TileForm>(form);
    }
    if (flag == "--rows") {
      options.rows.clear();
      for (size_t at = 0; at < value.size(); at = value.find(',', at) + 1) {
        options.rows.push_back(std::atoi(value.c_str() + at));
        if (value.find(',', at) == std::string::npos) break;
      }
    }
  }
  const auto set = kernels::ChooseKernels(options.isa);
  if (!set.ok()) {
    fmt::print(stderr, "{}\n", set.status().ToString());
    return 1;
  }
  fmt::print("{}, {} threads\n", CpuName(), options.threads);
  for (const Model& model : kModels) {
    if (options.model.empty() || options.model == model.name) PrintModel(model, **set, options);
  }
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Main(argc, argv); }
