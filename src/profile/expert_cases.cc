#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/experts.h"
#include "profile/cases.h"
#include "profile/measure_table.h"

namespace forebay::profile {
namespace {

using kernels::LinearOutput;

// Gate and up (multiplied) and down of so many experts in turn, both with a point's weights. Each
// operation takes the next experts in `data`, so that their weights come from memory.
class ExpertCase {
 public:
  ExpertCase(Bench& bench, kernels::TileForm form) : bench_(bench), tile_form_(form) {}

  // Seconds of an expert's share.
  double Seconds(const cost::Point& point) {
    bench_.ClearTables();
    const std::vector<int32_t> offsets = Deal(static_cast<int32_t>(point[0]), point[1]);
    const int32_t* const placed = bench_.Place(offsets);
    const auto side = static_cast<int32_t>(std::lround(std::sqrt(2 * point[2])));
    MakeForm(LinearOutput::kSiluMul, side / 2, side, &forms_[0]);
    MakeForm(LinearOutput::kRounded, side, side / 2, &forms_[1]);
    const int32_t rows = offsets.back();
    const int64_t x_bytes = int64_t{rows} * side * static_cast<int64_t>(sizeof(tensor::BF16));
    const int64_t outputs = std::max<int64_t>(1, kOutputsBytes / x_bytes);
    const double seconds =
        bench_.SecondsAfterInput(x_bytes, [&](device::Stream& stream, int64_t i) {
          const Form& form = forms_[i % 2];
          kernels::ExpertsArgs args;
          args.weight = form.weight;
          args.runs = form.runs + i % form.batches * kExperts;
          args.offsets = placed;
          args.num_experts = kExperts;
          args.max_rows = rows;
          args.x = bench_.input().data;
          args.y = bench_.output().data + i % outputs * x_bytes;
          args.x_stride = form.weight.k;
          args.y_stride = form.weight.n;
          args.output = form.output;
          kernels::Experts(stream, bench_.kernels(), "experts", args);
        });
    return seconds / kExperts;
  }

 private:
  static constexpr int32_t kExperts = 8;
  static constexpr int64_t kOutputsBytes = 16 << 20;  // far more than the cores' own caches
  struct Form {
    LinearOutput output;
    kernels::PackedWeight weight;
    const std::byte* const* runs;  // [batches, kExperts]
    int64_t batches;
  };

  // One expert has `skew` times the mean, the others share the rest, at least a row each.
  static std::vector<int32_t> Deal(int32_t mean, double skew) {
    const auto busiest = static_cast<int32_t>(std::lround(mean * skew));
    const int32_t rest = std::max(kExperts * mean - busiest, kExperts - 1);
    std::vector<int32_t> offsets = {0, busiest};
    for (int32_t i = 1; i < kExperts; ++i) offsets.push_back(busiest + rest * i / (kExperts - 1));
    return offsets;
  }

  void MakeForm(LinearOutput output, int32_t columns, int32_t k, Form* form) const {
    const bool gated = output == LinearOutput::kSiluMul;
    const int32_t width = gated ? kernels::kPanelColumns / 2 : kernels::kPanelColumns;
    form->output = output;
    form->weight = {.form = tile_form_,
                    .packed = tile_form_ == kernels::TileForm::kExpanded
                                  ? bench_.kernels().packed
                                  : kernels::PackedForm::kPairs,
                    .k = k,
                    .n = gated ? columns / 2 : columns,
                    .num_panels = columns / kernels::kPanelColumns,
                    .leaves = kernels::LeafBorders::Single(k)};
    std::vector<kernels::PanelColumns> panels;
    for (int32_t p = 0; p < form->weight.num_panels; ++p) panels.push_back({p * width, width});
    form->weight.panels = bench_.Place(panels);
    const int64_t bytes = form->weight.bytes();
    form->batches = bench_.Pieces(bytes * kExperts);
    std::vector<const std::byte*> runs;
    for (int64_t run = 0; run < form->batches * kExperts; ++run)
      runs.push_back(bench_.data().data + run * bytes);
    form->runs = bench_.Place(runs);
  }

  Bench& bench_;
  const kernels::TileForm tile_form_;
  Form forms_[2];
};

}  // namespace

cost::UtilisationTable MeasureExpertTable(Bench& bench, cost::NumberFormat format,
                                          const std::array<std::vector<double>, 3>& axes,
                                          int held_out) {
  ExpertCase experts(bench, format == cost::NumberFormat::kInt4   ? kernels::TileForm::kQ4_0
                            : format == cost::NumberFormat::kInt8 ? kernels::TileForm::kW8A8
                                                                  : kernels::TileForm::kExpanded);
  TableSpec spec;
  spec.op = cost::TableOp::kExperts;
  spec.format = format;
  spec.axes = axes;
  spec.grain = {1, 0, 0};
  spec.seconds = [&](const cost::Point& point) { return experts.Seconds(point); };
  return MeasureTable(spec, held_out);
}

void MeasureExperts(Bench& bench, const ProgressFn& progress, cost::DeviceProfile* profile) {
  for (const cost::NumberFormat format :
       {cost::NumberFormat::kBF16, cost::NumberFormat::kInt4, cost::NumberFormat::kInt8}) {
    const bool is_bf16 = format == cost::NumberFormat::kBF16;
    if (!is_bf16 && bench.bf16_alone()) break;
    const TableGrid& grid = is_bf16 ? bench.grid().experts : bench.grid().stored_experts;
    profile->tables.push_back(MeasureExpertTable(bench, format, grid.axes, grid.held_out));
    progress(
        fmt::format("grouped experts of {} weights by rows, skew and weights", cost::Name(format)));
  }
}

}  // namespace forebay::profile
