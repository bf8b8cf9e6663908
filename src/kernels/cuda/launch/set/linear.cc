// Linear layers, experts, and the sums of their planes.
#include <algorithm>

#include "kernels/cuda/launch/experts.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/launch/set/functions.h"
#include "kernels/cuda/launch/set/params.h"
#include "kernels/cuda/mma/params.h"

namespace forebay::kernels::cuda::set {
namespace {

static_assert(sizeof(PanelColumns) == 2 * sizeof(int32_t));
static_assert(kMostLeaves == kMaxLeaves);
static_assert(static_cast<int>(LinearOutput::kF32) == 0 &&
              static_cast<int>(LinearOutput::kPartial) == 4 &&
              static_cast<int>(LinearOutput::kReluSquared) == 9);

void FillWeight(const PackedWeight& weight, const device::WorkerContext& context,
                LinearParams* params) {
  params->element = ElementOf(weight.dtype);
  params->tiles = OnDevice(context, weight.tiles);
  params->tile_bytes = weight.TileBytes(0, 0);
  params->panels = reinterpret_cast<const int32_t*>(OnDevice(context, weight.panels));
  params->bias = OnDevice(context, weight.bias);
  params->num_panels = weight.num_panels;
  params->num_leaves = weight.leaves.num_leaves;
  std::copy_n(weight.leaves.begin, weight.leaves.num_leaves + 1, params->leaf_begin);
}

// The nodes whose sums are the outputs: the whole tree, or the planes of the leaves that count.
void FillNodes(const LinearArgs& args, LinearParams* params) {
  const LeafBorders& leaves = args.weight.leaves;
  if (args.output != LinearOutput::kPartial) {
    params->num_nodes = 1;
    params->nodes[0] = {0, leaves.num_leaves};
    return;
  }
  int first[kMaxLeaves], level[kMaxLeaves];
  params->num_nodes = PartialPlanes(leaves, args.leaf_begin, args.leaf_end, first, level);
  for (int node = 0; node < params->num_nodes; ++node) {
    const int end = std::min(first[node] + (1 << level[node]), leaves.tree_leaves());
    params->nodes[node] = {first[node] - leaves.leaves_before, end - first[node]};
  }
}

// Launches the plain kernel of the weight's form. Rows of `runs` experts are grouped, so that each
// may have a last tile that is short. Tiles lie along x: many rows of many heads have more than a
// GPU takes along y.
void LaunchPlain(const PackedWeight& weight, int64_t rows, int heads, int runs,
                 const LinearParams& params, const device::WorkerContext& context) {
  const bool plain = weight.packed == PackedForm::kCuda;
  const int tile = plain ? kPlainRows : kTileRows;
  const int tiles = static_cast<int>((rows + tile - 1) / tile) * heads + runs;
  LaunchShape shape{.blocks = {tiles, weight.num_panels, 1}, .threads = kPlainThreads};
  if (plain) {
    FB_LAUNCH("mma_linear_plain", shape, params);
    return;
  }
  shape.threads = kLinearThreads;
  shape.shared_bytes = kTileRows * kPanelColumns * static_cast<int>(sizeof(float));
  FB_LAUNCH("pair_linear", shape, params);
}

}  // namespace

void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  if (args.weight.packed == PackedForm::kCuda &&
      LaunchLinear(args, static_cast<const device::LaunchContext&>(context)))
    return;
  LinearParams params{};
  FillWeight(args.weight, context, &params);
  FillNodes(args, &params);
  params.output = static_cast<int32_t>(args.output);
  params.x = args.x;
  params.x_rows = args.x_rows;
  params.y = args.y;
  params.x_stride = args.x_stride;
  params.y_stride = args.y_stride;
  params.x_form = args.x_form;
  params.y_form = args.y_form;
  params.rows = args.rows;
  params.plane_stride = args.rows * args.y_stride;
  params.num_experts = 1;
  LaunchPlain(args.weight, args.rows, 1, 0, params, context);
}

void Experts(const ExpertsArgs& args, const device::WorkerContext& context) {
  if (args.weight.packed == PackedForm::kCuda &&
      LaunchExperts(args, static_cast<const device::LaunchContext&>(context)))
    return;
  LinearParams params{};
  FillWeight(args.weight, context, &params);
  params.num_nodes = 1;
  params.nodes[0] = {0, 1};
  params.output = static_cast<int32_t>(args.output);
  params.runs = args.heads() ? nullptr : OnDevice(context, args.runs);
  params.x = args.x;
  params.x_rows = args.x_rows;
  params.y = args.y;
  params.x_stride = args.x_stride;
  params.y_stride = args.y_stride;
  params.rows = args.max_rows;
  params.num_experts = args.num_experts;
  params.offsets = OnDevice(context, args.offsets);
  params.x_step = args.x_step;
  params.y_step = args.y_step;
  LaunchPlain(args.weight, args.max_rows, args.heads() ? args.num_experts : 1,
              args.heads() ? 0 : args.num_experts, params, context);
}

void Reduce(const ReduceArgs& args, const device::WorkerContext& context) {
  ReduceParams params{.element = ElementOf(args.dtype),
                      .output = static_cast<int32_t>(args.output),
                      .planes = {},
                      .merges = {},
                      .num_planes = args.num_planes,
                      .bias = OnDevice(context, args.bias),
                      .y = args.y,
                      .residual = args.residual,
                      .stride = args.stride,
                      .y_stride = args.y_stride,
                      .n = args.n};
  for (int plane = 0; plane < args.num_planes; ++plane) {
    params.planes[plane] = args.planes[plane].sums;
    params.merges[plane] = args.merges[plane];
  }
  LaunchShape shape = BlockARow(args.rows);
  shape.blocks[1] = (args.n + kRowThreads - 1) / kRowThreads;
  FB_LAUNCH("pair_reduce", shape, params);
}

}  // namespace forebay::kernels::cuda::set
