// How much of the running choices' KV lives below the device and streams back layer by layer under
// the compute (Vasuki, section 5.1). Pure.
//
// KV is append-only: a full block goes down once in its life. From then on every step copies every
// streamed byte up, into one of a few window slots:
//
//   copy      | up layer 0 | up layer 1 | up layer 2 | ...        waits for a slot's last kernels
//   compute            | layer 0 | layer 1 | layer 2 | ...        waits for its layer's bytes
//
// Copies continue across the step's border, so a step does not begin cold.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace forebay::kv {

// The seconds that a copy of `bytes` takes on an idle link. Monotonic, 0 for 0 bytes.
using CopySeconds = std::function<double(double bytes)>;

// What plans of one batch are judged by. All layers are alike.
struct OffloadCosts {
  int64_t num_layers = 0;
  double layer_seconds = 0;  // compute of a layer, with everything resident
  double layer_bytes = 0;    // KV of the batch in one layer
  CopySeconds up;            // from the tier to the device
};

// What lives below.
struct OffloadPlan {
  int64_t kept_layers = 0;     // the last ones, wholly resident
  int64_t slots = 0;           // slots of the window; one holds the streamed bytes of a layer
  double streamed_bytes = 0;   // bytes of each other layer: X
  double copy_seconds = 0;     // copies of a step
  double step_seconds = 0;     // predicted, waits included
  double exposed_seconds = 0;  // while compute waits for a copy

  // Bytes of the device that the plan frees; less than 0 where the window takes more.
  double saved_bytes(const OffloadCosts& costs) const;
};

// Fills the three times: walks a steady cycle of steps through the slots. REQUIRES: slots >= 1
// where something is streamed; 0 <= kept_layers <= num_layers.
OffloadPlan JudgeOffload(const OffloadCosts& costs, OffloadPlan plan);

// The largest plan of its kind whose copies stay hidden (exposed time at most `tolerance` of the
// step). If nothing stays hidden, the plan streams nothing.
//   Uniform: X bytes of every layer, to within one of `grains` equal parts of a layer.
//   KeepSome (the paper's algorithm 1): whole layers, as many as can come back while the kept ones
//     compute.
//   StreamAll (its algorithm 2): all layers whole, through the window; all or nothing.
OffloadPlan PlanUniform(const OffloadCosts& costs, int64_t slots, double tolerance, int64_t grains);
OffloadPlan PlanKeepSome(const OffloadCosts& costs, int64_t slots, double tolerance);
OffloadPlan PlanStreamAll(const OffloadCosts& costs, int64_t slots, double tolerance);

// The paper's listings as printed, for the record: they price a layer's window by the whole batch's
// time, both ways of every copy in every step, and end their search one candidate early.
struct PrintedCosts {
  int64_t num_layers = 0;
  double batch_seconds = 0;  // "exec_time": of the whole batch, though line 10 multiplies by layers
  double layer_bytes = 0;
  CopySeconds down, up;
  double alloc_seconds = 0;  // allocation and release for one request and layer
  int64_t num_requests = 0;
};
struct PrintedLayers {
  int64_t raw = 0;     // what the listing returns, also where that is no number of layers
  int64_t layers = 0;  // raw, or 0 where it is below
  bool clamped = false;
};
PrintedLayers PrintedAlgorithm1(const PrintedCosts& costs);
PrintedLayers PrintedAlgorithm2(const PrintedCosts& costs);
// What the tests of the listings allow when every candidate is tried.
int64_t ExactAlgorithm1(const PrintedCosts& costs);
int64_t ExactAlgorithm2(const PrintedCosts& costs);

}  // namespace forebay::kv
