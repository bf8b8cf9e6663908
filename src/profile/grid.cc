#include "profile/grid.h"

#include "base/units.h"

namespace forebay::profile {
namespace {

using base::kGiB, base::kMiB;

// The values of an expert's matrix of side x side / 2.
constexpr double WeightsOf(double side) { return side * side / 2; }

constexpr double kHead = 128 * 128;  // elements of a state's matrix

}  // namespace

Grid CpuGrid(bool quick) {
  const TableGrid few_linears = {
      {{{1, 4, 8, 16, 32, 64, 128, 512}, {512, 1024, 2048, 8192}, {512, 1024, 4096}}}, 6};
  const TableGrid few_decodes = {{{{1, 8, 128}, {32, 256, 1024}, {1, 4}}}, 5};
  const TableGrid few_prefills = {{{{8, 32}, {16, 128, 512}, {1, 4}}}, 4};
  const int held_out = quick ? 3 : 8;
  Grid grid{
      .data_bytes = 640 * kMiB,
      .input_bytes = 64 * kMiB,
      .output_bytes = 160 * kMiB,
      .workspace_bytes = 32 * kMiB,
      .table_bytes = 8 * kMiB,
      .samples = quick ? 5 : 7,
      .copy_samples = quick ? 5 : 9,
      .sample_seconds = quick ? 1.5e-3 : 3e-3,
      .write_seconds = quick ? 1e-3 : 1.5e-3,
      .copy_bytes = quick ? 16e6 : 64e6,
      .disk_bytes = (quick ? 64 : 512) * kMiB,
      .linear = few_linears,
      .f32_linear = few_linears,
      .stored_linear = {{{{1, 4, 16, 64, 256}, {1024, 4096}, {1024, 4096}}}, 6},
      .experts =
          {{{{1, 4, 16, 64, 256}, {1, 4}, {WeightsOf(1024), WeightsOf(2048), WeightsOf(4096)}}}, 3},
      .stored_experts = {{{{1, 4, 16, 64, 256}, {1, 4}, {WeightsOf(1024), WeightsOf(4096)}}}, 3},
      .decode = few_decodes,
      .shared = {{{{16, 128}, {64, 512}, {1, 4}}}, 2},
      .prefill = few_prefills,
      .other_decode = few_decodes,
      .other_prefill = few_prefills,
      .rows = {{{{1, 8, 64, 512}, {512, 1024, 4096}, {1}}}, held_out},
      .rope = {{{{1, 4, 16, 64, 512}, {128, 512, 1024}, {1, 2, 8}}}, held_out},
      .sample = {{{{1, 2, 16, 128}, {32768, 131072}, {1}}}, held_out},
      .recurrence = {{{{1, 8, 64}, {16 * kHead, 128 * kHead}, {1}}}, held_out},
      .copies = {{{{4096, 65536, 1 << 20, 16 << 20}, {1, 2, 3}, {1}}}, held_out},
      .step_sequences = 128,
      .step_tokens = 256};
  if (quick) return grid;
  grid.linear = {{{{1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024},
                   {512, 1024, 2048, 4096, 8192},
                   {512, 1024, 2048, 4096}}},
                 24};
  grid.experts.axes[0] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  grid.experts.held_out = 12;
  grid.decode = {{{{1, 2, 4, 8, 16, 64, 256}, {32, 128, 512, 2048}, {1, 2, 4, 8}}}, 16};
  grid.shared = {{{{8, 32, 128}, {64, 512, 2048}, {1, 4}}}, 6};
  grid.prefill = {{{{8, 32}, {8, 32, 128, 512, 2048}, {1, 2, 4, 8}}}, 12};
  return grid;
}

Grid GpuGrid(bool quick) {
  const int held_out = quick ? 3 : 8;
  Grid grid{
      .data_bytes = 2 * kGiB,
      .input_bytes = 512 * kMiB,
      .output_bytes = kGiB,
      .workspace_bytes = 192 * kMiB,
      .table_bytes = 8 * kMiB,
      .host_bytes = 128 * kMiB,
      .samples = quick ? 5 : 7,
      .copy_samples = 5,
      .sample_seconds = quick ? 1.5e-3 : 3e-3,
      .copy_bytes = 256e6,
      .disk_bytes = (quick ? 64 : 512) * kMiB,
      .scratch_bytes = 64 * kMiB,  // a rank's kernels have at most so much
      .fma_blocks = 16896,         // 8 of 256 threads a multiprocessor, 16 times over on an H100
      .fma_rounds = 2048,
      .read_bytes = static_cast<int64_t>(kGiB),
      .peak_linear = {8192, 8192, 8192},
      .linear = {{{{1, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 4096},
                   {1024, 4096, 16384, 65536},
                   {512, 1024, 4096}}},
                 8},
      .experts = {{{{1, 4, 16, 64, 256}, {1, 4}, {WeightsOf(1024), WeightsOf(4096)}}}, held_out},
      .decode = {{{{1, 16, 128, 512}, {64, 256, 1024, 4096}, {1, 2, 8}}}, 4},
      .shared = {{{{16, 128}, {64, 512}, {1, 8}}}, 2},
      .prefill = {{{{8, 64, 512}, {32, 128, 512, 2048}, {1, 2, 8}}}, 4},
      .rows = {{{{1, 8, 64, 512, 4096}, {512, 1024, 4096}, {1}}}, held_out},
      .rope = {{{{1, 8, 64, 256, 1024, 4096}, {128, 512, 1024}, {1, 2, 8}}}, held_out},
      .sample = {{{{1, 8, 64}, {32768, 131072}, {1}}}, held_out},
      .recurrence = {{{{1, 8, 64, 512}, {16 * kHead, 128 * kHead, 1024 * kHead}, {1}}}, held_out},
      .copies = {{{{65536, 1 << 20, 16 << 20, 64 << 20}, {1}, {1}}}, held_out},
      .step_sequences = 128,
      .step_tokens = quick ? 64 : 256};
  if (quick) return grid;
  grid.linear = {{{{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096},
                   {512, 1024, 2048, 4096, 8192, 28672, 65536},
                   {512, 1024, 2048, 4096, 14336}}},
                 24};
  grid.experts = {{{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
                    {1, 4},
                    {WeightsOf(1024), WeightsOf(2048), WeightsOf(4096)}}},
                  12};
  grid.decode = {{{{1, 4, 16, 64, 256, 512}, {32, 128, 512, 1024, 4096}, {1, 2, 4, 8}}}, 16};
  grid.shared = {{{{8, 32, 128, 512}, {64, 512, 2048}, {1, 4, 8}}}, 6};
  grid.prefill = {{{{8, 32, 128, 512}, {16, 64, 256, 1024, 4096}, {1, 2, 4, 8}}}, 12};
  return grid;
}

}  // namespace forebay::profile
