// Latent attention's forms as a table in Markdown: the expanded one of all heads at once and of
// fewer, pass after pass, and the absorbed one of generated rows.
//   latent_bench [--isa NAME] [--only TEXT of a row's beginning] [--rounds N]
// An expanded run makes K and V of a context of the latents and attends to them with a prompt's
// last rows. Beside it the same rows take the absorbed form (--mla absorbed): their queries go
// through the projection of keys, attend to the latents, and what they take through that of values.
// The absorbed runs of generated rows are attention alone, without projections. One thread; times
// are its processor time, which neighbours on the core change least; the numbers of heads take
// turns in each round. Figures are medians of the rounds: of the time, of the share of the register
// peak by the form's own flops, which is probed before and after each run, and of the time by that
// of all heads at once in the same round.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "bench/limits.h"
#include "kernels/kernel_set.h"
#include "tensor/bf16.h"

namespace forebay::bench {
namespace {

using kernels::kBlockTokens;
using kernels::KernelSet;
using kernels::kPanelColumns;

constexpr int32_t kPlain = 128, kTurned = 64, kLatent = 512, kValue = 128;
constexpr int32_t kKeyDim = kLatent + kTurned, kQueryDim = kPlain + kTurned;
constexpr int32_t kPanelsEach = kPlain / kPanelColumns;  // of a head, in either projection
static_assert(kPlain == kValue && kPlain % kPanelColumns == 0);

struct Case {
  const char* model;
  int32_t heads, rows, context;
  std::vector<int32_t> at_once;
};
const Case kCases[] = {{"DeepSeek-V2-Lite", 16, 512, 512, {16, 4, 1}},
                       {"DeepSeek-V2-Lite", 16, 512, 4096, {16, 4, 1}},
                       {"DeepSeek-R1", 128, 512, 512, {128, 64, 16, 5, 1}},
                       {"DeepSeek-R1", 128, 512, 4096, {128, 64, 16, 5, 1}}};
// As many sequences as rows.
const Case kAbsorbed[] = {{"DeepSeek-V2-Lite, absorbed", 16, 64, 1024, {}},
                          {"DeepSeek-R1, absorbed", 128, 64, 1024, {}}};

std::string NameOf(const Case& c) {
  return fmt::format("{} | {} at {}", c.model, c.rows, c.context);
}

// The middle one, or the lower of the two in the middle.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// bf16 at random, on huge pages.
std::byte* RandomMemory(int64_t elements) {
  std::byte* const memory = HugeMemory(static_cast<size_t>(elements) * sizeof(tensor::BF16));
  base::Rng rng(5);
  std::vector<tensor::BF16> pattern(1 << 16);
  for (tensor::BF16& x : pattern) x = tensor::ToBF16(static_cast<float>(rng.Uniform() - 0.5));
  for (int64_t at = 0; at < elements; at += std::ssize(pattern)) {
    const auto count = static_cast<size_t>(std::min<int64_t>(elements - at, std::ssize(pattern)));
    std::memcpy(memory + at * static_cast<int64_t>(sizeof(tensor::BF16)), pattern.data(),
                count * sizeof(tensor::BF16));
  }
  return memory;
}

class Layer {
 public:
  Layer(const KernelSet& kernels, const Case& c)
      : kernels_(kernels), case_(c), slots_(c.context), blocks_(c.context / kBlockTokens) {
    latents_ = {.kv_heads = 1, .key_dim = kKeyDim, .value_dim = kLatent, .values_in_keys = true};
    latents_.block_stride = latents_.LayerBytes();
    cache_ = RandomMemory(int64_t{slots_} * kKeyDim);
    queries_ = RandomMemory(int64_t{c.rows} * c.heads * kQueryDim);
    out_ = RandomMemory(int64_t{c.rows} * c.heads * kValue);
    absorbed_ = RandomMemory(int64_t{c.rows} * c.heads * kKeyDim);
    taken_ = RandomMemory(int64_t{c.rows} * c.heads * kLatent);
    gathered_ = RandomMemory(int64_t{slots_} * kKeyDim);
    packed_ = HugeMemory(kernels::LinearWorkspaceBytes(tensor::DType::kBF16, slots_, kLatent));
    plain_ = RandomMemory(int64_t{slots_} * c.heads * kPlain);
    values_ = RandomMemory(int64_t{slots_} * c.heads * kValue);
    expanded_ = RandomMemory(int64_t{slots_} * c.heads * (kQueryDim + kValue));
    for (int32_t panel = 0; panel < c.heads * kPanelsEach; ++panel)
      panels_.push_back({panel * kPanelColumns, kPanelColumns});
    MakeHeads(kLatent, kPlain, &key_up_, &key_tiles_);
    MakeHeads(kLatent, kValue, &value_up_, &value_tiles_);
    MakeHeads(kPlain, kLatent, &absorb_keys_, &absorb_tiles_);
    table_.resize(static_cast<size_t>(blocks_));
    std::iota(table_.begin(), table_.end(), 0u);
    positions_.resize(static_cast<size_t>(c.rows));
    std::iota(positions_.begin(), positions_.end(), c.context - c.rows);
    row_sequence_.resize(static_cast<size_t>(c.rows));
    sequence_ = {0, c.rows, c.context - c.rows, 0};
    context_.Add(c.context - c.rows, c.rows);
  }

  double AbsorbedFlops() const {
    return 2.0 * case_.heads *
           (static_cast<double>(case_.rows) * kLatent * (kPlain + kValue) +
            static_cast<double>(context_.context()) * (kKeyDim + kLatent));
  }
  double Flops() const {
    return 2.0 * case_.heads *
           (static_cast<double>(slots_) * kLatent * (kPlain + kValue) +
            static_cast<double>(context_.context()) * (kQueryDim + kValue));
  }

  // As the layer program does it, with so many heads at once.
  void Run(int32_t at_once) {
    for (int32_t first = 0; first < case_.heads; first += at_once) {
      const int32_t heads = std::min(at_once, case_.heads - first);
      const kernels::GatherLatentsArgs gather{.layout = latents_,
                                              .layer = {.resident = cache_},
                                              .blocks = table_.data(),
                                              .num_blocks = blocks_,
                                              .out = gathered_};
      Call([&](const auto& context) { kernels_.gather_latents(gather, context); });
      Project(key_up_, key_tiles_, first, heads, plain_);
      Project(value_up_, value_tiles_, first, heads, values_);
      kernels::KvLayout layout{.kv_heads = heads, .key_dim = kQueryDim, .value_dim = kValue};
      layout.block_stride = layout.LayerBytes();
      const kernels::StoreExpandedArgs store{.layout = layout,
                                             .blocks = expanded_,
                                             .num_blocks = blocks_,
                                             .keys = plain_,
                                             .latents = gathered_,
                                             .values = values_,
                                             .latent_dim = kKeyDim,
                                             .plain = kPlain};
      Call([&](const auto& context) { kernels_.store_expanded(store, context); });
      Attend({.layout = layout,
              .layer = {.resident = expanded_},
              .q = queries_ + int64_t{first} * kQueryDim * 2,
              .out = out_ + int64_t{first} * kValue * 2,
              .heads = heads,
              .row_heads = case_.heads,
              .scale = 0.1f,
              .context = context_});
    }
  }

  // The same rows in the absorbed form. The turned part of the queries lies there already.
  void RunAbsorbed() {
    ProjectHeads(absorb_keys_, absorb_tiles_, {queries_, kQueryDim}, {absorbed_, kKeyDim});
    Attend({.layout = latents_,
            .layer = {.resident = cache_},
            .q = absorbed_,
            .out = taken_,
            .heads = case_.heads,
            .scale = 0.1f,
            .context = context_});
    ProjectHeads(value_up_, value_tiles_, {taken_, kLatent}, {out_, kValue});
  }

 private:
  // Rows of heads of a width.
  struct HeadRows {
    std::byte* data;
    int64_t width;
  };

  // A matrix [n, k] of each head.
  void MakeHeads(int32_t k, int32_t n, kernels::PackedWeight* weight,
                 std::vector<const std::byte*>* tiles) const {
    weight->k = k;
    weight->n = n;
    weight->num_panels = n / kPanelColumns;
    weight->leaves = kernels::LeafBorders::Single(k);
    weight->panels = panels_.data();
    std::byte* const memory = RandomMemory(int64_t{case_.heads} * n * k);
    for (int64_t tile = 0; tile < case_.heads * weight->num_panels; ++tile)
      tiles->push_back(memory + tile * weight->TileBytes(0, 0));
  }
  void ProjectHeads(kernels::PackedWeight weight, const std::vector<const std::byte*>& tiles,
                    const HeadRows& x, const HeadRows& y) {
    weight.tiles = tiles.data();
    const kernels::ExpertsArgs args{.weight = weight,
                                    .num_experts = case_.heads,
                                    .max_rows = case_.rows,
                                    .x = x.data,
                                    .y = y.data,
                                    .x_stride = case_.heads * x.width,
                                    .y_stride = case_.heads * y.width,
                                    .x_step = x.width,
                                    .y_step = y.width};
    Call([&](const auto& context) { kernels_.experts(args, context); });
  }
  void Attend(kernels::AttentionArgs args) {
    args.batch.num_rows = case_.rows;
    args.batch.num_sequences = 1;
    args.batch.positions = positions_.data();
    args.batch.row_sequence = row_sequence_.data();
    args.batch.sequences = &sequence_;
    args.batch.block_tables = table_.data();
    args.batch.table_stride = blocks_;
    Call([&](const auto& context) { kernels_.attention(args, context); });
  }
  template <typename Kernel>
  void Call(const Kernel& kernel) {
    team_.Run([&](const device::WorkerContext& context) { kernel(context); });
  }
  void Project(kernels::PackedWeight weight, const std::vector<const std::byte*>& tiles,
               int32_t first, int32_t heads, std::byte* y) {
    weight.n = heads * kPlain;
    weight.num_panels = heads * kPanelsEach;
    weight.tiles = &tiles[static_cast<size_t>(first * kPanelsEach)];
    const kernels::LinearArgs args{.weight = weight,
                                   .x = gathered_,
                                   .y = y,
                                   .x_stride = kKeyDim,
                                   .y_stride = weight.n,
                                   .rows = slots_,
                                   .leaf_end = 1,
                                   .workspace = packed_};
    Call([&](const auto& context) { kernels_.linear(args, context); });
  }

  const KernelSet& kernels_;
  const Case& case_;
  const int32_t slots_, blocks_;
  kernels::testing::Team team_{1};
  kernels::KvLayout latents_;
  std::byte *cache_, *queries_, *out_, *gathered_, *packed_, *plain_, *values_, *expanded_;
  std::byte *absorbed_,
      *taken_;  // queries through the keys' projection; what heads take of latents
  kernels::PackedWeight key_up_, value_up_, absorb_keys_;
  std::vector<kernels::PanelColumns> panels_;
  std::vector<const std::byte*> key_tiles_, value_tiles_, absorb_tiles_;
  std::vector<uint32_t> table_;
  std::vector<int32_t> positions_, row_sequence_;
  kernels::SequenceRows sequence_{};
  kernels::ContextSums context_;
};

struct Figures {
  std::vector<double> seconds, share, ratio;
};

// flop/s of the register loop, by the thread's processor time.
double Peak(const KernelSet& kernels) {
  constexpr int64_t kRounds = 200'000;
  // set amx attends by fused multiply-adds
  const PeakProbe& probe =
      kernels.isa == kernels::Isa::kAvx512bf16 ? kDotProbe : kernels::FmaProbeOf(kernels.isa);
  float data[32];
  for (int i = 0; i < 32; ++i) data[i] = 0.001f * static_cast<float>(i + 1);
  const double start = ThreadSeconds();
  probe.loop(kRounds, data);
  return static_cast<double>(kRounds) * probe.flops_per_round / (ThreadSeconds() - start);
}

// Calls run(i), of flops[i], for each i in turn, in each round.
template <typename Run>
std::vector<Figures> Measure(const KernelSet& kernels, const std::vector<double>& flops, int rounds,
                             const Run& run) {
  const size_t runs = flops.size();
  run(0);  // pages are touched
  std::vector<Figures> figures(runs);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < runs; ++i) {
      const double before = Peak(kernels), start = ThreadSeconds();
      run(i);
      const double seconds = ThreadSeconds() - start;
      figures[i].seconds.push_back(seconds);
      figures[i].share.push_back(flops[i] / seconds / ((before + Peak(kernels)) / 2));
      figures[i].ratio.push_back(seconds / figures[0].seconds.back());
    }
  }
  return figures;
}

void MeasureExpanded(const KernelSet& kernels, const Case& c, int rounds) {
  Layer layer(kernels, c);
  const size_t expanded = c.at_once.size();
  std::vector<double> flops(expanded, layer.Flops());
  flops.push_back(layer.AbsorbedFlops());
  const std::vector<Figures> figures = Measure(kernels, flops, rounds, [&](size_t i) {
    i < expanded ? layer.Run(c.at_once[i]) : layer.RunAbsorbed();
  });
  for (size_t i = 0; i < flops.size(); ++i) {
    const std::string heads =
        i < expanded ? fmt::format("{} of {}", c.at_once[i], c.heads) : "absorbed";
    fmt::print("| {} | {} | {:.1f} | {:.2f} | {:.3f} |\n", NameOf(c), heads,
               Median(figures[i].seconds) * 1e3, Median(figures[i].share),
               Median(figures[i].ratio));
  }
  std::fflush(stdout);
}

// Generated rows of sequences over their latents, without the projections.
void MeasureAbsorbed(const KernelSet& kernels, const Case& c, int rounds) {
  const int32_t heads = c.heads, each = c.context / kBlockTokens;
  kernels::testing::Team team(1);
  std::vector<uint32_t> tables(c.rows * each);
  std::iota(tables.begin(), tables.end(), 0u);
  std::vector<int32_t> positions(c.rows, c.context - 1), row_sequence(c.rows);
  std::iota(row_sequence.begin(), row_sequence.end(), 0);
  std::vector<kernels::SequenceRows> sequences;
  kernels::AttentionArgs args{
      .layout = {.kv_heads = 1, .key_dim = kKeyDim, .value_dim = kLatent, .values_in_keys = true},
      .q = RandomMemory(int64_t{c.rows} * heads * kKeyDim),
      .out = RandomMemory(int64_t{c.rows} * heads * kLatent),
      .heads = heads,
      .scale = 0.1f};
  for (int32_t s = 0; s < c.rows; ++s) {
    sequences.push_back({s, 1, c.context - 1, s});
    args.context.Add(c.context - 1, 1);
  }
  args.layout.block_stride = args.layout.LayerBytes();
  args.layer.resident = RandomMemory(int64_t{c.rows} * c.context * kKeyDim);
  args.batch.num_rows = args.batch.num_sequences = c.rows;
  args.batch.positions = positions.data();
  args.batch.row_sequence = row_sequence.data();
  args.batch.sequences = sequences.data();
  args.batch.block_tables = tables.data();
  args.batch.table_stride = each;
  const double flops = 2.0 * heads * c.rows * c.context * (kKeyDim + kLatent);
  const Figures figures = Measure(kernels, {flops}, rounds, [&](size_t) {
    team.Run([&](const device::WorkerContext& context) { kernels.attention(args, context); });
  })[0];
  fmt::print("| {} | {} of {} | {:.1f} | {:.2f} | |\n", NameOf(c), heads, heads,
             Median(figures.seconds) * 1e3, Median(figures.share));
}

int Main(int argc, char** argv) {
  std::string isa = "auto", only;
  int rounds = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--isa") == 0) isa = argv[i + 1];
    if (std::strcmp(argv[i], "--only") == 0) only = argv[i + 1];
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
  }
  const auto kernels = kernels::ChooseKernels(isa);
  if (!kernels.ok()) {
    fmt::print(stderr, "{}\n", kernels.status().ToString());
    return 1;
  }
  fmt::print(
      "{}, {}, 1 thread, {} rounds\n\n| model | rows at context | heads at once | ms a layer | "
      "share "
      "of peak | time by that of all heads |\n|---|---|---|---|---|---|\n",
      CpuName(), (*kernels)->name, rounds);
  for (const Case& c : kCases) {
    if (NameOf(c).find(only) != std::string::npos) MeasureExpanded(**kernels, c, rounds);
  }
  for (const Case& c : kAbsorbed) {
    if (NameOf(c).find(only) != std::string::npos) MeasureAbsorbed(**kernels, c, rounds);
  }
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Main(argc, argv); }
