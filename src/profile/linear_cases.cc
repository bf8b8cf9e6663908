#include <algorithm>

#include "kernels/linear.h"
#include "profile/cases.h"
#include "profile/measure_table.h"

namespace forebay::profile {
namespace {

using kernels::LinearOutput;

// A form of weights that is measured, and what the profile calls it. Stored ones stand for those of
// about their bytes (cost/model.cc).
struct MeasuredForm {
  tensor::DType dtype;
  kernels::TileForm form;
  cost::NumberFormat format;
};
constexpr MeasuredForm kForms[] = {
    {tensor::DType::kBF16, kernels::TileForm::kExpanded, cost::NumberFormat::kBF16},
    {tensor::DType::kBF16, kernels::TileForm::kQ4_0, cost::NumberFormat::kInt4},
    {tensor::DType::kBF16, kernels::TileForm::kQ8_0, cost::NumberFormat::kQ8},
    {tensor::DType::kBF16, kernels::TileForm::kF8Row, cost::NumberFormat::kFP8},
    {tensor::DType::kBF16, kernels::TileForm::kW8A8, cost::NumberFormat::kInt8},
    {tensor::DType::kF32, kernels::TileForm::kExpanded, cost::NumberFormat::kF32}};

// Linear layers as a layer program has them: qkv (fp32 sums) and gate and up (multiplied) in turn,
// or the output and down projections (leaves, added to the residual stream). Their weights come
// from memory: each operation takes the next in `data`.
class LinearCase {
 public:
  LinearCase(Bench& bench, const MeasuredForm& measured, cost::TableOp op)
      : bench_(bench),
        dtype_(measured.dtype),
        tile_form_(measured.form),
        forms_(op == cost::TableOp::kLinearLeaves ? 1 : 2) {}

  double Seconds(const cost::Point& point) {
    const auto rows = static_cast<int32_t>(point[0]), n = static_cast<int32_t>(point[1]),
               k = static_cast<int32_t>(point[2]);
    Prepare(n, k);
    // Sums that others have read since they were last written lie in no own cache for writing.
    const int64_t y_bytes = int64_t{rows} * n * static_cast<int64_t>(sizeof(float));
    const int64_t outputs = std::max<int64_t>(1, kOutputsBytes / y_bytes);
    return bench_.SecondsAfterInput(
        int64_t{rows} * k * static_cast<int64_t>(tensor::SizeOf(dtype_)),
        [&](device::Stream& stream, int64_t i) {
          const auto number = static_cast<int64_t>(forms_.size());
          const Form& form = forms_[i % number];
          kernels::LinearArgs args;
          args.weight = form.weight;
          args.weight.tiles +=
              i % form.num_weights * form.weight.num_panels * form.weight.leaves.num_leaves;
          args.x = bench_.input().data;
          args.y = bench_.output().data + i % outputs * y_bytes;
          args.x_stride = k;
          args.y_stride = form.weight.n;
          args.rows = rows;
          args.output = form.output;
          args.leaf_end = form.weight.leaves.num_leaves;
          args.workspace = bench_.workspace().data;
          kernels::Linear(stream, bench_.kernels(), "linear", args);
        });
  }

 private:
  static constexpr int64_t kOutputsBytes = 16 << 20;  // far more than the cores' own caches
  struct Form {
    LinearOutput output;
    kernels::PackedWeight weight;  // with the tiles of num_weights weights, one after another
    int64_t num_weights;
  };

  void Prepare(int32_t n, int32_t k) {
    bench_.ClearTables();
    if (forms_.size() == 1)
      return MakeForm(LinearOutput::kResidual, n, kernels::LeafBorders::ForDown(k), &forms_[0]);
    const auto single = kernels::LeafBorders::Single(k);
    MakeForm(LinearOutput::kF32, n, single, &forms_[0]);
    MakeForm(LinearOutput::kSiluMul, n, single, &forms_[1]);
  }

  void MakeForm(LinearOutput output, int32_t n, const kernels::LeafBorders& leaves,
                Form* form) const {
    const bool gated = output == LinearOutput::kSiluMul;
    const int32_t width = gated ? kernels::kPanelColumns / 2 : kernels::kPanelColumns;
    form->output = output;
    form->weight = {.dtype = dtype_,
                    .form = tile_form_,
                    .packed = packed(),
                    .k = leaves.begin[leaves.num_leaves],
                    .n = gated ? n / 2 : n,
                    .num_panels = n / kernels::kPanelColumns,
                    .leaves = leaves};
    std::vector<kernels::PanelColumns> panels;
    for (int32_t p = 0; p < form->weight.num_panels; ++p) panels.push_back({p * width, width});
    form->weight.panels = bench_.Place(panels);
    FillTiles(form);
  }

  // As many weights as `data` holds, one after another.
  void FillTiles(Form* form) const {
    kernels::PackedWeight& weight = form->weight;
    form->num_weights = bench_.Pieces(weight.bytes());
    std::vector<const std::byte*> tiles;
    const std::byte* at = bench_.data().data;
    for (int64_t w = 0; w < form->num_weights; ++w) {
      for (int leaf = 0; leaf < weight.leaves.num_leaves; ++leaf) {
        for (int32_t p = 0; p < weight.num_panels; ++p, at += weight.TileBytes(leaf, p))
          tiles.push_back(at);
      }
    }
    weight.tiles = bench_.Place(tiles);
  }
  kernels::PackedForm packed() const {
    return dtype_ == tensor::DType::kBF16 && tile_form_ == kernels::TileForm::kExpanded
               ? bench_.kernels().packed
               : kernels::PackedForm::kPairs;
  }

  Bench& bench_;
  const tensor::DType dtype_;
  const kernels::TileForm tile_form_;
  std::vector<Form> forms_;
};

}  // namespace

double LinearSeconds(Bench& bench, const cost::Point& point) {
  return LinearCase(bench, kForms[0], cost::TableOp::kLinear).Seconds(point);
}

void MeasureLinears(Bench& bench, const ProgressFn& progress, cost::DeviceProfile* profile) {
  constexpr cost::TableOp kOps[] = {cost::TableOp::kLinear, cost::TableOp::kLinearLeaves};
  for (const MeasuredForm& measured : kForms) {
    const bool is_bf16 = measured.format == cost::NumberFormat::kBF16;
    if (!is_bf16 && bench.bf16_alone()) break;
    TableSpec spec;
    spec.format = measured.format;
    spec.grain = {1, static_cast<double>(kernels::kPanelColumns * bench.device().num_workers()),
                  64};
    const TableGrid& grid = is_bf16                                 ? bench.grid().linear
                            : measured.dtype == tensor::DType::kF32 ? bench.grid().f32_linear
                                                                    : bench.grid().stored_linear;
    spec.axes = grid.axes;
    for (const cost::TableOp op : kOps) {
      LinearCase linear(bench, measured, op);
      spec.op = op;
      spec.seconds = [&](const cost::Point& point) { return linear.Seconds(point); };
      profile->tables.push_back(MeasureTable(spec, grid.held_out));
    }
    progress(
        fmt::format("linear layers of {} weights by rows and shape", cost::Name(measured.format)));
  }
}

}  // namespace forebay::profile
