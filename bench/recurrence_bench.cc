// Gated delta-net layers beside the machine's limits, as tables in Markdown:
//   recurrence_bench [--isa NAME] [--threads N]
// Prompts: rows of one sequence, whose flops are compared with the fp32 peak of registers.
// Decoding: one row of each of several sequences, whose states are read and written once, compared
// with a stream of reads. The limits are measured before and after each cell. A cell is the best of
// several runs; every run takes the states of another layer, so that none lies in a cache.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "bench/limits.h"
#include "cost/operation.h"
#include "kernels/delta_net.h"
#include "kernels/kernel_set.h"

namespace forebay::bench {
namespace {

using kernels::DeltaNetArgs;
using kernels::ShortConvArgs;
using kernels::StateRows;

struct Model {
  const char* name;
  int32_t key_heads, value_heads;
};
constexpr Model kModels[] = {{"Qwen3.6-35B-A3B", 16, 32}, {"Qwen3.5-0.8B", 16, 16}};
constexpr int32_t kDim = 128;
constexpr int32_t kPrompts[] = {16, 64, 512, 2048}, kChoices[] = {1, 8, 64};
constexpr int64_t kBytes = int64_t{512} << 20;
constexpr int kRuns = 9;

// A layer's operations over rows of sequences, with states in `data`.
class Layer {
 public:
  Layer(const kernels::KernelSet& set, kernels::testing::Team& team, const Model& model,
        std::byte* data, int32_t sequences, int32_t rows_each)
      : set_(set), team_(team), data_(data), rows_(sequences * rows_each) {
    channels_ = (2 * model.key_heads + model.value_heads) * kDim;
    stride_ = channels_ + 2 * model.value_heads;
    floats_ = model.value_heads * kernels::StateMatrixFloats(kDim, kDim);
    place_ = base::RoundUp((floats_ + 3 * int64_t{channels_}) * int64_t{sizeof(float)}, 64);
    layers_ = std::max<int64_t>(1, kBytes / (place_ * sequences));
    for (int32_t s = 0; s < sequences; ++s) state_rows_.push_back({s * rows_each, rows_each, s, s});
    base::Rng rng(7);
    inputs_.resize(static_cast<size_t>(rows_ * stride_));
    for (float& input : inputs_) input = static_cast<float>(rng.Uniform() * 2 - 1);
    weights_.resize(static_cast<size_t>(kernels::kConvTaps * channels_), 0.5f);
    args_ = {.stride = stride_,
             .b_at = channels_,
             .a_at = channels_ + model.value_heads,
             .key_heads = model.key_heads,
             .value_heads = model.value_heads,
             .key_dim = kDim,
             .value_dim = kDim,
             .a_log = weights_.data(),
             .dt_bias = weights_.data()};
    args_.batch.num_rows = rows_;
    args_.batch.num_state_rows = static_cast<int32_t>(state_rows_.size());
    args_.batch.state_rows = state_rows_.data();
  }

  double flops() const {
    return cost::kRecurrenceFlops * static_cast<double>(rows_) * static_cast<double>(floats_);
  }
  // Of the matrices alone.
  double bytes() const {
    return 2.0 * sizeof(float) * static_cast<double>(floats_) *
           static_cast<double>(state_rows_.size());
  }
  double Recurrence() {
    return Best([&](std::byte* states) {
      DeltaNetArgs args = args_;
      args.x = x_.data();
      args.matrices = {states, place_};
      return Seconds([&](const device::WorkerContext& context) { set_.delta_net(args, context); });
    });
  }
  double Convolution() {
    return Best([&](std::byte* states) {
      const ShortConvArgs args{.batch = args_.batch,
                               .x = x_.data(),
                               .stride = stride_,
                               .channels = channels_,
                               .weight = weights_.data(),
                               .tails = {states + floats_ * int64_t{sizeof(float)}, place_}};
      return Seconds([&](const device::WorkerContext& context) { set_.short_conv(args, context); });
    });
  }

 private:
  template <typename Work>
  double Seconds(const Work& work) {
    const double start = Now();
    team_.Run(work);
    return Now() - start;
  }
  template <typename Run>
  double Best(const Run& run) {
    double best = 1e9;
    for (int i = 0; i < kRuns; ++i) {
      x_ = inputs_;  // outputs take the place of values
      best = std::min(best, run(data_ + next_++ % layers_ * place_ * std::ssize(state_rows_)));
    }
    return best;
  }

  const kernels::KernelSet& set_;
  kernels::testing::Team& team_;
  std::byte* const data_;
  const int64_t rows_;
  int32_t channels_ = 0;
  int64_t stride_ = 0, floats_ = 0, place_ = 0, layers_ = 0, next_ = 0;
  std::vector<StateRows> state_rows_;
  std::vector<float> inputs_, x_, weights_;
  DeltaNetArgs args_;
};

struct Limits {
  double flops = 0, bytes_per_s = 0;
};

int Main(int argc, char** argv) {
  std::string isa = "auto";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--isa") isa = argv[i + 1];
    if (flag == "--threads") threads = std::atoi(argv[i + 1]);
  }
  const auto chosen = kernels::ChooseKernels(isa);
  if (!chosen.ok()) {
    fmt::print(stderr, "skipped: {}\n", chosen.status().message());
    return 1;
  }
  const kernels::KernelSet& set = **chosen;
  const std::string name = set.name;
  const PeakProbe& fp32 = name.starts_with("avx512") || name == "amx" ? kFma512Probe : kFma256Probe;
  kernels::testing::Team team(threads);
  std::byte* const data = HugeMemory(kBytes);
  team.Run([&](const device::WorkerContext& context) {
    const device::Range part = device::StaticPart(context, kBytes, 4096);
    std::fill(data + part.begin, data + part.end, std::byte{0});
  });
  const auto limits = [&] {
    Limits best;
    for (int i = 0; i < 5; ++i) {
      best.flops = std::max(best.flops, MeasurePeak(team, threads, fp32));
      best.bytes_per_s = std::max(best.bytes_per_s, MeasureStream(team, data, kBytes));
    }
    return best;
  };
  fmt::print("{}, {} threads, set {}\n", CpuName(), threads, name);
  for (const Model& model : kModels) {
    fmt::print(
        "\n**{}**, one layer\n\n| rows of a prompt | us | share of fp32 peak | GFLOP/s | "
        "convolution, us |\n|---|---|---|---|---|\n",
        model.name);
    for (const int32_t rows : kPrompts) {
      Layer layer(set, team, model, data, 1, rows);
      const double before = limits().flops, seconds = layer.Recurrence(),
                   convolution = layer.Convolution(), after = limits().flops;
      fmt::print("| {} | {:.1f} | {:.2f} | {:.1f} | {:.1f} |\n", rows, seconds * 1e6,
                 layer.flops() / seconds / std::max(before, after), layer.flops() / seconds * 1e-9,
                 convolution * 1e6);
    }
    fmt::print(
        "\n| choices that decode | us | share of the stream | GB/s | convolution, us |\n"
        "|---|---|---|---|---|\n");
    for (const int32_t choices : kChoices) {
      Layer layer(set, team, model, data, choices, 1);
      const double before = limits().bytes_per_s, seconds = layer.Recurrence(),
                   convolution = layer.Convolution(), after = limits().bytes_per_s;
      fmt::print("| {} | {:.1f} | {:.2f} | {:.1f} | {:.1f} |\n", choices, seconds * 1e6,
                 layer.bytes() / seconds / std::max(before, after), layer.bytes() / seconds * 1e-9,
                 convolution * 1e6);
    }
  }
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Main(argc, argv); }
