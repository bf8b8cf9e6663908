#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "kernels/attention.h"
#include "kernels/delta_net.h"
#include "kernels/draw.h"
#include "kernels/draw_row.h"
#include "kernels/norm.h"
#include "profile/cases.h"
#include "profile/measure_table.h"
#include "sample/sampler.h"

namespace forebay::profile {
namespace {

constexpr int32_t kHeadDim = 64;
constexpr int32_t kTokens = 1 << 16;  // a vocabulary whose embedding rows do not stay in a cache

class RowCases {
 public:
  RowCases(Bench& bench, tensor::DType dtype) : bench_(bench), dtype_(dtype) {
    base::Rng rng(3);
    for (int32_t i = 0; i < kTokens; ++i)
      tokens_.push_back(static_cast<int32_t>(rng.Below(kVocabulary)));
  }

  double Norm(const cost::Point& point) {
    kernels::RmsNormArgs args{.dtype = dtype_,
                              .x = bench_.input().data,
                              .out = bench_.output().data,
                              .weight = Floats(),
                              .num_rows = Rows(point),
                              .columns = Columns(point),
                              .eps = 1e-6f};
    const int64_t bytes =
        int64_t{args.num_rows} * args.columns * static_cast<int64_t>(tensor::SizeOf(dtype_));
    return bench_.SecondsAfterInput(bytes, [&](device::Stream& stream, int64_t) {
      RmsNorm(stream, bench_.kernels(), "norm", args);
    });
  }

  // Rows of one prompt, or one row of each of so many sequences. The cache is in `data`: every
  // operation takes the next layer of it.
  double RopeKv(const cost::Point& point, bool decode) {
    const int32_t rows = Rows(point);
    bench_.ClearTables();
    kernels::RopeKvArgs args;
    args.batch = decode ? Batch(rows, 1) : Batch(1, rows);
    args.layout = {.dtype = dtype_,
                   .kv_heads = Columns(point) / kHeadDim,
                   .key_dim = kHeadDim,
                   .value_dim = kHeadDim,
                   .form = packed()};
    args.layout.block_stride = args.layout.LayerBytes();
    args.heads = args.layout.kv_heads * static_cast<int32_t>(point[2]);
    const int64_t layer_bytes =
        args.layout.LayerBytes() * args.batch.num_sequences * args.batch.table_stride;
    const int64_t layers = bench_.Pieces(layer_bytes);
    args.qkv = reinterpret_cast<const float*>(bench_.input().data);
    args.q = bench_.output().data;
    args.q_norm = args.k_norm = Floats();
    args.norm_eps = 1e-6f;
    args.rope_cos = args.rope_sin = Floats();
    const int64_t bytes = int64_t{rows} * (args.heads + 2 * args.layout.kv_heads) * kHeadDim * 4;
    return bench_.SecondsAfterInput(bytes, [&](device::Stream& stream, int64_t i) {
      args.layer.resident = bench_.data().data + i % layers * layer_bytes;
      kernels::RopeKv(stream, bench_.kernels(), args);
    });
  }

  // Rows of sequences whose states have so many elements in all, in heads of 128 x 128, at most 16
  // a sequence. The states are in `data`: every operation takes the next ones. All sequences have
  // the same rows.
  double Recurrence(const cost::Point& point) {
    constexpr int32_t kDim = 128, kHeads = 16;
    const int64_t floats = kernels::StateMatrixFloats(kDim, kDim),
                  heads = static_cast<int64_t>(point[1]) / floats,
                  sequences = base::CeilDiv(heads, int64_t{kHeads});
    const auto heads_each = static_cast<int32_t>(heads / sequences);
    std::vector<kernels::StateRows> state_rows;
    for (int32_t s = 0; s < sequences; ++s) state_rows.push_back({0, Rows(point), s, s});
    bench_.ClearTables();
    const int64_t channels = 3 * int64_t{heads_each} * kDim,
                  place = floats * heads_each * static_cast<int64_t>(sizeof(float)),
                  layers = bench_.Pieces(sequences * place);
    kernels::DeltaNetArgs args{.x = reinterpret_cast<float*>(bench_.output().data),
                               .stride = channels + 2 * heads_each,
                               .b_at = static_cast<int32_t>(channels),
                               .a_at = static_cast<int32_t>(channels) + heads_each,
                               .key_heads = heads_each,
                               .value_heads = heads_each,
                               .key_dim = kDim,
                               .value_dim = kDim,
                               .a_log = Floats(),
                               .dt_bias = Floats(),
                               .matrices = {nullptr, place}};
    args.batch.num_rows = Rows(point);
    args.batch.num_state_rows = static_cast<int32_t>(sequences);
    args.batch.state_rows = bench_.Place(state_rows);
    return bench_.SecondsOf([&](device::Stream& stream, int64_t i) {
      args.matrices.base = bench_.data().data + i % layers * sequences * place;
      kernels::DeltaNet(stream, bench_.kernels(), args);
    });
  }

  // From a packed head, as tied models do.
  double Embed(const cost::Point& point) {
    bench_.ClearTables();
    kernels::EmbedArgs args{.dtype = dtype_,
                            .batch = Batch(1, Rows(point)),
                            .out = bench_.output().data,
                            .columns = Columns(point)};
    kernels::PackedWeight& head = args.packed;
    head = {.dtype = dtype_,
            .packed = packed(),
            .k = args.columns,
            .n = kVocabulary,
            .num_panels = kVocabulary / kernels::kPanelColumns,
            .leaves = kernels::LeafBorders::Single(args.columns)};
    (void)bench_.Pieces(head.bytes());
    std::vector<const std::byte*> tiles;
    std::vector<kernels::PanelColumns> panels;
    for (int32_t p = 0; p < head.num_panels; ++p) {
      tiles.push_back(bench_.data().data + p * head.TileBytes(0, 0));
      panels.push_back({p * kernels::kPanelColumns, kernels::kPanelColumns});
    }
    head.tiles = bench_.Place(tiles);
    head.panels = bench_.Place(panels);
    int32_t* const tokens = args.batch.tokens;
    const int64_t rows = args.batch.num_rows;
    return bench_.SecondsOf([&](device::Stream& stream, int64_t i) {
      args.batch.tokens = tokens + i * rows % (kTokens - rows);
      kernels::Embed(stream, bench_.kernels(), args);
    });
  }

 private:
  static constexpr int32_t kVocabulary = 32768;

  static int32_t Rows(const cost::Point& point) { return static_cast<int32_t>(point[0]); }
  static int32_t Columns(const cost::Point& point) { return static_cast<int32_t>(point[1]); }
  const float* Floats() const { return reinterpret_cast<const float*>(bench_.data().data); }

  kernels::PackedForm packed() const {
    return dtype_ == tensor::DType::kBF16 ? bench_.kernels().packed : kernels::PackedForm::kPairs;
  }

  kernels::StepBatch Batch(int32_t sequences, int32_t rows_each) {
    std::vector<kernels::SequenceRows> listed;
    std::vector<int32_t> positions, row_sequence;
    const int32_t first = rows_each == 1 ? kernels::kBlockTokens / 2 : 0;  // somewhere in a block
    for (int32_t s = 0; s < sequences; ++s) {
      listed.push_back({s * rows_each, rows_each, first, s});
      for (int32_t i = 0; i < rows_each; ++i) {
        positions.push_back(first + i);
        row_sequence.push_back(s);
      }
    }
    kernels::StepBatch batch;
    batch.num_rows = sequences * rows_each;
    batch.num_sequences = sequences;
    batch.tokens = bench_.Place(tokens_);
    batch.positions = bench_.Place(positions);
    batch.row_sequence = bench_.Place(row_sequence);
    batch.sequences = bench_.Place(listed);
    batch.table_stride = (first + rows_each + kernels::kBlockTokens - 1) / kernels::kBlockTokens;
    std::vector<uint32_t> tables(static_cast<size_t>(sequences * batch.table_stride));
    std::iota(tables.begin(), tables.end(), 0u);
    batch.block_tables = bench_.Place(tables);
    return batch;
  }

  Bench& bench_;
  const tensor::DType dtype_;
  std::vector<int32_t> tokens_;
};

struct SampleArgs {
  const float* logits;  // [rows, vocab]
  int64_t rows, vocab;
  const SamplingParams* params;
  sample::SampleScratch* scratch;  // [workers]
};
void SampleRows(const SampleArgs& args, const device::WorkerContext& context) {
  sample::SampleInput input;
  input.params = args.params;
  for (int64_t i = context.ticket->fetch_add(1); i < args.rows; i = context.ticket->fetch_add(1)) {
    input.logits = {args.logits + i * args.vocab, static_cast<size_t>(args.vocab)};
    input.key.position = i;
    (void)sample::Sample(input, &args.scratch[context.worker]);
  }
}

// By kernels, whose tokens come back to the host.
double DrawSeconds(Bench& bench, const cost::Point& point, float temperature) {
  const auto rows = static_cast<int32_t>(point[0]), vocab = static_cast<int32_t>(point[1]);
  std::vector<kernels::DrawRow> draws;
  for (int32_t row = 0; row < rows; ++row)
    draws.push_back({.unit = 0.5, .temperature = temperature, .row = row, .sequence = row});
  const std::vector<int32_t> tokens(draws.size());
  bench.ClearTables();
  const kernels::DrawRowsArgs args{.logits = reinterpret_cast<const float*>(bench.data().data),
                                   .stride = vocab,
                                   .vocab = vocab,
                                   .num_draws = rows,
                                   .weighed_draws = temperature > 0 ? rows : 0,
                                   .draws = bench.Place(draws),
                                   .drawn = bench.Place(tokens),
                                   .sampled = bench.Place(tokens)};
  return bench.SecondsOf([&](device::Stream& stream, int64_t) {
    kernels::DrawRows(stream, bench.kernels(), args);
    stream.FetchControl(args.drawn, tokens.size() * sizeof(tokens[0]));
  });
}

double SampleSeconds(Bench& bench, const cost::Point& point, float temperature) {
  if (bench.kernels().draw_rows != nullptr) return DrawSeconds(bench, point, temperature);
  SamplingParams params;
  params.temperature = temperature;
  std::vector<sample::SampleScratch> scratch(bench.device().num_workers());
  const SampleArgs args{reinterpret_cast<const float*>(bench.data().data),
                        static_cast<int64_t>(point[0]), static_cast<int64_t>(point[1]), &params,
                        scratch.data()};
  return bench.SecondsOf([&](device::Stream& stream, int64_t) {
    stream.Enqueue(device::MakeOperation<&SampleRows>({.label = "sample"}, args));
  });
}

}  // namespace

void MeasureRows(Bench& bench, const ProgressFn& progress, cost::DeviceProfile* profile) {
  const Grid& grid = bench.grid();
  TableSpec spec;
  const auto measure = [&](cost::TableOp op, const TableGrid& points,
                           std::function<double(const cost::Point&)> seconds) {
    spec.op = op;
    spec.axes = points.axes;
    spec.seconds = std::move(seconds);
    profile->tables.push_back(MeasureTable(spec, points.held_out));
  };
  for (const auto& [dtype, format] : {std::pair(tensor::DType::kBF16, cost::NumberFormat::kBF16),
                                      std::pair(tensor::DType::kF32, cost::NumberFormat::kF32)}) {
    if (dtype == tensor::DType::kF32 && bench.bf16_alone()) break;
    RowCases rows(bench, dtype);
    spec.format = format;
    spec.grain = {1, kHeadDim, 0};
    measure(cost::TableOp::kNorm, grid.rows,
            [&](const cost::Point& point) { return rows.Norm(point); });
    measure(cost::TableOp::kEmbed, grid.rows,
            [&](const cost::Point& point) { return rows.Embed(point); });
    measure(cost::TableOp::kRopeKv, grid.rope,
            [&](const cost::Point& point) { return rows.RopeKv(point, false); });
    measure(cost::TableOp::kRopeKvDecode, grid.rope,
            [&](const cost::Point& point) { return rows.RopeKv(point, true); });
  }
  progress("norms, rope and embedding by rows and columns");
  spec.format = cost::NumberFormat::kF32;
  spec.grain = {1, 1024, 0};
  measure(cost::TableOp::kArgmax, grid.sample,
          [&](const cost::Point& point) { return SampleSeconds(bench, point, 0); });
  measure(cost::TableOp::kSample, grid.sample,
          [&](const cost::Point& point) { return SampleSeconds(bench, point, 1); });
  progress("sampling by rows and vocabulary");
  RowCases rows(bench, tensor::DType::kF32);
  spec.grain = {1, grid.recurrence.axes[1].front(), 0};
  measure(cost::TableOp::kRecurrence, grid.recurrence,
          [&](const cost::Point& point) { return rows.Recurrence(point); });
  progress("recurrences of layers with state by rows and states");
}

}  // namespace forebay::profile
