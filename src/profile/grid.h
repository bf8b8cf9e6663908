// At which shapes a device is measured, how long, and with how much memory. Plain values: change
// them, as tests do.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace forebay::profile {

// The points of a table, and how many others tell how well it interpolates.
struct TableGrid {
  std::array<std::vector<double>, 3> axes;
  int held_out = 0;
};

struct Grid {
  // Bench's regions. `data` shall be far larger than the caches where its times are to hold.
  uint64_t data_bytes = 0, input_bytes = 0, output_bytes = 0, workspace_bytes = 0, table_bytes = 0;
  uint64_t host_bytes = 0;  // of pinned memory, where a device does not reach the host's own

  // Of one time: how often it is taken, and how long operations run each time, or how much copies
  // move.
  int samples = 1, copy_samples = 1;
  double sample_seconds = 0, write_seconds = 0;  // writing alone: Bench::SecondsAfterInput
  double copy_bytes = 0;
  uint64_t disk_bytes = 0;

  // GPUs: what their kernels have to themselves, and what their peaks are measured with.
  uint64_t scratch_bytes = 0;
  int fma_blocks = 0;
  int64_t fma_rounds = 0;
  int64_t read_bytes = 0;
  std::array<double, 3> peak_linear = {};  // rows, n, k

  TableGrid linear;         // of bf16
  TableGrid f32_linear;     // of fp32
  TableGrid stored_linear;  // of stored weights
  TableGrid experts;        // of bf16; weights are side * side / 2 of an even side
  TableGrid stored_experts;
  TableGrid decode, shared, prefill;      // over caches of bf16
  TableGrid other_decode, other_prefill;  // of int8 and fp32
  TableGrid rows;                         // norms and embedding
  TableGrid rope;
  TableGrid sample;
  TableGrid recurrence;
  TableGrid copies;

  int step_sequences = 0, step_tokens = 0;  // of the model whose steps are overhead alone
};

// `quick`: fewer points, shorter samples.
Grid CpuGrid(bool quick);
Grid GpuGrid(bool quick);

}  // namespace forebay::profile
